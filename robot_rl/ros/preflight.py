"""Is everything there that a run of this arm needs? Findings by name, each with its fix.

No rclpy in this module: `listen` of `robot_rl.ros.listening` observes for some seconds and moves
nothing; here the observations are judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import pose, quat_from_rotvec, quat_to_rotvec, rotation_error
from robot_rl.robots import Robot
from robot_rl.robots.driver import Payload, Ready, Tcp
from robot_rl.ros.topics import WRENCH, Topic
from robot_rl.types import Pose

OLD_PICTURE_S = 1.0  # from stamp to arrival; large pictures take longer than states
OLD_S = 0.5  # a stamp further from the system's clock than this is of another clock, or of the past
JITTER = 0.9  # a rate is counted over seconds, with what the machine does besides
ENOUGH = 20  # readings; fewer equal ones do not show that a topic is frozen
REACH_M = 3.0  # no arm of ours: a pose further away is in another unit
SLACK = 0.25  # of the stroke: the fingers may be this far beyond either end
TCP_M, TCP_RAD = 0.010, math.radians(2.0)  # two models of one arm differ by a few mm, tools by more
LOST = 0.02  # share of the messages that may be lost on their way to us


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the list. name: by which a person may accept it.

    status: ok; warn = slower, or worth a look; fail = nothing may move.
    """

    name: str
    status: str
    text: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What was heard of one topic.

    types: that are published; publishers: nodes; age_s: from stamp to arrival, median; moves:
    whether stamps advance; frozen: the values never change, although they are measured; frames:
    that the messages name; lost: share of the messages that were published and did not arrive, by
    the publisher's own count, None where the middleware does not tell it.
    """

    topic: str
    wanted_type: str
    types: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()
    count: int = 0
    rate_hz: float = 0.0
    age_s: float = 0.0
    moves: bool = True
    frozen: bool = False
    frames: tuple[str, ...] = ()
    lost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All that was observed of a driver.

    heard: our name of a topic -> what was heard; frames_known: frames that /tf_static connects with
    the base, or with the TCP; joints: names in joint_states; fingers: sum of the finger joints in
    the driver's unit, None where some are missing; reach_m: distance of the TCP from the base; tcp:
    its pose in the base as the driver says, and as `Needed.tcp_at` has it at the joints that were
    measured then, None where one of the two is not known;
    controllers: name -> state, None when nobody lists them; served: services and actions;
    target_publishers: nodes that publish targets; told: what the driver says of itself (readiness,
    payload, TCP), judged already; pictures: camera -> (height, width); picture_age_s: camera ->
    from the stamp of its newest picture to its arrival.
    """

    heard: Mapping[str, Heard]
    frames_known: frozenset[str] = frozenset()
    joints: tuple[str, ...] = ()
    fingers: float | None = None
    reach_m: float | None = None
    tcp: tuple[Pose, Pose] | None = None
    controllers: Mapping[str, str] | None = None
    served: frozenset[str] = frozenset()
    target_publishers: tuple[str, ...] = ()
    told: tuple[Finding, ...] = ()
    pictures: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    picture_age_s: Mapping[str, float] = field(default_factory=dict)
    learner: str = ""  # why it cannot be reached; "" when it can, or when we start it


@dataclass(frozen=True, kw_only=True)
class Needed:
    """What the run needs of the driver.

    min_hz: our name of a topic -> rate; frames: our name of a topic -> frame; joints, fingers:
    names; tool: the robot's TCP in its flange; tcp_at: joint angles [J] rad -> the robot's TCP in
    its base; ends: sum of the finger joints when closed and opened; services: what stops the arm,
    the gripper ...: name -> what it is for; controllers: that must be active; loaded: that must be
    there; pictures: camera -> (topic, height, width), the size at least.
    """

    min_hz: Mapping[str, float]
    frames: Mapping[str, str]
    joints: tuple[str, ...]
    tool: Pose
    tcp_at: Callable[[NDArray[np.float64]], Pose] | None = None
    fingers: tuple[str, ...] = ()
    ends: tuple[float, float] = (0.0, 1.0)
    services: Mapping[str, str] = field(default_factory=dict)
    controllers: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    pictures: Mapping[str, tuple[Topic, int, int]] = field(default_factory=dict)


def judge(seen: Seen, needed: Needed) -> list[Finding]:
    """Every item of the list, in the order in which a person would mend them."""
    found = [_topic(key, seen.heard[key], needed, seen.frames_known) for key in seen.heard]
    units = _units(seen, needed)
    found += [_joints(seen, needed), units]
    found += [kinematics(*seen.tcp)] if seen.tcp and units.status == "ok" else []
    found += [_served(name, what, seen) for name, what in needed.services.items()]
    found += [_controllers(seen, needed)] if needed.controllers else []
    found += seen.told
    found.append(_target(seen.target_publishers))
    found += [_picture(camera, seen, needed) for camera in needed.pictures]
    found.append(_learner(seen.learner))
    return [finding for finding in found if finding.text]


def _topic(key: str, heard: Heard, needed: Needed, known: frozenset[str]) -> Finding:
    """Presence, type, rate, stamps and frame of one topic: the first that is wrong."""
    for wrong, text, fix in _wrongs(key, heard, needed, known):
        if wrong:
            return Finding(key, "fail", f"{heard.topic} {text}", fix)
    text = f"{heard.topic} at {heard.rate_hz:.0f} Hz"
    if heard.lost is None:
        return Finding(key, "ok", text)
    if heard.lost > LOST:
        text += f", of which {heard.lost:.0%} are lost on the way"
        return Finding(key, "warn", text, "a faster network or machine; fewer or smaller pictures")
    return Finding(key, "ok", f"{text}, {heard.lost:.1%} lost")


def _wrongs(
    key: str, heard: Heard, needed: Needed, known: frozenset[str]
) -> Iterator[tuple[object, str, str]]:
    """(whether it is wrong, what is wrong, the fix), in the order in which they hide each other."""
    wanted, slow_hz = needed.frames.get(key, ""), needed.min_hz.get(key, 0.0)
    others = [kind for kind in heard.types if kind != heard.wanted_type]
    strange = [f for f in heard.frames if wanted and f != wanted and f not in known]
    who = ", ".join(heard.publishers)
    yield not who, "is published by nobody", _START.format(topic=heard.topic)
    yield (
        others,
        f"is published as {', '.join(others)}, not as {heard.wanted_type}",
        "remap another topic: driver.topics, or ros.remaps",
    )
    yield (
        not heard.count,
        f"has a publisher ({who}) that says nothing",
        "look at that node's log; is its controller active?",
    )
    yield (
        len(heard.publishers) > 1,
        f"has {len(heard.publishers)} publishers: {who}",
        "end all but one of these nodes",
    )
    yield not heard.moves, "repeats one old message: stale", "start the driver again"
    yield (
        abs(heard.age_s) > OLD_S,
        f"has stamps {heard.age_s:.1f} s from this machine's clock: clock skew",
        "synchronise the clocks (chrony); switch use_sim_time off",
    )
    yield (
        heard.frozen,
        f"says the same values in each of {heard.count} messages: frozen",
        "start the driver again; is the arm switched on?",
    )
    mend = "start robot_state_publisher, or set the frame in the driver"
    if strange and key == WRENCH.name:
        mend += f"; {tcp_or_flange(needed.tool, strange[0], wanted)}"
    yield (
        strange,
        f"comes in frame {', '.join(strange)}, which nothing connects with {wanted}",
        mend,
    )
    yield (
        heard.rate_hz < JITTER * slow_hz,
        f"comes at {heard.rate_hz:.0f} Hz, at least {slow_hz:.0f} Hz are needed",
        "raise its rate in the driver's own configuration",
    )


_START = "start the driver; another name of the topic: driver.topics ({topic}), or ros.remaps"


def _joints(seen: Seen, needed: Needed) -> Finding:
    if not seen.joints:
        return Finding("joints", "ok", "")
    missing = [name for name in needed.joints if name not in seen.joints]
    if missing:
        text = f"joint_states lacks {', '.join(missing)}"
        return Finding("joints", "fail", text, "choose the robot's own profile, or its joint names")
    if needed.fingers and seen.fingers is None:
        text = f"nobody tells the finger joints {', '.join(needed.fingers)}"
        fix = "start the gripper's driver; driver.gripper.state_topic and joints name where it is"
        return Finding("fingers", "fail", text, fix)
    return Finding("joints", "ok", f"{len(needed.joints)} joints and the fingers, by name")


def _units(seen: Seen, needed: Needed) -> Finding:
    low, high = min(needed.ends), max(needed.ends)
    room = SLACK * (high - low)
    if seen.fingers is not None and not low - room <= seen.fingers <= high + room:
        text = f"the fingers are at {seen.fingers:.3g}, outside [{low:g}, {high:g}]"
        fix = "the unit differs: set driver.gripper.opened_joints and closed_joints"
        return Finding("units", "fail", text, fix)
    if seen.reach_m is not None and seen.reach_m > REACH_M:
        text = f"the TCP is {seen.reach_m:.0f} m from the base: millimetres?"
        return Finding("units", "fail", text, "have the driver publish metres")
    return Finding("units", "ok", "metres and radians")


def _served(name: str, what: str, seen: Seen) -> Finding:
    if name in seen.served:
        return Finding(what, "ok", f"{name} is served")
    return Finding(what, "fail", f"nobody serves {name}", "start the node that serves it")


def _controllers(seen: Seen, needed: Needed) -> Finding:
    if seen.controllers is None:
        return Finding("controllers", "ok", "")  # the service that lists them is a line of its own
    states = seen.controllers
    for name in needed.controllers:
        if states.get(name) != "active":
            text = f"controller {name} is {states.get(name, 'not loaded')}"
            fix = f"ros2 control set_controller_state {name} active"
            return Finding("controllers", "fail", text, fix)
    for name in needed.loaded:
        if name not in states:
            text = f"controller {name} is not loaded"
            fix = f"ros2 run controller_manager spawner {name} --inactive"
            return Finding("controllers", "fail", text, fix)
    return Finding("controllers", "ok", f"{', '.join(needed.controllers)} active")


def ready(wanted: Ready, value: Any) -> Finding:
    """Whether the driver says that it would move. value: what it says."""
    if value == wanted.value:
        return Finding(wanted.topic, "ok", "ready")
    said = wanted.words.get(str(value).lower(), str(value))
    return Finding(wanted.topic, "fail", f"{wanted.topic} says {said}", _CLEAR)


_CLEAR = "clear the cause at the robot, then arm/recover"


def payload(wanted: Payload, mass_kg: float) -> Finding:
    """Whether the driver compensates what is mounted. mass_kg: what it compensates."""
    text = f"the driver compensates {mass_kg:.2f} kg"
    if abs(mass_kg - wanted.mass_kg) <= wanted.tolerance_kg:
        return Finding("payload", "ok", text)
    return Finding(
        "payload",
        "fail",
        f"{text}, the profile says {wanted.mass_kg:.2f} kg",
        "set the payload in the driver (Desk, pendant, set_load); another tool: "
        "driver.payload.mass_kg",
    )


def tool_of(robot: Robot) -> Pose:
    """The robot's TCP in its flange."""
    turned = quat_from_rotvec((0.0, 0.0, robot.gripper.yaw_rad))
    return pose((0.0, 0.0, robot.gripper.tcp_m), turned)


def tcp(wanted: Tcp, own: Pose, told: Pose) -> Finding:
    """Whether the driver's TCP is the robot's own; both in the flange."""
    away_m = float(np.linalg.norm(told.position_m - own.position_m))
    turned_rad = float(np.linalg.norm(rotation_error(told, own)))
    if away_m <= wanted.tolerance_m and turned_rad <= wanted.tolerance_rad:
        return Finding("tcp", "ok", "the driver's TCP is the robot's")
    text = f"the driver's TCP is {away_m * 1e3:.0f} mm and {math.degrees(turned_rad):.0f} degrees"
    fix = "set the end effector in the driver (Desk, pendant, set_tcp_frame), or choose the robot's"
    return Finding("tcp", "fail", f"{text} from the robot's", f"{fix} own profile")


def tcp_or_flange(tool: Pose, frame: str, tcp_frame: str) -> str:
    """What to do about a wrench in a frame that nothing connects with the TCP's.

    tool: the TCP in the flange.
    """
    yaw_rad = float(quat_to_rotvec(tool.quaternion_xyzw)[2])  # `tool_of` turns about z only
    return (
        f"if {frame} is at the TCP: driver.tcp_frame={frame}; if it is the flange: "
        f"ros2 run tf2_ros static_transform_publisher --z {tool.position_m[2]:g} "
        f"--yaw {yaw_rad:.6g} --frame-id {frame} --child-frame-id {tcp_frame}"
    )


def kinematics(told: Pose, own: Pose) -> Finding:
    """Whether the pose that the driver publishes is that of the robot's TCP.

    Box, targets and pictures are of the robot's TCP: with another tool frame in the driver, or
    another robot's file, the gate guards another place.

    Args:
        told: by the driver; own: by the robot's kinematics at the measured joints; both in base.
    """
    away_m = float(np.linalg.norm(told.position_m - own.position_m))
    turned_rad = float(np.linalg.norm(rotation_error(told, own)))
    apart = f"{away_m * 1e3:.0f} mm and {math.degrees(turned_rad):.1f} degrees"
    if away_m <= TCP_M and turned_rad <= TCP_RAD:
        return Finding("kinematics", "ok", f"the driver's TCP is the robot's, to {apart}")
    return Finding(
        "kinematics",
        "fail",
        f"current_pose is at {_in_mm(told)}, by the measured joints the robot's TCP is at "
        f"{_in_mm(own)}: {apart} apart, expected at most {TCP_M * 1e3:.0f} mm and "
        f"{math.degrees(TCP_RAD):.0f} degrees",
        "set the driver's tool frame to the TCP (its end effector link, driver.tcp_frame), or "
        "choose the robot's own file: tool, TCP and base",
    )


def _in_mm(where: Pose) -> str:
    return f"[{', '.join(f'{1e3 * v:.0f}' for v in where.position_m)}] mm"


def _target(publishers: Sequence[str]) -> Finding:
    others = [node for node in publishers if node not in ("gate", "ik")]
    if others:
        text = f"{', '.join(others)} publishes targets, too: the arm would obey both, or nobody"
        return Finding("target_pose", "fail", text, "end that node")
    return Finding("target_pose", "ok", "nobody else publishes targets")


def _picture(camera: str, seen: Seen, needed: Needed) -> Finding:
    topic, height, width = needed.pictures[camera]
    size = seen.pictures.get(camera)
    if size is None:
        text = f"no picture on {topic.name}"
        return Finding(f"camera {camera}", "fail", text, "start the camera")
    if size[0] < height or size[1] < width:
        text = f"{topic.name} is {size[1]} x {size[0]}, smaller than the {width} x {height} needed"
        return Finding(f"camera {camera}", "fail", text, "choose a larger profile of the camera")
    age_s = seen.picture_age_s.get(camera, 0.0)
    if abs(age_s) > OLD_PICTURE_S:
        text = (
            f"{topic.name} has stamps {age_s:.1f} s from this machine's clock: old, or clock skew"
        )
        fix = "start the camera's node again; synchronise the clocks (chrony)"
        return Finding(f"camera {camera}", "fail", text, fix)
    return Finding(f"camera {camera}", "ok", f"{size[1]} x {size[0]}, {age_s * 1e3:.0f} ms old")


def _learner(why: str) -> Finding:
    if why:
        return Finding("learner", "fail", why, "start robot-rl learner RUN there; open the port")
    return Finding("learner", "ok", "reachable, or the run begins without it")
