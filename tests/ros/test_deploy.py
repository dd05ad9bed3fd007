"""A policy at work on a double: kill -9 of its actor costs the step in flight, and no more."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
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


def test_kill_9_of_the_actor_in_the_middle_of_a_deployment(run: Path) -> None:
    domain_id, folder = new_domain(), run / "deploy"
    words = [f"robot={PROFILE}", "double=true", "operator=twist", f"ros.domain_id={domain_id}"]
    process = subprocess.Popen([TOOL, "deploy", run, *words, "--episodes", "3"])
    teacher = Teacher(domain_id, remaps=remaps(), steers=False)
    killed, give_up_s = 0, time.monotonic() + 120.0
    try:
        while process.poll() is None and time.monotonic() < give_up_s:
            teacher.turn()
            if not killed and figures(folder)["episodes"] == 1:
                time.sleep(0.3)  # in the middle of what follows
                killed = kill_9(folder, "actor")
            time.sleep(0.02)
        assert process.poll() == 0 and killed
    finally:
        process.terminate()
        process.wait(30.0)
        teacher.probe.close()
    told = figures(folder)
    assert told["episodes"] == 3 and told["successes"] >= 2 and told["autonomy_steps"] == 1.0
    with Store(day_files(folder)[-1]) as store:
        store.verify()
        cycles = read_cycles(store, "deploy", "actor-0")
    assert [c.episode for c in cycles] == list(range(len(cycles)))
    assert sum(c.counts for c in cycles) == 3 and all(c.ending is not None for c in cycles)
    assert {c.purpose for c in cycles} == {"deploy"}
