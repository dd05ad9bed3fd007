"""Turns the gate's targets into joint targets for an arm whose driver takes no others.

The gate's targets are the TCP's. In a run of joint actions they are the joints', and only the way
there is cut into small steps, under the same limits. The node is a driver behind the gate: it obeys
`target_pose` (or `target_joints`) while the gate alone publishes there, has a time-out of its own,
and moves nothing unasked. Such a driver knows no TCP: its pose and twist are computed here from the
measured joints, and carry their stamps.

A velocity that was sent once goes on for ever when this process dies. So the watchdog listens to
`ik/heartbeat`, too, and switches the controller off when it is silent.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from std_msgs.msg import UInt64

from robot_rl.errors import ConfigError, LinkError, did_you_mean
from robot_rl.observe.freshness import percentile
from robot_rl.robots import Robot
from robot_rl.robots.driver import ArmDriver
from robot_rl.robots.ik import InverseKinematics
from robot_rl.ros import convert, topics
from robot_rl.ros.census import UNKNOWN
from robot_rl.ros.endpoints import Newest, publisher
from robot_rl.ros.joint_motion import OLD_S, Commanded, Doing, JointMotion, Measured, Readings
from robot_rl.ros.runtime import Pace, Shell
from robot_rl.types import Pose

log = logging.getLogger(__name__)

CENSUS_S = 0.1  # wall; publishers of targets are counted this often
BEAT_S = 0.02  # wall; as the gate's own beside a vendor's driver
TELL_S = 0.5  # wall; `ik/problem` is told again this often
REPORT_S = 1.0  # wall; figures for /diagnostics
AGAIN_S = 0.05  # wall; a command to stay is sent again this often
KEPT = 1000  # solve times of which the figures are made
OURS = "ik: "  # how `arm/problem` begins when it passes on `ik/problem`
TARGETS = {
    "position": "std_msgs/msg/Float64MultiArray",
    "velocity": "std_msgs/msg/Float64MultiArray",
    "trajectory": "trajectory_msgs/msg/JointTrajectory",
}


class IkNode:
    """One tick of measured joints, the gate's target, joint target; see the module.

    Args:
        of_joints: the gate's targets are the joints'.
    """

    def __init__(
        self,
        shell: Shell,
        robot: Robot,
        driver: ArmDriver,
        kinematics: InverseKinematics,
        *,
        of_joints: bool,
    ) -> None:
        self._shell, self._kinematics, self._driver = shell, kinematics, driver
        self._joints, self._names = driver.joints, list(robot.joint_names)
        self._order = joint_order(self._names, driver.joints.names)
        speed_rad_s = np.array([joint.velocity_rad_s for joint in robot.joints])
        self._motion = JointMotion(kinematics, self._joints, self._joints.speed * speed_rad_s)
        self._readings = Readings(robot, turns=self._joints.kind == "velocity")
        self._base, node = shell.params["base_frame"], shell.node
        self._target_topic = replace(topics.JOINT_TARGET, type=TARGETS[self._joints.kind])
        self._states = Newest(node, topics.JOINT_STATES)
        self._gates = topics.TARGET_JOINTS if of_joints else topics.TARGET_POSE
        self._read = self._joints_of if of_joints else self._pose_of
        self._targets = Newest(node, self._gates)
        self._stopped = Newest(node, topics.CONTROLLER_STOPPED)
        self._arm = Newest(node, topics.ARM_PROBLEM)
        self._out = publisher(node, self._target_topic)
        self._poses = publisher(node, topics.CURRENT_POSE)
        self._twists = publisher(node, topics.CURRENT_TWIST)
        self._beats = publisher(node, topics.IK_HEARTBEAT)
        self._problems = publisher(node, topics.IK_PROBLEM)
        self._heard = shell.diagnostics.source(topics.JOINT_STATES.name)
        self._measured: tuple[NDArray[np.float64], NDArray[np.float64], float] | None = None
        self._target: Pose | NDArray[np.float64] | None = None
        self._target_s = self._sent_s = -math.inf
        self._count = 0
        self._beat_s = self._census_s = self._tell_s = self._report_s = 0.0
        self._wrong = ""  # with the newest messages
        self._rivals, self._problem = "", "starting"
        self._right = set[bytes]()  # publishers of targets that once told the right name
        self._doing = Doing.OFF
        self._solve_s: deque[float] = deque(maxlen=KEPT)
        self._ticks, self._cpu = 0, (time.monotonic(), time.process_time())

    # --- what arrives ----------------------------------------------------------------------------

    def _take_joints(self) -> None:
        """Newest joints; the TCP that they make is published at once.

        Their publishers are not counted here: the gate does that, and `Readings` finds a stranger
        by what he says, at his first message.
        """
        for message in self._states.arrived():
            stamp_s = convert.from_stamp(message.header.stamp)
            try:
                q, v, _ = convert.joints_from(message, self._names, ())
            except LinkError as error:
                self._wrong = str(error)
                continue
            self._wrong = ""
            self._heard.saw(time.monotonic(), self._shell.now_s() - stamp_s)
            if self._measured is not None and stamp_s == self._measured[2]:
                continue
            here = self._readings.take(q, stamp_s, time.monotonic())
            if here is None:  # no pose, either: the gate does not follow the arm to there
                continue
            self._measured = here, v, stamp_s
            tcp, twist = self._kinematics.forward(here, v)
            self._poses.publish(convert.pose_to(tcp, stamp_s, self._base))
            self._twists.publish(convert.twist_to(twist, stamp_s, self._base))

    def _pose_of(self, message: Any) -> Pose:
        """A TCP target. Raises `LinkError`."""
        if message.header.frame_id != self._base:
            raise LinkError(
                "target_pose in another frame",
                expected=self._base,
                got=repr(message.header.frame_id),
            )
        return convert.pose_from(message)

    def _joints_of(self, message: Any) -> NDArray[np.float64]:
        """A joint target [J] in the robot's order. Raises `LinkError`."""
        return convert.positions_from(message, self._names)

    def _take_target(self, *, obey: bool) -> Pose | NDArray[np.float64] | None:
        """The newest target while it is fresh; what arrives meanwhile is forgotten otherwise."""
        for message in self._targets.arrived():
            try:
                self._target, self._target_s = self._read(message), time.monotonic()
            except LinkError as error:
                self._shell.diagnostics.error(str(error))
        if not obey:
            self._target = None
        if time.monotonic() - self._target_s > self._joints.timeout_s:
            self._target = None
        return self._target

    def _look_around(self) -> None:
        """Count who else publishes targets: of the TCP, or of the joints.

        A process that stood still for longer than DDS waits (3 s with our profile) comes back with
        its old identity, but without a name: the middleware does not tell names again.
        """
        if time.monotonic() < self._census_s:
            return
        self._census_s = time.monotonic() + CENSUS_S
        node = self._shell.node
        wrong = []
        for topic, own in ((self._gates, "gate"), (self._target_topic, node.get_name())):
            name = node.resolve_topic_name(topic.name)
            sources = node.get_publishers_info_by_topic(name)
            names = {bytes(source.endpoint_gid): source.node_name for source in sources}
            self._right |= {gid for gid, its in names.items() if its == own}
            back = {gid for gid, its in names.items() if its == UNKNOWN} & self._right
            others = sorted({its for gid, its in names.items() if gid not in back} - {own})
            wrong += [f"{', '.join(others)} publishes {name.lstrip('/')}, too"] if others else []
        self._rivals = "; ".join(wrong)

    def _now_measured(self) -> Measured | None:
        """The joints as far as they are known."""
        if self._measured is None or self._readings.why:
            return None
        q, v, stamp_s = self._measured
        return Measured(q, v, self._age_s(stamp_s))

    def _age_s(self, stamp_s: float) -> float:
        return abs(self._shell.now_s() - stamp_s)

    def _is_off(self) -> bool:
        """Whether the controller is off, or somebody else moves the arm."""
        stopped, arm = self._stopped.read(), self._arm.read()
        if stopped is not None and stopped.data:
            return True
        return self._driver.is_vendors and (arm is None or bool(arm.data))

    def _is_off_for_us(self) -> bool:
        """Whether nothing but our own `ik/problem` comes back to us as `arm/problem`.

        Nobody has moved the arm then. Whoever took new readings for the arm's on that ground would
        take those that are the problem, a moment later.
        """
        stopped, arm = self._stopped.value, self._arm.value
        is_stopped = stopped is not None and stopped.data
        return not is_stopped and arm is not None and arm.data.startswith(OURS)

    # --- one tick --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Hear, solve, command, tell."""
        self._take_joints()
        self._look_around()
        off = self._is_off()
        target = self._take_target(obey=not off and not self._rivals)
        begun_s = time.perf_counter()
        commanded = self._move(target, off=off)
        if commanded.doing is Doing.FOLLOW:
            self._solve_s.append(time.perf_counter() - begun_s)
        self._command(commanded)
        self._beat()
        self._tell()
        self._show(commanded)

    def _move(self, target: Pose | NDArray[np.float64] | None, *, off: bool) -> Commanded:
        """One tick of the joints, as far as they are known."""
        if off and not self._is_off_for_us():
            self._readings.forget()
        if self._readings.turned:
            self._motion.forget()
        if isinstance(target, np.ndarray):
            target = self._readings.in_turn(target)
        dt_s = 1.0 / self._joints.rate_hz
        return self._motion.tick(self._now_measured(), target, dt_s, off=off)

    def _command(self, commanded: Commanded) -> None:
        """Publish a joint target, while there is one; a command to stay once, and now and then."""
        position, velocity = commanded.position_rad, commanded.velocity_rad_s
        before, self._doing = self._doing, commanded.doing
        wall_s = time.monotonic()
        if position is None or velocity is None:
            if self._joints.kind == "velocity" and before is not Doing.OFF:
                self._send(np.zeros(len(self._names)), wall_s)
            return
        stays = commanded.doing is Doing.REST and before is Doing.REST
        if stays and wall_s < self._sent_s + AGAIN_S:
            return
        self._send(velocity if self._joints.kind == "velocity" else position, wall_s)

    def _send(self, values: NDArray[np.float64], wall_s: float) -> None:
        ordered, self._sent_s = values[self._order], wall_s
        if self._joints.kind != "trajectory":
            self._out.publish(convert.values_to(ordered))
            return
        names = [self._names[i] for i in self._order]
        self._out.publish(convert.trajectory_to(names, ordered, self._joints.point_s))

    def _beat(self) -> None:
        wall_s = time.monotonic()
        if wall_s >= self._beat_s:
            self._count += 1
            self._beats.publish(UInt64(data=self._count))
            self._beat_s = wall_s + BEAT_S

    def _tell(self) -> None:
        """Tell why nothing can be commanded; a change at once."""
        problem, wall_s = self._rivals or self._why_not(), time.monotonic()
        if problem == self._problem and wall_s < self._tell_s:
            return
        if problem != self._problem:
            log.warning("nothing moves: %s", problem) if problem else log.info("ready")
        self._problem, self._tell_s = problem, wall_s + TELL_S
        self._problems.publish(convert.text_to(problem))

    def _why_not(self) -> str:
        if self._wrong:
            return self._wrong.splitlines()[0]
        name = self._states.topic.name
        if self._measured is None:
            return f"nobody tells the joints ({name})"
        if self._readings.why:
            return f"{self._readings.why} ({name})"
        age_s = self._age_s(self._measured[2])
        return f"the joints are more than {OLD_S:g} s old ({name})" if age_s > OLD_S else ""

    def _show(self, commanded: Commanded) -> None:
        """Figures for /diagnostics, once a second."""
        self._ticks += 1
        wall_s = time.monotonic()
        if wall_s < self._report_s:
            return
        told, (since_s, used_s) = self._shell.diagnostics, self._cpu
        passed_s, cpu_s = wall_s - since_s, time.process_time()
        told.set("rate_hz", self._ticks / passed_s if passed_s > 0 else 0.0)
        told.set("cpu_share", (cpu_s - used_s) / passed_s if passed_s > 0 else 0.0)
        if self._solve_s:
            told.set("solve_p50_ms", percentile(self._solve_s, 0.50) * 1e3)
            told.set("solve_p99_ms", percentile(self._solve_s, 0.99) * 1e3)
        told.set("doing", commanded.doing.value)
        told.set("left_mm", commanded.left_m * 1e3)
        told.set("left_rad", commanded.left_rad)
        held = f"the target is out of reach: held by {commanded.held_by}"
        told.warn(self._problem or (held if commanded.held_by else ""))
        self._ticks, self._cpu, self._report_s = 0, (wall_s, cpu_s), wall_s + REPORT_S

    def come_to_rest(self, pace: Pace) -> None:
        """Brake before the process ends; the last thing that goes out is a command to stay."""
        for _ in range(round(self._joints.rate_hz)):
            self._take_joints()
            commanded = self._move(None, off=self._is_off())
            self._command(commanded)
            self._beat()
            if commanded.doing in (Doing.OFF, Doing.REST):
                break
            pace.sleep()


def joint_order(names: list[str], wanted: tuple[str, ...]) -> list[int]:
    """Index of the robot's joint in each place of a command; wanted: () = the robot's order.

    Raises:
        ConfigError: these are other joints than the robot's.
    """
    if not wanted:
        return list(range(len(names)))
    strange = [name for name in wanted if name not in names]
    if strange or len(wanted) != len(names):
        raise ConfigError(
            "driver.joints.names are not the robot's joints",
            expected=", ".join(names),
            got=", ".join(wanted),
            fix=did_you_mean(strange[0], names) if strange else "name each joint once",
        )
    return [names.index(name) for name in wanted]


def run_ik(
    shell: Shell,
    robot: Robot,
    driver: ArmDriver,
    kinematics: InverseKinematics,
    *,
    of_joints: bool,
) -> None:
    """Tick at the driver's rate until the node is told to end; then bring the joints to rest."""
    node = IkNode(shell, robot, driver, kinematics, of_joints=of_joints)
    pace = Pace(1.0 / driver.joints.rate_hz)
    while shell.running:
        shell.spin(0.0)
        node.tick()
        shell.diagnostics.set("late", pace.late)
        pace.sleep()
    node.come_to_rest(pace)
    time.sleep(0.05)  # reliable delivery needs the writer alive for a moment
