"""One gate in each ROS domain and namespace of a machine.

A second graph there would share the first one's clock, person and arm: a demo that is started
beside an arm at work would stop the arm, and a rehearsal would send to the arm's own controller.

The gate keeps a name (`system.ports`). Such names belong to the network, as discovery does:
containers with networks of their own do not meet.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from robot_rl.errors import SetupError
from robot_rl.ros.graph import Graph, free_domain
from robot_rl.system.ports import address_of, keep_name

ENDS_S = 5.0  # wall; the gate of a run that has just been killed is about to end


@contextmanager
def sole_gate(domain_id: int, namespace: str) -> Iterator[None]:
    """Be the only gate there meanwhile.

    Raises:
        SetupError: there is one, and it does not end.
    """
    with _taken(domain_id, namespace):
        yield


def need_no_gate(graph: Graph, domain_id: int | None) -> None:
    """Refuse a graph whose gate would be the second one of its domain and namespace.

    domain_id: None = that of the shell.

    Raises:
        SetupError: there is one, and it does not end.
    """
    if domain_id is None:
        domain_id = int(os.environ.get("ROS_DOMAIN_ID") or 0)
    for spec in graph:
        if spec.kind == "gate":
            _taken(domain_id, spec.namespace).close()


def _taken(domain_id: int, namespace: str) -> socket.socket:
    """The name, as a socket that keeps it. Raises `SetupError`."""
    namespace = namespace.strip("/")
    name = f"gate/{domain_id}/{namespace}"
    give_up_s = time.monotonic() + ENDS_S
    while True:
        try:
            return keep_name(name)
        except OSError as error:
            if time.monotonic() < give_up_s:
                time.sleep(0.05)
                continue
            where = f", namespace {namespace}" if namespace else ""
            raise SetupError(
                f"another graph is at work in ROS domain {domain_id}{where}",
                expected="one gate in a domain and namespace: two would take each other's arm",
                got=_who(name),
                fix=f"end that one, or add ros.domain_id={free_domain()} to this command",
            ) from error


def _who(name: str) -> str:
    """The gate that has the name, as far as this machine tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        with suppress(OSError):
            asking.connect(address_of(name))
            found = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, _, _ = struct.unpack("3i", found)
            return f"the gate of {_run_of(pid)}, process {pid}"
    return "a gate that does not tell who it is"


def _run_of(pid: int) -> str:
    """The run folder of a gate, which has its parameters there."""
    with suppress(OSError):
        process = Path(f"/proc/{pid}")
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        files = [p for p in map(Path, words) if p.parent.name == "ros" and p.suffix == ".yaml"]
        if files:
            return str((process / "cwd").readlink() / files[0].parent.parent)
    return "a run"
