"""Franka Emika Panda (FER) with the Franka Hand: the FR3's kinematics, other ranges and masses.

Ranges and velocities: franka_description 1.0.1. Inertials: the identified set of Gaz et al. 2019,
which franka_description (fer) and MuJoCo Menagerie use; it is not Franka's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.config.registry import register
from robot_rl.robots.fr3 import CAPSULES, COVERS, FLANGE_M, NEIGHBOURS, franka_hand, franka_joints
from robot_rl.robots.robot import Inertial, Robot

RANGES_RAD = (
    (-2.8973, 2.8973),
    (-1.7628, 1.7628),
    (-2.8973, 2.8973),
    (-3.0718, -0.0698),
    (-2.8973, 2.8973),
    (-0.0175, 3.7525),
    (-2.8973, 2.8973),
)
VELOCITIES_RAD_S = (2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61)
LINKS = (
    Inertial(
        4.970684,
        (0.003875, 0.002081, -0.04762),
        (0.70337, 0.70661, 0.0091170, -0.000139, 0.006772, 0.019169),
    ),
    Inertial(
        0.646926,
        (-0.003141, -0.02872, 0.003495),
        (0.007962, 0.02811, 0.025995, -0.003925, 0.010254, 0.000704),
    ),
    Inertial(
        3.228604,
        (0.027518, 0.039252, -0.066502),
        (0.037242, 0.036155, 0.01083, -0.004761, -0.011396, -0.012805),
    ),
    Inertial(
        3.587895,
        (-0.05317, 0.104419, 0.027454),
        (0.025853, 0.019552, 0.028323, 0.007796, -0.001332, 0.008641),
    ),
    Inertial(
        1.225946,
        (-0.011953, 0.041065, -0.038437),
        (0.035549, 0.029474, 0.008627, -0.002117, -0.004037, 0.000229),
    ),
    Inertial(
        1.666555,
        (0.060149, -0.014117, -0.010517),
        (0.001964, 0.004354, 0.005433, 0.000109, -0.001158, 0.000341),
    ),
    Inertial(
        0.735522,
        (0.010517, -0.004252, 0.061597),
        (0.012516, 0.010027, 0.004815, -0.000428, -0.001196, -0.000741),
    ),
)


@register("robot", "panda")
@dataclass(frozen=True, kw_only=True)
class Panda(Robot):
    """Franka Emika Panda."""

    name = "panda"
    title = "Franka Emika Panda with the Franka Hand"
    joints = franka_joints("panda", RANGES_RAD, VELOCITIES_RAD_S, LINKS)
    foot = Inertial(
        0.629769,
        (-0.041018, -0.00014, 0.049974),
        (0.00315, 0.00388, 0.004285, 8.2904e-7, 0.00015, 8.2299e-6),
    )
    flange_m = FLANGE_M
    home_rad = (0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785)
    gripper = franka_hand(
        "panda",
        Inertial(0.73, (-0.01, 0.0, 0.03), (0.001, 0.0025, 0.0017, 0.0, 0.0, 0.0)),
        Inertial(0.015, (0.0, 0.0, 0.0), (2.375e-6, 2.375e-6, 7.5e-7, 0.0, 0.0, 0.0)),
    )
    workspace_min_m = (0.25, -0.40, 0.005)
    workspace_max_m = (0.80, 0.40, 0.60)
    capsules = CAPSULES
    neighbours = NEIGHBOURS
    covers = COVERS
