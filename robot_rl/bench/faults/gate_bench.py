"""A gate on a bench: a robot at rest, a clock moved by hand, one command at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from robot_rl.safety import gate as rules
from robot_rl.safety.gate import GateState
from robot_rl.safety.limits import Limits
from robot_rl.types import Command, Driver, RobotState, Verdict

DOWN = np.array((1.0, 0.0, 0.0, 0.0))
HOME = np.array((0.5, 0.0, 0.3))
JOINTS = np.array((0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785))
PERIOD_S = 0.1


def turned(rotvec_rad: Any) -> np.ndarray:
    """Tool-down orientation turned by a rotation vector in base."""
    return quat_multiply(quat_from_rotvec(rotvec_rad), DOWN)


def robot_state(stamp_s: float = 0.0, position_m: Any = HOME, **changes: Any) -> RobotState:
    """A healthy robot, tool down, no contact, clear of every joint limit."""
    state = RobotState(
        stamp_s=stamp_s,
        joint_position_rad=JOINTS,
        joint_velocity_rad_s=np.zeros(7),
        tcp_in_base=pose(position_m, DOWN),
        tcp_twist_in_base=np.zeros(6),
        wrench_in_tcp=np.zeros(6),
        gripper_width_m=0.04,
    )
    return dataclasses.replace(state, **changes)


class GateBench:
    """Holds the gate state, the clock and the numbering between calls."""

    def __init__(self, limits: Limits | None = None, lease: str = "actor", armed: bool = True):
        self.limits = limits or Limits()
        self.gate: GateState = rules.initial(self.limits)
        self.now_s, self.sequence, self.lease = 0.0, 0, lease
        self.state = robot_state()
        if armed:
            assert self.arm() == ""

    def wait(self, duration_s: float = PERIOD_S) -> None:
        """Time passes; a fresh, unchanged robot state arrives."""
        self.now_s += duration_s
        self.state = dataclasses.replace(self.state, stamp_s=self.now_s)

    def arm(self, lease: str | None = None) -> str:
        """Arm; returns the refusal."""
        self.gate, refusal = rules.arm(
            self.limits, self.gate, lease or self.lease, self.state, self.now_s
        )
        return refusal

    def heartbeat(self, driving: bool) -> None:
        """The person's device beats."""
        self.gate = rules.heartbeat(self.gate, self.now_s, driving)

    def command(self, offset_m: Any = (0.005, 0.0, 0.0), **changes: Any) -> Command:
        """The next numbered command: measured pose plus `offset_m`."""
        self.sequence += 1
        measured = self.state.tcp_in_base
        target = pose(measured.position_m + np.array(offset_m), measured.quaternion_xyzw)
        command = Command(self.sequence, self.now_s, Driver.POLICY, self.lease, target)
        return dataclasses.replace(command, **changes)

    def send(self, command: Command) -> Verdict:
        """Judge `command` as it is."""
        self.gate, verdict = rules.judge(self.limits, self.gate, command, self.state, self.now_s)
        return verdict

    def judge(self, offset_m: Any = (0.005, 0.0, 0.0), **changes: Any) -> Verdict:
        """Judge the next numbered command."""
        return self.send(self.command(offset_m, **changes))

    def tick(self, state: RobotState | None = None) -> Verdict | None:
        """Run the watchdogs on `state` (default: the bench's own)."""
        self.gate, verdict = rules.tick(self.limits, self.gate, state or self.state, self.now_s)
        return verdict
