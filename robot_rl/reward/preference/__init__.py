"""Reward from answers to the question which of two moments is nearer to the goal."""
