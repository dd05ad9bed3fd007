"""Universal Robots UR5e with a Robotiq 2F-85.

Kinematics, ranges, velocities, torques and inertials: Universal_Robots_ROS2_Description (BSD); the
inertia tensors are turned from its inertial frames into those of the links. Base is its `base_link`
(UR's own `base` differs by half a turn about z). The 2F-85 is simplified: its four-bar fingers are
modelled as two parallel ones with the real pads, stroke and pinch point; the masses of the fingers
are estimates. The reflected rotor inertia is MuJoCo Menagerie's. Never run on the real arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robot_rl.config.registry import register
from robot_rl.robots.robot import (
    UPRIGHT,
    Capsule,
    Cover,
    Gripper,
    Inertial,
    Joint,
    Robot,
    axle,
    box,
    drum,
    rod,
)

TURN = math.pi / 2
QUARTER = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))  # a quarter turn about x
BACK = (-math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))
ROUND = (-2 * math.pi, 2 * math.pi)
SPEED_RAD_S = math.pi
TCP_M = 0.1545  # 9 mm above the fingertips, as on the Franka Hand; the pads' middle is at 0.145

JOINTS = (
    Joint(
        "shoulder_pan_joint",
        (0.0, 0.0, 0.1625),
        (0.0, 0.0, 1.0, 0.0),  # at 0 the arm points along +x of the base
        ROUND,
        SPEED_RAD_S,
        150.0,
        Inertial(
            3.761,
            (0.0, -0.00193, -0.02561),
            (0.00700210, 0.00657286, 0.00648091, 0.00001053, 0.00000073, -0.00049994),
        ),
    ),
    Joint(
        "shoulder_lift_joint",
        (0.0, 0.0, 0.0),
        QUARTER,
        ROUND,
        SPEED_RAD_S,
        150.0,
        Inertial(
            8.058,
            (-0.2125, 0.0, 0.11336),
            (0.01505885, 0.33388086, 0.33247207, -0.00005400, 0.00000563, -0.00000181),
        ),
    ),
    Joint(
        "elbow_joint",
        (-0.425, 0.0, 0.0),
        UPRIGHT,
        (-math.pi, math.pi),
        SPEED_RAD_S,
        150.0,
        Inertial(
            2.846,
            (-0.2422, 0.0, 0.0265),
            (0.00399632, 0.07879254, 0.07848510, -0.00001365, 0.00137272, -0.00000660),
        ),
    ),
    Joint(
        "wrist_1_joint",
        (-0.3922, 0.0, 0.1333),
        UPRIGHT,
        ROUND,
        SPEED_RAD_S,
        28.0,
        Inertial(
            1.37,
            (0.0, -0.01634, -0.0018),
            (0.00165491, 0.00126279, 0.00135962, 0.00000438, -0.00000282, -0.00010157),
        ),
    ),
    Joint(
        "wrist_2_joint",
        (0.0, -0.0997, 0.0),
        QUARTER,
        ROUND,
        SPEED_RAD_S,
        28.0,
        Inertial(
            1.3,
            (0.0, 0.01634, -0.0018),
            (0.00135617, 0.00096614, 0.00127827, 0.00000444, 0.00000274, 0.00005048),
        ),
    ),
    Joint(
        "wrist_3_joint",
        (0.0, 0.0996, 0.0),
        BACK,
        ROUND,
        SPEED_RAD_S,
        28.0,
        Inertial(
            0.365,
            (0.0, 0.0, -0.001159),
            (0.00018694, 0.00018908, 0.00025756, 0.00000006, -0.00000017, -0.00000092),
        ),
    ),
)

COVERS: dict[int, tuple[Cover, ...]] = {
    0: (drum((0, 0, 0), (0, 0, 0.10), 0.075, "joint"),),
    1: (
        drum((0, 0, -0.065), (0, 0, 0.055), 0.062, "cover"),
        *axle((0, -0.06, 0), (0, 1, 0), 0.058, 0.06),
    ),
    2: (
        drum((0, 0, 0.075), (0, 0, 0.195), 0.058, "cover"),
        drum((0, 0, 0.138), (-0.425, 0, 0.138), 0.052, "cover"),
        drum((-0.425, 0, 0.075), (-0.425, 0, 0.195), 0.055, "joint"),
    ),
    3: (
        drum((0, 0, -0.05), (0, 0, 0.07), 0.055, "cover"),
        drum((0, 0, 0.016), (-0.3922, 0, 0.016), 0.042, "cover"),
        rod((-0.3922, 0, -0.03), (-0.3922, 0, 0.05), 0.042, "cover"),
    ),
    4: (
        drum((0, 0, -0.055), (0, 0, 0.055), 0.041, "joint"),
        rod((0, 0, 0), (0, -0.06, 0), 0.040, "cover"),
    ),
    5: (
        drum((0, 0, -0.055), (0, 0, 0.055), 0.041, "joint"),
        rod((0, 0, 0), (0, 0.06, 0), 0.040, "cover"),
    ),
    6: (drum((0, 0, -0.045), (0, 0, 0.0), 0.0375, "joint"),),
}

CAPSULES = (  # around COVERS and the hand; a test holds them to it
    Capsule(0, (0.0, 0.0, 0.0678), (0.0, 0.0, 0.0322), 0.0822),
    Capsule(1, (0.0, 0.0, -0.0251), (0.0, 0.0, 0.0151), 0.0743),
    Capsule(1, (0.0, -0.087, 0.0), (0.0, -0.033, 0.0), 0.0673),
    Capsule(2, (0.0, 0.0, 0.1148), (0.0, 0.0, 0.1551), 0.0709),
    Capsule(2, (-0.42, 0.0, 0.138), (-0.0049, 0.0, 0.138), 0.0528),
    Capsule(2, (-0.425, 0.0, 0.094), (-0.425, 0.0, 0.176), 0.0587),
    Capsule(3, (0.0, 0.0, -0.031), (0.0, 0.0, 0.051), 0.0587),
    Capsule(3, (-0.3922, 0.0, 0.016), (0.0, 0.0, 0.016), 0.0425),
    Capsule(3, (-0.3922, 0.0, -0.03), (-0.3922, 0.0, 0.05), 0.0425),
    Capsule(4, (0.0, 0.0, -0.04), (0.0, 0.0, 0.04), 0.0442),
    Capsule(4, (0.0, 0.0, 0.0), (0.0, -0.06, 0.0), 0.0405),
    Capsule(5, (0.0, 0.0, -0.04), (0.0, 0.0, 0.04), 0.0442),
    Capsule(5, (0.0, 0.0, 0.0), (0.0, 0.06, 0.0), 0.0405),
    Capsule(6, (0.0, 0.0, -0.0196), (0.0, 0.0, -0.0254), 0.0429),
    Capsule(7, (0.0, 0.0, 0.0399), (0.0, 0.0, 0.0541), 0.0714),
    Capsule(7, (0.045, 0.0, 0.041), (0.069, 0.0, 0.048), 0.0265),  # camera
)
NEIGHBOURS = ((0, 2), (4, 6), (5, 7))  # each turns on the spot against the other

ROBOTIQ_2F85 = Gripper(
    name="Robotiq 2F-85",
    yaw_rad=0.0,
    tcp_m=TCP_M,
    stroke_m=0.085,
    force_n=70.0,  # it can do 20 to 235
    speed_m_s=0.1,  # it can do 0.02 to 0.15
    fingers=("robotiq_85_left_finger_joint", "robotiq_85_right_finger_joint"),
    hand=Inertial(0.777, (0.0, 0.0, 0.04), (0.0010, 0.0010, 0.0007, 0.0, 0.0, 0.0)),
    finger=Inertial(0.05, (0.0, 0.008, 0.03), (3.0e-5, 3.0e-5, 5.0e-6, 0.0, 0.0, 0.0)),
    finger_mount_m=0.100,
    pad_half_m=(0.011, 0.004, 0.01875),
    pad_m=(0.0, 0.004, 0.045),
    hull=((0.0375, 0.045, 0.047), (0.0, 0.0, 0.047)),
    covers=(
        drum((0, 0, 0), (0, 0, 0.012), 0.0375, "joint"),
        box((0.0375, 0.045, 0.040), (0, 0, 0.052), "dark"),
    ),
    finger_covers=(
        box((0.0110, 0.0090, 0.0180), (0, 0.0130, 0.010), "joint"),
        box((0.0110, 0.0040, 0.01875), (0, 0.0040, 0.045), "dark"),
    ),
    wrist_camera=((0.075, 0.0, 0.060), (0.016, 0.0, TCP_M + 0.04)),
)


@register("robot", "ur5e")
@dataclass(frozen=True, kw_only=True)
class Ur5e(Robot):
    """Universal Robots UR5e."""

    name = "ur5e"
    title = "Universal Robots UR5e with a Robotiq 2F-85"
    notes = (
        "Check the box against your table. Poses must come in the frame base_link "
        "(UR's base differs from it by half a turn about z); others are refused."
    )
    joints = JOINTS
    foot = Inertial(4.0, (0.0, 0.0, 0.025), (0.00443333, 0.00443333, 0.0072, 0.0, 0.0, 0.0))
    flange_m = 0.0
    home_rad = (0.0, -TURN, TURN, -TURN, -TURN, 0.0)
    gripper = ROBOTIQ_2F85
    workspace_min_m = (0.25, -0.40, 0.02)
    workspace_max_m = (0.70, 0.40, 0.60)
    base_frame = "base_link"
    capsules = CAPSULES
    neighbours = NEIGHBOURS
    covers = COVERS
