"""Learning algorithms, one readable file each. Importing this registers their configs.

Most of them build on `actor_critic` (whose parts are in `agent`), those that decide several actions
at once on `chunked`, and those that run a base policy themselves on `on_flow`.
"""

from robot_rl.learn.algos import older  # noqa: F401 - reads the sections of older runs
from robot_rl.learn.algos.bc import BcConfig
from robot_rl.learn.algos.bc_act import BcActConfig
from robot_rl.learn.algos.bc_flow import BcFlowConfig
from robot_rl.learn.algos.calql import CalQlConfig
from robot_rl.learn.algos.chunked import ChunkedConfig
from robot_rl.learn.algos.dsrl import DsrlConfig
from robot_rl.learn.algos.dsrl_sac import DsrlSacConfig
from robot_rl.learn.algos.expo import ExpoConfig
from robot_rl.learn.algos.hil_serl import HilSerlConfig
from robot_rl.learn.algos.iql import IqlConfig
from robot_rl.learn.algos.opd import OpdConfig
from robot_rl.learn.algos.pa_rl import PaRlConfig
from robot_rl.learn.algos.policy_decorator import PolicyDecoratorConfig
from robot_rl.learn.algos.qc import QcConfig
from robot_rl.learn.algos.resfit import ResFitConfig
from robot_rl.learn.algos.rlif import RlifConfig
from robot_rl.learn.algos.td3 import Td3Config
from robot_rl.learn.algos.zprl import ZprlConfig

__all__ = [
    "BcActConfig",
    "BcConfig",
    "BcFlowConfig",
    "CalQlConfig",
    "ChunkedConfig",
    "DsrlConfig",
    "DsrlSacConfig",
    "ExpoConfig",
    "HilSerlConfig",
    "IqlConfig",
    "OpdConfig",
    "PaRlConfig",
    "PolicyDecoratorConfig",
    "QcConfig",
    "ResFitConfig",
    "RlifConfig",
    "Td3Config",
    "ZprlConfig",
]
