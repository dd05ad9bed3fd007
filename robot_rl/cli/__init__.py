"""The robot-rl command."""
