"""Two arms in one ROS graph, each in its namespace with a clock of its own; kills on the way."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.store.store import Store
from tests.support.ros import new_domain, wait_for

pytest.importorskip("rclpy", reason="needs ROS 2 (make setup)")
pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]  # make soak: 5 minutes
log = logging.getLogger(__name__)
REPO = Path(__file__).resolve().parents[2]
TOOL = str(Path(sys.executable).with_name("robot-rl"))
ARMS = ("left", "right")
SHORT = [
    "experiment=reach",
    "runtime=ros",
    "actors=left,right",
    "algo.hidden=[64,64]",
    "algo.batch_size=64",
    "learner.utd=1",
    "train.demos=2",
    "train.min_env_steps=100000",
    "train.eval_episodes=2",
    "train.stochastic_eval_episodes=0",
    "train.video=false",
]


def pids_of(run: Path, arm: str, node: str) -> list[int]:
    """Every process that this node of an arm has had, the newest last."""
    log = run / "logs" / f"{arm}-{node}.log"
    text = log.read_text(errors="replace") if log.is_file() else ""
    return [int(n) for n in re.findall(rf"/{arm}/{node} up, pid (\d+)", text)]


def steps(run: Path, arm: str, purpose: str = "train") -> int:
    """Steps that the learner has of an arm."""
    if not (run / "learner.sqlite").is_file():
        return 0
    with Store(run / "learner.sqlite") as store:
        found = store.episode_summaries()
        return sum(e.steps for e in found if e.id.actor == f"actor-{arm}" and e.purpose == purpose)


def last_words(run: Path) -> str:
    tails = [f"{p.name}: {p.read_text()[-600:]}" for p in sorted((run / "logs").glob("*.log"))]
    return "\n".join(tails)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{REPO}:{REPO / 'sim'}:{REPO / 'hardware'}"}


def test_killing_an_arm_leaves_the_other_alone_and_both_teach_one_learner(tmp_path: Path) -> None:
    run, domain_id = tmp_path / "run", new_domain()
    words = [*SHORT, "train.max_env_steps=120", "train.eval_episodes=1", f"run_dir={run}"]
    words += [f"ros.domain_id={domain_id}", f"link.port={5700 + domain_id}"]
    training = subprocess.Popen([TOOL, "train", *words], env=environment())
    try:
        for arm in ARMS:
            wait_for(lambda a=arm: steps(run, a) > 5, 90.0, lambda: last_words(run))
        for node in ("gate", "actor"):
            os.kill(pids_of(run, "left", node)[-1], signal.SIGKILL)
        before = steps(run, "right")
        wait_for(lambda: steps(run, "right") > before, 30.0, lambda: last_words(run))
        wait_for(lambda: training.poll() is not None, 90.0, lambda: last_words(run))
        assert training.returncode == 0
    finally:
        training.terminate()
        training.wait(40.0)
    for node in ("sim", "gate", "watchdog", "operator", "actor"):
        assert len(pids_of(run, "right", node)) == 1
    assert len(pids_of(run, "left", "gate")) == len(pids_of(run, "left", "actor")) == 2
    assert min(steps(run, arm) for arm in ARMS) > 5
    with Store(run / "learner.sqlite") as store:
        aborted = [
            (e.id.episode, e.purpose, e.steps, [event.detail for event in store.events(e.id)])
            for e in store.episode_summaries()
            if e.id.actor == "actor-right" and str(e.ending) == "aborted"
        ]
    assert not aborted, last_words(run)
    result = json.loads((run / "eval.json").read_text())
    assert result["deterministic"]["episodes"] == 2


@pytest.mark.alone
@pytest.mark.timeout(400)
def test_two_doubles_in_real_time_with_a_person_at_each(tmp_path: Path) -> None:
    """Sixteen processes in wall time; the figures that docs/several_arms.md gives."""
    run, domain_id = tmp_path / "run", new_domain()
    words = [*SHORT, "robot=ur5e_fzi", "double=true", "operator=twist", "train.max_env_steps=400"]
    words += [f"ros.domain_id={domain_id}", f"link.port={5700 + domain_id}", f"run_dir={run}"]
    training = subprocess.Popen([TOOL, "train", *words], env=environment())
    person = [sys.executable, "-m", "tests.support.person"]
    people = [
        subprocess.Popen([*person, str(run / "arms" / arm)], env=environment()) for arm in ARMS
    ]
    try:
        for arm in ARMS:
            wait_for(lambda a=arm: steps(run, a) > 5, 150.0, lambda: last_words(run))
        wait_for(lambda: training.poll() is not None, 200.0, lambda: last_words(run))
        assert training.returncode == 0
    finally:
        for process in (training, *people):
            process.terminate()
            process.wait(40.0)
    for arm in ARMS:
        text = (run / "arms" / arm / "metrics.jsonl").read_text().splitlines()
        episodes = [line for line in map(json.loads, text) if "episode/success" in line]
        ticks = sum(int(line["episode/length"]) for line in episodes)
        late = sum(line["loop/late_ticks"] for line in episodes)
        log.info("%s: %d practice steps, %d late, %d episodes", arm, ticks, late, len(episodes))
        assert ticks > 40 and late <= 0.01 * ticks
