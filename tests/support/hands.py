"""People who teleoperate a double: with a leader arm, by pushing, at a terminal, with a headset.

Each reaches the arm only as a person would: through servos on a line, a topic, characters, a page.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState

from robot_rl.geometry import rotation_error
from robot_rl.link.panel import ControlSender
from robot_rl.robots.chain import Chain
from robot_rl.ros import topics
from tests.support.rehearsal import Teacher
from tests.support.servos import Bus

F64 = NDArray[np.float64]
TURN_S, GAIN, FASTEST_M_S = 0.02, 2.5, 0.12
BRING_RAD_S, BROUGHT_RAD = 1.0, 0.02


def moved(chain: Chain, q: F64, step_m: F64) -> F64:
    """Joints that move the tool by `step_m` and turn it as little as they can (damped Newton)."""
    here = chain.tcp_in_base(q)
    jacobian = np.zeros((6, len(q)))
    for i in range(len(q)):
        there = chain.tcp_in_base(q + 1e-5 * np.eye(len(q))[i])
        jacobian[:3, i] = (there.position_m - here.position_m) / 1e-5
        jacobian[3:, i] = 0.1 * rotation_error(there, here) / 1e-5
    wanted = np.concatenate((step_m, np.zeros(3)))
    return q + jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 1e-5 * np.eye(6), wanted)


class LeaderHand(Teacher):
    """Holds a leader arm: brings it to the robot where that is asked, presses, leads.

    Args:
        joints: where the leader stands at first; brought: it has to stand like the robot.
    """

    fastest_m_s = FASTEST_M_S

    def __init__(
        self, domain_id: int, run: Path, chain: Chain, joints: F64, *, brought: bool
    ) -> None:
        super().__init__(domain_id)
        self.chain, self.q, self._brought = chain, joints, brought
        self._run, self._page = run, None
        self._drives_s = math.inf  # since when the drive key is held

    @property
    def led_s(self) -> float:
        """How long the person has held the drive key."""
        return max(0.0, time.monotonic() - self._drives_s)

    def steer(self, way_m: F64 | None) -> None:
        drives = way_m is not None and (self.led_s > 0.0 or not self._brought or self._bring())
        self._drives_s = min(self._drives_s, time.monotonic()) if drives else math.inf
        if drives and self.led_s > 0.7:  # after the anchor stands
            speed = np.clip(GAIN * way_m, -self.fastest_m_s, self.fastest_m_s)
            self.q = moved(self.chain, self.q, speed * TURN_S)
        self.tell(self.q)
        self.press(["drive"] if drives else [])

    def _bring(self) -> bool:
        """Move the leader to where the robot stands; whether it is there."""
        message = self.probe.newest(topics.JOINT_STATES)
        if message is None:
            return False
        told = dict(zip(message.name, message.position, strict=False))
        robots = np.array([told[name] for name in list(told)[: len(self.q)]])
        self.q = self.q + np.clip(robots - self.q, -BRING_RAD_S * TURN_S, BRING_RAD_S * TURN_S)
        return bool(np.abs(robots - self.q).max() < BROUGHT_RAD)

    def press(self, held: list[str]) -> None:
        """The keys of the page, as the console or a terminal sends them."""
        if self._page is None:
            if not (self._run / "run.json").is_file():
                return
            self._page = ControlSender(self._run)
        self._page.send(json.dumps({"axes": [0.0] * 6, "held": held}))

    def tell(self, q: F64) -> None:
        """Let the leader's joints be known."""
        raise NotImplementedError


class TopicHand(LeaderHand):
    """A leader whose joints a node publishes."""

    def __init__(self, *args: Any, names: tuple[str, ...], **more: Any) -> None:
        super().__init__(*args, **more)
        self._names = names
        self._joints = self.probe.node.create_publisher(JointState, "leader/joint_states", 1)

    def tell(self, q: F64) -> None:
        self._joints.publish(JointState(name=list(self._names), position=q.tolist()))


class ServoHand(LeaderHand):
    """A leader with servos on a line."""

    def __init__(
        self, *args: Any, bus: Bus, zero_rad: F64, signs: tuple[int, ...], **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._bus, self._zero_rad, self._signs = bus, zero_rad, np.array(signs)

    def tell(self, q: F64) -> None:
        ticks = (self._zero_rad + self._signs * q) / (2.0 * np.pi) * 4096
        self._bus.ticks |= {i + 1: round(t) for i, t in enumerate(ticks.tolist())}


class PushingHand(LeaderHand):
    """Pushes the arm itself, with the drive key held."""

    FORCE_N, PERIOD_S = 20.0, 0.1

    def __init__(self, domain_id: int, run: Path) -> None:
        Teacher.__init__(self, domain_id)
        self._run, self._page = run, None
        self._client = self.probe.node.create_client(SetParameters, "sim/set_parameters")
        self._again_s, self._last = 0.0, ""

    def steer(self, way_m: F64 | None) -> None:
        self.press(["drive"] if way_m is not None else [])
        force = np.zeros(3)
        if way_m is not None and self.driven_s > 0.8:
            length = float(np.linalg.norm(way_m))
            force = way_m / max(length, 1e-6) * min(self.FORCE_N, 400.0 * length + 5.0)
        text = json.dumps({"push_n": [round(f, 1) for f in force.tolist()]})
        if (
            time.monotonic() > self._again_s
            and text != self._last
            and self._client.service_is_ready()
        ):
            self._again_s, self._last = time.monotonic() + self.PERIOD_S, text
            parameter = Parameter("fault", value=text).to_parameter_msg()
            self._client.call_async(SetParameters.Request(parameters=[parameter]))


class TypingHand(Teacher):
    """Types at a terminal: the key of the axis that is furthest off, as a held key repeats."""

    KEYS = (("w", "s"), ("d", "a"), ("q", "e"))  # of the tool's axes: plus, minus
    REPEAT_S = 0.04

    def __init__(self, domain_id: int, keyboard: int) -> None:
        super().__init__(domain_id)
        self._keyboard, self._again_s = keyboard, 0.0

    def steer(self, way_m: F64 | None) -> None:
        if way_m is None or time.monotonic() < self._again_s:
            return
        self._again_s = time.monotonic() + self.REPEAT_S
        tool_m = way_m * (1.0, -1.0, -1.0)  # fingers down
        axis = int(np.abs(tool_m).argmax())
        key = self.KEYS[axis][int(tool_m[axis] < 0.0)]
        near = float(np.abs(tool_m).max()) < 0.03
        os.write(self._keyboard, (key.upper() if near else key).encode())


class HeadsetHand(Teacher):
    """Wears a headset: moves the controller that `tests.support.xr` plays in the page."""

    def __init__(self, domain_id: int, page: Any) -> None:
        super().__init__(domain_id)
        self._page, self._driving = page, False

    def steer(self, way_m: F64 | None) -> None:
        if (way_m is not None) != self._driving:
            self._driving = way_m is not None
            self._page.evaluate("device.press(1)" if self._driving else "device.release(1)")
        if way_m is not None and self.driven_s > 1.0:
            x, y, z = (np.clip(GAIN * way_m, -FASTEST_M_S, FASTEST_M_S) * TURN_S).tolist()
            self._page.evaluate(f"device.move({x}, {y}, {z})")
        else:
            self._page.evaluate("0")  # the page breathes
