"""Base policies: pretrained and frozen; what is learned on top corrects or steers them.

    spec       what a base can do, known before it is loaded
    schedule   one action per tick out of chunks, and what is recorded of them
    own        our own (`algo=bc_flow`, `algo=bc_act`), in this process
    served     our own, in another process (`robot-rl serve-policy`)
    lerobot    LeRobot's policies, in this process
    openpi, groot, openvla   clients of other people's servers; `mapping` translates
    listening, probe, fit   does a server fit a task? (`robot-rl base check`)

Importing this registers the configs of group `base`.
"""

from robot_rl.policy.base.groot import GrootConfig
from robot_rl.policy.base.lerobot import LeRobotConfig
from robot_rl.policy.base.openpi import OpenpiConfig
from robot_rl.policy.base.openvla import OpenVlaConfig
from robot_rl.policy.base.own import ActBaseConfig, FlowBaseConfig
from robot_rl.policy.base.served import ServedConfig
from robot_rl.policy.base.spec import BaseConfig, BasePolicy, BaseSpec

__all__ = [
    "ActBaseConfig",
    "BaseConfig",
    "BasePolicy",
    "BaseSpec",
    "FlowBaseConfig",
    "GrootConfig",
    "LeRobotConfig",
    "OpenVlaConfig",
    "OpenpiConfig",
    "ServedConfig",
]
