"""The view node's drawn scene: whoever asks never waits for the painter."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.errors import LinkError, SetupError
from robot_rl.ros.view_node import Scene
from tests.support.served import until


class Mirror:
    """Draws when the test says so; a picture shows how many there were before."""

    def __init__(self) -> None:
        self.go, self.drawn = threading.Semaphore(0), 0

    def places(self) -> dict[str, Any]:
        return {"overview": "somewhere"}

    def picture(self, state: object, view: str) -> Any:
        self.go.acquire()
        self.drawn += 1
        return np.full((2, 2, 3), self.drawn, np.uint8)


def scene(mirror: Mirror) -> Scene:
    return Scene(lambda: mirror, SimpleNamespace)  # type: ignore[arg-type,return-value]


def test_nobody_waits_for_the_painter() -> None:
    mirror = Mirror()
    drawn = scene(mirror)
    began_s = time.monotonic()
    assert [drawn.newest("overview")[0] for _ in range(3)] == [0, 0, 0]
    assert time.monotonic() - began_s < 1.0
    mirror.go.release()
    until(lambda: drawn.newest("overview")[0] == 1)
    assert drawn.places == {"overview": "somewhere"}
    until(lambda: drawn._drawing is not None or drawn.newest("overview")[0] > 1)
    assert drawn.newest("overview")[2].max() == 1  # the picture before, while the next is drawn
    assert drawn.newest("wrist")[0] == 0  # one painter: the other view waits its turn
    mirror.go.release(2)
    until(lambda: drawn.newest("wrist")[0] > 0)
    mirror.go.release(100)


def test_without_a_state_nothing_is_drawn_and_a_painter_that_fails_is_told() -> None:
    with pytest.raises(LinkError, match="no robot state"):
        Scene(Mirror, lambda: None).newest("overview")

    def no_opengl() -> Mirror:
        raise SetupError("no OpenGL")

    broken = Scene(no_opengl, SimpleNamespace)  # type: ignore[arg-type,return-value]
    broken.newest("overview")
    with pytest.raises(SetupError, match="no OpenGL"):
        until(lambda: broken.newest("overview")[0] > 0)
