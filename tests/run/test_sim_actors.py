"""Several simulated actors on one learner: pace, waiting, kills, and one result of them all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from robot_rl.errors import RobotRLError
from robot_rl.run import sim_actor
from robot_rl.run.experiment import Experiment
from robot_rl.run.learner import DEMONSTRATED, MASTERED, turn
from robot_rl.run.sim_actor import PacedClock
from robot_rl.store.store import Store
from tests.support.clock import ManualClock

REPO = Path(__file__).resolve().parents[2]
SMALL = [
    "experiment=reach",
    "runtime=lockstep",
    "actors=left,right",
    "algo.hidden=[64,64]",
    "algo.batch_size=64",
    "learner.utd=1",
    "train.demos=3",
    "train.min_env_steps=100000",
    "train.max_env_steps=300",
    "train.eval_episodes=3",
    "train.stochastic_eval_episodes=1",
    "train.video=false",
]


class Wall:
    """Wall time that passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, duration_s: float) -> None:
        self.now += duration_s


def test_a_paced_clock_keeps_the_pace_and_never_runs_after_lost_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall = Wall()
    monkeypatch.setattr(sim_actor, "time", wall)
    clock = PacedClock(ManualClock(), 0.1, 100.0, lambda: "")
    for tick in range(1, 21):
        wall.now += 0.004  # the step itself: its time is part of the period
        clock.sleep_until_s(0.1 * tick)
    assert wall.now == pytest.approx(1000.2)
    wall.now += 0.2  # whoever uses the clock was busy for 20 periods
    for tick in range(21, 31):
        clock.sleep_until_s(0.1 * tick)
    assert wall.now == pytest.approx(1000.49)  # ten periods more, of which the first is lost


def test_an_unpaced_clock_waits_only_for_who_must_keep_up() -> None:
    stop: list[str] = []
    answers = iter([False, False, True])
    clock = PacedClock(ManualClock(), 0.1, 0.0, lambda: stop[0] if stop else "")
    clock.wait_for("learner", lambda: next(answers, True))
    clock.sleep_until_s(0.1)
    assert next(answers, None) is None and clock.now_s() == 0.1
    clock.wait_for("learner", lambda: False)
    stop.append("asked to stop")
    clock.sleep_until_s(0.2)  # nobody is waited for when the run ends
    assert clock.now_s() == 0.2


def test_who_waits_for_the_learner_leaves_the_simulator_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Experiment.compose([*SMALL, f"run_dir={tmp_path / 'run'}"]).save()
    folder = tmp_path / "run" / "arms" / "left"
    actor = sim_actor.SimulatedActor(Experiment.load(folder), folder, lambda: "")
    wall = Wall()
    monkeypatch.setattr(sim_actor, "time", wall)
    before_s = actor.ports.clock.now_s()
    actor._starts.pause(0.25)
    assert actor._retry(RobotRLError("the learner refuses"))
    assert wall.now == 1001.25 and actor.ports.clock.now_s() == before_s
    actor.writer.close()
    actor.store.close()


class Server:
    """As much of `LinkServer` as a turn needs."""

    def __init__(self) -> None:
        self.words: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {}

    def poll(self, _timeout_ms: int) -> int:
        return 0

    def told(self, key: str) -> list[Any]:
        return [word[key] for word in self.words if key in word]

    def publish(self, _weights: object) -> None:
        pass

    def set_status(self, values: dict[str, Any]) -> None:
        self.status = values


class Idle:
    """As much of `Learner` as a turn needs."""

    may_pretrain, updates_per_s = False, 10.0

    def updates_due(self) -> int:
        return 0

    def ingest(self) -> int:
        return 0

    def weights(self) -> None:
        return None

    def status(self) -> dict[str, int]:
        return {"updates": 0}


def test_pretraining_waits_for_every_arm_and_mastery_reaches_all() -> None:
    server: Any = Server()
    learner: Any = Idle()
    server.words = [{DEMONSTRATED: True}]
    turn(learner, server, 2)
    assert not learner.may_pretrain and server.status == {
        "updates": 0,
        DEMONSTRATED: False,
        MASTERED: False,
    }
    server.words = [{DEMONSTRATED: True, MASTERED: True}, {DEMONSTRATED: True, MASTERED: False}]
    turn(learner, server, 2)
    assert learner.may_pretrain and server.status[DEMONSTRATED] and server.status[MASTERED]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pids_of(output: Path, label: str) -> list[int]:
    """Processes that the supervisor has started under this name."""
    return [int(n) for n in re.findall(rf"started {label}, pid (\d+)", output.read_text())]


def practised(store_path: Path, actor: str) -> int:
    """Practice steps of an actor that are at the learner."""
    if not store_path.is_file():
        return 0
    with Store(store_path) as store:
        summaries = store.episode_summaries()
        return sum(e.steps for e in summaries if e.id.actor == actor and e.purpose == "train")


def wait_until(condition: Any, timeout_s: float, output: Path) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, output.read_text()[-3000:]
        time.sleep(0.05)


@pytest.mark.alone
def test_a_killed_actor_comes_back_and_the_other_is_not_disturbed(tmp_path: Path) -> None:
    run, output = tmp_path / "run", tmp_path / "output.txt"
    words = [*SMALL, f"link.port={free_port()}", f"run_dir={run}"]
    env = os.environ | {"PYTHONPATH": f"{REPO}:{REPO / 'sim'}:{REPO / 'hardware'}"}
    with output.open("w") as file:
        training = subprocess.Popen(
            [sys.executable, "-m", "robot_rl.cli.main", "train", *words],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=env,
        )
    try:
        learner_store = run / "learner.sqlite"
        for actor in ("actor-left", "actor-right"):
            wait_until(lambda a=actor: practised(learner_store, a) > 20, 60.0, output)
        os.kill(pids_of(output, "left-actor")[0], signal.SIGKILL)
        assert training.wait(90.0) == 0, output.read_text()[-3000:]
    finally:
        training.kill()
        training.wait()
    assert len(pids_of(output, "left-actor")) == 2
    assert len(pids_of(output, "right-actor")) == len(pids_of(output, "learner")) == 1
    result = json.loads((run / "eval.json").read_text())
    assert set(result["arms"]) == {"left", "right"}
    assert result["deterministic"]["episodes"] == 6
    at_learner = {a: practised(learner_store, f"actor-{a}") for a in ("left", "right")}
    for name, steps in at_learner.items():  # every row has arrived, once, under its own name
        assert steps == practised(run / "arms" / name / "actor.sqlite", f"actor-{name}") > 20
    assert sum(at_learner.values()) >= 300  # the budget is the run's ...
    assert min(at_learner.values()) < 300  # ... not each arm's
    with Store(learner_store) as store:
        assert {e.id.run for e in store.episode_summaries()} == {"run"}
        shown = [e for e in store.episode_summaries() if e.purpose == "demo" and e.success]
        starts = {(e.id.actor, e.seed) for e in store.episodes() if e.purpose == "train"}
    assert len(shown) == 3  # shared out among the arms
    assert len(starts) > 4
    assert "<h2>Arms</h2>" in (run / "report.html").read_text()
    assert (run / "policy.safetensors").is_file()


@pytest.mark.slow
def test_simulated_actors_on_a_ray_cluster_teach_one_learner(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the fleet extra is not installed")
    run = tmp_path / "run"
    words = [*SMALL, f"link.port={free_port()}", f"run_dir={run}"]
    env = os.environ | {"PYTHONPATH": f"{REPO}:{REPO / 'sim'}:{REPO / 'hardware'}"}
    tool = [sys.executable, "-m", "robot_rl.cli.main", "train", *words, "--ray"]
    done = subprocess.run(tool, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((run / "eval.json").read_text())
    assert set(result["arms"]) == {"left", "right"} and result["deterministic"]["episodes"] == 6
    for name in ("left", "right"):
        assert practised(run / "learner.sqlite", f"actor-{name}") > 20
        assert (run / "arms" / name / "metrics.jsonl").is_file()  # has come back
    again = subprocess.run(tool, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert again.returncode == 0, again.stderr[-3000:]  # goes on, with other episode numbers


def test_the_seeds_of_two_arms_draw_different_starts(tmp_path: Path) -> None:
    import numpy as np

    run = Experiment.compose(["experiment=reach", "actors=2", f"run_dir={tmp_path / 'run'}"])
    first, second = (
        arm.task.sample_reset(np.random.default_rng((arm.draws_seed, 0))).tcp_in_base.position_m
        for arm in run.arms
    )
    assert not np.allclose(first, second)
