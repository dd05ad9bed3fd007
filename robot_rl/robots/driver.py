"""How an arm's own ROS 2 driver speaks: names, frames, services (section `driver` of a run).

Facts of a vendor's interface and no code. A profile (`configs/robot/ur5e_fzi.yaml`) is a robot with
its driver; `robot_rl.ros` reads it, the double of a robot (`ros.double=true`) wears it. Without a
profile the driver speaks as our simulated arm does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GRIPPERS = ("none", "width", "topic", "command", "franka")
JOINTS = ("none", "position", "velocity", "trajectory")

TRIGGER = "std_srvs/srv/Trigger"


@dataclass(frozen=True, kw_only=True)
class Call:
    """A service (`package/srv/Type`) or action (`package/action/Type`) that is called empty."""

    name: str
    type: str = TRIGGER

    @property
    def is_action(self) -> bool:
        """Whether it is an action."""
        return "/action/" in self.type


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A topic on which the driver says whether it would move the arm.

    Whatever may not move without a person's hand belongs here, too: an enabling device with three
    positions is one more entry. member: of the message, `a.b` = member b of its member a; value:
    what it holds when all is well; words: what other values mean, for people; latched: sent once
    and kept for whoever comes later (transient local).
    """

    topic: str
    type: str
    member: str = "data"
    value: Any = True
    words: dict[str, str] = field(default_factory=dict)
    latched: bool = False


@dataclass(frozen=True, kw_only=True)
class Payload:
    """Where the driver tells the mass that it compensates behind the flange, and what is right.

    A driver with a wrong mass feels a force where nothing touches the tool, and sags or rises when
    it should stand still. member: as in `Ready`; mass_kg: of gripper and whatever else is mounted,
    with nothing in the fingers.
    """

    topic: str
    type: str
    member: str
    mass_kg: float
    tolerance_kg: float = 0.1
    latched: bool = False

    def __post_init__(self) -> None:
        """Refuse a mass below nothing, and a tolerance that nothing fits into."""
        if self.mass_kg < 0.0 or self.tolerance_kg <= 0.0:
            raise ValueError("mass_kg must not be negative, tolerance_kg must be positive")


@dataclass(frozen=True, kw_only=True)
class Tcp:
    """Where the driver tells the pose of its TCP in the flange, which must be the robot's own.

    Forces are told about the driver's TCP, and limits hold for the robot's: they have to be one.
    member: as in `Ready`, a PoseStamped.
    """

    topic: str
    type: str
    member: str
    tolerance_m: float = 0.002
    tolerance_rad: float = 0.02
    latched: bool = False

    def __post_init__(self) -> None:
        """Refuse tolerances that nothing fits into."""
        if self.tolerance_m <= 0.0 or self.tolerance_rad <= 0.0:
            raise ValueError("tolerance_m and tolerance_rad must be positive")


Told = Ready | Payload | Tcp
"""A member of a message on a topic of the driver: topic, type, member, latched."""


@dataclass(frozen=True, kw_only=True)
class Controllers:
    """Controllers of `ros2_control`.

    manager: node of the controller manager, "" = there is none and `ros.stop_service` stops the
    arm. cartesian: moves the arm in a run, by TCP targets or by what the node `ik` makes of them
    (`ArmDriver.joints`); switched off to stop the arm. beside: must be active, too (broadcasters).
    home: takes joint trajectories; active only while the arm goes home, unless it is the first.
    """

    manager: str = ""
    cartesian: str = ""
    beside: tuple[str, ...] = ()
    home: str = ""
    home_s: float = 6.0  # from wherever the arm is

    def __post_init__(self) -> None:
        """Refuse a manager without a controller to switch."""
        if bool(self.manager) != bool(self.cartesian):
            raise ValueError("manager and cartesian belong together: name both or neither")


@dataclass(frozen=True, kw_only=True)
class JointDriver:
    """How the arm takes joint targets, when it has no controller for TCP targets.

    Then the node `ik` turns the gate's TCP targets into joint targets, and tells the TCP's pose and
    twist, which such a driver does not know.

    kind: none (the arm takes TCP targets); position, velocity (Float64MultiArray, as the forward
    controllers of ros2_control take it); trajectory (JointTrajectory of one point, as the joint
    trajectory controller takes it). names: order in which the controller wants the joints; () = the
    robot's. rate_hz: of the joint targets. timeout_s: without a new TCP target for this long the
    joints come to rest; longer than the gate's own time-out. ahead_rad: a joint is never commanded
    further from where it was measured, so that an arm that was blocked does not jump. speed: share
    of each joint's velocity that is used. point_s: time in which a trajectory's point is to be
    reached. gain_1_s: of a velocity's correction by the position that was left behind.
    """

    kind: str = "none"
    names: tuple[str, ...] = ()
    rate_hz: float = 125.0
    timeout_s: float = 0.2
    ahead_rad: float = 0.15
    speed: float = 0.5
    point_s: float = 0.03
    gain_1_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse an unknown kind, and numbers that cannot be."""
        if self.kind not in JOINTS:
            raise ValueError(f"kind must be one of {', '.join(JOINTS)}, got {self.kind!r}")
        bounds = {
            "rate_hz": (100.0, 1000.0),
            "timeout_s": (0.05, 2.0),
            "ahead_rad": (0.01, 0.5),
            "speed": (0.01, 1.0),
            "point_s": (0.005, 0.5),
            "gain_1_s": (0.0, 50.0),
        }
        for name, (low, high) in bounds.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(
                    f"{name} must lie in [{low:g}, {high:g}], got {getattr(self, name)}"
                )
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"names must be different from each other, got {list(self.names)}")

    @property
    def is_used(self) -> bool:
        """Whether the arm takes joint targets."""
        return self.kind != "none"


@dataclass(frozen=True, kw_only=True)
class GripperDriver:
    """How the gripper is commanded and read.

    kind: none; width (Float64MultiArray in metres, from the gate itself); topic (Float64MultiArray
    in the driver's unit, e.g. of a position controller of ros2_control); command (control_msgs
    GripperCommand); franka (franka_msgs Move and Grasp). name: topic or action; for franka the
    node. opened, closed: what is commanded for the whole stroke and for 0, in the driver's own unit
    (a Robotiq knuckle is in radians). joints: their sum is read from `state_topic`, opened_joints
    and closed_joints at the two ends. max_effort: of a GripperCommand; force_n and speed_m_s: of
    Franka's actions.
    """

    kind: str = "width"
    name: str = "gripper/command"
    opened: float = 0.08
    closed: float = 0.0
    max_effort: float = 40.0
    force_n: float = 40.0
    speed_m_s: float = 0.1
    state_topic: str = "joint_states"
    state_hz: float = 0.0  # slower than the arm's own joints; 0 = as fast
    joints: tuple[str, ...] = ()  # () = the fingers of the robot
    opened_joints: float = 0.08
    closed_joints: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an unknown kind, and two ends that are one."""
        if self.kind not in GRIPPERS:
            raise ValueError(f"kind must be one of {', '.join(GRIPPERS)}, got {self.kind!r}")
        if self.opened == self.closed or self.opened_joints == self.closed_joints:
            raise ValueError("opened and closed are the same value: the gripper could not move")

    def commanded(self, width_m: float, stroke_m: float) -> float:
        """Finger distance [m] -> what the driver is told."""
        share = min(max(width_m / stroke_m, 0.0), 1.0)
        return self.closed + share * (self.opened - self.closed)

    def asked_width_m(self, value: float, stroke_m: float) -> float:
        """Inverse of `commanded`."""
        return stroke_m * (value - self.closed) / (self.opened - self.closed)

    def width_m(self, joints: float, stroke_m: float) -> float:
        """Sum of the finger joints, in the driver's unit -> finger distance [m]."""
        span = self.opened_joints - self.closed_joints
        return stroke_m * (joints - self.closed_joints) / span

    def joint_sum(self, width_m: float, stroke_m: float) -> float:
        """Inverse of `width_m`."""
        span = self.opened_joints - self.closed_joints
        return self.closed_joints + span * width_m / stroke_m


@dataclass(frozen=True, kw_only=True)
class ArmDriver:
    """What a driver is called and how it speaks.

    title: for people; "" = no driver of a vendor. packages: message packages of the vendor that
    must be there. topics: our topic -> the driver's, where they differ. twist, wrench: "topic";
    a twist may be "derived" from the poses; without a wrench ("none") no force stops the arm.
    tcp_frame: frame of the TCP; a wrench in another frame is turned into it through TF.
    wrench_sign: -1 where the driver tells what the arm does to the world. joints: how the arm takes
    joint targets, where it takes no TCP targets; else kind none. ready: all must hold
    before anything moves. recover: what a person's `arm/recover` calls, in this order, after the
    driver's own protective stop. tare: sets the wrench to zero. min_hz: topic (our name) -> rate
    below which the arm must not move. payload, tcp: where the driver tells them; None = it does
    not, and nobody checks them.
    """

    title: str = ""
    packages: tuple[str, ...] = ()
    topics: dict[str, str] = field(default_factory=dict)
    twist: str = "topic"
    wrench: str = "topic"
    wrench_sign: float = 1.0
    tcp_frame: str = "tcp"
    controllers: Controllers = Controllers()
    joints: JointDriver = JointDriver()
    gripper: GripperDriver = GripperDriver()
    ready: tuple[Ready, ...] = ()
    recover: tuple[Call, ...] = ()
    tare: str = ""
    min_hz: dict[str, float] = field(default_factory=dict)
    payload: Payload | None = None
    tcp: Tcp | None = None

    def __post_init__(self) -> None:
        """Refuse sources that are none."""
        if self.twist not in ("topic", "derived"):
            raise ValueError(f"twist must be topic or derived, got {self.twist!r}")
        if self.wrench not in ("topic", "none"):
            raise ValueError(f"wrench must be topic or none, got {self.wrench!r}")
        if self.wrench_sign not in (1.0, -1.0):
            raise ValueError(f"wrench_sign must be 1 or -1, got {self.wrench_sign}")

    @property
    def is_vendors(self) -> bool:
        """Whether a vendor's driver is described, which the `arm` node then speaks with."""
        return bool(self.title)

    @property
    def told(self) -> tuple[Told, ...]:
        """What the driver tells of itself beside the arm's state, several perhaps on one topic."""
        return (*self.ready, *(told for told in (self.payload, self.tcp) if told is not None))
