"""Learning algorithms, one readable file each. Importing this registers their configs."""

from robot_rl.learn.algos.bc import BcConfig
from robot_rl.learn.algos.hil_serl import HilSerlConfig

__all__ = ["BcConfig", "HilSerlConfig"]
