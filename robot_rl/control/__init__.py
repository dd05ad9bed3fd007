"""The control loop and who drives in it; episodes, sessions, and when a skill is mastered."""
