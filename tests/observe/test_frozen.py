"""The same picture again and again, with new stamps."""

from __future__ import annotations

import numpy as np

from robot_rl.geometry import pose
from robot_rl.observe.frozen import MOVED_M, Frozen
from robot_rl.types import Pose

DOWN = (1.0, 0.0, 0.0, 0.0)


def at(x_m: float) -> Pose:
    return pose((x_m, 0.0, 0.3), DOWN)


def test_a_picture_that_does_not_change_while_the_arm_moves_is_as_old_as_its_first() -> None:
    frozen, rgb = Frozen(), np.zeros((4, 4, 3), np.uint8)
    assert frozen.new_s("wrist", 1.0, rgb, at(0.0)) == 1.0
    assert frozen.new_s("wrist", 1.1, rgb, at(0.9 * MOVED_M)) == 1.1  # hardly moved
    assert frozen.new_s("wrist", 1.2, rgb, at(1.1 * MOVED_M)) == 1.0
    assert frozen.new_s("front", 1.2, rgb, at(1.1 * MOVED_M)) == 1.2  # another camera
    assert frozen.new_s("wrist", 1.3, rgb + 1, at(1.1 * MOVED_M)) == 1.3


def test_a_simulated_scene_that_stands_still_is_not_frozen() -> None:
    frozen, rgb = Frozen(), np.zeros((4, 4, 3), np.uint8)
    stamps = [frozen.new_s("wrist", 0.1 * i, rgb.copy(), at(0.2)) for i in range(50)]
    assert stamps == [0.1 * i for i in range(50)]


def test_a_driver_that_fills_one_buffer_again_and_again_is_not_frozen() -> None:
    frozen, rgb = Frozen(), np.zeros((4, 4, 3), np.uint8)
    for i in range(5):
        rgb[:] = i
        assert frozen.new_s("wrist", 0.1 * i, rgb, at(0.1 * i)) == 0.1 * i
