"""The robots, one per file; importing this package registers them.

A robot of your own: a subclass of `Robot`, registered under `robot`, in a package with
a `robot_rl.plugins` entry point; then `python -m robot_rl.safety.sheet NAME` writes its YAML file.
"""

from robot_rl.robots.described import Described
from robot_rl.robots.fr3 import Fr3
from robot_rl.robots.panda import Panda
from robot_rl.robots.robot import Robot
from robot_rl.robots.ur5e import Ur5e

__all__ = ["Described", "Fr3", "Panda", "Robot", "Ur5e"]
