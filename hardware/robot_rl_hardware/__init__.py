"""Real drivers that have no ROS node of their own: gamepad, SpaceMouse. Libraries load on use.

Importing this registers the configs `operator=gamepad` and `operator=spacemouse`.
"""

from robot_rl_hardware.gamepad import GamepadConfig
from robot_rl_hardware.spacemouse import SpaceMouseConfig

__all__ = ["GamepadConfig", "SpaceMouseConfig"]
