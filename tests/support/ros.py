"""A world of real nodes as supervised processes, and a probe in this process.

Every world has a ROS domain of its own and never leaves the loopback interface.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from robot_rl.errors import SetupError
from robot_rl.ros import vendor
from robot_rl.ros.graph import Graph, free_domain
from robot_rl.ros.supervise import Exit, Supervisor
from robot_rl.system.made_here import mark_of

HAS_ROS = importlib.util.find_spec("rclpy") is not None
NO_ROS = "rclpy is not installed: pip install 'robot-rl[ros]', or source a ROS 2 workspace"
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_domains: deque[int] = deque(maxlen=50 // _workers)  # used last: half of those for this process


def new_domain() -> int:
    """A domain id that no other world uses, of this test run or of another beside it.

    Nor one that a world of this run has used lately: what was killed is heard of for a while.
    """
    while (domain_id := free_domain()) in _domains or domain_id % _workers != _worker:
        pass
    _domains.append(domain_id)
    return domain_id


def missing_vendor_types() -> str:
    """Why tests that need the vendors' message types are skipped; empty when they are there."""
    if not HAS_ROS:
        return NO_ROS
    try:
        for package in vendor.packages():
            vendor.load(package)
    except SetupError as error:
        return f"{error.summary}: {error.fix}"
    return ""


def write_run(folder: Path, operator: str | dict[str, Any] = "none", **more: Any) -> Path:
    """A run folder with the sections that the nodes read (no torch needed)."""
    config = {
        "name": "ros_test",
        "seed": 0,
        "runtime": "ros",
        "task": {"name": "peg_insert"},
        "operator": {"name": operator} if isinstance(operator, str) else operator,
        **more,
    }
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "run.json").write_text(
        json.dumps({"config_hash": digest, "made_here": mark_of(digest)})
    )
    return folder


def wait_for(condition: Callable[[], Any], timeout_s: float, what: str | Callable[[], str]) -> Any:
    """Poll until `condition()` is truthy and return it; fail with `what` otherwise."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    pytest.fail(f"not within {timeout_s} s: {what if isinstance(what, str) else what()}")


class World:
    """A running graph: the supervisor is polled in a thread, `probe` listens."""

    def __init__(self, graph: Graph, run_dir: Path) -> None:
        from tests.support.probe import Probe  # needs rclpy

        self.run_dir = run_dir
        self.domain_id = new_domain()
        self.supervisor = Supervisor(graph, run_dir, self.domain_id)
        self.exits: list[Exit] = []
        self._done = threading.Event()
        self.supervisor.start()
        gate = next((spec for spec in graph if spec.name == "gate"), None)
        self.probe = Probe(self.domain_id, gate.remaps if gate else {})
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.exits += self.supervisor.poll()

    def close(self) -> dict[str, int]:
        """Stop everything; returns the exit codes."""
        self._done.set()
        self._thread.join()
        self.probe.close()
        return self.supervisor.stop()
