"""A calibration's place in a graph that runs: it looks at everything, and may ask the gate.

It takes the actor's place (no actor runs beside it): the same ports, the same loop in which a
person drives with their device, the same motion from pose to pose, the same gate. Whatever comes in
while the loop waits for its next tick is looked at, every few milliseconds.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.arbiter import Arbiter
from robot_rl.control.loop import ControlLoop, Policy
from robot_rl.control.reset import ResetMotion
from robot_rl.control.takeover import ArbiterConfig
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.observe.cameras import CameraConfig
from robot_rl.ports import Clock, RewardResult, Task
from robot_rl.robots import Robot
from robot_rl.robots.driver import ArmDriver
from robot_rl.ros import convert, parameters, topics, wire
from robot_rl.ros.actor_ports import actor_ports
from robot_rl.ros.cameras import RosCamera
from robot_rl.ros.endpoints import Caller, Newest
from robot_rl.ros.graph import IMAGE_PROFILE
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import Shell, visitor
from robot_rl.system.clock import next_tick_s
from robot_rl.types import Driver, EpisodeId, EpisodeStart, Observation, Outcome, Pose, RobotState

LOOK_S = 0.005  # wall; what has arrived is looked at this often
HELD_TICKS = 5  # so long a hold is no moment's
BEAT_S = 0.1  # wall
ARM_S = 40.0  # wall; the gate grants the right to drive within this time, or says why not
GENTLE_M, GENTLE_RAD = 0.006, 0.03  # steps of a motion: 0.06 m/s and 0.3 rad/s at 10 Hz

Ask = Callable[[str], str]
"""Puts a question to the person and returns their line; "" = Enter."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which graph, and whose. remaps: our topic -> the driver's; cameras: that are looked at."""

    run_dir: Path
    domain_id: int
    namespace: str
    remaps: Mapping[str, str]
    task: Task
    robot: Robot
    driver: ArmDriver
    cameras: Mapping[str, CameraConfig]
    arbiter: ArbiterConfig


class HeldError(RobotRLError):
    """The gate has held the arm for a while; trying again may help."""


class Looking:
    """`Clock` that looks at what arrives while others sleep on it."""

    def __init__(self, clock: Clock, look: Callable[[], None]) -> None:
        self._clock, self._look = clock, look

    def now_s(self) -> float:
        """See `Clock`."""
        return self._clock.now_s()

    def sleep_until_s(self, deadline_s: float) -> None:
        """See `Clock`."""
        self._look()
        while (left_s := deadline_s - self._clock.now_s()) > 0.0:
            self._clock.sleep_until_s(self._clock.now_s() + min(left_s, LOOK_S))
            self._look()


class _OnlyMoving:
    """What the loop asks of a task while nothing is recorded: actions, but no observation.

    Episodes have no end: at each end a person would have to let go of their device.
    """

    max_steps = 1_000_000_000

    def __init__(self, task: Task) -> None:
        self.name, self.spec = task.name, task.spec

    def observe(self, state: RobotState, images: dict[str, NDArray[np.uint8]]) -> Observation:
        return {}


class _Still(Policy):
    """Asks for no motion: only a person drives."""

    @property
    def version(self) -> int:
        return -1

    def __init__(self, size: int) -> None:
        self._action = np.zeros(size, np.float32)

    def act(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        return self._action

    def interrupt(self) -> None:
        """Nothing was planned."""


class _Unjudged:
    """`RewardSource` that never ends an episode."""

    def begin_episode(self, purpose: str) -> None:
        """Nothing to forget."""

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        return RewardResult(None, None, terminated=False)


class Station:
    """An arm and perhaps a camera in hand; made by `station`.

    Attributes:
        on_state: gets every state. on_picture: gets (stamp_s, rgb) of every whole picture.
        targets: (stamp_s, pose) that the gate has sent since the start.
        beats: called about ten times a second; what it raises ends the calibration.
    """

    def __init__(self, shell: Shell, place: Place) -> None:
        self._shell, self._place, node = shell, place, shell.node
        self.on_state: Callable[[RobotState], object] = lambda _state: None
        self.on_picture: Callable[[float, NDArray[np.uint8]], object] = lambda _s, _rgb: None
        self.targets: list[tuple[float, Pose]] = []
        self.beats: Callable[[], object] = lambda: None
        self._beat_s = 0.0
        self._stopping: Callable[[], str] = lambda: ""
        self._targets = Newest(node, topics.TARGET_POSE)
        self._report = Newest(node, topics.GATE_STATE)
        self._stopped = Newest(node, topics.CONTROLLER_STOPPED)
        calls = (topics.GATE_ACKNOWLEDGE, topics.GATE_RESUME, topics.CONTROLLER_RESUME)
        self._callers = {s.name: Caller(node, s.name, 2.0) for s in calls}
        gripper = place.driver.gripper
        topic = replace(topics.JOINT_STATES, name=gripper.state_topic)
        self._fingers = Newest(node, topic)
        self.finger_names = gripper.joints or place.robot.gripper.fingers
        reader = StateReader(shell, (), place.robot, place.driver)
        ports = self._ports = actor_ports(shell, place.task, place.cameras, reader)
        self.camera = next((c for c in ports.cameras if isinstance(c, RosCamera)), None)
        self._state_s, self._number, self._episode = 0.0, 0, 0
        self.clock = Looking(ports.clock, self.look)
        size = place.task.spec.action.size
        self.loop = ControlLoop(
            task=cast(Task, _OnlyMoving(place.task)),
            robot=ports.robot,
            cameras=ports.cameras,
            gate=ports.gate,
            clock=self.clock,
            policy=_Still(size),
            operator=ports.operator,
            arbiter=Arbiter(place.arbiter, size),
            reward=_Unjudged(),
            record=lambda _rows: None,
            lease=secrets.token_hex(8),
            stopping=lambda: self._stopping() or ports.stopping(),
        )
        self._motion = ResetMotion(self.loop, lambda _plan: None, GENTLE_M, GENTLE_RAD)

    # --- looking ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Take what has arrived."""
        if (wall_s := time.monotonic()) > self._beat_s:
            self._beat_s = wall_s + BEAT_S
            self.beats()
        for msg in self._targets.arrived():
            self.targets.append((convert.from_stamp(msg.header.stamp), convert.pose_from(msg)))
        state = self._ports.robot.read()
        if state.stamp_s > self._state_s:
            self._state_s = state.stamp_s
            self.on_state(state)
        if self.camera is None:
            return
        self.camera.read()
        whole = self.camera.whole
        if whole is not None and whole.number != self._number:
            self._number = whole.number
            self.on_picture(whole.stamp_s, whole.rgb)

    def watch(self, seconds: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Look for so long, or until `done`; whether it was."""
        until_s = self.clock.now_s() + seconds
        while not done():
            if self.clock.now_s() >= until_s or self._ports.stopping():
                return False
            self.clock.sleep_until_s(self.clock.now_s() + LOOK_S)
        return True

    @property
    def tcp_in_base(self) -> Pose:
        """Where the TCP is."""
        return self._ports.robot.read().tcp_in_base

    def finger_joints(self) -> float | None:
        """Sum of the finger joints in the driver's unit; None before any. Raises `LinkError`."""
        msg = self._fingers.read()
        if msg is None:
            return None
        return float(sum(convert.positions_from(msg, self.finger_names)))

    # --- moving: always through the gate, never unasked ------------------------------------------

    def arm(self, ask: Ask) -> None:
        """Get the right to drive; the person lets a stopped arm go on.

        Raises:
            SetupError: the gate goes on refusing; it says why.
        """
        give_up_s = time.monotonic() + ARM_S
        while not self._ports.gate.arm(self.loop.lease):
            said = self._standing()
            if said:
                why, service = said
                ask(f"{why}. Look at the arm; Enter lets it go on: ")
                self._call(service)
                give_up_s = time.monotonic() + ARM_S
            if time.monotonic() > give_up_s or self._ports.stopping():
                raise SetupError(
                    "the gate lets nobody drive",
                    expected=f"the right to drive within {ARM_S:.0f} s",
                    got=self._ports.gate.reason,
                    fix="clear the cause (docs/ros.md), then begin again",
                )
            self.watch(0.2)

    def _standing(self) -> tuple[str, str] | None:
        """(why the arm stands until a person says otherwise, the service that says so)."""
        stopped, msg = self._stopped.read(), self._report.read()
        if stopped is not None and stopped.data:
            return "the controller is stopped", topics.CONTROLLER_RESUME.name
        if msg is None:
            return None
        report = wire.decode_report(msg.data)
        if report.mode == "protective_stop":
            return f"protective stop: {report.reason}", topics.GATE_ACKNOWLEDGE.name
        return ("the gate waits for a person", topics.GATE_RESUME.name) if report.waits else None

    def _call(self, name: str) -> None:
        caller, give_up_s = self._callers[name], time.monotonic() + 3.0
        while caller.poll() is None and time.monotonic() < give_up_s:
            self.watch(0.02)

    def go(self, goal: Pose) -> None:
        """Slowly and straight there. Raises `RobotRLError` when the arm does not arrive."""
        self._motion.reach(goal, None, "the next pose")

    def follow(
        self, target: Callable[[float], tuple[Pose, float | None]], seconds: float,
        done: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Ask the gate for `target(seconds since now)`, TCP and finger distance, every tick.

        Raises:
            HeldError: the gate holds the arm; it says why.
        """
        gate, held, reason = self._ports.gate, 0, ""
        began_s = tick_s = self.clock.now_s()
        period_s = 1.0 / self._place.task.spec.control_hz
        while self.clock.now_s() - began_s < seconds and not done() and not self._ports.stopping():
            wanted, width_m = target(self.clock.now_s() - began_s)
            state = self._ports.robot.read()
            command = self.loop.command_to(wanted, width_m, Driver.RESET, state)
            gate.request(command, state)
            tick_s = next_tick_s(tick_s, period_s, self.clock.now_s())
            self.clock.sleep_until_s(tick_s)
            verdict = gate.verdict(command.sequence)
            is_held = verdict is None or verdict.outcome is Outcome.HOLD
            held = held + 1 if is_held else 0
            reason = verdict.reason if verdict else "no verdict from the gate"
            if held >= HELD_TICKS:
                raise HeldError(
                    "the gate holds the arm",
                    expected="an arm that may move as it is asked to",
                    got=reason,
                    fix="clear the cause (docs/ros.md); further from the ends of the workspace?",
                )

    def let_drive(self, stopping: Callable[[], str], ask: Ask) -> None:
        """A person drives with their device until `stopping` gives a reason, or they say success.

        What ends an episode in a run (its length, a hold, an old picture) ends nothing here.
        """
        self._stopping = stopping
        try:
            while not stopping() and not self._ports.stopping():
                self.arm(ask)
                self._episode += 1
                number = EpisodeId(self._place.run_dir.name, "calibrate", self._episode)
                start = EpisodeStart(number, "demo", self._place.task.name, "", "", 0, 0)
                if self.loop.run_episode(start).reason == "operator: success":
                    return
        finally:
            self._stopping = lambda: ""


@contextmanager
def station(place: Place) -> Iterator[Station]:
    """Take the actor's place in a graph, as long as the block lasts.

    Raises:
        SetupError: no state of the arm, or no picture.
    """
    given = {
        "run_dir": str(place.run_dir),
        "base_frame": place.robot.base_frame,
        "joint_names": list(place.robot.joint_names),
        "finger_joint_names": list(place.robot.gripper.fingers),
        "sim_name": "",
    }
    params: dict[str, Any] = {p.name: p.default for p in parameters.TABLES["actor"]} | given
    with visitor(
        "calibrate", place.domain_id, place.namespace, place.remaps, IMAGE_PROFILE
    ) as node:
        shell = Shell(node, params, threading.Event())
        try:
            yield Station(shell, place)
        finally:
            shell.close()
