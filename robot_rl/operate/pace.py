"""A person's device in a run whose time is simulated: time waits for the person.

The run's own thread polls the device, as often as the operator's node does over ROS 2. A
demonstration begins when they drive; while somebody is at the device, a control period takes as
long as on the wall.
"""

from __future__ import annotations

import time
from dataclasses import replace

from robot_rl.ports import HandDevice, OperatorInput
from robot_rl.types import RobotState

NEWS_S = 0.02  # how long to wait at a time for news of the device, which speaks 50 times a second


class AtTheirPace:
    """`HandDevice` around another, for which a run without a wall clock waits.

    Attributes:
        purpose: of the episode that runs; "" before the first.
        said: what the person does, as of the newest poll; None before the first.
    """

    def __init__(self, device: HandDevice) -> None:
        self._device = device
        self._state: RobotState | None = None
        self.purpose, self._awaited = "", False
        self.said: OperatorInput | None = None

    @property
    def held(self) -> frozenset[str]:
        """See `HandDevice`."""
        return self._device.held

    @property
    def problem(self) -> str:
        """See `HandDevice`."""
        return self._device.problem

    @property
    def present(self) -> bool:
        """See `HandDevice`."""
        return self._device.present

    def wait(self, timeout_s: float) -> bool:
        """See `HandDevice`."""
        return self._device.wait(timeout_s)

    def begin_episode(self, seed: int, purpose: str) -> None:
        """See `InputDevice`."""
        self._device.begin_episode(seed, purpose)
        self.purpose, self._awaited = purpose, purpose == "demo"

    def poll(self, state: RobotState) -> OperatorInput:
        """What the person does; in a demonstration, once they do something."""
        said = self._poll(state)
        while self._awaited and not (said.driving or said.abort or said.success is not None):
            self._device.wait(NEWS_S)
            said = self._poll(state)
        self._awaited = False
        return said

    def pause(self, for_s: float) -> None:
        """Let wall time pass while somebody is at the device: a tap in between is noticed."""
        began_s, state = time.monotonic(), self._state
        while self._device.present and (left_s := began_s + for_s - time.monotonic()) > 0.0:
            self._device.wait(min(left_s, NEWS_S))
            if state is not None:  # as the step that it leads to will see the reading: not older
                stamp_s = state.stamp_s + time.monotonic() - began_s
                self._poll(replace(state, stamp_s=stamp_s))

    def _poll(self, state: RobotState) -> OperatorInput:
        self._state = state
        self.said = said = self._device.poll(state)
        return said
