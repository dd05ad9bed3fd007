"""Who helps: the script, the console's page, devices in a hand, an arm that is guided. Importing
this registers what needs neither ROS nor a library as `operator=...`."""

from robot_rl.operate.kinesthetic import KinestheticConfig
from robot_rl.operate.remote import ConsoleConfig
from robot_rl.operate.scripted import ScriptedOperatorConfig

__all__ = ["ConsoleConfig", "KinestheticConfig", "ScriptedOperatorConfig"]
