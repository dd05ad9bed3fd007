"""A policy at work on a double: kill -9 of its actor costs the step in flight, and no more."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from robot_rl.run.experiment import Experiment
from robot_rl.store.cycles import read_cycles
from robot_rl.store.daily import day_files
from robot_rl.store.store import Store
from tests.support.deployed import trained
from tests.support.rehearsal import Teacher
from tests.support.ros import new_domain

pytestmark = [pytest.mark.ros, pytest.mark.alone]
PROFILE = "ur5e_fzi"
TOOL = Path(sys.executable).with_name("robot-rl")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained in simulation, in lockstep, with the arm of the profile."""
    return trained(tmp_path_factory.mktemp("trained") / "run", "robot=ur5e")


def remaps() -> Any:
    return Experiment.compose([f"robot={PROFILE}"]).driver.topics


def figures(folder: Path) -> dict[str, Any]:
    path = folder / "deploy.json"
    return json.loads(path.read_text()) if path.is_file() else {"episodes": 0}


def kill_9(folder: Path, name: str) -> int:
    """Kill the newest process of a node; returns its id."""
    log = (folder / "logs" / f"{name}.log").read_text()
    pid = int(re.findall(rf"/{name} up, pid (\d+)", log)[-1])
    os.kill(pid, signal.SIGKILL)
    return pid


class Deploying:
    """`robot-rl deploy` on the double, and a person who looks after it."""

    def __init__(self, run: Path, folder: Path, episodes: int, *more: str) -> None:
        self.folder, self.domain_id = folder, new_domain()
        words = [f"robot={PROFILE}", "double=true", "operator=twist"]
        # one domain for the whole life of the folder: it is part of its configuration
        if (folder / "domain").is_file():
            self.domain_id = int((folder / "domain").read_text())
        folder.mkdir(exist_ok=True)
        (folder / "domain").write_text(str(self.domain_id))
        words += [f"ros.domain_id={self.domain_id}", *more]
        command = [TOOL, "deploy", run, "--out", folder, *words, "--episodes", str(episodes)]
        self.process = subprocess.Popen(command)
        self.teacher = Teacher(self.domain_id, remaps=remaps(), steers=False)

    def until(self, condition: Any, timeout_s: float = 120.0) -> None:
        give_up_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < give_up_s, "too slow"
            self.teacher.turn()
            time.sleep(0.02)

    def ends(self) -> None:
        self.until(lambda: self.process.poll() is not None)
        assert self.process.poll() == 0

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30.0)
        self.teacher.probe.close()


@contextmanager
def deploying(run: Path, folder: Path, episodes: int, *more: str) -> Iterator[Deploying]:
    made = Deploying(run, folder, episodes, *more)
    try:
        yield made
    finally:
        made.close()


def cycles(folder: Path) -> list[Any]:
    with Store(day_files(folder)[-1]) as store:
        return read_cycles(store, folder.name, "actor-0")


@pytest.mark.slow
def test_kill_9_of_the_actor_in_the_middle_of_a_deployment(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    with deploying(run, folder, 3) as made:
        made.until(lambda: figures(folder)["episodes"] == 1)
        made.until(lambda: any(c.ending is None and c.steps > 1 for c in cycles(folder)))
        kill_9(folder, "actor")
        made.ends()
    told = figures(folder)
    assert told["stops"] == {"the actor stopped before the episode ended": 1}
    assert told["episodes"] == 3 and told["successes"] >= 2 and told["autonomy_steps"] == 1.0
    found = cycles(folder)
    assert [c.episode for c in found] == list(range(len(found)))
    assert sum(c.counts for c in found) == 3 and all(c.ending is not None for c in found)
    assert {c.purpose for c in found} == {"deploy"}


@pytest.mark.slow
def test_kill_9_of_the_whole_command_and_of_the_gate(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    with deploying(run, folder, 4) as made:
        made.until(lambda: figures(folder)["episodes"] == 1)
        kill_9(folder, "gate")
        made.until(lambda: figures(folder)["episodes"] == 2)
        made.process.kill()
        made.process.wait()
    with deploying(run, folder, 4) as made:
        made.ends()
    found = cycles(folder)
    assert [c.episode for c in found] == list(range(len(found)))
    assert sum(c.counts for c in found) == 4 and figures(folder)["episodes"] == 4


@pytest.mark.slow
def test_failures_in_a_row_wait_for_a_person(tmp_path: Path) -> None:
    bad, folder = trained(tmp_path / "bad", "robot=ur5e", good=False), tmp_path / "d"
    with deploying(bad, folder, 3, "--stop-after", "2", "task.max_steps=20") as made:
        made.ends()
        assert any("2 failures in a row (time limit)" in text for text in made.teacher.asked)
    assert [c.continued for c in cycles(folder)] == [False, True, False]
    assert figures(folder)["failures"] == 3
