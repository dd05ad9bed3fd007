"""Guiding by hand: a person pushes the arm itself, which a compliant controller holds.

While `drive` is held, the command is always "stay where you are": the target follows the measured
pose, at the control rate, so the arm yields and does not pull back. What is recorded as the action
is the motion that was measured (`ports.OperatorInput.guided`), since a policy has to ask for it.
The gate stays in force: beyond its contact force, its speed or its box the arm stops.

Needs a Cartesian impedance controller (CRISP, FZI's compliance controller); an arm under stiff
position control cannot be pushed, and must not be.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from robot_rl.config.registry import register
from robot_rl.operate.devices import need_real_time
from robot_rl.operate.handset import DeviceReading, HandsetConfig
from robot_rl.operate.held import HeldDevice, Source, hand_on, wait_for_news
from robot_rl.operate.remote import page_of
from robot_rl.ports import InputDevice, OperatorInput, Task
from robot_rl.spec import ActionSpec
from robot_rl.types import RobotState

TOO_FAST = "guide it more slowly: {:.0f} % of what an action can ask for"


@register("operator", "kinesthetic")
@dataclass(frozen=True, kw_only=True)
class KinestheticConfig:
    """A person guides the arm by hand and holds the drive key of the page or of a pedal."""

    handset: HandsetConfig = field(default_factory=HandsetConfig)
    at_page: ClassVar[bool] = True

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("kinesthetic", node)
        return Guided(task, self.handset, page_of(node))


class _Buttons:
    """A source whose axes are always at rest: only its buttons count."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, state: RobotState | None) -> DeviceReading | None:
        """The newest reading, without axes or a hand."""
        said = self._source.read(state)
        return said and replace(said, axes=np.zeros(6), exact=True, hand=None, trigger=None)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the source has news."""
        return wait_for_news(self._source, timeout_s)


class Guided:
    """`HandDevice` of a person who has the arm itself in the hand."""

    def __init__(self, task: Task, config: HandsetConfig, buttons: Source) -> None:
        self._held: HeldDevice = hand_on(task, config, _Buttons(buttons), "guiding by hand")
        self._action: ActionSpec = task.spec.pose_action
        self._hz = task.spec.control_hz
        self._speed = ""

    @property
    def held(self) -> frozenset[str]:
        """Meanings of the buttons that are down."""
        return self._held.held

    @property
    def problem(self) -> str:
        """Why the person may not guide, or that the arm is moved too fast to be recorded."""
        return self._held.problem or self._speed

    @property
    def present(self) -> bool:
        """Whether somebody is at the buttons."""
        return self._held.present

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Forget the last episode."""
        self._held.begin_episode(seed, purpose)

    def poll(self, state: RobotState) -> OperatorInput:
        """What the person does now; `guided` while they drive and nobody leads the arm back."""
        value = self._held.poll(state)
        guided = value.driving and "rewind" not in self._held.held
        share = self._share(state) if guided else 0.0
        self._speed = TOO_FAST.format(100 * share) if share > 1.0 else ""
        return replace(value, guided=guided)

    def _share(self, state: RobotState) -> float:
        """How fast the arm moves, as a share of the fastest action."""
        a, twist = self._action, np.abs(state.tcp_twist_in_base)
        fastest = np.repeat((a.translation_m, a.rotation_rad), 3) * self._hz
        return float((twist / fastest).max())

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the buttons have news."""
        return self._held.wait(timeout_s)
