"""Pictures of any size become what the network sees: crop, scale, and the intrinsics with them."""

from __future__ import annotations

import numpy as np
import pytest

from robot_rl.errors import SpecError
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


def test_a_crop_is_what_is_seen() -> None:
    rgb = np.zeros((480, 640, 3), np.uint8)
    rgb[100:200, 300:400] = 255
    seen = View(50, 50, (300, 100, 100, 100), (480, 640)).of(rgb)
    assert seen.shape == (50, 50, 3) and seen.min() == 255


def test_a_crop_of_the_size_that_is_seen_is_not_scaled() -> None:
    rgb = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    seen = View(10, 20, (3, 5, 20, 10), (48, 64)).of(rgb)
    assert np.array_equal(seen, rgb[5:15, 3:23]) and seen.flags["C_CONTIGUOUS"]


def test_of_a_crop_with_other_proportions_the_middle_is_seen() -> None:
    assert View(64, 64, (10, 20, 300, 100), (480, 640)).part(480, 640) == (110, 20, 100, 100)
    assert View(32, 64, (10, 20, 100, 300), (480, 640)).part(480, 640) == (10, 145, 100, 50)


def test_a_crop_of_pictures_of_another_size_is_refused() -> None:
    view = View(64, 64, (0, 0, 100, 100), (480, 640))
    with pytest.raises(SpecError, match=r"expected: pictures of 640 x 480 (.|\n)*1280 x 720"):
        view.of(np.zeros((720, 1280, 3), np.uint8))


def test_intrinsics_follow_crop_and_scale() -> None:
    """A point that the camera sees at a pixel is seen where the matrix of the view says."""
    k = np.array(((600.0, 0.0, 321.5), (0.0, 610.0, 238.5), (0.0, 0.0, 1.0)))
    view = View(64, 128, (101, 51, 400, 240), (480, 640))
    point_m = np.array((0.021, -0.034, 1.0))
    pixel = k @ point_m
    rgb = np.zeros((480, 640, 3), np.uint8)
    column, row = round(pixel[0]), round(pixel[1])
    rgb[row - 6 : row + 7, column - 6 : column + 7] = 255
    bright = view.of(rgb)[..., 0].astype(float)
    rows, columns = np.indices(bright.shape)
    found = np.array(((columns * bright).sum(), (rows * bright).sum())) / bright.sum()
    expected = view.intrinsics(k, 480, 640) @ point_m
    assert np.allclose(found, expected[:2], atol=0.25)  # the square stands on whole pixels
