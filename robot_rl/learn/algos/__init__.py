"""Learning algorithms, one readable file each. Importing this registers their configs."""

from robot_rl.learn.algos.bc import BcConfig
from robot_rl.learn.algos.bc_act import BcActConfig
from robot_rl.learn.algos.bc_flow import BcFlowConfig
from robot_rl.learn.algos.calql import CalQlConfig
from robot_rl.learn.algos.chunked import ChunkedConfig
from robot_rl.learn.algos.hil_serl import HilSerlConfig
from robot_rl.learn.algos.iql import IqlConfig
from robot_rl.learn.algos.noise import NoiseConfig
from robot_rl.learn.algos.pick import PickConfig
from robot_rl.learn.algos.steer import SteerConfig
from robot_rl.learn.algos.td3 import Td3Config

__all__ = [
    "BcActConfig",
    "BcConfig",
    "BcFlowConfig",
    "CalQlConfig",
    "ChunkedConfig",
    "HilSerlConfig",
    "IqlConfig",
    "NoiseConfig",
    "PickConfig",
    "SteerConfig",
    "Td3Config",
]
