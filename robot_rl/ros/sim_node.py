"""The simulated arm as a robot: topics, services and habits of a real one, plus /clock.

It imitates a CRISP-style impedance controller: targets are taken as they come (no time-out, no
stamp check), *everything* is ignored while a command topic has a second publisher, the error clip
and the target filter live in the controller (here in the MuJoCo model).

Time is released (`rtf` = 0): it goes on when those who must act in it have acted
(`robot_rl.ros.release`), at most `FASTEST` times as fast as wall time, at real time while a person
has the seat or nobody else has spoken. Or it follows wall time (`rtf` > 0), on absolute deadlines:
then a late machine means late simulated time, without bursts, and a process that is late stays
late, as on a robot.

Run time starts at a multiple of the machine's monotonic clock that it never outruns, so that it
goes on after a kill -9 and a restart instead of jumping back and confusing everybody who holds a
deadline.

With `system_time` the node stands in for a real robot's driver (`ros=real ros.double=true`): stamps
in system time, no /clock, and the names that the driver uses.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Bool

from robot_rl.calibrate.board import Board
from robot_rl.errors import LinkError, RobotRLError, SetupError
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply, rotation_error
from robot_rl.observe.cameras import CameraConfig
from robot_rl.ports import ResetPlan
from robot_rl.robots import Robot
from robot_rl.robots.driver import ArmDriver, JointDriver
from robot_rl.ros import convert, faults, topics, wire
from robot_rl.ros.cameras import image_topic, info_topic
from robot_rl.ros.double import Double
from robot_rl.ros.endpoints import Newest, publisher, serve
from robot_rl.ros.faults import Injector
from robot_rl.ros.release import REAL_TIME, Release
from robot_rl.ros.runtime import Pace, Shell
from robot_rl.ros.servos import Servos
from robot_rl.ros.simulation import SimulationServices, try_to_serve
from robot_rl.system.clock import next_tick_s
from robot_rl.types import Command, Driver, Pose, RobotState
from robot_rl_sim.builder import build_model
from robot_rl_sim.camera import SceneCopy, place_cameras
from robot_rl_sim.robot import MujocoRobot

log = logging.getLogger(__name__)

SERVICE_PERIOD_S = 0.02  # wall; services and parameters are looked at this often
FASTEST = 50.0  # run seconds per wall second of released time: run time cannot outrun its origin
WAIT_S = 0.005  # wall; between two looks at the limits of those whom the clock waits for
AGAIN_S = 0.02  # wall; /clock is best effort: one that was lost is sent again
ROUNDING_S = 1e-6  # of the physics' time
PACE_S = 1.0  # wall; `clock/pace` is told this often
NO_DRIVER = ArmDriver()


class SimNode:
    """Glue between a simulated arm and the topics.

    cameras: as they are in the graph; calibrated: the same, with what a person has measured of
    them, by which the scene's stand. simulated: the class of the arm, which says what moves it
    (`robot_rl.run.engines`).
    """

    def __init__(
        self,
        shell: Shell,
        task: Any,
        robot: Robot,
        seed: int,
        *,
        cameras: Mapping[str, CameraConfig],
        calibrated: Mapping[str, CameraConfig],
        driver: ArmDriver = NO_DRIVER,
        simulated: Callable[..., MujocoRobot] = MujocoRobot,
    ) -> None:
        self.shell, self.task, self._driver = shell, task, driver
        p = self.params = shell.params
        joints = driver.joints if p["system_time"] else JointDriver()
        drives = joints.is_used or task.moves_joints
        model = self._model(task, robot, p["board"], joint_control=drives)
        self.robot = simulated(task, robot, model, joint_control=drives)
        place_cameras(self.robot.model, calibrated, robot)
        self._start = self._plan(seed)
        self.robot.reset(self._start)
        self._person = Newest(shell.node, topics.OPERATOR_PRESENT)
        self._release = None if p["rtf"] else Release()
        self._horizons = Newest(shell.node, topics.CLOCK_HORIZON, wakes=True)
        self._origin_s = (p["rtf"] or FASTEST) * time.monotonic()
        self._stopped = False
        self._ignored = self._taken = self._sequence = 0
        self._wall = (time.monotonic(), self.robot.now_s())
        node = shell.node
        self._servos = Servos(node, self.robot, joints) if joints.is_used else None
        self._target_topic = topics.TARGET_JOINTS if task.moves_joints else topics.TARGET_POSE
        self._target = None if joints.is_used else Newest(node, self._target_topic)
        own_grip = driver.gripper.kind == "width"
        self._gripper = Newest(node, topics.GRIPPER_COMMAND) if own_grip else None
        self._joints = publisher(node, topics.JOINT_STATES)
        self._pose = self._twist = self._wrench = None
        if not joints.is_used:  # such a driver knows no TCP
            self._pose = publisher(node, topics.CURRENT_POSE)
        if driver.twist == "topic" and not joints.is_used:
            self._twist = publisher(node, topics.CURRENT_TWIST)
        if driver.wrench == "topic":
            self._wrench = publisher(node, topics.WRENCH)
        self._clock = publisher(node, topics.CLOCK)
        self._paces = publisher(node, topics.CLOCK_PACE)
        self._stopped_topic = publisher(node, topics.CONTROLLER_STOPPED)
        self._objects = {
            name: publisher(node, topics.OBJECT.named(object=name))
            for name in self.robot.read().objects
        }
        kind = _DriversCameras if p["system_time"] else _Cameras
        drawn = p["camera_hz"] > 0
        self._faults = Injector()
        self._cameras = kind(shell, self.robot, self.task, cameras, self._faults) if drawn else None
        self._inject(faults.read(p["fault"]))
        self._home: tuple[float, float, Pose, Pose] | None = None  # on the way: from, to
        self._double = self._dress(robot) if driver.is_vendors and p["system_time"] else None
        if not driver.controllers.manager:
            serve(node, topics.CONTROLLER_STOP, self.stop)
            serve(node, topics.CONTROLLER_RESUME, self.resume)
        serve(node, topics.SIM_PLACE, self.place_objects)
        self._services = None  # a driver's time cannot be stopped
        if not p["system_time"]:
            self._services = try_to_serve(node, self, robot.name, p["base_frame"])
        node.add_on_set_parameters_callback(self._check_parameters)
        self._say_stopped()

    @staticmethod
    def _model(task: Any, robot: Robot, board: str, *, joint_control: bool) -> Any:
        """The scene, perhaps with a board (parameter `board`). Raises `ConfigError`."""
        mount, _, words = board.partition(":")
        shown = (Board.from_words(words), mount) if board else None
        return build_model(task, robot, board=shown, joint_control=joint_control)

    def _dress(self, robot: Robot) -> Double:
        """What a vendor's driver has beside its state topics."""
        return Double(
            self.shell,
            robot,
            self._driver,
            self._faults,
            stop=self.stop,
            resume=self.resume,
            grip=lambda width_m: self._apply(self.robot_goal, width_m),
            width=lambda: self.robot.gripper_width_m,
            go_home=self._go_home,
        )

    # --- time ------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Seconds on the run's clock: simulated time, or system time in a driver's dress."""
        if self.params["system_time"]:
            return self.shell.now_s()
        return self._origin_s + self.robot.now_s()

    # --- commands --------------------------------------------------------------------------------

    def take_commands(self) -> None:
        """Take up the newest target and gripper command, as the controller would."""
        self._glide()
        if self._servos is not None and (wrong := self._servos.take(stopped=self._stopped)):
            self.shell.diagnostics.error(wrong)
        targets = list(self._target.arrived()) if self._target else []
        grips = list(self._gripper.arrived()) if self._gripper else []
        if not targets and not grips:
            return
        crowded = self._rivals()
        if self._stopped or crowded:
            self._ignored += len(targets) + len(grips)
            return
        try:
            width_m = convert.gripper_from(grips[-1]) if grips else None
            goal, joints_rad = self._goal(targets)
        except LinkError as error:  # NaN, not a unit quaternion: dropped, as real controllers do
            self._ignored += len(targets) + len(grips)
            self.shell.diagnostics.error(str(error))
            return
        self._taken += len(targets) + len(grips)
        self._apply(goal, width_m, joints_rad)

    def _goal(self, targets: list) -> tuple[Pose, NDArray[np.float64] | None]:
        """Where the TCP is asked to be, or the joints; where it was, with no new target."""
        if not targets:
            return self.robot_goal, None
        if self.task.moves_joints:
            names = list(self.robot.robot.joint_names)
            return self.robot_goal, convert.positions_from(targets[-1], names)
        frame = targets[-1].header.frame_id
        if frame != self.params["base_frame"]:
            raise LinkError(
                "target_pose in another frame",
                expected=self.params["base_frame"],
                got=repr(frame),
                fix="send targets in the base frame (base_frame parameter of both nodes)",
            )
        return convert.pose_from(targets[-1]), None

    def _rivals(self) -> bool:
        """True while a command topic has more than one publisher."""
        counts = {
            topic.name: self.shell.node.count_publishers(topic.name)
            for topic in (self._target_topic, topics.GRIPPER_COMMAND)
        }
        crowded = [f"{count} on {name}" for name, count in counts.items() if count > 1]
        text = f"commands ignored: {', '.join(crowded)} publishers" if crowded else ""
        self.shell.diagnostics.warn(text)
        return bool(crowded)

    def _apply(
        self, goal: Pose, width_m: float | None, joints_rad: NDArray[np.float64] | None = None
    ) -> None:
        self._sequence += 1
        self.robot_goal = goal
        who = (self._sequence, self.robot.now_s(), Driver.POLICY, "controller")
        self.robot.apply(Command(*who, goal, width_m, joints_rad))

    def _go_home(self, duration_s: float) -> Callable[[], bool]:
        """As the driver's joint controller would; only the way differs (a straight one)."""
        if self._servos is not None:
            return self._servos.go(np.array(self.robot.robot.home_rad), duration_s)
        now_s = self.robot.now_s()
        home = self.robot.tcp_at(self.robot.robot.home_rad)
        self._home = (now_s, now_s + duration_s, self.robot.read().tcp_in_base, home)
        return lambda: self._home is None

    def _glide(self) -> None:
        """One step on the way home."""
        if self._home is None:
            return
        begun_s, end_s, start, home = self._home
        share = min((self.robot.now_s() - begun_s) / (end_s - begun_s), 1.0)
        error = rotation_error(home, start)
        turn = quat_multiply(quat_from_rotvec(share * error), start.quaternion_xyzw)
        where_m = start.position_m + share * (home.position_m - start.position_m)
        self._apply(pose(where_m, turn), None)
        if share >= 1.0:
            self._home = None

    # --- services --------------------------------------------------------------------------------

    def stop(self) -> str:
        """Protective stop of the controller: stay where the arm is, take no commands."""
        self._stopped = True
        self._stay()
        self._say_stopped()
        log.warning("controller stopped")
        return "stopped; target = measured pose"

    def resume(self) -> str:
        """End of the stop. What was sent meanwhile is forgotten."""
        self._home = None  # whoever takes over begins where the arm is
        self.take_commands()
        self._stopped = False
        self._stay()
        self._say_stopped()
        log.info("controller resumed")
        return "resumed"

    def _stay(self) -> None:
        """Command the pose in which the arm is."""
        if self._servos is not None:
            self._servos.stop()
        elif self.task.moves_joints:
            self.robot.drive_joints(None)
        self._apply(self.robot.read().tcp_in_base, None)

    def place_objects(self) -> str:
        """Put the objects where `reset_plan` says."""
        text = str(self.shell.node.get_parameter("reset_plan").value)
        plan = wire.decode_plan(text)
        plan = self._plan(plan) if isinstance(plan, int) else plan
        try:
            self.robot.place_objects(plan)
        except RobotRLError as error:
            raise LinkError(error.summary, expected=error.expected, got=error.got) from error
        if self.robot.randomizer is not None:
            log.info("drawn: %s", json.dumps(self.robot.randomizer.drawn))
        return f"placed {', '.join(plan.objects) or 'nothing'}"

    def _plan(self, seed: int) -> ResetPlan:
        return self.task.sample_reset(np.random.default_rng(seed))

    def objects(self) -> dict[str, tuple[Pose, NDArray[np.float64]]]:
        """Pose and twist [6], in base, of each object; see `robot_rl.ros.simulation`."""
        found = self.robot.read().objects
        return {name: (where, self.robot.twist_of(name)) for name, where in found.items()}

    def place(self, name: str, where: Pose | None, twist: NDArray[np.float64] | None) -> None:
        """Move an object. Raises `LinkError`."""
        try:
            self.robot.move_object(name, where, twist)
        except RobotRLError as error:
            raise LinkError(error.summary, expected=error.expected, got=error.got) from error

    def restart(self) -> None:
        """Arm and objects go to the start of the run, at rest; what was commanded is forgotten."""
        self.take_commands()
        self.robot.reset(self._start)
        self._stay()

    def _check_parameters(self, changes: list[Parameter]) -> SetParametersResult:
        for change in changes:
            try:
                if change.name == "reset_plan":
                    wire.decode_plan(str(change.value))
                elif change.name == "fault":
                    self._inject(faults.read(str(change.value)))
            except LinkError as error:
                return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _inject(self, found: faults.Faults) -> None:
        """Be as broken as the parameter says, and in no other way."""
        self._faults.faults = found
        self.robot.push(found.push_n)
        if self._cameras is not None:
            self._cameras.frozen = found.frozen_cameras
            self._cameras.delay_s = found.camera_delay_s

    def _say_stopped(self) -> None:
        self._stopped_topic.publish(Bool(data=self._stopped))

    # --- topics ----------------------------------------------------------------------------------

    def publish(self) -> None:
        """All state topics with one stamp, then /clock: who wakes on the clock finds the state."""
        now_s, p = self.now_s(), self.params
        state = replace(self.robot.read(), stamp_s=now_s)
        base = p["base_frame"]
        self._send(topics.JOINT_STATES, self._joints, self._joint_states(state))
        if self._pose is not None:
            pose_msg = convert.pose_to(state.tcp_in_base, now_s, base)
            self._send(topics.CURRENT_POSE, self._pose, pose_msg)
        if self._twist is not None:
            twist = convert.twist_to(state.tcp_twist_in_base, now_s, base)
            self._send(topics.CURRENT_TWIST, self._twist, twist)
        if self._wrench is not None:
            wrench = self._driver.wrench_sign * state.wrench_in_tcp
            frame = self._driver.tcp_frame if self._double else p["tcp_frame"]
            self._send(topics.WRENCH, self._wrench, convert.wrench_to(wrench, now_s, frame))
        for name, where in state.objects.items():
            self._objects[name].publish(convert.pose_to(where, now_s, base))
        if self._double is not None:
            self._double.publish_fingers(state)
        self._tell_time()
        if self._cameras is not None:
            self._cameras.publish(now_s)

    def _send(self, topic: topics.Topic, sender: Any, message: Any) -> None:
        """Publish, as the driver's faults let it through."""
        spoilt = self._faults.spoil(topic.name, message)
        if spoilt is not None:
            sender.publish(spoilt)

    def _tell_time(self) -> None:
        if not self.params["system_time"]:
            self._clock.publish(Clock(clock=convert.to_stamp(self.now_s())))

    def _joint_states(self, state: RobotState) -> convert.JointState:
        if self._double is not None:
            return self._double.joint_states(state, self.params["joint_names"])
        fingers = self.params["finger_joint_names"]
        share_m = state.gripper_width_m / max(len(fingers), 1)
        return convert.joints_to(
            [*self.params["joint_names"], *fingers],
            [*state.joint_position_rad, *(share_m for _ in fingers)],
            [*state.joint_velocity_rad_s, *(0.0 for _ in fingers)],
            state.stamp_s,
        )

    def report(self, late: int) -> None:
        """Figures for /diagnostics, and `clock/pace` now and then."""
        wall_s, run_s = time.monotonic(), self.robot.now_s()
        before_wall_s, before_run_s = self._wall
        passed_s = wall_s - before_wall_s
        if passed_s >= PACE_S:
            achieved = (run_s - before_run_s) / passed_s
            self._wall = (wall_s, run_s)
            self.shell.diagnostics.set("rtf_achieved", achieved)
            waited, given_up = {}, ""
            if self._release is not None:
                given_up = ", ".join(self._release.given_up)
                waited = {k: min(v / passed_s, 1.0) for k, v in self._release.waited_s().items()}
            pace = wire.ClockPace(achieved, waited, given_up)
            self._paces.publish(convert.text_to(wire.encode_pace(pace)))
        self.shell.diagnostics.set("commands_taken", self._taken)
        self.shell.diagnostics.set("commands_ignored", self._ignored)
        self.shell.diagnostics.set("stopped", self._stopped)
        self.shell.diagnostics.set("late_slices", late)

    # --- the run ---------------------------------------------------------------------------------

    def _factor(self) -> float:
        """Run seconds per wall second, at most. A person's hands know real time only."""
        asked = self.params["rtf"] or FASTEST
        alone = self._release is not None and (self._release.given_up or not self._release.heard)
        return min(asked, REAL_TIME) if self._seated() or alone else asked

    def _seated(self) -> bool:
        """Whether a person has the seat."""
        msg = self._person.read()
        return msg is not None and bool(msg.data)

    def _hear(self, release: Release) -> None:
        """Take up what the others say of their horizons."""
        for msg in self._horizons.arrived():
            if release.hear(msg.frame_id, convert.from_stamp(msg.stamp)):
                log.warning("%s is back: the clock waits for it again", msg.frame_id)

    def _await(self, release: Release) -> None:
        """Stand still until everybody has acted, or somebody has held up time for too long."""
        now_s, again_s = self.now_s(), time.monotonic() + AGAIN_S
        while self.shell.running:
            self._hear(release)
            before = release.given_up
            waiting = release.waiting(now_s, time.monotonic(), person=self._seated())
            for who in release.given_up:
                if who not in before:
                    log.warning("the clock does not wait for %s any longer", who)
            if not waiting:
                return
            self.shell.spin(WAIT_S)
            if time.monotonic() >= again_s:
                self._tell_time()
                self.report(0)
                again_s = time.monotonic() + AGAIN_S

    def _stand(self, services: SimulationServices) -> None:
        """Let no time pass while somebody has paused the simulation."""
        again_s = time.monotonic()
        while self.shell.running and services.stands:
            self.shell.spin(WAIT_S)
            services.poll()
            if time.monotonic() >= again_s:
                self._tell_time()
                self.report(0)
                again_s = time.monotonic() + AGAIN_S

    def run(self) -> None:
        """Physics in slices; topics every `publish_hz`, services in between."""
        p = self.params
        slices = max(1, round(1.0 / (p["publish_hz"] * p["slice_s"])))
        slice_s = 1.0 / (p["publish_hz"] * slices)
        pace, serve_s = Pace(slice_s / self._factor()), 0.0
        self.robot_goal = self.robot.read().tcp_in_base
        while self.shell.running:
            if self._services is not None and self._services.stands:
                self._stand(self._services)
            if self._release is not None:
                self._await(self._release)
            for _ in range(slices):
                self.take_commands()
                self.robot.advance(slice_s)
                pace.sleep()
            self.publish()
            if self._services is not None:
                self._services.stepped()
            if time.monotonic() - serve_s >= SERVICE_PERIOD_S:
                self.shell.spin(0.0)
                if self._services is not None:
                    self._services.poll()
                if self._double is not None:
                    self._double.tick()
                pace.period_s = slice_s / self._factor()
                self.report(pace.late)
                serve_s = time.monotonic()


class _Cameras:
    """Sends a picture of every camera `camera_hz` times per second: what the network sees."""

    def __init__(
        self,
        shell: Shell,
        robot: MujocoRobot,
        task: Any,
        cameras: Mapping[str, CameraConfig],
        spoilt_by: Injector,
    ) -> None:
        if not cameras:
            raise SetupError(
                "camera_hz is set, but this task has no cameras",
                expected="a task with images",
                got=f"task.images = {list(cameras)}",
                fix="set task.images=[wrist,front], or camera_hz=0",
            )
        self.frozen, self.delay_s = False, 0.0
        self._period_s, self._due_s = 1.0 / shell.params["camera_hz"], 0.0
        self._cameras = [
            _SentCamera(
                shell.node,
                name,
                config,
                self._size(config, task.spec.picture_size(name)),
                spoilt_by,
            )
            for name, config in cameras.items()
        ]
        self._open(robot)

    def _size(self, config: CameraConfig, seen: tuple[int, int]) -> tuple[int, int]:
        return seen

    def _open(self, scene: MujocoRobot | SceneCopy) -> None:
        for camera in self._cameras:
            camera.open(scene)

    def publish(self, now_s: float) -> None:
        """Draw one picture of every camera when due; send those that were drawn long enough ago."""
        for camera in self._cameras:
            camera.send(now_s, self.delay_s)
        if now_s < self._due_s - ROUNDING_S:
            return
        # after the last one was due, not after this tick of the physics: 20 Hz became 16.7
        self._due_s = next_tick_s(self._due_s, self._period_s, now_s)
        if not self.frozen:
            self._draw(now_s)

    def _draw(self, now_s: float) -> None:
        for camera in self._cameras:
            camera.draw(now_s)
            camera.send(now_s, self.delay_s)


class _DriversCameras(_Cameras):
    """The cameras of a double: whole pictures, of the size that the configured camera has.

    They are drawn beside the arm, because that may take longer than a state may be late; when they
    are not done in time, a picture is left out.
    """

    def _size(self, config: CameraConfig, seen: tuple[int, int]) -> tuple[int, int]:
        return config.height, config.width

    def _open(self, scene: MujocoRobot | SceneCopy) -> None:
        self._scene = SceneCopy(scene)
        self._painter = ThreadPoolExecutor(1, initializer=_give_way)  # OpenGL wants one thread
        self._drawing = self._painter.submit(super()._open, self._scene)

    def _draw(self, now_s: float) -> None:
        if self._drawing.done():
            self._drawing.result()  # raises what went wrong
            self._scene.renew()
            self._drawing = self._painter.submit(super()._draw, now_s)


def _give_way() -> None:
    """Let the arm's thread go first; on Linux niceness is a thread's own."""
    os.nice(5)


class _SentCamera:
    """One simulated camera and its topics."""

    def __init__(
        self,
        node: Node,
        name: str,
        config: CameraConfig,
        size: tuple[int, int],
        spoilt_by: Injector,
    ) -> None:
        topic = image_topic(name, config)
        self._topic, self._faults = topic.name, spoilt_by
        self._name, self._size = name, size
        self._waiting: deque[tuple[float, NDArray[np.uint8]]] = deque()
        self._sending = threading.Lock()
        self._frame = topics.CAMERA_IMAGE.named(camera=name).frame
        compressed = topic.type == topics.CAMERA_COMPRESSED.type
        self._message = convert.compressed_to if compressed else convert.image_to
        self._images = publisher(node, topic)
        self._infos = publisher(node, info_topic(name, config))

    def open(self, scene: MujocoRobot | SceneCopy) -> None:
        """Prepare for drawing, in the thread that draws. Raises `SetupError` without OpenGL."""
        self._source = scene.camera(self._name, self._size)
        self._calibration = convert.pinhole(*self._size, self._source.fovy_rad)

    def draw(self, now_s: float) -> None:
        """Draw the scene as it is; the picture waits to be sent."""
        self._waiting.append((now_s, self._source.read()[1]))

    def send(self, now_s: float, delay_s: float) -> None:
        """Send the pictures that were drawn `delay_s` ago or before, stamped `delay_s` later."""
        with self._sending:  # who draws and who publishes states may be two threads
            while self._waiting and now_s - self._waiting[0][0] >= delay_s:
                drawn_s, rgb = self._waiting.popleft()
                stamp_s = drawn_s + delay_s
                picture = self._message(rgb, stamp_s, self._frame)
                spoilt = self._faults.spoil(self._topic, picture)
                if spoilt is None:
                    continue
                self._images.publish(spoilt)
                stamp_s = convert.from_stamp(spoilt.header.stamp)
                info = convert.camera_info_to(self._size, self._calibration, stamp_s, self._frame)
                self._infos.publish(info)
