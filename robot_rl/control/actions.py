"""From actions to commands and back: of the TCP, of the joints, or of an environment.

A run's actions move the TCP or the joints, and its spec says which. Whoever has a hand, a person
with a device or a scripted expert, always moves the TCP. In a run of joint actions their action is
turned into joint deltas here, once and before the arbiter; so takeover, gate, store and learner see
one kind of action in a run, whoever drives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import NOWHERE, pose, quat_conjugate, quat_multiply
from robot_rl.robots import Robot
from robot_rl.robots.chain import Chain
from robot_rl.spec import ActionSpec, BoxActionSpec, JointActionSpec, Spec
from robot_rl.types import Command, Pose, RobotState

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

REST_SHARE = 0.5  # a redundant arm may turn towards home by this share of the motion itself


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command leads: the TCP in base, and the joints [J] rad where these are commanded."""

    tcp_in_base: Pose
    joints_rad: F64 | None = None


class Actions(Protocol):
    """How actions [A] and commands of one run belong together; all from the measured `state`."""

    def target(self, action: F32, state: RobotState) -> Target:
        """Where an action leads."""
        ...

    def towards(self, tcp_in_base: Pose, state: RobotState) -> Target:
        """A target that brings the TCP to a pose nearby (a reset's), as near as the arm can."""
        ...

    def of_hand(self, action: F32, state: RobotState) -> F32:
        """What a hand's action (`Spec.hand`) is in this run's actions."""
        ...

    def sent(self, command: Command, state: RobotState, gripper: float) -> F32:
        """The action that a command carried out, with this gripper entry."""
        ...

    def measured(self, state: RobotState, after: RobotState, gripper: float) -> F32:
        """The action that asks for the motion between two states."""
        ...


def actions_of(spec: Spec, robot: Robot) -> Actions:
    """The actions of a run."""
    if isinstance(spec.action, BoxActionSpec):
        return BoxActions(spec.action)
    if isinstance(spec.action, JointActionSpec):
        return JointActions(spec.action, robot)
    return TcpActions(spec.pose_action)


class TcpActions:
    """`Actions` that move the TCP."""

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec

    def target(self, action: F32, state: RobotState) -> Target:
        """See `Actions`."""
        return Target(self._spec.target(action, state.tcp_in_base))

    def towards(self, tcp_in_base: Pose, state: RobotState) -> Target:
        """The pose itself."""
        return Target(tcp_in_base)

    def of_hand(self, action: F32, state: RobotState) -> F32:
        """The same."""
        return action

    def sent(self, command: Command, state: RobotState, gripper: float) -> F32:
        """See `Actions`."""
        return self._spec.action(command.tcp_target_in_base, state.tcp_in_base, gripper)

    def measured(self, state: RobotState, after: RobotState, gripper: float) -> F32:
        """See `Actions`."""
        return self._spec.action(after.tcp_in_base, state.tcp_in_base, gripper)


class JointActions:
    """`Actions` that move the joints.

    A hand's motion becomes the joint motion that turns the joints least. An arm with more than six
    joints turns its elbow towards the home pose meanwhile, or it would end elsewhere every time.
    """

    def __init__(self, spec: JointActionSpec, robot: Robot) -> None:
        self._spec, self._chain = spec, Chain(robot)
        self._home_rad = np.array(robot.home_rad)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Of the joints, in the order of actions and targets."""
        return self._spec.joints

    def target(self, action: F32, state: RobotState) -> Target:
        """See `Actions`."""
        return self._at(self._spec.target_rad(action, state.joint_position_rad), state)

    def towards(self, tcp_in_base: Pose, state: RobotState) -> Target:
        """See `Actions`."""
        here_rad = state.joint_position_rad
        model = self._chain.tcp_in_base(here_rad)
        goal = _carried(model, state.tcp_in_base, tcp_in_base)
        reached = self._chain.nudged(goal, here_rad)
        free = self._chain.free(self._home_rad - reached, reached)
        most = REST_SHARE * float(np.linalg.norm(reached - here_rad))
        size = float(np.linalg.norm(free))
        return self._at(reached + free * min(1.0, most / max(size, 1e-9)), state)

    def of_hand(self, action: F32, state: RobotState) -> F32:
        """See `Actions`; a motion that is too fast for the joints is slowed down as a whole."""
        hand = self._spec.hand
        gripper = float(action[-1]) if hand.gripper else 0.0
        asked = self.towards(hand.target(action, state.tcp_in_base), state).joints_rad
        assert asked is not None
        return self._spec.action(asked, state.joint_position_rad, gripper)

    def sent(self, command: Command, state: RobotState, gripper: float) -> F32:
        """See `Actions`; a command without joints is one to stay."""
        asked = command.joint_target_rad
        here_rad = state.joint_position_rad
        return self._spec.action(here_rad if asked is None else asked, here_rad, gripper)

    def measured(self, state: RobotState, after: RobotState, gripper: float) -> F32:
        """See `Actions`."""
        return self._spec.action(after.joint_position_rad, state.joint_position_rad, gripper)

    def _at(self, joints_rad: F64, state: RobotState) -> Target:
        """The TCP moves from where it was measured as the arm's kinematics say."""
        here, there = map(self._chain.tcp_in_base, (state.joint_position_rad, joints_rad))
        return Target(_carried(state.tcp_in_base, here, there), joints_rad)


class BoxActions:
    """`control.actions.Actions` of an environment: a command holds the action in its own units."""

    def __init__(self, spec: BoxActionSpec) -> None:
        self._spec = spec

    def target(self, action: F32, state: RobotState) -> Target:
        """See `Actions`."""
        return Target(NOWHERE, self._spec.scaled(action))

    def towards(self, tcp_in_base: Pose, state: RobotState) -> Target:
        """There is no TCP: nothing of ours leads an environment to a pose."""
        raise NotImplementedError

    def of_hand(self, action: F32, state: RobotState) -> F32:
        """The same."""
        return action

    def sent(self, command: Command, state: RobotState, gripper: float) -> F32:
        """See `Actions`."""
        assert command.joint_target_rad is not None
        return self._spec.action(command.joint_target_rad)

    def measured(self, state: RobotState, after: RobotState, gripper: float) -> F32:
        """Nobody can push an environment by hand."""
        raise NotImplementedError


def _carried(place: Pose, start: Pose, end: Pose) -> Pose:
    """`place` after the motion from `start` to `end`; all in base.

    As in the gate's prediction, a tool that is longer than the robot's file says does no harm.
    """
    turn = quat_multiply(end.quaternion_xyzw, quat_conjugate(start.quaternion_xyzw))
    way_m = end.position_m - start.position_m
    return pose(place.position_m + way_m, quat_multiply(turn, place.quaternion_xyzw))
