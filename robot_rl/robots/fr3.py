"""Franka Research 3 with the Franka Hand.

Kinematics, ranges, torques and inertials: franka_description 1.0.1 (Apache-2.0), the set with link
masses 2.927 ... 0.627 kg. Velocities: the largest that its manual allows (they depend on the pose).
Deviation: the reflected rotor inertia is MuJoCo Menagerie's 0.1 kg m2, because Franka publishes
none. The covers are drawn by eye around the joint axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robot_rl.config.registry import register
from robot_rl.robots.robot import (
    Capsule,
    Cover,
    Gripper,
    Inertial,
    Joint,
    Robot,
    Vec3,
    axle,
    box,
    drum,
    rod,
)

DH = (
    (0.0, 0.333, 0.0),
    (0.0, 0.0, -90.0),
    (0.0, 0.316, 90.0),
    (0.0825, 0.0, 90.0),
    (-0.0825, 0.384, -90.0),
    (0.0, 0.0, 90.0),
    (0.088, 0.0, 90.0),
)
"""Craig (modified) Denavit-Hartenberg: a m, d m, alpha deg of each joint."""

FLANGE_M = 0.107
TORQUES_NM = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
RANGES_RAD = (
    (-2.7437, 2.7437),
    (-1.7837, 1.7837),
    (-2.9007, 2.9007),
    (-3.0421, -0.1518),
    (-2.8065, 2.8065),
    (0.5445, 4.5169),
    (-3.0159, 3.0159),
)
VELOCITIES_RAD_S = (2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26)
FOOT = Inertial(2.3966, (-0.0172, 0.0004, 0.0745), (0.0090, 0.0115, 0.0085, 0.0, 0.0020, 0.0))
LINKS = (
    Inertial(
        2.9274653454,
        (4.128e-7, -0.0181251324, -0.0386035970),
        (0.0239273165, 0.0224821613, 0.0063500983, 1.33179e-5, -1.1404775e-4, -1.9950321e-3),
    ),
    Inertial(
        2.9355370338,
        (0.0031828864, -0.0743221644, 0.0088146084),
        (0.0419389463, 0.0251451489, 0.0617021447, 2.0257332e-4, 4.0777842e-3, -4.2252158e-3),
    ),
    Inertial(
        2.2449013699,
        (0.0407015686, -0.0048200565, -0.0289730823),
        (0.0241014255, 0.0197405327, 0.0190444945, 2.4046946e-3, -2.8562693e-3, -2.1042127e-3),
    ),
    Inertial(
        2.6155955791,
        (-0.0459100965, 0.0630492960, -0.0085187868),
        (0.0345299832, 0.0288816219, 0.0412547117, 1.32255227e-2, 1.01514300e-2, -9.762834e-4),
    ),
    Inertial(
        2.3271207594,
        (-0.0016039605, 0.0292536262, -0.0972965990),
        (0.0516102785, 0.0478772971, 0.0164236256, -5.7151734e-3, -3.5673168e-3, 1.0673985e-2),
    ),
    Inertial(
        1.8170376524,
        (0.0597131221, -0.0410294666, -0.0101692726),
        (0.0054123336, 0.0140583295, 0.0160808179, 6.1934564e-3, 1.4219289e-3, -1.3140754e-3),
    ),
    Inertial(
        0.6271432862,
        (0.0045225817, 0.0086261921, -0.0161633251),
        (2.1092389e-4, 1.7718e-4, 5.993191e-5, -2.433299e-5, 4.564480e-5, 8.744070e-5),
    ),
)

COVERS: dict[int, tuple[Cover, ...]] = {
    0: (  # foot and column
        box((0.105, 0.085, 0.012), (-0.035, 0, 0.012), "joint"),
        rod((-0.055, 0, 0.05), (0, 0, 0.07), 0.062, "cover"),
        drum((0, 0, 0.02), (0, 0, 0.138), 0.062, "cover"),
        drum((0, 0, 0.136), (0, 0, 0.142), 0.0605, "light_ring"),
    ),
    1: (  # shoulder: column up to the axle of joint 2, which lies along y
        drum((0, 0, -0.190), (0, 0, -0.02), 0.0600, "cover"),
        rod((0, -0.015, 0), (0, 0.015, 0), 0.0625, "cover"),
        *axle((0, 0, 0), (0, 1, 0), 0.0540, 0.075),
    ),
    2: (  # upper arm: link 2's -y is up the arm
        rod((0, 0, 0), (0, -0.095, 0), 0.0610, "cover"),
        drum((0, -0.09, 0), (0, -0.158, 0), 0.0610, "cover"),
        drum((0, -0.157, 0), (0, -0.161, 0), 0.0585, "joint"),
    ),
    3: (  # elbow: axle of joint 4 along y
        drum((0, 0, -0.154), (0, 0, -0.09), 0.0600, "cover"),
        rod((0, 0, -0.09), (0.040, 0, -0.020), 0.0570, "cover"),
        rod((0.0825, -0.012, 0), (0.0825, 0.012, 0), 0.0570, "cover"),
        *axle((0.0825, 0, 0), (0, 1, 0), 0.0490, 0.068),
    ),
    4: (  # forearm: link 4's y, then link 5's z run along it
        rod((0, 0, 0), (-0.060, 0.075, 0), 0.0540, "cover"),
        drum((-0.0825, 0.075, 0), (-0.0825, 0.128, 0), 0.0580, "cover"),
        rod((-0.0825, 0.08, 0), (-0.078, 0.08, 0), 0.0580, "cover"),
        drum((-0.0825, 0.127, 0), (-0.0825, 0.131, 0), 0.0555, "joint"),
    ),
    5: (
        rod((0, 0, -0.195), (0, 0, -0.190), 0.0570, "cover"),
        drum((0, 0, -0.253), (0, 0, -0.195), 0.0570, "cover"),
        rod((0, 0.012, -0.190), (0, 0.052, -0.060), 0.0430, "cover"),
        rod((0, 0.055, -0.070), (0, 0.045, 0.0), 0.0410, "cover"),
    ),
    6: (  # wrist: axle of joint 6 along link 5's y, which is link 6's z
        rod((0, 0, -0.020), (0, 0, 0.020), 0.0500, "cover"),
        *axle((0, 0, 0), (0, 0, 1), 0.0430, 0.066),
        rod((0.02, 0, 0), (0.088, 0, 0), 0.0450, "cover"),
        drum((0.088, -0.048, 0), (0.088, 0.052, 0), 0.0500, "cover"),
    ),
    7: (
        drum((0, 0, 0.050), (0, 0, 0.056), 0.0475, "light_ring"),
        drum((0, 0, 0.054), (0, 0, 0.090), 0.0480, "cover"),
        drum((0, 0, 0.088), (0, 0, FLANGE_M), 0.0400, "joint"),
    ),
}

CAPSULES = (  # around COVERS and the hand; a test holds them to it
    Capsule(0, (-0.0608, 0.0, 0.0177), (0.0001, 0.0, 0.0413), 0.1181),
    Capsule(1, (0.0, 0.0, -0.0352), (0.0, 0.0, -0.1747), 0.0625),
    Capsule(1, (0.0, -0.0435, 0.0), (0.0, 0.0435, 0.0), 0.0631),
    Capsule(2, (0.0, -0.1505, 0.0), (0.0, -0.0004, 0.0), 0.062),
    Capsule(3, (-0.0002, 0.0, -0.124), (0.0311, -0.0002, -0.0252), 0.0679),
    Capsule(3, (0.0825, -0.0389, 0.0), (0.0825, 0.0389, 0.0), 0.0575),
    Capsule(4, (-0.06, 0.075, 0.0), (0.0, 0.0, 0.0), 0.0546),
    Capsule(4, (-0.0825, 0.1084, 0.0), (-0.0803, 0.0823, 0.0001), 0.0618),
    Capsule(5, (0.0, 0.0, -0.1916), (0.0, 0.0, -0.2395), 0.0591),
    Capsule(5, (-0.0001, 0.0208, -0.1847), (0.0, 0.0543, -0.0079), 0.0538),
    Capsule(6, (0.0, 0.0, -0.0405), (0.0, 0.0, 0.0405), 0.0506),
    Capsule(6, (0.088, 0.002, 0.0), (0.0457, 0.0013, 0.0003), 0.0713),
    Capsule(7, (0.0, 0.0, 0.0679), (0.0, 0.0, 0.0757), 0.0513),
    Capsule(8, (0.0, -0.0771, 0.0274), (0.0001, 0.0833, 0.0242), 0.0482),
    Capsule(8, (0.03, 0.0, 0.022), (0.062, 0.0, 0.03), 0.0265),  # camera
)
NEIGHBOURS = ((6, 8),)  # joint 7 only turns the hand on the spot


def franka_hand(prefix: str, hand: Inertial, finger: Inertial) -> Gripper:
    """The Franka Hand, with a camera on the side away from the elbow."""
    return Gripper(
        name="Franka Hand",
        yaw_rad=math.radians(-45.0),
        tcp_m=0.1034,
        stroke_m=0.08,
        force_n=70.0,  # continuous
        speed_m_s=0.1,  # 50 mm/s per finger
        fingers=(f"{prefix}_finger_joint1", f"{prefix}_finger_joint2"),
        hand=hand,
        finger=finger,
        finger_mount_m=0.0584,
        pad_half_m=(0.009, 0.005, 0.010),
        pad_m=(0.0, 0.005, 0.044),
        hull=((0.02, 0.1, 0.032), (0.0, 0.0, 0.032)),
        covers=(
            drum((0, 0, 0), (0, 0, 0.010), 0.040, "joint"),
            rod((0, -0.072, 0.034), (0, 0.072, 0.034), 0.0290, "cover"),
            box((0.0230, 0.085, 0.022), (0, 0, 0.036), "cover"),
            box((0.0195, 0.088, 0.004), (0, 0, 0.0600), "dark"),
        ),
        finger_covers=(
            box((0.0100, 0.0075, 0.0110), (0, 0.0135, 0.011), "joint"),
            box((0.0085, 0.0055, 0.0130), (0, 0.0105, 0.030), "joint"),
            box((0.0090, 0.0045, 0.0100), (0, 0.0050, 0.044), "dark"),
        ),
        wrist_camera=((0.068, 0.0, 0.042), (0.016, 0.0, 0.1034 + 0.04)),
    )


def franka_joints(
    prefix: str,
    ranges_rad: tuple[tuple[float, float], ...],
    velocities_rad_s: tuple[float, ...],
    links: tuple[Inertial, ...],
) -> tuple[Joint, ...]:
    """The seven joints of a Franka arm: the kinematics of FR3 and Panda are the same."""
    found = []
    for i, (a, d, alpha_deg) in enumerate(DH):
        alpha = math.radians(alpha_deg)
        position: Vec3 = (a, -d * math.sin(alpha), d * math.cos(alpha))
        turn = (math.sin(alpha / 2), 0.0, 0.0, math.cos(alpha / 2))
        found.append(
            Joint(
                f"{prefix}_joint{i + 1}",
                position,
                turn,
                ranges_rad[i],
                velocities_rad_s[i],
                TORQUES_NM[i],
                links[i],
            )
        )
    return tuple(found)


@register("robot", "fr3")
@dataclass(frozen=True, kw_only=True)
class Fr3(Robot):
    """Franka Research 3."""

    name = "fr3"
    title = "Franka Research 3 with the Franka Hand"
    joints = franka_joints("fr3", RANGES_RAD, VELOCITIES_RAD_S, LINKS)
    foot = FOOT
    flange_m = FLANGE_M
    home_rad = (0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785)  # Franka's own ready pose
    gripper = franka_hand(
        "fr3",
        Inertial(
            0.6544,
            (-0.0000376, 0.0119128, 0.0207260),
            (0.00186, 0.0003, 0.00174, 0.0, 0.0, -0.00002),
        ),
        Inertial(
            0.0291, (0.0, 0.0152850, 0.0219675), (8.49e-6, 8.53e-6, 1.77e-6, 0.0, 0.0, -1.06e-6)
        ),
    )
    workspace_min_m = (0.25, -0.40, 0.005)  # floor: 5 mm above the table the arm is bolted to
    workspace_max_m = (0.80, 0.40, 0.60)  # FMB's box: 0.35..0.82, +-0.3, 0.02..0.4
    capsules = CAPSULES
    neighbours = NEIGHBOURS
    covers = COVERS
