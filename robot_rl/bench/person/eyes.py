"""What the stand-in person sees: things of one colour in a picture that the page shows.

    see(picture, "along the tool", "lift").target

A picture is what the page has drawn as its large one. Lengths in it are shares of its height, from
its middle, to the right and up: what a person would call "a bit to the left".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Point = tuple[float, float]
LEAST, LEAST_FAR = 4e-4, 1.5e-4  # a thing has at least so much of the picture
HIDDEN = 0.9  # a square whose sides differ more is hidden in part
ALONG = "along the tool"


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing in a picture.

    at: its middle; turn_rad: how far it is turned from the picture's edges, to the left, in
    [-pi/4, pi/4]; size: edge of the square that is as large; low: the middle of its lower end.
    """

    at: Point
    turn_rad: float
    size: float
    low: Point


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen in one picture, whose name is `view`.

    target: cube or hole; tool: the tip of what moves; None where it is not to be seen.
    """

    target: Thing | None
    tool: Point | None
    view: str = ALONG

    @property
    def error(self) -> NDArray[np.float64] | None:
        """[2] from the tip to the target; None when one of them is not to be seen."""
        if self.target is None or self.tool is None:
            return None
        return np.subtract(self.target.at, self.tool)


def see(picture: Picture, view: str, task: str, tip: Point | None = None) -> Sight:
    """Look at a picture.

    picture: RGB [H, W, 3]; view: the name that the page writes into it; tip: where the page's
    arrows begin, None where there are none.
    """
    hsv = _hsv(picture)
    if task == "lift":
        target = find(hsv, CUBE)
        return Sight(target, tip, view)
    peg = find(hsv, BRASS, far=view != ALONG)
    if view == ALONG:
        return Sight(find(hsv, BLOCK, square=True), tip or (peg.at if peg else None))
    return Sight(find(hsv, BLOCK, far=True), peg.low if peg else None, view)


def find(
    hsv: Picture,
    colour: Callable[[NDArray[np.int16]], Mask],
    *,
    square: bool = False,
    far: bool = False,
) -> Thing | None:
    """The largest thing of a colour.

    square: it is one, also where something hides a part of it; far: it is small in the picture, and
    what is painted on it does not part it.
    """
    import cv2

    mask = colour(hsv.astype(np.int16)).astype(np.uint8)
    kind = cv2.MORPH_CLOSE if far else cv2.MORPH_OPEN  # fill gaps, or drop specks
    mask = cv2.morphologyEx(mask, kind, np.ones((3, 3), np.uint8))
    count, labels, facts, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    height, width = mask.shape
    sizes = facts[1:, cv2.CC_STAT_AREA]
    if count < 2 or sizes.max() < (LEAST_FAR if far else LEAST) * height * width:
        return None
    least = 0.04 * sizes.max() if square else sizes.max()
    near = [i for i in range(1, count) if facts[i, cv2.CC_STAT_AREA] >= least]
    ys, xs = np.nonzero(np.isin(labels, near))
    points = np.column_stack((xs, ys)).astype(np.float32)
    (x, y), (w, h), _ = rect = cv2.minAreaRect(cv2.convexHull(points))
    edge = cv2.boxPoints(rect)
    dx, dy = edge[1] - edge[0]
    angle = -float(np.arctan2(dy, dx))
    if square and min(w, h) < HIDDEN * max(w, h):
        # the rest lies behind the fingers, in the middle of the picture
        across = np.array((-dy, dx) if np.hypot(dx, dy) > (w + h) / 2 else (dx, dy))
        across /= np.hypot(*across)
        inward = np.sign(across @ ((width - 1) / 2 - x, (height - 1) / 2 - y))
        x, y = np.array((x, y)) + inward * abs(w - h) / 2 * across
        w = h = max(w, h)
    quarter = np.pi / 2
    lowest = points[points[:, 1] >= np.quantile(points[:, 1], 0.93)]

    def place(px: float, py: float) -> Point:
        return (float(px) - (width - 1) / 2) / height, ((height - 1) / 2 - float(py)) / height

    return Thing(
        at=place(x, y),
        turn_rad=angle - quarter * round(angle / quarter),
        size=float(np.sqrt(w * h)) / height,
        low=place(float(lowest[:, 0].mean()), float(points[:, 1].max())),
    )


def _hsv(picture: Picture) -> Any:
    import cv2

    return cv2.cvtColor(picture, cv2.COLOR_RGB2HSV)


# --- colours: hue 0 to 180, saturation and brightness 0 to 255 ------------------------------------


def CUBE(hsv: NDArray[np.int16]) -> Mask:  # noqa: N802
    """Orange, as bright as its upper face."""
    hue, saturation, value = (hsv[..., i] for i in range(3))
    return (hue >= 5) & (hue <= 17) & (saturation > 150) & (value > 205)


def BRASS(hsv: NDArray[np.int16]) -> Mask:  # noqa: N802
    """The peg."""
    hue, saturation, value = (hsv[..., i] for i in range(3))
    return (hue >= 15) & (hue <= 22) & (saturation > 130) & (value > 90)


def BLOCK(hsv: NDArray[np.int16]) -> Mask:  # noqa: N802
    """The upper face of the blue block."""
    hue, saturation, value = (hsv[..., i] for i in range(3))
    return (hue >= 102) & (hue <= 116) & (saturation > 110) & (value > 100)
