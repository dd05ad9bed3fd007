"""Task definitions (pure numpy, no simulator); importing this package registers them.

The same objects run on a real arm: they see `RobotState` only. A simulator builds its scene from
`SimTask.parts()`, which are primitives of no particular engine.
"""

from robot_rl.tasks.common import SimTask
from robot_rl.tasks.described import DescribedTask
from robot_rl.tasks.lift import LiftTask
from robot_rl.tasks.peg_insert import PegInsertTask
from robot_rl.tasks.pick_insert import PickInsertTask
from robot_rl.tasks.reach import ReachTask

__all__ = ["DescribedTask", "LiftTask", "PegInsertTask", "PickInsertTask", "ReachTask", "SimTask"]
