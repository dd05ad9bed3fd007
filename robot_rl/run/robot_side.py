"""What every actor process has: a control loop on its ports, and starts that wait for people."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from robot_rl.control.actions import actions_of
from robot_rl.control.arbiter import Arbiter
from robot_rl.control.loop import ControlLoop, Policy
from robot_rl.control.reset import ResetMotion
from robot_rl.errors import RobotRLError
from robot_rl.ports import ActorPorts, ResetPlan, RewardSource
from robot_rl.safety.advice import what_to_do
from robot_rl.types import EpisodeStart, Row

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

ARM_TIMEOUT_S = 60.0  # how long to wait for the person to acknowledge a protective stop


def loop_on(
    experiment: Experiment,
    ports: ActorPorts,
    policy: Policy,
    record: Callable[[list[Row]], object],
    reward: RewardSource,
    **hooks: Any,
) -> ControlLoop:
    """The control loop of an experiment on a robot's ports, with a lease of its own.

    hooks: `on_step` and `on_frame` of `ControlLoop`.
    """
    task, action = experiment.task, experiment.task.spec.action
    return ControlLoop(
        task=task,
        robot=ports.robot,
        cameras=ports.cameras,
        gate=ports.gate,
        clock=ports.clock,
        policy=policy,
        operator=ports.operator,
        arbiter=Arbiter(experiment.arbiter, action.size, motion=action.motion),
        reward=reward,
        record=record,
        lease=secrets.token_hex(8),
        stopping=ports.stopping,
        actions=actions_of(task.spec, experiment.robot),
        awaits_hand=experiment.has_person,
        **hooks,
    )


class Starts:
    """Callable `(plan, episode) -> None`: announces the episode, arms, goes to the start.

    Args:
        placed: called when a person, or the simulator, has prepared the scene.
    """

    def __init__(
        self, ports: ActorPorts, loop: ControlLoop, placed: Callable[[], None] = lambda: None
    ) -> None:
        self._ports, self._loop, self._placed = ports, loop, placed
        self._motion = ResetMotion(loop, self._place)

    def __call__(self, plan: ResetPlan, start: EpisodeStart) -> None:
        """Raises `RobotRLError` when the gate refuses, or the arm does not get there."""
        self._ports.announce(start)
        self._arm()
        self._motion(plan)

    def retry(self, error: RobotRLError) -> bool:
        """Try a failed start again (a process is being restarted, a stop was pressed)."""
        log.warning("reset failed, trying again: %s", error)
        self.pause(1.0)
        return not self._ports.stopping()

    def pause(self, for_s: float) -> None:
        """Wait on the run's clock: those whom we wait for may need it to go on."""
        self._ports.clock.sleep_until_s(self._ports.clock.now_s() + for_s)

    def _place(self, plan: ResetPlan) -> None:
        """Have the objects placed; a person may take minutes, and the gate holds meanwhile."""
        self._ports.place_objects(plan)
        self._placed()
        self._arm()

    def _arm(self) -> None:
        """Ask for the right to drive, waiting for an acknowledgement if need be."""
        deadline_s = time.monotonic() + ARM_TIMEOUT_S
        while not self._ports.gate.arm(self._loop.lease):
            if time.monotonic() > deadline_s or self._ports.stopping():
                raise RobotRLError(
                    "the gate refuses to arm",
                    expected=f"the right to drive within {ARM_TIMEOUT_S:.0f} s",
                    got=self._ports.gate.reason,
                    fix=what_to_do(self._ports.gate.reason) or "clear the cause (docs/ros.md)",
                )
            self.pause(0.1)
