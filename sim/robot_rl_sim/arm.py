"""Any robot of `robot_rl.robots` as MuJoCo bodies: primitive shapes, no meshes, no asset licences.

Only hand, fingers and the held part collide; the gate's workspace box keeps the rest of the arm
away from the table. Names: links `<robot>_link0` ..., `hand`, `finger1`, `finger2`, the site `tcp`,
joints as the robot's driver calls them.
"""

from __future__ import annotations

import mujoco

from robot_rl.robots import Robot
from robot_rl.robots.robot import Cover, Inertial

HAND = "hand"
FINGERS = ("finger1", "finger2")
ROBOT, FIXED, FREE = 1, 2, 4  # contact bits: what a geom is
TOUCHES = {ROBOT: FIXED | FREE, FIXED: ROBOT | FREE, FREE: ROBOT | FIXED | FREE}
"""contact bit -> conaffinity: no collisions of the robot with itself, of fixtures with fixtures."""

Body = mujoco.MjsBody


def link(robot: Robot, number: int) -> str:
    """Name of a link's body; 0 = the foot."""
    return f"{robot.name}_link{number}"


def add_arm(parent: Body, robot: Robot) -> Body:
    """Add the foot and the links below `parent`; returns the body of the last link."""
    body = parent.add_body(name=link(robot, 0), gravcomp=1.0)
    set_inertial(body, robot.foot)
    for i, joint in enumerate(robot.joints, start=1):
        x, y, z, w = joint.quaternion_xyzw
        body = body.add_body(
            name=link(robot, i), pos=joint.position_m, quat=(w, x, y, z), gravcomp=1.0
        )
        set_inertial(body, joint.link)
        body.add_joint(
            name=joint.name,
            axis=(0, 0, 1),
            range=joint.range_rad,
            armature=robot.armature_kg_m2,
            damping=robot.damping_nms,
            actfrcrange=(-joint.torque_nm, joint.torque_nm),
        )
    return body


def add_hand(last: Body, robot: Robot, *, moving: bool, width_m: float, friction: float) -> Body:
    """Add the hand, its fingers (a tool has none) and the `tcp` site; returns the hand body.

    Args:
        moving: two finger joints; otherwise the fingers are fixed `width_m` apart.
        friction: sliding coefficient of the finger pads.
    """
    gripper, mount = robot.gripper, robot.hand_in_last
    hand = last.add_body(
        name=HAND, pos=mount.position_m, quat=mount.quaternion_xyzw[[3, 0, 1, 2]], gravcomp=1.0
    )
    set_inertial(hand, gripper.hand)
    hand.add_site(name="tcp", pos=(0, 0, gripper.tcp_m), size=(0.002, 0.002, 0.002), group=4)
    half_m, centre_m = gripper.hull
    hand.add_geom(
        name="hand_hull",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=half_m,
        pos=centre_m,
        contype=ROBOT,
        conaffinity=TOUCHES[ROBOT],
        group=3,
        mass=0,
    )
    for i, side in enumerate((1, -1) if gripper.fingers else ()):
        finger = hand.add_body(
            name=FINGERS[i],
            pos=(0, 0 if moving else side * width_m / 2, gripper.finger_mount_m),
            quat=(1, 0, 0, 0) if side > 0 else (0, 0, 0, 1),
            gravcomp=1.0,
        )
        set_inertial(finger, gripper.finger)
        if moving:
            finger.add_joint(
                name=gripper.fingers[i],
                type=mujoco.mjtJoint.mjJNT_SLIDE,
                axis=(0, 1, 0),
                range=(0, gripper.stroke_m / 2),
                armature=0.1,  # motor and spindle: keeps 70 N on a 29 g finger well behaved
                damping=10.0,
            )
        finger.add_geom(
            name=f"pad{i + 1}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=gripper.pad_half_m,
            pos=gripper.pad_m,
            friction=(friction, 0.005, 0.0001),
            condim=4,
            contype=ROBOT,
            conaffinity=TOUCHES[ROBOT],
            group=3,
            mass=0,
        )
    return hand


def set_inertial(body: Body, inertial: Inertial) -> None:
    """Give a body an explicit inertial: geoms add nothing to it. Without mass it has none."""
    if inertial.mass_kg == 0.0:
        return
    body.explicitinertial = True
    body.mass = inertial.mass_kg
    body.ipos = inertial.centre_m
    body.fullinertia = inertial.inertia_kg_m2


def covers_of(robot: Robot) -> list[tuple[str, Cover]]:
    """(body, shape) of everything of the robot that is only seen."""
    found = [(link(robot, i), c) for i, some in robot.covers.items() for c in some]
    found += [(HAND, cover) for cover in robot.gripper.covers]
    fingers = FINGERS if robot.gripper.fingers else ()
    return found + [(name, c) for name in fingers for c in robot.gripper.finger_covers]
