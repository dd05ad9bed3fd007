"""docs/robot.md, typed as it stands, on a double: a profile, a task, demonstrations, a policy."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from tests.support.rehearsal import Teacher
from tests.support.ros import new_domain

pytestmark = [pytest.mark.ros, pytest.mark.alone]
REPO = Path(__file__).resolve().parents[2]
GOAL_M = np.array((0.5, 0.0, 0.045))  # of step 8


def commands(step: int) -> list[list[str]]:
    """What the guide has its reader type in this step, in words."""
    guide = (REPO / "docs" / "robot.md").read_text()
    text = guide[guide.index(f"**{step}. ") :].split("\n\n")[0]
    typed = [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", text)]
    return [shlex.split(line) for line in typed if re.match(r"(robot-rl|cp|mkdir) ", line)]


def environment() -> dict[str, str]:
    """As in an activated environment."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def types(words: list[str]) -> str:
    """The reader types this; returns what it says."""
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of the repository in which the reader sits, after steps 4 and 8."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPO / "configs")
    make, copy, look = commands(4)
    types(make)
    types(copy)
    assert "workspace_min_m" in types(look)
    _, write, check = commands(8)  # the first one moves an arm by hand
    types(write)
    assert "ok    my_insert" in types(check)
    return tmp_path


@pytest.mark.slow
def test_the_preflight_of_a_profile_of_ones_own_is_green(desk: Path) -> None:
    (doctor,) = commands(6)
    said = types([*doctor, "double=true", f"ros.domain_id={new_domain()}"])
    assert "0 failed" in said and "controllers" in said


@pytest.mark.slow
def test_steps_9_and_10_record_and_train_in_one_run(desk: Path) -> None:
    (record,), (train, _) = commands(9), commands(10)
    domain_id = new_domain()
    own = ["double=true", "operator=twist", f"ros.domain_id={domain_id}"]
    own += [f"link.port={5700 + domain_id}", "train.demos=2", "train.min_env_steps=20"]
    own += ["train.max_env_steps=80", "train.eval_episodes=2", "train.video=false"]
    own += ["train.stochastic_eval_episodes=0"]
    record = [word if word != "20" else "2" for word in record]
    helped(domain_id, [*record, *own, "run_dir=RUN"])
    helped(domain_id, [*train, *own])
    run = desk / "RUN"
    assert json.loads((run / "eval.json").read_text())["deterministic"]["episodes"] == 2
    with Store(run / "actor.sqlite") as store:
        episodes = store.episode_summaries()
    assert sum(e.purpose == "demo" and bool(e.success) for e in episodes) == 2
    assert sum(e.steps for e in episodes if e.purpose == "train") >= 70


def helped(domain_id: int, words: list[str]) -> None:
    """The reader types this, and drives the arm whenever it may be driven."""
    remaps = Experiment.compose(["robot=ur5e_fzi"]).driver.topics
    process = subprocess.Popen(words, env=environment())
    teacher = Teacher(domain_id, GOAL_M, remaps)
    give_up_s = time.monotonic() + 240.0
    try:
        while process.poll() is None and time.monotonic() < give_up_s:
            teacher.turn()
            time.sleep(0.02)
        assert process.poll() == 0
    finally:
        process.terminate()
        process.wait(30.0)
        teacher.probe.close()
