"""robot-rl: real arms learn skills by reinforcement learning with a human in the loop."""

__version__ = "0.1.0"
