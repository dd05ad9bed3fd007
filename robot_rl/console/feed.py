"""What flows between the page and the robot side while a run is live.

One task per camera that somebody watches fetches the newest picture once, however many people
look; one task gathers the telemetry. Nothing queues: a slow page sees less, but nothing older.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import PAUSED
from robot_rl.console.telemetry import SAYS, RunFigures, advice_of, word_of
from robot_rl.errors import LinkError, RobotRLError
from robot_rl.link.panel import ControlSender, Panel, socket_address

log = logging.getLogger(__name__)

TELEMETRY_S = 0.1
POLL_S = 0.004  # between two questions for a picture that is not there yet
DUE, LONGEST_S = 0.8, 0.1  # pause after a picture: share of the camera's period, at most so long
SLOW_S = 0.7  # between two pictures that nobody looks at closely
IDLE_S = 2.0  # a camera nobody asks for is not fetched
AWAY_S = 0.5  # between two tries while the robot side is away
LOOK_S = 0.3  # between two looks into the store for what models say now
SETTLED_S = 2.0  # a hold that was asked for longer ago has begun, or is over
FROZEN_S = 1.0  # a camera that shows the same picture this long is called frozen
DEFECT = {
    "word": "OFFLINE",
    "says": "Offline",
    "reason": "the console has a defect; see its log",
    "robot": {},
}
NOTHING_YET: dict[str, Any] = {"learning": 0, "figures": {}, "findings": [], "curves": {}}


@dataclass(frozen=True, slots=True)
class Picture:
    """The newest picture of a camera, as JPEG. taken_s: monotonic time of its capture."""

    number: int
    taken_s: float
    width: int
    height: int
    frozen: bool
    jpeg: bytes

    def age_ms(self) -> float:
        """Milliseconds since it was taken."""
        return (time.monotonic() - self.taken_s) * 1e3


@dataclass(slots=True)
class _Camera:
    wanted_s: float
    watched_s: float = -math.inf  # when it was asked for by somebody who wants every picture
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    newest: Picture | None = None
    task: asyncio.Task[None] | None = None


class Feed:
    """Telemetry, pictures and control of one run.

    Args:
        look: reads what models say now: entries of the telemetry.
        home: folder of the learner, where it is another than the arm's.

    Attributes:
        about: what does not change while the run lasts (task, cameras, key map).
        panel: questions to the robot side.
    """

    def __init__(
        self,
        run_dir: Path,
        about: Mapping[str, Any],
        look: Callable[[], dict[str, Any]] = dict,
        home: Path | None = None,
    ) -> None:
        self.about = dict(about)
        self._look, self._seen = look, dict[str, Any]()
        self._run_dir = run_dir
        self._figures = RunFigures(run_dir, home or run_dir)
        self._paused = (home or run_dir) / PAUSED
        self._learning = NOTHING_YET  # "learning" counts lines read: a slow reader misses none
        self._cameras: dict[str, _Camera] = {}
        self._values: dict[str, Any] = {"robot": {}}
        self._fresh = asyncio.Condition()
        self._count = 0
        self._left_s: float | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the feed alive inside the `async with`."""
        self.panel = Panel(socket_address(self._run_dir, "view"))
        self._control = ControlSender(self._run_dir)
        own = [asyncio.create_task(work) for work in (self._gather(), self._watch_store())]
        try:
            yield
        finally:
            tasks = [*own, *(c.task for c in self._cameras.values() if c.task)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.panel.close()
            self._control.close()

    def send_control(self, text: str, stamp_s: float) -> None:
        """Pass the driver's input on; dropped when the robot side is away.

        stamp_s: monotonic time at which the page said it.
        """
        self._control.send(text, stamp_s)

    def say_left(self, left: bool) -> None:
        """Whether the hold asked for now comes from a page that was left while it drove."""
        self._left_s = time.monotonic() if left else None

    async def newest(self, seen: int) -> tuple[int, dict[str, Any]]:
        """(count, telemetry) as soon as there is another than `seen`; a slow reader misses some."""
        async with self._fresh:
            await self._fresh.wait_for(lambda: self._count != seen)
            return self._count, self._values

    async def picture(self, name: str, after: int, *, slow: bool = False) -> Picture:
        """The newest picture of a camera with another number than `after`.

        slow: now and then is enough; it counts while nobody asks otherwise.

        Raises:
            LinkError: there is no such camera.
        """
        if name not in self.about["cameras"]:
            raise LinkError(f"no camera '{name}'", expected=str(self.about["cameras"]), got=name)
        camera = self._cameras.setdefault(name, _Camera(time.monotonic()))
        camera.wanted_s = time.monotonic()
        if not slow:
            camera.watched_s = camera.wanted_s
        if camera.task is None or camera.task.done():
            camera.task = asyncio.create_task(self._watch(name, camera))
        async with camera.arrived:
            await camera.arrived.wait_for(
                lambda: camera.newest is not None and camera.newest.number != after
            )
        assert camera.newest is not None
        return camera.newest

    async def _watch(self, name: str, camera: _Camera) -> None:
        """Fetch while somebody looks; the next picture is asked for when it is about due."""
        number, taken_s, same_since_s, checksum = -1, -math.inf, time.monotonic(), 0
        while time.monotonic() - camera.wanted_s < IDLE_S:
            try:
                head, jpeg = await self.panel.ask("picture", camera=name, after=number)
            except LinkError:
                await asyncio.sleep(AWAY_S)
                continue
            if not len(jpeg):
                await asyncio.sleep(POLL_S)
                continue
            now_s = time.monotonic()
            before_s, taken_s = taken_s, now_s - head["age_s"]
            period_s = (taken_s - before_s) / max(head["number"] - number, 1)
            number = head["number"]
            if head["checksum"] != checksum:
                checksum, same_since_s = head["checksum"], now_s
            moving = bool(self._values["robot"].get("moving"))
            frozen = now_s - same_since_s > FROZEN_S and moving
            size = head["width"], head["height"]
            async with camera.arrived:
                camera.newest = Picture(number, taken_s, *size, frozen, bytes(jpeg))
                camera.arrived.notify_all()
            due_s = taken_s + min(DUE * period_s, LONGEST_S)
            if now_s - camera.watched_s > IDLE_S:
                due_s = max(due_s, now_s + SLOW_S)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _watch_store(self) -> None:
        """Look apart from telemetry: a store busy with a review must not delay that."""
        while True:
            with suppress(RobotRLError):  # nothing has been recorded yet
                self._seen = await asyncio.to_thread(self._look)
            await asyncio.sleep(LOOK_S)

    async def _gather(self) -> None:
        """Gather robot side and figures ten times a second, whatever goes wrong with either."""
        deadline_s = time.monotonic()
        while True:
            try:
                values = await self._read_values()
            except Exception:  # the page must never go on showing an old word
                log.exception("telemetry failed")
                values = DEFECT
            async with self._fresh:
                self._values = values | self._learning
                self._count += 1
                self._fresh.notify_all()
            deadline_s = max(deadline_s + TELEMETRY_S, time.monotonic())
            await asyncio.sleep(deadline_s - time.monotonic())

    async def _read_values(self) -> dict[str, Any]:
        """The robot side's newest words; takes in the run's new figures, if there are any."""
        view: Mapping[str, Any] | None = None
        with suppress(LinkError):
            view, _ = await self.panel.ask("view", timeout_s=AWAY_S)
        news = await asyncio.to_thread(self._figures.read)
        if news:
            self._learning = {
                "learning": self._learning["learning"] + news,
                "figures": self._figures.numbers,
                "findings": self._figures.findings,
                "curves": {k: list(v) for k, v in self._figures.curves.items() if v},
            }
        since_s, waits = self._left_s, ((view or {}).get("gate") or {}).get("waits")
        if since_s is not None and not waits and time.monotonic() - since_s > SETTLED_S:
            self._left_s = None
        left = self._left_s is not None
        word, reason = word_of(view, paused=self._paused.exists(), left=left)
        said = {"word": word, "says": SAYS[word], "reason": reason, "advice": advice_of(view)}
        return said | {"robot": view or {}} | self._seen
