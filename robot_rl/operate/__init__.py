"""Who helps: the script, the console's page, devices in a hand. Importing this registers the first
two as `operator=...`."""

from robot_rl.operate.remote import ConsoleConfig
from robot_rl.operate.scripted import ScriptedOperatorConfig

__all__ = ["ConsoleConfig", "ScriptedOperatorConfig"]
