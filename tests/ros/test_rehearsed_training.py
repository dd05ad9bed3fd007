"""The whole way on a double: demonstrations by a person, practice, evaluation, and a kill on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.store.store import Store
from tests.support.ros import new_domain, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone]
REPO = Path(__file__).resolve().parents[2]
SHORT = [
    "train.demos=2",
    "train.min_env_steps=20",
    "train.max_env_steps=60",
    "train.eval_episodes=1",
    "train.stochastic_eval_episodes=0",
    "train.video=false",
]


def pid_of(run: Path, node: str) -> int:
    """Process of a node that is up, as its log tells; 0 before."""
    log = run / "logs" / f"{node}.log"
    found = re.findall(rf"/{node} up, pid (\d+)", log.read_text()) if log.is_file() else []
    return int(found[-1]) if found else 0


def last_words(run: Path) -> str:
    """Where everybody is, for the error of a run that does not end."""
    tails = [f"{p.name}: {p.read_text()[-1200:]}" for p in sorted((run / "logs").glob("*.log"))]
    return "\n".join(["the training ends", *tails])


def rows(run: Path) -> int:
    """Steps that the actor has stored."""
    if not (run / "actor.sqlite").is_file():
        return 0
    with Store(run / "actor.sqlite") as store:
        return sum(e.steps for e in store.episode_summaries() if e.purpose == "train")


@pytest.mark.slow  # in make test, the fault table trains beside a double and kills its processes
@pytest.mark.parametrize("profile", ["ur5e_fzi", "fr3_crisp"])
def test_a_person_teaches_reach_and_a_killed_actor_loses_nothing(
    tmp_path: Path, profile: str
) -> None:
    run, domain_id = tmp_path / "run", new_domain()
    words = ["experiment=reach", f"robot={profile}", "double=true", "operator=twist", *SHORT]
    words += [f"ros.domain_id={domain_id}", f"run_dir={run}", f"link.port={5700 + domain_id}"]
    tool = Path(sys.executable).with_name("robot-rl")
    env = os.environ | {"PYTHONPATH": str(REPO)}
    person = subprocess.Popen([sys.executable, "-m", "tests.support.person", str(run)], env=env)
    training = subprocess.Popen([str(tool), "train", *words])
    try:
        wait_for(lambda: rows(run) > 5, 120.0, "practice begins")
        killed = pid_of(run, "actor")
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: pid_of(run, "actor") not in (0, killed), 30.0, "the actor is back")
        wait_for(lambda: training.poll() is not None, 90.0, lambda: last_words(run))
        assert training.returncode == 0
    finally:
        for process in (training, person):
            process.terminate()
            process.wait(30.0)
    result = json.loads((run / "eval.json").read_text())
    assert result["deterministic"]["episodes"] == 1
    with Store(run / "actor.sqlite") as store:
        episodes = store.episode_summaries()
    demos = [e for e in episodes if e.purpose == "demo" and e.success]
    assert len(demos) == 2 and all(e.human_steps > e.steps / 2 for e in demos)
    assert sum(e.steps for e in episodes if e.purpose == "train") >= 55


def test_step_3_of_the_guide_rehearse_on_a_laptop(tmp_path: Path) -> None:
    """docs/robot.md; every node comes up, the driver is ready, Ctrl-C ends everything."""
    run = tmp_path / "run"
    words = ["robot=fr3_crisp", "double=true", "task=reach", "operator=none", f"run_dir={run}"]
    tool = Path(sys.executable).with_name("robot-rl")
    up = subprocess.Popen([str(tool), "up", *words, f"ros.domain_id={new_domain()}"])
    try:
        log = run / "logs" / "arm.log"
        wait_for(lambda: log.is_file() and "arm_node: ready" in log.read_text(), 60.0, "ready")
        watchdog = run / "logs" / "watchdog.log"
        wait_for(lambda: "dry run: the controller" in watchdog.read_text(), 20.0, "the dry run")
        up.send_signal(signal.SIGINT)
        assert up.wait(30.0) == 0
    finally:
        up.kill()
        up.wait()
    assert not any("Traceback" in p.read_text() for p in (run / "logs").glob("*.log"))
