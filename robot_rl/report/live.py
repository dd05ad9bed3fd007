"""What a run shows while it goes on: a report that grows, and a picture of the first success."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.errors import RobotRLError
from robot_rl.report.report import write_report
from robot_rl.report.rundata import FIRST_SUCCESS
from robot_rl.store.scenes import SCENES, Scenes

log = logging.getLogger(__name__)

EVERY_S = 10.0  # a report takes a fifth of a second
PICTURES = 6  # of the strip, evenly over the episode
HEIGHT, WIDTH = 240, 320  # of each
TRIES_S = 30.0  # the scenes of an episode are written a moment after its figures


class Live:
    """Gets the figures of a run, as the dashboard does; `write` also writes the last report.

    Args:
        mirror: (camera, height, width) -> what draws the simulated scene; None on a real robot.
    """

    def __init__(self, run_dir: Path, mirror: Callable[..., Any] | None) -> None:
        self._run_dir, self._mirror = run_dir, mirror
        self._began_s = self._written_s = time.monotonic()
        self._solved: tuple[int, int] | None = None  # episode and steps of the first success
        self._solved_s = 0.0
        self._drawn = mirror is None or (run_dir / FIRST_SUCCESS).exists()

    def update(self, stats: Mapping[str, Any]) -> None:
        """Take the newest figures, and rewrite the report now and then."""
        if not self._drawn:
            self._refresh(stats)
        if time.monotonic() - self._written_s >= EVERY_S:
            self.write(again_s=EVERY_S)

    def write(self, *, again_s: float = 0.0) -> Path:
        """Write the report now, and return its path."""
        path = write_report(self._run_dir, again_s=again_s)
        self._written_s = time.monotonic()
        return path

    def _refresh(self, stats: Mapping[str, Any]) -> None:
        """Draw the first success without help, as soon as its scenes are there."""
        now_s = time.monotonic()
        if self._solved is None:
            self._solved, self._solved_s = _unaided(stats), now_s
            if self._solved is None:
                return
        try:
            strip = self._strip(*self._solved)
        except RobotRLError as error:  # no OpenGL: the run goes on without pictures
            log.warning("no picture of the first success: %s", error)
            self._drawn = True
            return
        if strip is None:
            self._drawn = now_s - self._solved_s > TRIES_S
            return
        import cv2

        self._drawn = True
        path = self._run_dir / FIRST_SUCCESS
        cv2.imwrite(str(path), strip)
        report = self.write(again_s=EVERY_S)
        text = "first success without help, %.0f s after the start: %s (and in %s)"
        log.warning(text, self._solved_s - self._began_s, path, report)

    def _strip(self, episode: int, steps: int) -> np.ndarray | None:
        """BGR uint8 [H, W * pictures, 3]; None = not all scenes are there yet."""
        scenes = Scenes(self._run_dir / SCENES)
        frames = np.linspace(0, steps, PICTURES).round().astype(int)
        states = [scenes.state(episode, int(frame)) for frame in frames]
        if any(state is None for state in states):
            return None
        assert self._mirror is not None  # else nothing is to be drawn
        mirror = self._mirror("video", HEIGHT, WIDTH)
        try:
            pictures = [mirror.picture(state) for state in states]
        finally:
            mirror.close()
        return np.concatenate(pictures, 1)[..., ::-1]


def _unaided(stats: Mapping[str, Any]) -> tuple[int, int] | None:
    """(episode, steps) when these figures are of an episode that the policy solved alone."""
    for prefix in ("", "eval_"):
        key = f"{prefix}episode/"
        alone = stats.get(f"{key}intervention_rate") == 0.0
        if stats.get(f"{key}success") == 1.0 and alone:
            return int(stats[f"{key}index"]), int(stats[f"{key}length"])
    return None
