"""The two people of `robot-rl bench styles`: as they say, and they succeed; straight fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("robot_rl_sim")

from robot_rl.bench import styles
from robot_rl.bench.styles import STYLES, WORDS, StyledExpert, record
from robot_rl.config.run_folder import STORE
from robot_rl.reward.compatible_train import driven
from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from robot_rl.tasks.pick_insert import POST_AWAY_M, POST_HALF_M
from robot_rl.types import Command, Driver
from robot_rl_sim.robot import MujocoRobot


def drive(side: float, seed: int) -> tuple[bool, np.ndarray]:
    """Whether the cube came into the pocket, and its way [T, 3] there, seen from the pocket."""
    task: Any = Experiment.compose(list(WORDS)).task
    robot, rng = MujocoRobot(task), np.random.default_rng(seed)
    robot.reset(task.sample_reset(rng))
    expert = StyledExpert(task, side, 1.0)
    expert.reset(rng)
    state, way = robot.read(), []
    for k in range(100):
        action, tcp = expert.act(state), state.tcp_in_base
        to, width_m = task.spec.action.target(action, tcp), task.spec.action.gripper_width_m(action)
        robot.apply(Command(k, state.stamp_s, Driver.POLICY, "test", to, width_m))
        robot.advance(1 / task.control_hz)
        state = robot.read()
        way.append(-task.cube_to_pocket(state))
        if task.success(state) or task.failure(state):
            break
    return task.success(state), np.array(way)


@pytest.mark.parametrize("seed", range(3))
def test_one_passes_the_post_on_the_right_the_other_on_the_left(seed: int) -> None:
    for side in STYLES.values():
        success, way = drive(side, seed)
        passing = way[np.abs(way[:, 1] + POST_AWAY_M) < POST_HALF_M[1] + 0.015]
        assert success and len(passing)
        # on the way from -y to +y, the left is at -x
        assert (-side * passing[:, 0]).min() > POST_HALF_M[0] + 0.02


@pytest.mark.parametrize("seed", range(3))
def test_who_goes_straight_pushes_the_post(seed: int) -> None:
    success, way = drive(0.0, seed)
    assert not success
    assert way[:, 2].max() > 0.01  # the cube was held
    assert -0.03 < way[-1, 1] + POST_AWAY_M < POST_HALF_M[1]  # and it ended there


def test_demonstrations_say_whose_they_are(tmp_path: Path) -> None:
    with Store(record(STYLES["left"], 1, tmp_path / "left", 3, skill=1.0) / STORE) as store:
        assert store.spec is not None
        (summary,), (found,) = store.episode_summaries(), driven(store, store.spec)
    assert summary.success and found.who == "left"


def test_a_repeated_call_trains_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run that is trained again is done at once, and tells what it told before."""
    used: list[Path] = []

    def compared(folder: Path, _seed: int) -> dict[str, Any]:
        assert not folder.exists()
        folder.mkdir(parents=True)
        used.append(folder)
        return {"all": 1.0}

    times = iter(("20260101-000000", "20260101-000001"))
    monkeypatch.setattr(styles, "time", SimpleNamespace(strftime=lambda _: next(times)))
    monkeypatch.setattr(styles, "_compared", compared)
    for _ in range(2):
        found = styles.bench(folder=tmp_path, seeds=2, progress=lambda *_: None)
        assert found == {"all": [1.0, 1.0]}
    assert len(set(used)) == 4 and all(tmp_path in place.parents for place in used)
