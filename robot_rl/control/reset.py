"""Reset motion: the arm goes to the start of an episode, through the gate like every motion.

Path: straight up out of whatever it is in, turn upright in place, then the objects are placed anew
(by the simulator, or by a person), then a straight line to the start pose; where the plan names a
clear height, across at that height and straight down. Or through the poses that the plan lists:
then only these say how the arm gets out. Turning first unwinds the wrist: a policy that
explores may have left it at the edge of a joint's range, where a combined motion is refused. The
motion is never learned from (`Driver.RESET`) and never faster than the gate allows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robot_rl.control.loop import ControlLoop
from robot_rl.errors import RobotRLError
from robot_rl.geometry import rotation_error, step_towards
from robot_rl.ports import ResetPlan
from robot_rl.system.clock import next_tick_s
from robot_rl.types import Command, Driver, Outcome, Pose, RobotState

STEP_M = 0.02  # target at most this far ahead of the measured pose
STEP_RAD = 0.1
TOLERANCE_M = 0.0015  # start poses are drawn from +-20 mm: 1.5 mm short changes nothing
TOLERANCE_RAD = 0.02
RETREATED_M = 0.005
TIMEOUT_S = 15.0  # 15 cm at 20 mm/s, with room; longer means stuck
HELD_TICKS = 10  # the gate has refused motion this long: give up and say why


class ResetMotion:
    """Callable `(plan) -> None`; raises `RobotRLError` when the arm cannot get there.

    Args:
        loop: lends its robot, gate, clock and command numbering.
        place_objects: puts the objects where the plan says (simulation), or asks the person to.
        step_m, step_rad: the target is at most so far ahead of the measured pose.
    """

    def __init__(
        self,
        loop: ControlLoop,
        place_objects: Callable[[ResetPlan], None],
        step_m: float = STEP_M,
        step_rad: float = STEP_RAD,
    ) -> None:
        self._loop, self._place_objects = loop, place_objects
        self._step_m, self._step_rad = step_m, step_rad
        self._period_s = 1.0 / loop.task.spec.control_hz

    def __call__(self, plan: ResetPlan) -> None:
        """Leave the scene, place the objects, go to the start pose."""
        for number, pose in enumerate(plan.via):
            self.reach(pose, plan.gripper_width_m, f"pose {number} of its scripted reset")
        if not plan.via:
            self._retreat(plan)
        self._place_objects(plan)
        start = plan.tcp_in_base
        if plan.clear_z_m is not None:
            up_m = float(self._loop.robot.read().tcp_in_base.position_m[2])
            above = np.array((*start.position_m[:2], max(up_m, float(start.position_m[2]))))
            self.reach(Pose(above, start.quaternion_xyzw), None, "the place above its start")
        self.reach(start, plan.gripper_width_m, "its start pose")

    def _retreat(self, plan: ResetPlan) -> None:
        """Straight up, then turn upright in place."""
        here = self._loop.robot.read().tcp_in_base
        clear_m = -np.inf if plan.clear_z_m is None else plan.clear_z_m
        up_m = float(max(clear_m, plan.tcp_in_base.position_m[2], here.position_m[2]))
        above = np.array((*here.position_m[:2], up_m))
        reason = self._move(Pose(above, here.quaternion_xyzw), plan.gripper_width_m)
        left_m = up_m - float(self._loop.robot.read().tcp_in_base.position_m[2])
        if left_m > RETREATED_M:  # an object that the arm is stuck in must not be moved
            raise RobotRLError(
                "the arm does not come up out of what it is in",
                expected=f"a retreat to {up_m:.3f} m above the base",
                got=f"{left_m * 1e3:.0f} mm below; {reason}",
                fix="look at the arm: free it by hand, acknowledge the stop; it tries again",
            )
        upright = plan.tcp_in_base.quaternion_xyzw
        self._move(Pose(self._loop.robot.read().tcp_in_base.position_m, upright), None)

    def reach(self, goal: Pose, gripper_width_m: float | None, name: str) -> None:
        """Go there in a straight line. Raises `RobotRLError` when the arm does not arrive."""
        reason = self._move(goal, gripper_width_m)
        if reason:
            where = self._loop.robot.read().tcp_in_base
            raise RobotRLError(
                f"the arm did not reach {name}",
                expected=f"{goal.position_m.round(4).tolist()} m +- {TOLERANCE_M} m",
                got=f"{where.position_m.round(4).tolist()} m; {reason}",
                fix="look at the arm: it may be caught; free it, acknowledge the stop, start again",
            )

    def _move(self, goal: Pose, gripper_width_m: float | None) -> str:
        """Go there in a straight line. Returns "" on arrival, else what stopped it."""
        loop, held, reason = self._loop, 0, ""
        tick_s = began_s = loop.clock.now_s()
        command: Command | None = None
        while loop.clock.now_s() - began_s < TIMEOUT_S and held < HELD_TICKS:
            state = loop.robot.read()
            if command is not None:
                verdict = loop.gate.verdict(command.sequence)
                is_held = verdict is None or verdict.outcome is Outcome.HOLD
                held = held + 1 if is_held else 0
                reason = verdict.reason if verdict else "no verdict from the gate"
            if command is not None and _arrived(goal, state):
                return ""
            target = step_towards(state.tcp_in_base, goal, self._step_m, self._step_rad)
            command = loop.command_to(target, gripper_width_m, Driver.RESET, state)
            answer = loop.gate.request(command, state)
            if answer is not None:
                loop.robot.apply(answer.command)
            tick_s = next_tick_s(tick_s, self._period_s, loop.clock.now_s())
            loop.clock.sleep_until_s(tick_s)
        return f"last gate answer: {reason or 'pass'}"


def _arrived(goal: Pose, state: RobotState) -> bool:
    """Whether the arm is within tolerance of `goal` and nearly at rest."""
    off_m = float(np.linalg.norm(goal.position_m - state.tcp_in_base.position_m))
    off_rad = float(np.linalg.norm(rotation_error(goal, state.tcp_in_base)))
    slow = float(np.linalg.norm(state.tcp_twist_in_base[:3])) < 0.02
    return off_m < TOLERANCE_M and off_rad < TOLERANCE_RAD and slow
