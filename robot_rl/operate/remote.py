"""The console's keys and gamepad as a device: what the page says arrives over a Unix socket.

The page sends which keys are held and where the sticks are, 50 times a second and at once when
something changes. A page that hides, hangs or dies stops speaking: the reading grows old, and the
same rules hold as for a gamepad that was unplugged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import zmq

from robot_rl.config.registry import register
from robot_rl.errors import LinkError
from robot_rl.geometry import quat_to_matrix
from robot_rl.link.panel import STAMP, socket_address
from robot_rl.operate.devices import need_real_time, run_of
from robot_rl.operate.following import FollowConfig, Following, hand_from
from robot_rl.operate.handset import DeviceReading, HandsetConfig
from robot_rl.operate.held import HeldDevice, hand_on
from robot_rl.operate.scripted import ScriptedOperator, ScriptedOperatorConfig
from robot_rl.ports import InputDevice, OperatorInput, Task
from robot_rl.spec import ActionSpec
from robot_rl.system import plain_json
from robot_rl.system.jumps import JUMP_S
from robot_rl.types import Pose, RobotState

MAX_BYTES = 2048  # of one message
TAKE_SEAT = "nobody drives from the page: take the seat (T)"
KEPT = 16  # messages that may wait; older ones are worth nothing


def parse(data: bytes, stamp_s: float) -> DeviceReading:
    """A message of the page: JSON {"axes": [6 numbers], "held": [words]}, and perhaps more.

    seen: {"frame": "base" or "tool", "yaw_rad": number}: the axes are meant as seen in a picture;
    the heading of what is up there, about the vertical of that frame. Without it they are the
    tool's own. nudge: true = a press is one small step.
    hand: x y z in m and a quaternion xyzw of what the tool follows (the page of headsets and
    phones), in a frame with z up and x forward; with it perhaps "trigger": 0 open to 1 closed.

    Raises:
        LinkError, SpecError: the message is anything else.
    """
    try:
        said = plain_json.loads(data)
        axes, held = said["axes"], said["held"]
        if not isinstance(held, list) or not all(isinstance(word, str) for word in held):
            raise ValueError("held is not a list of words")
        hand = hand_from(said["hand"]) if "hand" in said else None
        seen = seen_from(said["seen"]) if "seen" in said else None
        nudge = said.get("nudge", False)
        if not isinstance(nudge, bool):
            raise ValueError("nudge is not true or false")
        trigger = float(said["trigger"]) if "trigger" in said else None
        if trigger is not None and not 0.0 <= trigger <= 1.0:
            raise ValueError("trigger is not a share from 0 to 1")
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise LinkError(
            "malformed input from the console",
            expected='{"axes": [6 numbers], "held": [words]}; perhaps "hand": [7], "trigger": 0..1,'
            ' "seen": {"frame": "base" | "tool", "yaw_rad": number}',
            got=repr(data[:80]),
            fix="reload the page; console and operator must be of the same version",
        ) from error
    reading = DeviceReading(stamp_s, axes, frozenset(held), hand=hand, trigger=trigger, nudge=nudge)
    if seen is None:
        return reading
    frame, yaw_rad = seen
    if frame == "base":
        return replace(reading, heading_rad=yaw_rad)
    return replace(reading, turn_rad=-yaw_rad)


def seen_from(said: Mapping[str, Any]) -> tuple[str, float]:
    """(frame, heading) of a picture. Raises `ValueError`, `TypeError` or `KeyError`."""
    frame, yaw_rad = said["frame"], float(said["yaw_rad"])
    if frame not in ("base", "tool") or not abs(yaw_rad) <= 2 * math.pi:
        raise ValueError("seen is not a heading in base or tool")
    return frame, yaw_rad


def heading_of(tcp: Pose) -> float:
    """Heading of the tool's x axis about the vertical of base, in rad."""
    x = quat_to_matrix(tcp.quaternion_xyzw)[:, 0]
    return math.atan2(x[1], x[0])


class ConsoleSource:
    """`held.WaitingSource` fed by the console's control socket."""

    def __init__(self, address: str) -> None:
        self._socket = zmq.Context.instance().socket(zmq.PULL)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        self._socket.setsockopt(zmq.RCVHWM, KEPT)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)
        self._newest: DeviceReading | None = None

    def read(self, state: RobotState | None) -> DeviceReading | None:
        """The newest reading; None before the first. Raises like `parse`.

        Axes that are meant as seen in a picture are turned by the tool as it is now.
        """
        parts: list[bytes] = []
        while self._socket.poll(0):
            parts = self._socket.recv_multipart()
        if parts:
            self._newest = parse(parts[-1], self._stamp_of(parts))
        reading = self._newest
        if reading is None or reading.heading_rad is None or state is None:
            return reading
        turn_rad = reading.heading_rad - heading_of(state.tcp_in_base)
        return replace(reading, turn_rad=turn_rad)

    def _stamp_of(self, parts: list[bytes]) -> float:
        """When a message was true. Raises `LinkError` when it does not say so, as of this clock."""
        now_s = time.monotonic()
        said_s = STAMP.unpack(parts[0])[0] if len(parts[0]) == STAMP.size else math.nan
        if len(parts) != 2 or not 0.0 <= said_s <= now_s:
            raise LinkError(
                "malformed input from the console",
                expected="a stamp in the past, and a message",
                got=f"{len(parts)} parts, {said_s:g} s at {now_s:g} s",
                fix="console and operator must be of the same version, on one machine",
            )
        return said_s

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something arrives, at most this long; True when it has."""
        return bool(self._socket.poll(round(timeout_s * 1e3)))

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()


def page_of(node: Any) -> ConsoleSource:
    """What the person at the page, or at the terminal of `robot-rl keyboard`, holds."""
    return ConsoleSource(socket_address(run_of(node), "control"))


class Either:
    """The script, until a person is there: the demo's two operators.

    While somebody has the seat, only they drive; what they do not do, nobody does. goes_on: the
    script stands back only while they drive.
    """

    def __init__(self, person: HeldDevice, script: InputDevice, *, goes_on: bool = False) -> None:
        self.person, self.script, self._goes_on = person, script, goes_on
        self._driving, self._heard_s = False, 0.0  # what the person's device said last, and when

    @property
    def held(self) -> frozenset[str]:
        """Meanings of the buttons that the person holds down."""
        return self.person.held

    @property
    def problem(self) -> str:
        """Why the person's device does not drive; "" when it may."""
        return self.person.problem

    @property
    def present(self) -> bool:
        """Whether the script stands back for somebody who has the person's device."""
        return self.person.present and (self._driving or not self._goes_on)

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Begin an episode of the script and of the person's device."""
        self.person.begin_episode(seed, purpose)
        self.script.begin_episode(seed, purpose)

    def poll(self, state: RobotState) -> OperatorInput:
        """The person's input while they are there, drive or label, else the script's."""
        hand, script = self.person.poll(state), self.script.poll(state)
        older_s = self._heard_s - hand.stamp_s  # much older: the clock was set back
        if self._driving and not hand.driving and 0.0 <= older_s < JUMP_S:
            return hand  # the device vanished while it was held: the script must not hide that
        self._driving, self._heard_s = hand.driving, hand.stamp_s
        said = hand.success is not None or hand.abort
        return hand if hand.driving or said or self.present else script

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the person's device has news; see `HeldDevice.wait`."""
        return self.person.wait(timeout_s)


@register("operator", "console")
@dataclass(frozen=True, kw_only=True)
class ConsoleConfig:
    """A person at the web page (`robot-rl console RUN`): keyboard, or a gamepad in the browser.

    with_script: the scripted operator helps while nobody has the seat; whoever takes it stops the
    script, and takes over from the policy. script_goes_on: it stops only while they drive; as time
    hurries while a script drives, with `ros.real_time_factor=1` (`robot-rl practice`). follow: for
    a headset or a phone at the page `/xr`.
    """

    with_script: bool = False
    script_goes_on: bool = False
    follow: FollowConfig = field(default_factory=FollowConfig)
    handset: HandsetConfig = field(default_factory=HandsetConfig)
    script: ScriptedOperatorConfig = field(default_factory=ScriptedOperatorConfig)

    at_page: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.script_goes_on and not self.with_script:
            raise ValueError("script_goes_on needs with_script=true: there is no script to go on")

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `devices.OperatorConfig`."""
        need_real_time("console", node)
        source, action = page_of(node), task.spec.hand
        if isinstance(action, ActionSpec):
            source = Following(source, action, self.follow)
        person = hand_on(task, self.handset, source, "console", absent=TAKE_SEAT)
        if not self.with_script:
            return person
        return Either(person, ScriptedOperator(self.script, task), goes_on=self.script_goes_on)
