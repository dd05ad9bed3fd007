"""Thin ament package; the code is in the pip package `robot-rl`."""
