"""Simulation: task specs, MuJoCo builder, robot and cameras."""

import os

# read once, when mujoco is first imported: a robot PC or CI machine has no display
os.environ.setdefault("MUJOCO_GL", "egl")
