"""Measuring what a person would otherwise guess: where cameras are, how late, and a gripper's ends.

Pure functions of pictures, poses and readings; nobody here moves anything (`robot_rl.run.calibrate`
brings the data). Poses of cameras are of the optical frame (REP 103): x right, y down, z forward.
"""
