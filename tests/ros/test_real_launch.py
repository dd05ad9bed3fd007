"""The launch files under the real launch and launch_ros, where they are installed or on the path.

They come with a sourced ROS 2, or from source: docs/ros.md, "Never run here".
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ros import new_domain, wait_for, write_run

pytest.importorskip("launch_ros", reason="launch_ros is not installed here: docs/ros.md")
pytestmark = pytest.mark.ros

REPO = Path(__file__).resolve().parents[2]
LAUNCH = (
    ["ros2", "launch"]
    if shutil.which("ros2")
    else [sys.executable, str(REPO / "tests" / "support" / "launch_file.py")]
)
START_S = END_S = 60.0


class Launched:
    """A launch as a process, with what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, *patterns: str) -> None:
        """Wait until all patterns are in the output."""
        wait_for(lambda: all(re.search(p, self.text) for p in patterns), START_S, lambda: self.text)

    def ends(self) -> int:
        """Wait for the end; returns the exit code."""
        return self.process.wait(END_S)

    def nodes(self) -> list[str]:
        """Command lines of the nodes that live, of this launch only."""
        lines = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return [s for s in lines if str(self.log.parent) in s and "--params-file" in s]


@contextmanager
def launched(folder: Path, file: str, **words: Any) -> Iterator[Launched]:
    """A launch file under the real launch, in a ROS domain of its own."""
    log = folder / "launch.log"
    env = os.environ | {"ROS_DOMAIN_ID": str(new_domain()), "ROS_LOG_DIR": str(folder / "log")}
    command = [*LAUNCH, str(REPO / "launch" / file), *(f"{k}:={v}" for k, v in words.items())]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder
        )
    try:
        yield Launched(process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(END_S)


def test_a_launch_starts_named_processes_and_ends_at_an_interrupt(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", ros={"name": "sim"})
    only = {"learner": "false", "with_actor": "false", "with_view": "true"}
    with launched(tmp_path, "sim.launch.py", run_dir=run_dir, namespace="left", **only) as launch:
        kinds = ("sim", "gate", "watchdog", "operator", "view")
        launch.says(*(rf"\[{kind}-\d\].* /left/{kind} up" for kind in kinds))
        assert len(launch.nodes()) == len(kinds)
        launch.process.send_signal(signal.SIGINT)
        assert launch.ends() == 0
        launch.says(*(rf"{kind} down" for kind in kinds))
        assert not launch.nodes()


def test_nodes_end_with_a_launch_that_was_killed(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", ros={"name": "real"})
    words = {"learner": "false", "with_actor": "false", "double": "true"}
    with launched(tmp_path, "real.launch.py", run_dir=run_dir, **words) as launch:
        launch.says("/sim up", "/gate up", "/watchdog up", "/operator up")
        launch.process.kill()
        launch.process.wait()
        wait_for(lambda: not launch.nodes(), END_S, lambda: str(launch.nodes()))


def test_a_node_that_cannot_start_ends_the_launch_with_its_reason(tmp_path: Path) -> None:
    operator = {"name": "gamepad", "device": "/nowhere"}
    run_dir = write_run(tmp_path / "run", operator, ros={"name": "real"})
    words = {"learner": "false", "with_actor": "false", "double": "true"}
    with launched(tmp_path, "real.launch.py", run_dir=run_dir, **words) as launch:
        assert launch.ends() == 1
        launch.says("no gamepad found", "operator cannot go on .exit code 2")


def test_arguments_that_make_no_sense_end_the_launch_with_one_error(tmp_path: Path) -> None:
    with launched(tmp_path, "sim.launch.py", robot="ur5") as launch:
        assert launch.ends() == 1
        launch.says("unknown robot 'ur5'", "did you mean 'ur5e'")
        assert "Traceback" not in launch.text
