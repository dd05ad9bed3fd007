"""What a run shows while it goes on: a report that grows, and a picture of the first success.

The report draws the whole run, so it takes longer, and more memory, the longer the run is. While
the run goes on a process of its own writes it (`python -m robot_rl.report.live RUN`): whoever
supervises the run neither waits for it nor keeps its memory.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.errors import RobotRLError
from robot_rl.report.report import REPORT, write_report
from robot_rl.report.rundata import FIRST_SUCCESS
from robot_rl.store.scenes import SCENES, Scenes
from robot_rl.system.files import write_picture

log = logging.getLogger(__name__)

EVERY_S = 10.0  # a report takes half a second at first
SHARE = 0.05  # of the time, at most, in which a report is being written: later, less often
LONGEST_S = 300.0  # between two reports
NICE = 10  # nobody waits for it
PICTURES = 6  # of the strip, evenly over the episode
HEIGHT, WIDTH = 240, 320  # of each
TRIES_S = 30.0  # the scenes of an episode are written a moment after its figures


class Live:
    """Gets the figures of a run, as the dashboard does; `write` or `end` writes the last report.

    What cannot be written is logged: it never ends a run.

    Args:
        mirror: (camera, height, width) -> what draws the simulated scene; None on a real robot.
    """

    def __init__(self, run_dir: Path, mirror: Callable[..., Any] | None) -> None:
        self._run_dir, self._mirror = run_dir, mirror
        self._began_s = self._written_s = time.monotonic()
        self._begun = False  # figures have come
        self._writer: subprocess.Popen[bytes] | None = None
        self._asked_s, self._pause_s = 0.0, EVERY_S
        self._solved: tuple[int, int] | None = None  # episode and steps of the first success
        self._solved_s = 0.0
        self._drawn = mirror is None or (run_dir / FIRST_SUCCESS).exists()

    def update(self, stats: Mapping[str, Any]) -> None:
        """Take the newest figures, and rewrite the report now and then."""
        self._begun = True
        if not self._drawn:
            self._refresh(stats)
        self._write_beside()

    def write(self, *, again_s: float = 0.0) -> Path | None:
        """Write the report now, and return its path; None = it cannot be written."""
        self._stop_writer()
        try:
            path = write_report(self._run_dir, again_s=again_s)
        except (OSError, RobotRLError) as error:
            log.warning("the report was not written: %s", error)
            return None
        self._written_s = time.monotonic()
        return path

    def end(self) -> None:
        """Write the last report of a run that was stopped or failed, if it has shown figures.

        Without any, another process may be at work in the folder, and write the report there.
        """
        if self._begun:
            self.write()

    def _write_beside(self) -> None:
        """Have the report written when it is time, unless that is still being done."""
        now_s = time.monotonic()
        if self._writer is not None and self._writer.poll() is not None:
            if self._writer.returncode:
                log.warning("the report was not written: exit code %d", self._writer.returncode)
            self._pause_s = min(max(EVERY_S, self._took_s() / SHARE), LONGEST_S)
            self._writer = None
        if self._writer is None and now_s - self._written_s >= self._pause_s:
            self._written_s, self._asked_s = now_s, time.time()
            try:
                self._writer = subprocess.Popen(
                    [sys.executable, "-P", "-m", "robot_rl.report.live", str(self._run_dir)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for the run
                )
            except OSError as error:  # no memory, or too many processes
                log.warning("the report was not written: %s", error)

    def _took_s(self) -> float:
        """How long the other process has taken, by the time of its file; 0 without one."""
        try:
            return (self._run_dir / REPORT).stat().st_mtime - self._asked_s
        except OSError:
            return 0.0

    def _stop_writer(self) -> None:
        """An older report must not replace the one that is written next."""
        if self._writer is not None:
            self._writer.kill()
            self._writer.wait()
            self._writer = None

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
        self._drawn = True
        path = self._run_dir / FIRST_SUCCESS
        try:
            write_picture(path, strip)
        except OSError as error:  # a full disk must not end the run
            log.warning("no picture of the first success: %s", error)
            return
        report = self.write(again_s=EVERY_S)
        also = f" (and in {report})" if report else ""
        text = "first success without help, %.0f s after the start: %s%s"
        log.warning(text, self._solved_s - self._began_s, path, also)

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


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the process that writes the report of a run that goes on."""
    (run_dir,) = argv or sys.argv[1:]
    os.nice(NICE)
    write_report(Path(run_dir), again_s=EVERY_S)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
