"""Actions that move the joints: from and to commands, a hand's motion, and whole episodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.control.actions import JointActions, TcpActions, actions_of
from robot_rl.control.takeover import blend
from robot_rl.data.names import action_names
from robot_rl.errors import ConfigError
from robot_rl.geometry import pose, rotation_error
from robot_rl.robots import Fr3, Robot, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import Rig, make_rig
from robot_rl.run.parts import Discard, Still, session_of
from robot_rl.spec import JointActionSpec, spec_from_dict
from robot_rl.tasks import LiftTask, ReachTask
from robot_rl.tasks.common import tool_down
from robot_rl.types import Command, Driver, Frame, Outcome, RobotState, Row, Step
from robot_rl_sim import envs

ROBOTS: dict[str, Robot] = {"fr3": Fr3(), "ur5e": Ur5e()}
each = pytest.mark.parametrize("name", ROBOTS)
sane = settings(max_examples=60)


def spec_of(robot: Robot, task: type = ReachTask) -> Any:
    """The spec of a task whose actions move the joints."""
    return task(action="joint").with_robot(robot).spec


def state_at(robot: Robot, q_rad: Any = None, off_m: float = 0.0) -> RobotState:
    """The arm at rest; its driver tells a TCP `off_m` higher than the model does."""
    chain = Chain(robot)
    middle = tool_down(np.array((0.5, 0.0, 0.2)))
    q = chain.solve(middle, np.array(robot.home_rad)) if q_rad is None else q_rad
    tcp = chain.tcp_in_base(q)
    told = pose(tcp.position_m + np.array((0.0, 0.0, off_m)), tcp.quaternion_xyzw)
    zero = np.zeros(6)
    return RobotState(0.0, q, np.zeros(len(q)), told, zero, zero, 0.0)


# --- the spec ------------------------------------------------------------------------------------


def test_the_spec_says_joints_and_survives_its_dict() -> None:
    spec = spec_of(Fr3(), LiftTask)
    assert isinstance(spec.action, JointActionSpec)
    assert (spec.action.motion, spec.action.size, spec.action.gripper) == (7, 8, True)
    assert spec.state_layout[-1] == ("joint_position", 7, "0.3 rad from home")
    assert spec_from_dict(spec.as_dict()) == spec
    assert spec_from_dict(spec.as_dict()).hash == spec.hash
    assert spec.hash != LiftTask().with_robot(Fr3()).spec.hash
    assert action_names(spec) == [*Fr3().joint_names, "gripper"]
    assert spec.pose_action == LiftTask().with_robot(Fr3()).spec.action  # what a hand means


def test_a_task_of_the_tcp_has_the_spec_that_it_had() -> None:
    plain, told = ReachTask().spec, ReachTask(joint_rad=0.4).with_robot(Fr3()).spec
    assert plain == told and "joint" not in str(plain.as_dict())


def test_the_gripper_is_the_last_entry_whatever_the_arm() -> None:
    for robot in ROBOTS.values():
        action = spec_of(robot, LiftTask).action
        opened = np.zeros(action.size, np.float32)
        opened[-1] = 1.0
        assert action.gripper_width_m(opened) == robot.gripper.stroke_m
        assert action.gripper_width_m(-opened) == 0.0
        assert action.gripper_width_m(0.0 * opened) is None


@each
def test_an_observation_ends_with_the_joints(name: str) -> None:
    robot = ROBOTS[name]
    task = ReachTask(action="joint").with_robot(robot)
    home = np.array(robot.home_rad)
    state = dataclasses.replace(
        state_at(robot, home + 0.3), objects={"target": tool_down(np.array((0.5, 0.0, 0.2)))}
    )
    observation = task.observe(state, {})
    task.spec.check(observation)
    np.testing.assert_allclose(observation["state"][-len(home) :], 1.0, atol=1e-6)
    assert task.mirror is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.action=joints"], "did you mean 'joint'"),
        (["task.action=joint", "task.joint_rad=5"], "joint_rad must lie in"),
        (["task.actoin=joint"], "did you mean 'action'"),
    ],
)
def test_a_wrong_word_gets_one_error_and_the_right_one(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Experiment.compose(["experiment=reach", *words]).check()
    assert message in str(error.value)


def test_a_task_that_no_robot_has_told_its_joints_says_so() -> None:
    with pytest.raises(ConfigError, match="no robot has told which"):
        _ = ReachTask(action="joint").spec


@pytest.mark.parametrize("profile", ["ur5e_fzi", "fr3_crisp"])
def test_a_driver_that_takes_tcp_targets_only_refuses_joint_actions(profile: str) -> None:
    with pytest.raises(ConfigError) as error:
        Experiment.compose([f"robot={profile}", "double=true", "task=reach", "task.action=joint",
                            "operator=none"]).check()  # fmt: skip
    assert "TCP targets only" in error.value.summary and "ur5e_forward" in error.value.fix


def test_the_limits_of_a_run_of_joint_actions_name_the_arm_and_survive_its_folder(
    tmp_path: Path,
) -> None:
    words = ["experiment=reach", "robot=ur5e", f"run_dir={tmp_path / 'run'}"]
    joints = Experiment.compose([*words, "task.action=joint"])
    assert joints.limits.joint_arm == "ur5e" and not Experiment.compose(words).limits.joint_arm
    joints.save()
    again = Experiment.load(tmp_path / "run")
    assert again.limits.hash == joints.limits.hash and again.hash == joints.hash
    assert again.task.spec.hash == joints.task.spec.hash


# --- from and to commands ------------------------------------------------------------------------


@each
@sane
@given(data=st.data())
def test_an_action_and_its_command_are_inverse(name: str, data: st.DataObject) -> None:
    robot = ROBOTS[name]
    spec, state = spec_of(robot), state_at(robot)
    actions = actions_of(spec, robot)
    size = spec.action.size
    action = np.array(
        data.draw(st.lists(st.floats(-1.0, 1.0), min_size=size, max_size=size)), np.float32
    )
    target = actions.target(action, state)
    command = Command(1, 0.0, Driver.POLICY, "x", target.tcp_in_base, None, target.joints_rad)
    np.testing.assert_allclose(actions.sent(command, state, 0.0), action, atol=1e-5)
    after = state_at(robot, target.joints_rad)
    np.testing.assert_allclose(actions.measured(state, after, 0.0), action, atol=1e-5)


@each
@sane
@given(data=st.data())
def test_a_hands_motion_moves_the_tcp_where_the_hand_asks(name: str, data: st.DataObject) -> None:
    robot, off_m = ROBOTS[name], 0.02
    spec, state = spec_of(robot), state_at(ROBOTS[name], off_m=0.02)
    actions, chain = actions_of(spec, robot), Chain(robot)
    hand = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=6, max_size=6)), np.float32)
    action = actions.of_hand(hand, state)
    assert action.shape == (spec.action.size,) and np.abs(action).max() <= 1.0
    asked = spec.pose_action.target(hand, state.tcp_in_base)
    reached = chain.tcp_in_base(spec.action.target_rad(action, state.joint_position_rad))
    way = asked.position_m - state.tcp_in_base.position_m
    got = reached.position_m + np.array((0.0, 0.0, off_m)) - state.tcp_in_base.position_m
    if np.abs(action).max() < 1.0:  # not slowed down: it gets there
        np.testing.assert_allclose(got, way, atol=1e-3)
        assert np.linalg.norm(rotation_error(reached, asked)) < 5e-3
    elif float(np.linalg.norm(way)) > 0.005:  # slowed down as a whole: in the same direction
        assert got @ way > 0.9 * np.linalg.norm(got) * np.linalg.norm(way)


@each
def test_a_hand_at_rest_asks_for_no_motion(name: str) -> None:
    """Whoever takes over starts from where the arm is: not even the elbow turns."""
    robot = ROBOTS[name]
    rng = np.random.default_rng(0)
    q = state_at(robot).joint_position_rad + rng.normal(0.0, 0.1, len(robot.joints))
    state = state_at(robot, q, off_m=0.05)
    actions = actions_of(spec_of(robot), robot)
    action = actions.of_hand(np.zeros(6, np.float32), state)
    np.testing.assert_allclose(action, 0.0, atol=1e-6)


def test_the_elbow_comes_home_while_the_hand_moves() -> None:
    robot = Fr3()
    chain, spec = Chain(robot), spec_of(robot)
    actions = JointActions(spec.action, robot)
    home = np.array(robot.home_rad)
    q = state_at(robot).joint_position_rad
    q = q + chain.free(np.array((0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0)), q)
    before = float(np.linalg.norm(chain.free(home - q, q)))
    for i in range(60):
        hand = np.zeros(6, np.float32)
        hand[0] = 1.0 if i % 2 else -1.0
        q = spec.action.target_rad(actions.of_hand(hand, state_at(robot, q)), q)
    assert float(np.linalg.norm(chain.free(home - q, q))) < 0.3 * before


def test_a_hand_that_leads_out_of_reach_asks_for_what_can_be_had() -> None:
    robot = Ur5e()
    actions = JointActions(spec_of(robot).action, robot)
    stretched = np.array((0.0, -1.57, 0.0, -1.57, 0.0, 0.0))  # a singular pose, arm straight up
    for hand in (np.eye(6, dtype=np.float32)[i] * s for i in range(6) for s in (1.0, -1.0)):
        action = actions.of_hand(hand, state_at(robot, stretched))
        assert np.isfinite(action).all() and np.abs(action).max() <= 1.0


def test_actions_of_the_tcp_stay_what_they_are() -> None:
    task, robot = ReachTask(), Fr3()
    actions = actions_of(task.spec, robot)
    assert isinstance(actions, TcpActions)
    hand = np.full(6, 0.5, np.float32)
    assert actions.of_hand(hand, state_at(robot)) is hand
    assert actions.target(hand, state_at(robot)).joints_rad is None


def test_only_the_motion_is_blended_whatever_the_arm() -> None:
    np.testing.assert_allclose(blend(np.ones(8, np.float32), 0.5, 7), [0.5] * 7 + [1.0])
    np.testing.assert_allclose(blend(np.ones(6, np.float32), 0.5, 5), [0.5] * 5 + [1.0])


# --- whole episodes in lockstep ------------------------------------------------------------------


def rig_of(words: list[str], rows: list[Row], policy: Any = None) -> tuple[Experiment, Rig]:
    """A lockstep rig of a task whose actions move the joints."""
    experiment = Experiment.compose([*words, "task.action=joint", "train.demos=0"])
    still = policy or Still(experiment.task.spec.action.size)
    rig = make_rig(experiment, still, record=rows.extend)
    assert isinstance(rig, Rig)
    return experiment, rig


@pytest.mark.parametrize("words", [["robot=fr3"], ["robot=ur5e"]], ids=str)
def test_the_expert_demonstrates_in_joint_actions(words: list[str]) -> None:
    rows: list[Row] = []
    experiment, rig = rig_of(["experiment=reach", *words], rows)
    session = session_of(experiment, rig.loop, rig.reset, metrics=Discard())
    episodes = [session.episode("demo", number) for number in range(3)]
    assert all(e.success for e in episodes)
    steps = [row for row in rows if isinstance(row, Step)]
    assert {s.driver for s in steps} == {Driver.DEMO}
    assert all(s.action.shape == (experiment.task.spec.action.size,) for s in steps)
    for row in rows:
        if isinstance(row, Frame):
            experiment.task.spec.check(row.observation)


def test_a_person_takes_over_in_joint_actions_and_nothing_jumps() -> None:
    """The policy turns a joint steadily; the script takes over and brings the TCP to the goal."""

    class Turns(Still):
        def act(self, observation: Any, deterministic: bool) -> Any:
            action = np.zeros(6, np.float32)
            action[0] = 0.6
            return action

    rows: list[Row] = []
    words = ["experiment=reach", "robot=ur5e", "operator.stuck_s=0.5", "operator.drive_s=5.0"]
    experiment, rig = rig_of(words, rows, Turns(6))
    session = session_of(experiment, rig.loop, rig.reset, metrics=Discard())
    summaries = [session.episode("train", number) for number in range(3)]
    steps = [row for row in rows if isinstance(row, Step)]
    by_hand = [s for s in steps if s.driver is Driver.CORRECTION]
    assert sum(e.takeovers for e in summaries) >= 3 and by_hand
    assert all(e.success for e in summaries)
    assert any(np.abs(s.action[1:]).max() > 0.1 for s in by_hand)  # more joints than the policy's
    assert all(np.abs(s.action).max() <= 1.0 for s in steps)


def test_what_is_clipped_is_recorded_as_it_was_sent() -> None:
    class Throws(Still):
        def act(self, observation: Any, deterministic: bool) -> Any:
            return np.ones(6, np.float32)

    rows: list[Row] = []
    words = ["experiment=reach", "robot=ur5e", "operator=none", "task.joint_rad=0.3"]
    experiment, rig = rig_of(words, rows, Throws(6))
    session_of(experiment, rig.loop, rig.reset, metrics=Discard()).episode("train", 0)
    clipped = [r for r in rows if isinstance(r, Step) and r.outcome is Outcome.CLIPPED]
    assert clipped
    scaled = [step for step in clipped if "box" not in step.reason]  # else it slides along an edge
    assert scaled
    for step in scaled:
        assert np.ptp(step.action) < 1e-5 and 0.0 <= step.action[0] < 1.0  # one share for all


def test_the_arm_follows_joint_targets_and_a_snapshot_holds_them() -> None:
    _, rig = rig_of(["experiment=reach", "robot=fr3", "operator=none"], [])
    robot: Any = rig.robot
    state = robot.read()
    goal = state.joint_position_rad + 0.05
    robot.apply(Command(1, 0.0, Driver.POLICY, "x", state.tcp_in_base, None, goal))
    robot.advance(0.05)
    snapshot = robot.snapshot()
    robot.advance(0.45)
    there = robot.read().joint_position_rad
    np.testing.assert_allclose(there, goal, atol=5e-3)
    robot.restore(snapshot)
    robot.advance(0.45)
    np.testing.assert_array_equal(robot.read().joint_position_rad, there)


def test_a_gymnasium_environment_of_joint_actions() -> None:

    env = envs.make_env("reach", robot="ur5e", action="joint")
    observation, _ = env.reset(seed=0)
    assert env.action_space.shape == (6,) and env.observation_space.contains(observation)
    _, _, _, _, info = env.step(np.full(6, 0.2, np.float32))
    assert info["gate"] == "pass", info
    env.close()
