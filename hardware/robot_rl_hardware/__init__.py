"""Real drivers that have no ROS node of their own: gamepad, SpaceMouse, leader arms, RealSense and
UVC cameras.

Libraries load on use. Importing this registers the configs `operator=gamepad`, `spacemouse`,
`gello` and `so101`, and the cameras `realsense` and `uvc`.
"""

from robot_rl_hardware.gamepad import GamepadConfig
from robot_rl_hardware.leader import GelloConfig, So101Config
from robot_rl_hardware.realsense import RealSenseConfig
from robot_rl_hardware.spacemouse import SpaceMouseConfig
from robot_rl_hardware.uvc import UvcConfig

__all__ = [
    "GamepadConfig",
    "GelloConfig",
    "RealSenseConfig",
    "So101Config",
    "SpaceMouseConfig",
    "UvcConfig",
]
