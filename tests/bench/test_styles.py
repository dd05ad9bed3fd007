"""The two people of `robot-rl bench styles`: as they say, and able, where straight fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("robot_rl_sim")

from robot_rl.bench.styles import STYLES, WORDS, Style, StyledExpert, record
from robot_rl.config.run_folder import STORE
from robot_rl.reward.compatible_train import driven
from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from robot_rl.tasks.pick_insert import POST_AWAY_M, POST_HALF_M
from robot_rl.types import Command, Driver
from robot_rl_sim.robot import MujocoRobot


def drive(style: Style, seed: int) -> tuple[bool, np.ndarray]:
    """Whether the cube came into the pocket, and its way [T, 3] there, seen from the pocket."""
    task: Any = Experiment.compose(list(WORDS)).task
    robot, rng = MujocoRobot(task), np.random.default_rng(seed)
    robot.reset(task.sample_reset(rng))
    expert = StyledExpert(task, style, 1.0)
    expert.reset(rng)
    state, way = robot.read(), []
    for k in range(100):
        action, tcp = expert.act(state), state.tcp_in_base
        to, width_m = task.spec.action.target(action, tcp), task.spec.action.gripper_width_m(action)
        robot.apply(Command(k, state.stamp_s, Driver.POLICY, "test", to, width_m))
        robot.advance(1 / task.control_hz)
        state = robot.read()
        way.append(-task.cube_to_pocket(state))
        if task.success(state):
            return True, np.array(way)
    return False, np.array(way)


@pytest.mark.parametrize("seed", range(3))
def test_one_passes_the_post_on_the_right_the_other_on_the_left(seed: int) -> None:
    for style in STYLES.values():
        success, way = drive(style, seed)
        passing = way[np.abs(way[:, 1] + POST_AWAY_M) < POST_HALF_M[1] + 0.015]
        assert success and len(passing)
        # on the way from -y to +y, the left is at -x
        assert (-style.side * passing[:, 0]).min() > POST_HALF_M[0] + 0.02


@pytest.mark.parametrize("seed", range(3))
def test_the_post_stops_who_goes_straight(seed: int) -> None:
    success, way = drive(Style(), seed)
    assert not success
    assert way[:, 2].max() > 0.01  # it was held
    assert way[:, 1].max() < -POST_AWAY_M - POST_HALF_M[1] - 0.015  # and got no further


def test_the_careful_one_takes_longer_and_demonstrations_say_who_drove(tmp_path: Path) -> None:
    found = {}
    for name, style in STYLES.items():
        with Store(record(style, 1, tmp_path / name, 3, skill=1.0) / STORE) as store:
            assert store.spec is not None
            (summary,) = store.episode_summaries()
            (found[name],) = driven(store, store.spec)
        assert summary.success and found[name].who == name
    quick, careful = (found[name].action for name in ("quick", "careful"))
    assert len(careful) > 1.3 * len(quick) and abs(careful[:, :6]).max() <= 0.51
