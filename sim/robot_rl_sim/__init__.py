"""Simulation: MuJoCo builder, robot, cameras, mirror; importing this registers `envs`."""

import os

# read once, when mujoco is first imported: a robot PC or CI machine has no display
os.environ.setdefault("MUJOCO_GL", "egl")

from robot_rl_sim.envs import register

register()
