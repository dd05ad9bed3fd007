"""Two machines and the network between them, on one: network namespaces, or loopback addresses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

REPO = Path(__file__).resolve().parents[2]


@dataclass
class Machines:
    """Where the two machines and the network are, and how a process is started on each."""

    kind: str
    network: str  # address that the robot's machine knows
    learner: str  # address on which the learner's machine listens
    inside: dict[str, list[str]] = field(default_factory=dict)  # words that begin each command
    cable: list[str] = field(default_factory=list)  # `ip` words for the robot's end of the network

    def unplug(self, *, down: bool) -> bool:
        """Pull the robot's network cable, or put it back; False where there is none."""
        if self.cable:
            subprocess.run([*self.cable, "down" if down else "up"], check=True)
        return bool(self.cable)

    def start(
        self, where: str, words: Sequence[str], folder: Path, errors: IO[bytes] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command on "robot", "wire" or "learner", with its own HOME and folder."""
        folder.mkdir(parents=True, exist_ok=True)
        path = f"{REPO}:{REPO / 'sim'}:{REPO / 'hardware'}"
        env = os.environ | {"HOME": str(folder), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [*self.inside.get(where, []), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env=env | {"ROBOT_RL_DISK_RESERVE_BYTES": "0"},
        )


def python(module: str, *words: object) -> list[str]:
    """Command line of a module of ours."""
    return [sys.executable, "-m", module, *map(str, words)]


@contextmanager
def two_machines() -> Iterator[Machines]:
    """Network namespaces where this user may make them, else addresses of the loopback device."""
    prefix = f"rrl{os.getpid()}"
    names = {where: f"{prefix}{where[0]}" for where in ("robot", "wire", "learner")}
    try:
        joined = _namespaces(names)
        if joined is not None:
            yield joined
        else:
            yield Machines("loopback aliases", "127.0.0.2", "127.0.0.3")
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _namespaces(names: dict[str, str]) -> Machines | None:
    """robot -- wire -- learner, two veth pairs; None where that is not allowed."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return None
    robot, wire, learner = names["robot"], names["wire"], names["learner"]
    commands = [f"netns add {name}" for name in names.values()]
    for end, net in ((robot, 1), (learner, 2)):
        commands += [
            f"-n {wire} link add to{net} type veth peer name eth0 netns {end}",
            f"-n {wire} addr add 10.77.{net}.2/24 dev to{net}",
            f"-n {wire} link set to{net} up",
            f"-n {end} addr add 10.77.{net}.1/24 dev eth0",
            f"-n {end} link set eth0 up",
        ]
    commands += [f"-n {name} link set lo up" for name in names.values()]
    for words in commands:
        if subprocess.run(["ip", *words.split()], capture_output=True, check=False).returncode:
            return None
    inside = {where: ["ip", "netns", "exec", name] for where, name in names.items()}
    cable = ["ip", "-n", wire, "link", "set", "to1"]
    return Machines("network namespaces", "10.77.1.2", "10.77.2.1", inside, cable)
