"""`robot-rl up`: the graph as plain supervised processes, without ros2cli or launch.

Starts in order, restarts with back-off, logs per process in the run folder, cleans Fast DDS shared
memory around the run, and stops drivers first, the arm last. Each process gets its turn to end. One
that takes longer on a loaded machine may go on ending while the next is asked; only a process that
is still there at the very end is killed.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from robot_rl.errors import SetupError
from robot_rl.ros.graph import (
    BY_PROFILE,
    CONTROL_PROFILE,
    EXIT_SETUP,
    IMAGE_PROFILE,
    LOCALHOST,
    MAX_DOMAIN,
    PROFILE_VARIABLE,
    RANGE_VARIABLE,
    Graph,
    NodeSpec,
    is_local_by_profile,
    module_of,
    ros_arguments,
    stop_order,
)
from robot_rl.ros.sole import need_no_gate
from robot_rl.system.priority import give_way
from robot_rl.system.supervised import SUPERVISOR_PID

log = logging.getLogger(__name__)

GRACE_S = 15.0  # from the last request to end until a kill: a quiet machine takes a tenth
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.2, 5.0
HEALTHY_S = 10.0  # up this long: the back-off starts from its minimum again
MAX_RESTARTS = 20  # in a row without ever being healthy: a broken node, not a bad moment
CHOSEN_BY_PERSON = (RANGE_VARIABLE, PROFILE_VARIABLE)  # if set: kept
BOOTSTRAP_GUARD = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"  # see `environment`


@dataclass(slots=True)
class _Process:
    spec: NodeSpec
    popen: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    failures: int = 0
    restarts: int = 0
    restart_at_s: float | None = None
    log_file: IO[bytes] | None = None
    history: list[int] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None


@dataclass(frozen=True, slots=True)
class Exit:
    """A process ended without being asked.

    restart_in_s: None when it is not started again (its work is done; `EXIT_SETUP` = a restart
    changes nothing; too many failures). fatal: that ends the run, because it is critical.
    """

    name: str
    code: int
    restart_in_s: float | None
    fatal: bool


def node_environment(spec: NodeSpec, given: Mapping[str, str]) -> dict[str, str]:
    """What a node needs in its environment beyond `given`, whoever starts it.

    What a person has chosen (`CHOSEN_BY_PERSON`) is kept.
    """
    needed = {
        RANGE_VARIABLE: BY_PROFILE if is_local_by_profile(given) else LOCALHOST,
        PROFILE_VARIABLE: CONTROL_PROFILE,
        "OMP_NUM_THREADS": "1",  # five processes share the cores; their matrices are tiny
        "PYTHONUNBUFFERED": "1",  # a killed process still leaves its last log lines
        **spec.env,
    }
    own = (None, CONTROL_PROFILE, IMAGE_PROFILE)  # a node above us may have set these by itself
    own += (LOCALHOST, BY_PROFILE) if is_local_by_profile(given) else ()
    kept = {k for k in CHOSEN_BY_PERSON if given.get(k) not in own}
    return {k: v for k, v in needed.items() if k not in kept}


def environment(spec: NodeSpec, domain_id: int | None) -> dict[str, str]:
    """Environment of one node.

    Another interpreter must not inherit the wheels' bootstrap guard and library path: it would load
    this environment's Fast DDS instead of its own.
    """
    env = dict(os.environ)
    if spec.python is not None and spec.python != sys.executable:
        env.pop(BOOTSTRAP_GUARD, None)
        env.pop("LD_LIBRARY_PATH", None)
    env |= node_environment(spec, env)
    env[SUPERVISOR_PID] = str(os.getpid())
    if domain_id is not None:
        env["ROS_DOMAIN_ID"] = str(domain_id)
    return env


def write_parameters(spec: NodeSpec, run_dir: Path) -> Path:
    """Write the parameters of a node into the run folder, for `--params-file`; return the file."""
    path = run_dir / "ros" / f"{spec.label}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": dict(spec.params)}}, sort_keys=True))
    return path


def clean_shared_memory() -> None:
    """Remove Fast DDS segments that killed processes left in /dev/shm (living ones stay)."""
    tool = shutil.which("fastdds", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH')}")
    if tool is None:
        log.warning("no 'fastdds' tool here: segments of killed nodes stay in /dev/shm")
        return
    try:
        subprocess.run([tool, "shm", "clean"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("fastdds shm clean failed: %s", error)


class Supervisor:
    """Runs a graph. Use as a context manager, or `start`, `poll` about ten times a second, `stop`.

    Args:
        run_dir: logs go to `<run_dir>/logs/<node>.log`, parameters to `<run_dir>/ros/<node>.yaml`.
        domain_id: ROS_DOMAIN_ID of all nodes; None keeps the caller's.

    Raises:
        SetupError: domain id out of range, or two nodes with one name.
    """

    def __init__(self, graph: Graph, run_dir: Path, domain_id: int | None = None) -> None:
        if domain_id is not None and not 0 <= domain_id <= MAX_DOMAIN:
            raise SetupError(
                "impossible ROS domain id",
                expected=f"0 to {MAX_DOMAIN}",
                got=str(domain_id),
                fix="choose another domain_id",
            )
        names = [spec.label for spec in graph]
        if len(set(names)) != len(names):
            raise SetupError(
                "two nodes of the graph have one name",
                expected="unique names",
                got=", ".join(names),
                fix="rename one of them",
            )
        self.graph, self.run_dir, self.domain_id = graph, Path(run_dir), domain_id
        self._processes = {spec.label: _Process(spec) for spec in graph}
        self._suspend: Any = None  # what Ctrl-Z did before

    def __enter__(self) -> Supervisor:
        self.start()
        if threading.current_thread() is threading.main_thread():
            self._suspend = signal.signal(signal.SIGTSTP, _stay_awake)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            if self._suspend is not None:
                signal.signal(signal.SIGTSTP, self._suspend)

    def start(self) -> None:
        """Start every node, in the order of the graph.

        Raises:
            SetupError: another graph is at work in the domain (`sole`).
        """
        need_no_gate(self.graph, self.domain_id)
        self._clean()
        (self.run_dir / "logs").mkdir(parents=True, exist_ok=True)
        for process in self._processes.values():
            self._spawn(process)

    def _spawn(self, process: _Process) -> None:
        spec = process.spec
        if process.log_file is None:
            process.log_file = (self.run_dir / "logs" / f"{spec.label}.log").open("ab")
        arguments = spec.arguments
        if arguments is None:
            params_file = write_parameters(spec, self.run_dir)
            arguments = tuple(ros_arguments(spec, str(params_file)))
        command = [spec.python or sys.executable, *module_of(spec), *arguments]
        process.popen = subprocess.Popen(
            ["nice", "-n", str(spec.nice), *command] if spec.nice else command,
            env=environment(spec, self.domain_id),
            stdin=subprocess.DEVNULL,
            stdout=process.log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us only: we stop them in order
        )
        if spec.nice:
            give_way(process.popen.pid, spec.nice)
        process.started_s, process.restart_at_s = time.monotonic(), None
        log.info("started %s, pid %d", spec.label, process.popen.pid)

    def pids(self) -> dict[str, int]:
        """Node name -> pid of those that run now."""
        return {n: p.popen.pid for n, p in self._processes.items() if p.alive and p.popen}

    def restarts(self) -> dict[str, int]:
        """Node name -> how often it was started again."""
        return {n: p.restarts for n, p in self._processes.items()}

    def poll(self) -> list[Exit]:
        """Notice deaths, restart what is due; returns the deaths since the last call."""
        exits = []
        now_s = time.monotonic()
        for process in self._processes.values():
            if process.restart_at_s is not None:
                if now_s >= process.restart_at_s:
                    process.restarts += 1
                    self._spawn(process)
            elif process.popen is not None and process.popen.poll() is not None:
                exits.append(self._died(process, now_s))
        return exits

    def _died(self, process: _Process, now_s: float) -> Exit:
        """Book a death and plan the restart."""
        assert process.popen is not None
        spec, code = process.spec, process.popen.returncode
        healthy = now_s - process.started_s >= HEALTHY_S
        process.failures = 0 if healthy else process.failures + 1
        process.popen = None
        process.history.append(code)
        delay_s = None
        done = code == 0 and spec.finishes
        if spec.restart and not done and code != EXIT_SETUP and process.failures <= MAX_RESTARTS:
            delay_s = min(BACKOFF_MIN_S * 2 ** max(process.failures - 1, 0), BACKOFF_MAX_S)
            process.restart_at_s = now_s + delay_s
        if done:
            log.info("%s has finished", spec.label)
        else:
            again = "not started again" if delay_s is None else f"restart in {delay_s:.1f} s"
            log.warning("%s ended with code %d, %s", spec.label, code, again)
        return Exit(spec.label, code, delay_s, fatal=spec.critical and not done and delay_s is None)

    def stop(self) -> dict[str, int]:
        """Stop in order (see `graph.stop_order`); returns node name -> exit code. Idempotent."""
        processes = [self._processes[spec.label] for spec in stop_order(self.graph)]
        for process in processes:
            process.restart_at_s = None
        for process in processes:  # in their order, even when one takes longer
            if process.popen is not None and process.popen.poll() is None:
                process.popen.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.popen.wait(process.spec.stop_s)
        deadline_s = time.monotonic() + GRACE_S
        codes = {}
        for process in processes:
            if process.popen is not None:
                codes[process.spec.label] = _ended(process.popen, process.spec.label, deadline_s)
                process.popen = None
            if process.log_file is not None:
                process.log_file.close()
                process.log_file = None
        self._clean()
        return codes

    def _clean(self) -> None:
        if any(spec.arguments is None for spec in self.graph):  # there are ROS nodes
            clean_shared_memory()


def _stay_awake(*_: object) -> None:
    """Ctrl-Z would leave a graph that goes on and moves the arm, with nobody to start it again."""
    log.warning("Ctrl-Z is ignored: the arm would go on. Ctrl-C holds it and ends")


def _ended(popen: subprocess.Popen[bytes], name: str, deadline_s: float) -> int:
    """Wait for the end of a process that has been asked to; kill it at the deadline."""
    try:
        popen.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        log.warning("%s does not end: killed", name)
        popen.kill()
        popen.wait()
    return popen.returncode
