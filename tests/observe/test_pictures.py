"""Pictures of any size become what the network sees."""

from __future__ import annotations

import numpy as np
import pytest

from robot_rl.observe.pictures import View


def test_a_picture_that_fits_is_not_touched() -> None:
    rgb = np.zeros((64, 48, 3), np.uint8)
    assert View(64, 48).of(rgb) is rgb


@pytest.mark.parametrize("size", [(64, 64), (48, 64), (128, 32), (600, 800)])
@pytest.mark.parametrize("source", [(480, 640), (640, 480), (97, 131), (1, 7)])
def test_the_middle_stays_in_the_middle(size: tuple[int, int], source: tuple[int, int]) -> None:
    ramp = np.linspace(0, 255, source[1]).astype(np.uint8)  # brighter to the right
    rgb = np.repeat(np.tile(ramp, (source[0], 1))[..., None], 3, axis=2)
    seen = View(*size).of(rgb)
    assert seen.shape == (*size, 3) and seen.dtype == np.uint8
    assert abs(float(seen.mean()) - float(rgb.mean())) < 4.0
    assert (seen == seen[..., :1]).all()  # grey stays grey


def test_proportions_are_kept() -> None:
    """A square in a wide picture is as wide as high in a square one."""
    rgb = np.zeros((480, 640, 3), np.uint8)
    rgb[180:300, 260:380] = 255
    bright = View(64, 64).of(rgb)[..., 0] > 127
    assert bright.any(axis=0).sum() == bright.any(axis=1).sum() == 16


def test_thin_things_do_not_vanish() -> None:
    rgb = np.zeros((480, 640, 3), np.uint8)
    rgb[:, 321] = 255
    assert View(64, 64).of(rgb).max() > 20
