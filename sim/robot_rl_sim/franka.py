"""Franka Research 3 with the Franka Hand, from primitive shapes (no meshes, no asset licences).

Kinematics, limits and inertials: franka_description (FR3, Apache-2.0), the set with link masses
2.927 ... 0.627 kg. Deviation: `ARMATURE` (reflected rotor inertia) is MuJoCo Menagerie's 0.1 kg m2,
because Franka publishes none. Only hand, fingers and the held part collide; the gate's workspace
box keeps the rest of the arm away from the table.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np

ARM_JOINTS = tuple(f"fr3_joint{i}" for i in range(1, 8))
FINGER_JOINTS = ("fr3_finger_joint1", "fr3_finger_joint2")
HOME_RAD = np.array((0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785))
"""Franka's own ready pose."""

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

RANGES_RAD = (
    (-2.7437, 2.7437),
    (-1.7837, 1.7837),
    (-2.9007, 2.9007),
    (-3.0421, -0.1518),
    (-2.8065, 2.8065),
    (0.5445, 4.5169),
    (-3.0159, 3.0159),
)
TORQUES_NM = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
FLANGE_M = 0.107
TCP_M = 0.1034  # from the hand's mounting face to between the fingertips
FINGER_MOUNT_M = 0.0584  # hand frame to finger frame
FINGER_TRAVEL_M = 0.04
GRIP_FORCE_N = 70.0  # continuous, data sheet
ARMATURE = 0.1
JOINT_DAMPING_NMS = 1.0  # what is left of friction after Franka's own compensation

INERTIALS: tuple[tuple[float, tuple[float, ...], tuple[float, ...]], ...] = (
    (2.3966, (-0.0172, 0.0004, 0.0745), (0.0090, 0.0115, 0.0085, 0.0, 0.0020, 0.0)),
    (
        2.9274653454,
        (4.128e-7, -0.0181251324, -0.0386035970),
        (0.0239273165, 0.0224821613, 0.0063500983, 1.33179e-5, -1.1404775e-4, -1.9950321e-3),
    ),
    (
        2.9355370338,
        (0.0031828864, -0.0743221644, 0.0088146084),
        (0.0419389463, 0.0251451489, 0.0617021447, 2.0257332e-4, 4.0777842e-3, -4.2252158e-3),
    ),
    (
        2.2449013699,
        (0.0407015686, -0.0048200565, -0.0289730823),
        (0.0241014255, 0.0197405327, 0.0190444945, 2.4046946e-3, -2.8562693e-3, -2.1042127e-3),
    ),
    (
        2.6155955791,
        (-0.0459100965, 0.0630492960, -0.0085187868),
        (0.0345299832, 0.0288816219, 0.0412547117, 1.32255227e-2, 1.01514300e-2, -9.762834e-4),
    ),
    (
        2.3271207594,
        (-0.0016039605, 0.0292536262, -0.0972965990),
        (0.0516102785, 0.0478772971, 0.0164236256, -5.7151734e-3, -3.5673168e-3, 1.0673985e-2),
    ),
    (
        1.8170376524,
        (0.0597131221, -0.0410294666, -0.0101692726),
        (0.0054123336, 0.0140583295, 0.0160808179, 6.1934564e-3, 1.4219289e-3, -1.3140754e-3),
    ),
    (
        0.6271432862,
        (0.0045225817, 0.0086261921, -0.0161633251),
        (2.1092389e-4, 1.7718e-4, 5.993191e-5, -2.433299e-5, 4.564480e-5, 8.744070e-5),
    ),
)
"""Mass kg, centre of mass m, inertia (xx yy zz xy xz yz) kg m2 of link0 ... link7, link frames."""

HAND_INERTIAL = (
    0.6544,
    (-0.0000376, 0.0119128, 0.0207260),
    (0.00186, 0.0003, 0.00174, 0.0, 0.0, -0.00002),
)
FINGER_INERTIAL = (
    0.0291,
    (0.0, 0.0152850, 0.0219675),
    (8.49e-6, 8.53e-6, 1.77e-6, 0.0, 0.0, -1.06e-6),
)

ROBOT, FIXED, FREE = 1, 2, 4  # contact bits: what a geom is
TOUCHES = {ROBOT: FIXED | FREE, FIXED: ROBOT | FREE, FREE: ROBOT | FIXED | FREE}
"""contact bit -> conaffinity: no collisions of the robot with itself, of fixtures with fixtures."""

Body = mujoco.MjsBody


def add_arm(parent: Body) -> Body:
    """Add link0 ... link7 below `parent`; returns the flange body (link7)."""
    body = parent.add_body(name="fr3_link0", gravcomp=1.0)
    set_inertial(body, *INERTIALS[0])
    for i, (a, d, alpha_deg) in enumerate(DH, start=1):
        alpha = math.radians(alpha_deg)
        body = body.add_body(
            name=f"fr3_link{i}",
            pos=(a, -d * math.sin(alpha), d * math.cos(alpha)),
            quat=(math.cos(alpha / 2), math.sin(alpha / 2), 0, 0),
            gravcomp=1.0,
        )
        set_inertial(body, *INERTIALS[i])
        body.add_joint(
            name=ARM_JOINTS[i - 1],
            axis=(0, 0, 1),
            range=RANGES_RAD[i - 1],
            armature=ARMATURE,
            damping=JOINT_DAMPING_NMS,
            actfrcrange=(-TORQUES_NM[i - 1], TORQUES_NM[i - 1]),
        )
    return body


def add_hand(link7: Body, *, moving: bool, width_m: float, friction: float) -> Body:
    """Add the hand, its fingers and the `tcp` site; returns the hand body.

    Args:
        moving: two finger joints; otherwise the fingers are fixed `width_m` apart.
        friction: sliding coefficient of the finger pads.
    """
    turn = math.radians(-45.0) / 2
    hand = link7.add_body(
        name="fr3_hand",
        pos=(0, 0, FLANGE_M),
        quat=(math.cos(turn), 0, 0, math.sin(turn)),
        gravcomp=1.0,
    )
    set_inertial(hand, *HAND_INERTIAL)
    hand.add_site(name="tcp", pos=(0, 0, TCP_M), size=(0.002, 0.002, 0.002), group=4)
    hand.add_geom(
        name="hand_hull",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=(0.02, 0.1, 0.032),
        pos=(0, 0, 0.032),
        contype=ROBOT,
        conaffinity=TOUCHES[ROBOT],
        group=3,
        mass=0,
    )
    for i, side in enumerate((1, -1)):
        finger = hand.add_body(
            name=f"fr3_finger{i + 1}",
            pos=(0, 0 if moving else side * width_m / 2, FINGER_MOUNT_M),
            quat=(1, 0, 0, 0) if side > 0 else (0, 0, 0, 1),
            gravcomp=1.0,
        )
        set_inertial(finger, *FINGER_INERTIAL)
        if moving:
            finger.add_joint(
                name=FINGER_JOINTS[i],
                type=mujoco.mjtJoint.mjJNT_SLIDE,
                axis=(0, 1, 0),
                range=(0, FINGER_TRAVEL_M),
                armature=0.1,  # motor and spindle: keeps 70 N on a 29 g finger well behaved
                damping=10.0,
            )
        # pad: 18 x 18 mm, its face at the finger frame's y = 0
        finger.add_geom(
            name=f"pad{i + 1}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=(0.009, 0.005, 0.010),
            pos=(0, 0.005, 0.044),
            friction=(friction, 0.005, 0.0001),
            condim=4,
            contype=ROBOT,
            conaffinity=TOUCHES[ROBOT],
            group=3,
            mass=0,
        )
    return hand


def set_inertial(
    body: Body, mass_kg: float, com_m: tuple[float, ...], inertia: tuple[float, ...]
) -> None:
    """Give a body an explicit inertial: geoms add nothing to it."""
    body.explicitinertial = True
    body.mass = mass_kg
    body.ipos = com_m
    body.fullinertia = inertia
