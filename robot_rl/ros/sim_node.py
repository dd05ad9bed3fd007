"""The simulated arm as a robot: topics, services and habits of a real one, plus /clock.

It imitates a CRISP-style impedance controller: targets are taken as they come (no time-out, no
stamp check), *everything* is ignored while a command topic has a second publisher, the error clip
and the target filter live in the controller (here in the MuJoCo model). Physics runs in the main
thread on absolute wall deadlines; when the machine is late, so is simulated time: no bursts.

Run time starts at `rtf` x the machine's monotonic clock, so it goes on after a kill -9 and a
restart instead of jumping back and confusing everybody who holds a deadline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Bool

from robot_rl.errors import LinkError, RobotRLError, SetupError
from robot_rl.experiment import Experiment
from robot_rl.ports import Camera, ResetPlan
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Newest, publisher, serve
from robot_rl.ros.runtime import Pace, Shell, run_node
from robot_rl.ros.tempo import Tempo
from robot_rl.types import Command, Driver, Pose, RobotState
from robot_rl_sim.robot import MujocoRobot

log = logging.getLogger(__name__)

SERVICE_PERIOD_S = 0.02  # wall; services and parameters are looked at this often
CAMERA_FOVY_RAD = 0.8  # only for camera_info when the camera does not say


class SimNode:
    """Glue between `MujocoRobot` and the topics."""

    def __init__(self, shell: Shell, experiment: Experiment) -> None:
        self.shell, self.task = shell, experiment.task
        p = self.params = shell.params
        self.robot = MujocoRobot(self.task)  # type: ignore[arg-type]  # tasks of a sim are SimTasks
        self.robot.reset(self._plan(experiment.seed))
        self._person = Newest(shell.node, topics.OPERATOR_PRESENT)
        self._gate = Newest(shell.node, topics.GATE_STATE)
        self._origin_s = p["rtf"] * time.monotonic()
        self._stopped = False
        self._ignored = self._taken = self._sequence = 0
        self._wall = (time.monotonic(), self.robot.now_s())
        node = shell.node
        self._target = Newest(node, topics.TARGET_POSE)
        self._gripper = Newest(node, topics.GRIPPER_COMMAND)
        self._joints = publisher(node, topics.JOINT_STATES)
        self._pose = publisher(node, topics.CURRENT_POSE)
        self._twist = publisher(node, topics.CURRENT_TWIST)
        self._wrench = publisher(node, topics.WRENCH)
        self._clock = publisher(node, topics.CLOCK)
        self._stopped_topic = publisher(node, topics.CONTROLLER_STOPPED)
        self._objects = {
            name: publisher(node, topics.OBJECT.named(object=name))
            for name in self.robot.read().objects
        }
        self._cameras = _Cameras(shell, self.robot, self.task) if p["camera_hz"] > 0 else None
        serve(node, topics.SIM_STOP, self.stop)
        serve(node, topics.SIM_RESUME, self.resume)
        serve(node, topics.SIM_PLACE, self.place_objects)
        node.add_on_set_parameters_callback(self._check_parameters)
        self._say_stopped()

    # --- time ------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Run time."""
        return self._origin_s + self.robot.now_s()

    # --- commands --------------------------------------------------------------------------------

    def take_commands(self) -> None:
        """Take up the newest target and gripper command, as the controller would."""
        targets, grips = list(self._target.arrived()), list(self._gripper.arrived())
        if not targets and not grips:
            return
        crowded = self._rivals()
        if self._stopped or crowded:
            self._ignored += len(targets) + len(grips)
            return
        try:
            width_m = convert.gripper_from(grips[-1]) if grips else None
            goal = self._goal(targets) or self.robot_goal
        except LinkError as error:  # NaN, not a unit quaternion: dropped, as real controllers do
            self._ignored += len(targets) + len(grips)
            self.shell.diagnostics.error(str(error))
            return
        self._taken += len(targets) + len(grips)
        self._apply(goal, width_m)

    def _goal(self, targets: list) -> Pose | None:
        if not targets:
            return None
        frame = targets[-1].header.frame_id
        if frame != self.params["base_frame"]:
            raise LinkError(
                "target_pose in another frame",
                expected=self.params["base_frame"],
                got=repr(frame),
                fix="send targets in the base frame (base_frame parameter of both nodes)",
            )
        return convert.pose_from(targets[-1])

    def _rivals(self) -> bool:
        """True while a command topic has more than one publisher."""
        counts = {
            topic.name: self.shell.node.count_publishers(topic.name)
            for topic in (topics.TARGET_POSE, topics.GRIPPER_COMMAND)
        }
        crowded = [f"{count} on {name}" for name, count in counts.items() if count > 1]
        text = f"commands ignored: {', '.join(crowded)} publishers" if crowded else ""
        self.shell.diagnostics.warn(text)
        return bool(crowded)

    def _apply(self, goal: Pose, width_m: float | None) -> None:
        self._sequence += 1
        self.robot_goal = goal
        self.robot.apply(
            Command(self._sequence, self.robot.now_s(), Driver.POLICY, "controller", goal, width_m)
        )

    # --- services --------------------------------------------------------------------------------

    def stop(self) -> str:
        """Protective stop of the controller: stay where the arm is, take no commands."""
        self._stopped = True
        self._apply(self.robot.read().tcp_in_base, None)
        self._say_stopped()
        log.warning("controller stopped")
        return "stopped; target = measured pose"

    def resume(self) -> str:
        """End of the stop. What was sent meanwhile is forgotten."""
        self.take_commands()
        self._stopped = False
        self._apply(self.robot.read().tcp_in_base, None)
        self._say_stopped()
        log.info("controller resumed")
        return "resumed"

    def place_objects(self) -> str:
        """Put the objects where `reset_plan` says."""
        text = str(self.shell.node.get_parameter("reset_plan").value)
        plan = wire.decode_plan(text)
        plan = self._plan(plan) if isinstance(plan, int) else plan
        try:
            self.robot.place_objects(plan)
        except RobotRLError as error:
            raise LinkError(error.summary, expected=error.expected, got=error.got) from error
        return f"placed {', '.join(plan.objects) or 'nothing'}"

    def _plan(self, seed: int) -> ResetPlan:
        return self.task.sample_reset(np.random.default_rng(seed))

    def _check_parameters(self, changes: list[Parameter]) -> SetParametersResult:
        for change in changes:
            if change.name == "reset_plan":
                try:
                    wire.decode_plan(str(change.value))
                except LinkError as error:
                    return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _say_stopped(self) -> None:
        self._stopped_topic.publish(Bool(data=self._stopped))

    # --- topics ----------------------------------------------------------------------------------

    def publish(self) -> None:
        """All state topics with one stamp, then /clock: who wakes on the clock finds the state."""
        now_s, p = self.now_s(), self.params
        state = replace(self.robot.read(), stamp_s=now_s)
        self._joints.publish(self._joint_states(state))
        self._pose.publish(convert.pose_to(state.tcp_in_base, now_s, p["base_frame"]))
        self._twist.publish(convert.twist_to(state.tcp_twist_in_base, now_s, p["base_frame"]))
        self._wrench.publish(convert.wrench_to(state.wrench_in_tcp, now_s, p["tcp_frame"]))
        for name, where in state.objects.items():
            self._objects[name].publish(convert.pose_to(where, now_s, p["base_frame"]))
        self._clock.publish(Clock(clock=convert.to_stamp(now_s)))
        if self._cameras is not None:
            self._cameras.publish(now_s)

    def _joint_states(self, state: RobotState) -> convert.JointState:
        fingers = self.params["finger_joint_names"]
        share_m = state.gripper_width_m / max(len(fingers), 1)
        return convert.joints_to(
            [*self.params["joint_names"], *fingers],
            [*state.joint_position_rad, *(share_m for _ in fingers)],
            [*state.joint_velocity_rad_s, *(0.0 for _ in fingers)],
            state.stamp_s,
        )

    def report(self, late: int) -> None:
        """Figures for /diagnostics."""
        wall_s, run_s = time.monotonic(), self.robot.now_s()
        before_wall_s, before_run_s = self._wall
        if wall_s - before_wall_s >= 1.0:
            achieved = (run_s - before_run_s) / (wall_s - before_wall_s)
            self._wall = (wall_s, run_s)
            self.shell.diagnostics.set("rtf_achieved", achieved)
        self.shell.diagnostics.set("commands_taken", self._taken)
        self.shell.diagnostics.set("commands_ignored", self._ignored)
        self.shell.diagnostics.set("stopped", self._stopped)
        self.shell.diagnostics.set("late_slices", late)

    def _factor(self, tempo: Tempo, now_s: float) -> float:
        """Real-time factor for now: is somebody late, and is there a person?"""
        for msg in self._gate.arrived():
            with suppress(LinkError):
                report = wire.decode_report(msg.data)
                tempo.hear(report.mode, report.reason, now_s)
        person = self._person.read()
        factor = tempo.factor(now_s, person=person is not None and bool(person.data))
        self.shell.diagnostics.set("rtf", factor)
        return factor

    def run(self) -> None:
        """Physics slices on absolute deadlines; topics every `publish_hz`, services in between."""
        p = self.params
        slices = max(1, round(1.0 / (p["publish_hz"] * p["slice_s"])))
        slice_s = 1.0 / (p["publish_hz"] * slices)
        pace, serve_s = Pace(slice_s / p["rtf"]), 0.0
        tempo = Tempo(p["rtf"])
        self.robot_goal = self.robot.read().tcp_in_base
        while self.shell.running:
            for _ in range(slices):
                self.take_commands()
                self.robot.advance(slice_s)
                pace.sleep()
            self.publish()
            if time.monotonic() - serve_s >= SERVICE_PERIOD_S:
                self.shell.spin(0.0)
                pace.period_s = slice_s / self._factor(tempo, time.monotonic())
                self.report(pace.late)
                serve_s = time.monotonic()


class _Cameras:
    """Renders at `camera_hz` of run time."""

    def __init__(self, shell: Shell, robot: MujocoRobot, task: object) -> None:
        from robot_rl_sim.camera import MujocoCamera  # needs OpenGL, so only when asked for

        self._period_s, self._due_s = 1.0 / shell.params["camera_hz"], 0.0
        names: Sequence[str] = getattr(task, "images", ())
        if not names:
            raise SetupError(
                "camera_hz is set, but this task has no cameras",
                expected="a task with images",
                got=f"task.images = {list(names)}",
                fix="set task.images=[wrist,front], or camera_hz=0",
            )
        size = task.image_size  # type: ignore[attr-defined]
        self._sources: list[tuple[Camera, str]] = [
            (MujocoCamera(robot, name, size), f"{name}_color_optical_frame") for name in names
        ]
        node = shell.node
        self._images = [publisher(node, topics.CAMERA_IMAGE.named(camera=n)) for n in names]
        self._infos = [publisher(node, topics.CAMERA_INFO.named(camera=n)) for n in names]

    def publish(self, now_s: float) -> None:
        """Send one frame of every camera when due."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._period_s - 1e-6
        rows = zip(self._sources, self._images, self._infos, strict=True)
        for (camera, frame), image_topic, info_topic in rows:
            _, rgb = camera.read()
            height, width, _ = rgb.shape
            fovy_rad = float(getattr(camera, "fovy_rad", CAMERA_FOVY_RAD))
            image_topic.publish(convert.image_to(rgb, now_s, frame))
            info_topic.publish(convert.camera_info_to(width, height, fovy_rad, now_s, frame))


def body(shell: Shell) -> None:
    """Build and run."""
    SimNode(shell, Experiment.load(Path(shell.params["run_dir"]))).run()


def main(args: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_node("sim", body, args)


if __name__ == "__main__":
    raise SystemExit(main())
