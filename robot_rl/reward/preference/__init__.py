"""Reward from answers to which of two moments is nearer to the goal."""
