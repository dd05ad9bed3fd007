"""A device polls its expert at 50 Hz over ROS 2, at 10 Hz in lockstep; both must work."""

from __future__ import annotations

import numpy as np
import pytest

from robot_rl.tasks import LiftTask, PegInsertTask
from robot_rl.tasks.common import SimTask
from robot_rl.types import Command, Driver
from robot_rl_sim.robot import MujocoRobot

POLLS = 5  # per control period, as operator/joy at 50 Hz


@pytest.mark.parametrize("task", [LiftTask(), PegInsertTask()], ids=lambda t: t.name)
def test_the_expert_solves_the_task_when_it_is_asked_five_times_a_tick(task: SimTask) -> None:
    robot, expert = MujocoRobot(task), task.expert(1.0)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        robot.reset(task.sample_reset(rng))
        expert.reset(rng)
        for tick in range(task.max_steps):
            for poll in range(POLLS):
                state = robot.read()
                action = expert.act(state)
                if poll == POLLS - 1:
                    spec = task.spec.pose_action
                    target = spec.target(action, state.tcp_in_base)
                    width_m = spec.gripper_width_m(action)
                    robot.apply(Command(tick, state.stamp_s, Driver.DEMO, "x", target, width_m))
                robot.advance(1.0 / task.control_hz / POLLS)
            if task.success(robot.read()):
                break
        assert task.success(robot.read()), f"seed {seed}"
