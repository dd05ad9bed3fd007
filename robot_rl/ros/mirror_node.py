"""A simulated arm beside a real one, its mirror (`ros.mirror`). It commands nothing.

    shadow     it stands where the arm stands, and its cameras draw what the arm's ought to see:
               is the calibration right, is the scene?
    dynamic    it gets the commands that the gate sends to the arm, and moves by its own physics:
               how far does the simulation lead away from the arm?

A dynamic mirror begins anew from the measured joints whenever the gate has not been driving, and
every `segment_s`. Each stretch between is a line of `mirror.jsonl` in the run folder: how far apart
joints and TCP were, as root mean square and at most. `robot-rl identify` fits the simulation to a
run; this says whether it helped.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import MIRROR
from robot_rl.errors import LinkError
from robot_rl.geometry import rotation_error
from robot_rl.observe.cameras import CameraConfig
from robot_rl.robots import Robot
from robot_rl.robots.driver import ArmDriver
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Newest, publisher
from robot_rl.ros.graph import SHADOW
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import Shell
from robot_rl.ros.servos import Servos
from robot_rl.tasks.common import SimTask
from robot_rl.types import Command, Driver, RobotState
from robot_rl_sim.camera import place_cameras
from robot_rl_sim.robot import MujocoRobot

log = logging.getLogger(__name__)

LOOK_S = 0.002  # wall; between two looks for a new state
SHORTEST_S = 0.5  # of a stretch that is worth a line
GAP_S = 0.5  # without a state for so long, a stretch ends
OVERVIEW, OVERVIEW_SIZE = "video", (480, 640)


class MirrorNode:
    """Moves the mirror.

    Args:
        simulated: the class of the mirror, which says what moves it (`robot_rl.run.engines`).
    """

    def __init__(
        self,
        shell: Shell,
        task: SimTask,
        robot: Robot,
        reader: StateReader,
        *,
        cameras: Mapping[str, CameraConfig],
        driver: ArmDriver,
        simulated: Callable[..., MujocoRobot],
    ) -> None:
        self._shell, self._task, self._reader = shell, task, reader
        joints = driver.joints
        self.mirror = simulated(task, robot, joint_control=joints.is_used or task.moves_joints)
        place_cameras(self.mirror.model, cameras, robot)
        # a randomised scene is drawn
        self.mirror.reset(task.sample_reset(np.random.default_rng(0)))
        node = shell.node
        self._servos = Servos(node, self.mirror, joints) if joints.is_used else None
        self._target_topic = topics.TARGET_JOINTS if task.moves_joints else topics.TARGET_POSE
        self._targets = None if self._servos else Newest(node, self._target_topic)
        self._grips = Newest(node, topics.GRIPPER_COMMAND)
        self._gate = Newest(node, topics.GATE_STATE)
        self._joints = publisher(node, topics.MIRROR_JOINTS)
        self._waiting: deque[tuple[float, Any]] = deque()  # stamp, target
        self._newest: Any = None  # target that was sent last
        self._goal = self.mirror.goal
        self._stretch: _Stretch | None = None
        self._path = Path(shell.params["run_dir"]) / MIRROR
        self._sizes = {name: task.spec.picture_size(name) for name in task.spec.cameras}
        self._sizes[OVERVIEW] = OVERVIEW_SIZE
        self._pictures = {
            name: publisher(node, topics.MIRROR_IMAGE.named(camera=name)) for name in self._sizes
        }
        self._cameras: dict[str, Any] = {}
        self._due_s = 0.0

    def run(self) -> None:
        """Follow the arm until the node is told to end."""
        follow = self._shadow if self._shell.params["mode"] == SHADOW else self._dynamic
        before_s = 0.0
        try:
            while self._shell.running:
                self._shell.spin(0.0)
                state = self._reader.read()
                if state is None or state.stamp_s <= before_s:
                    time.sleep(LOOK_S)
                    continue
                follow(state, state.stamp_s - before_s)
                before_s = state.stamp_s
                self._tell(state.stamp_s)
        finally:
            self._end("the node ends")

    def _shadow(self, state: RobotState, _: float) -> None:
        if time.monotonic() >= self._due_s:  # nobody looks more often
            self.mirror.show(state)

    # --- by its own physics ----------------------------------------------------------------------

    def _dynamic(self, state: RobotState, passed_s: float) -> None:
        self._hear()
        stretch, longest_s = self._stretch, self._shell.params["segment_s"]
        if not self._drives():
            self._end("the gate does not drive")
            self._newest = None  # of another drive
            self._waiting.clear()
        elif passed_s > GAP_S or stretch is None or state.stamp_s - stretch.begun_s > longest_s:
            self._end("time for a new one")
            self._begin(state)
        else:
            self._go_on(stretch, state)

    def _drives(self) -> bool:
        msg = self._gate.read()
        return msg is not None and wire.decode_report(msg.data).mode == "run"

    def _hear(self) -> None:
        """Take up what the gate has sent."""
        if self._targets is not None:
            for message in self._targets.arrived():
                self._waiting.append((convert.from_stamp(message.header.stamp), message))
        for message in self._grips.arrived():
            self._command(width_m=convert.gripper_from(message))

    def _begin(self, state: RobotState) -> None:
        """Stand where the arm stands, with the goal that it has."""
        self.mirror.show(state)
        self._goal = self.mirror.goal
        self._stretch = _Stretch(state.stamp_s, self.mirror.now_s())
        while self._waiting and self._waiting[0][0] <= state.stamp_s:
            self._newest = self._waiting.popleft()[1]
        if self._newest is not None:
            self._aim(self._newest)

    def _go_on(self, stretch: _Stretch, state: RobotState) -> None:
        """Move until the time of a state, each target at its own time; compare."""
        while self._waiting and self._waiting[0][0] <= state.stamp_s:
            stamp_s, self._newest = self._waiting.popleft()
            self.mirror.sleep_until_s(stretch.mirrors_s(stamp_s))
            self._aim(self._newest)
        if self._servos is not None:
            self._servos.take(stopped=False)
        self.mirror.sleep_until_s(stretch.mirrors_s(state.stamp_s))
        stretch.add(self.mirror.read(), state)

    def _aim(self, message: Any) -> None:
        try:
            if self._task.moves_joints:
                names = list(self.mirror.robot.joint_names)
                self._command(joints_rad=convert.positions_from(message, names))
            else:
                self._command(goal=convert.pose_from(message))
        except LinkError as error:  # the arm drops it, too
            self._shell.diagnostics.error(str(error))

    def _command(
        self,
        goal: Any = None,
        width_m: float | None = None,
        joints_rad: NDArray[np.float64] | None = None,
    ) -> None:
        self._goal = goal = self._goal if goal is None else goal
        who = (0, self.mirror.now_s(), Driver.POLICY, "mirror")
        self.mirror.apply(Command(*who, goal, width_m, joints_rad))

    def _end(self, why: str) -> None:
        """Write down how far apart the two were."""
        stretch, self._stretch = self._stretch, None
        if stretch is None or stretch.seconds < SHORTEST_S:
            return
        figures = stretch.figures()
        with self._path.open("a") as file:
            file.write(json.dumps(figures | {"ended": why}) + "\n")
        log.info(
            "%.1f s: joints apart by %.1f mrad (most: %.1f), TCP by %.1f mm (most: %.1f)",
            figures["seconds"],
            1e3 * max(figures["joint_rmse_rad"]),
            1e3 * figures["joint_max_rad"],
            1e3 * figures["tcp_rmse_m"],
            1e3 * figures["tcp_max_m"],
        )

    # --- what it tells ---------------------------------------------------------------------------

    def _tell(self, stamp_s: float) -> None:
        """The mirror's joints, and the pictures that somebody looks at."""
        if self._stretch is not None:
            mirror = self.mirror.read()
            names = list(self.mirror.robot.joint_names)
            velocity = [*mirror.joint_velocity_rad_s]
            position = [*mirror.joint_position_rad]
            self._joints.publish(convert.joints_to(names, position, velocity, stamp_s))
            self._shell.diagnostics.set("tcp_apart_mm", 1e3 * self._stretch.newest_m)
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + 1.0 / self._shell.params["camera_hz"]
        for name, sender in self._pictures.items():
            if sender.get_subscription_count():
                if name not in self._cameras:
                    self._cameras[name] = self.mirror.camera(name, self._sizes[name])
                frame = topics.MIRROR_IMAGE.named(camera=name).frame
                rgb = self._cameras[name].read()[1]
                sender.publish(convert.image_to(rgb, stamp_s, frame))


class _Stretch:
    """How far arm and mirror were apart, from a time on."""

    def __init__(self, begun_s: float, mirror_begun_s: float) -> None:
        self.begun_s, self._mirror_begun_s = begun_s, mirror_begun_s
        self.seconds = self.newest_m = 0.0
        self._joints: list[NDArray[np.float64]] = []
        self._tcp: list[tuple[float, float]] = []

    def mirrors_s(self, stamp_s: float) -> float:
        """A time of the arm's on the mirror's clock."""
        return self._mirror_begun_s + stamp_s - self.begun_s

    def add(self, mirror: RobotState, arm: RobotState) -> None:
        """Compare two states of one time."""
        self.seconds = arm.stamp_s - self.begun_s
        self._joints.append(mirror.joint_position_rad - arm.joint_position_rad)
        apart_m = mirror.tcp_in_base.position_m - arm.tcp_in_base.position_m
        turned = rotation_error(mirror.tcp_in_base, arm.tcp_in_base)
        self.newest_m = float(np.linalg.norm(apart_m))
        self._tcp.append((self.newest_m, float(np.linalg.norm(turned))))

    def figures(self) -> dict[str, Any]:
        """Root mean squares and greatest values."""
        joints, tcp = np.array(self._joints), np.array(self._tcp)
        rms = np.sqrt((tcp**2).mean(0)).tolist()
        return {
            "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seconds": self.seconds,
            "joint_rmse_rad": np.sqrt((joints**2).mean(0)).tolist(),
            "joint_max_rad": float(np.abs(joints).max()),
            "tcp_rmse_m": rms[0],
            "tcp_rmse_rad": rms[1],
            "tcp_max_m": float(tcp[:, 0].max()),
        }
