"""A person sits down at the page: starts the run, opens its link, looks, thinks, presses.

The folder of a sitting gets `looks.jsonl`, a line for every look (what was read and seen, what was
pressed and why), and screenshots.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.bench.console.browser import SIZE, browser, until
from robot_rl.bench.person.eyes import Picture, Point, Sight, see
from robot_rl.bench.person.hands import REACTION_S, Hands
from robot_rl.bench.person.mind import Mind, Words
from robot_rl.errors import RobotRLError

START_S = 120.0
NICE = -10
STANDS_S = 0.25  # after a press, until the tool stands
LATE_S = 2.0  # a picture that is later than that is taken as it is
PAUSE = 0.2, (0.5, 2.0)  # share of episodes after which the person rests, and how long
LINK = re.compile(r"http://\S+/enter\?token=\S+")
DEMOS = re.compile(r"demo (\d+) of (\d+)")
SHOT_EVERY = 6  # looks between two screenshots that are kept

READ = """
() => {
  const seen = (e) => e && e.checkVisibility();
  const text = (q) => { const e = document.querySelector(q); return seen(e) ? e.innerText.trim() : ""; };
  const box = (e) => { if (!seen(e)) return null; const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; };
  const large = document.querySelector(".camera.chosen") ?? document.querySelector(".camera");
  return {
    word: text("#word"), reason: text("#reason"), advice: text("#advice"), result: text("#result"), seat: text("#lease"),
    device: text("#device"), asks: text("#asks"), go: seen(document.querySelector("#go")) ?? false,
    acknowledge: seen(document.querySelector("#acknowledge")) ?? false, toast: text("#toast"),
    force: text("#v-force"), speed: text("#v-speed"), gripper: text("#v-gripper"),
    view: large?.querySelector(".name b")?.innerText ?? "", age: large?.querySelector(".age")?.innerText ?? "", views: document.querySelectorAll(".camera").length,
    large: box(large), arrows: [...(large?.querySelectorAll(".tip line") ?? [])].map(box),
  };
}
"""
"""What is written on the page where it can be seen, where the large picture is, and its arrows."""


@dataclass
class Sitting:
    """What came of it. first_s, tenth_s: from opening the page; NaN when that was not reached."""

    task: str
    seed: int
    first_s: float = float("nan")
    last_s: float = float("nan")
    demos: int = 0
    failures: int = 0
    presses: int = 0
    slips: int = 0
    at_s: list[float] = field(default_factory=list[float])
    ended: str = ""


def sit(
    task: str, seed: int, demos: int, folder: Path, limit_s: float, source: Path | None = None
) -> Sitting:
    """Show the task `demos` times. Raises `RobotRLError` when the run does not come up."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(seed)
    found = Sitting(task, seed)
    with _recording(task, seed, demos, folder, source) as run, browser() as running:
        link = run.link()
        page = running.new_context(viewport=SIZE).new_page()
        began_s = time.monotonic()
        page.goto(link)
        _prefer_browser()
        hands, mind = Hands(page.keyboard, dice), Mind(task)
        with (folder / "looks.jsonl").open("w", buffering=1) as log:
            _drive(page, hands, mind, dice, run, found, log, folder, began_s, limit_s)
        hands.let_go()
        found.presses, found.slips = hands.pressed, hands.slips
        if run.process.poll() == 0 and found.demos < demos:  # the page was gone before it said so
            found.demos = demos
            found.at_s.append(time.monotonic() - began_s)
    if found.at_s:
        found.first_s = found.at_s[0]
    if found.demos >= demos:
        found.last_s = found.at_s[-1]
    (folder / "sitting.json").write_text(json.dumps(asdict(found), indent=1))
    return found


def _drive(
    page: Any, hands: Hands, mind: Mind, dice: random.Random, run: Recording, found: Sitting,
    log: Any, folder: Path, began_s: float, limit_s: float,
) -> None:  # fmt: skip
    number, result = 0, ""
    eyes = Eyes(page)
    while time.monotonic() < began_s + limit_s and run.process.poll() is None:
        looked_s = time.monotonic()
        said = page.evaluate(READ)
        words = words_of(said)
        if words.result != result and words.result:
            result = words.result
            found.failures += "success" not in result
            if (m := DEMOS.search(result)) and int(m[1]) > found.demos:
                found.demos = int(m[1])
                found.at_s.append(looked_s - began_s)
                if found.demos >= int(m[2]):
                    return
        shot = eyes.look() if said["large"] else None
        shot_s = time.monotonic() - looked_s
        large = None if shot is None else cut(shot, said["large"])
        sight = Sight(None, None)
        if large is not None:
            sight = see(large, words.view, mind.task, tip_of(said["arrows"], said["large"]))
        act = mind.next(words, sight)
        time.sleep(max(looked_s + dice.uniform(*REACTION_S) - time.monotonic(), 0.0))
        acted_s = time.monotonic()
        hands.act(act.keys)
        line = {
            "at_s": round(looked_s - began_s, 3), "acted_s": round(acted_s - began_s, 3),
            "done_s": round(time.monotonic() - began_s, 3), "n": number, "why": act.why, "shot_s": round(shot_s, 3),
            "keys": dict(act.keys), "words": {k: v for k, v in said.items() if v not in ("", None, [])},
            "sight": asdict(sight),
        }  # fmt: skip
        log.write(json.dumps(line) + "\n")
        if shot is not None and (number % SHOT_EVERY == 0 or act.why.startswith(KEEP)):
            (folder / f"look{number:05d}.jpg").write_bytes(shot)
        number += 1
        if act.settle:
            _wait_for_picture(page, time.monotonic())
        if act.why.startswith("an episode") and dice.random() < PAUSE[0]:
            time.sleep(dice.uniform(*PAUSE[1]))


def _wait_for_picture(page: Any, since_s: float) -> None:
    """Until the page shows how it has become: its age is written on the picture."""
    time.sleep(STANDS_S)
    while time.monotonic() < since_s + LATE_S:
        age_s = age_of(page.evaluate(READ)["age"])
        if age_s < time.monotonic() - since_s - STANDS_S / 2:
            return
        time.sleep(0.1)


def age_of(text: str) -> float:
    """Seconds of "412 ms" or "1.3 s old"; infinite where no number is written."""
    found = re.match(r"(\d+(?:\.\d+)?) (ms|s)", text)
    return float("inf") if found is None else float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


KEEP = ("over it", "it rests", "nothing", "it cannot", "an episode", "a stop", "it waits")


def _prefer_browser() -> None:
    """Let the browser go first, as it does on a computer of its own; where the system lets us."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        with suppress(OSError):
            if above == os.getpid() and b"--type=" in Path(f"/proc/{pid}/cmdline").read_bytes():
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    os.setpriority(os.PRIO_PROCESS, int(thread.name), NICE)


class Eyes:
    """What the browser shows, frame by frame, as a camera in front of the screen would see it.

    A screenshot would keep the page from sending its keys for as long as it takes.
    """

    def __init__(self, page: Any) -> None:
        self._page, self._frames = page, list[tuple[int, str]]()
        self._session = page.context.new_cdp_session(page)
        self._session.on("Page.screencastFrame", self._take)
        self._session.send("Page.startScreencast", {"format": "jpeg", "quality": 90})

    def _take(self, frame: dict[str, Any]) -> None:
        self._frames.append((frame["sessionId"], frame["data"]))

    def look(self) -> bytes:
        """The next frame, as JPEG. Raises `RobotRLError` when there is none for long."""
        for number, _ in self._frames:
            self._session.send("Page.screencastFrameAck", {"sessionId": number})
        self._frames.clear()

        def shown() -> bool:
            self._page.wait_for_timeout(5)
            return bool(self._frames)

        until(shown, "the page shows something")
        return base64.b64decode(self._frames[-1][1])


def words_of(said: dict[str, Any]) -> Words:
    """What is read, with numbers where numbers are written."""
    texts = ("word", "reason", "advice", "result", "seat", "device", "asks", "view")
    return Words(
        **{name: said[name] for name in texts},
        go=bool(said["go"]),
        acknowledge=bool(said["acknowledge"]),
        force_n=_number(said["force"]),
        speed_mm_s=_number(said["speed"]),
        gripper_mm=_number(said["gripper"]),
        views=said["views"],
    )


def _number(text: str) -> float:
    found = re.search(r"-?\d+(\.\d+)?", text)
    return float(found[0]) if found else 0.0


def picture_in(box: list[float]) -> tuple[float, float, float, float]:
    """Left, top, width, height of the picture (4:3) inside the black box that it is shown in."""
    left, top, width, height = box
    w = min(width, height * 4 / 3)
    h = w * 3 / 4
    return left + (width - w) / 2, top + (height - h) / 2, w, h


def cut(shot: bytes, box: list[float]) -> Picture:
    """The large picture out of a screenshot, RGB."""
    import cv2

    bgr = cv2.imdecode(np.frombuffer(shot, np.uint8), cv2.IMREAD_COLOR)
    assert bgr is not None
    left, top, width, height = (round(v) for v in picture_in(box))
    return np.ascontiguousarray(bgr[top : top + height, left : left + width, ::-1])


def tip_of(arrows: list[list[float] | None], box: list[float]) -> Point | None:
    """Where the arrows on the picture begin: the corner that their boxes share."""
    boxes = [a for a in arrows if a]
    if len(boxes) < 2:
        return None
    corners = [[(x + i * w, y + j * h) for i in (0, 1) for j in (0, 1)] for x, y, w, h in boxes]
    pairs = [(a, b) for a in corners[0] for b in corners[1]]
    (x, y), _ = min(pairs, key=lambda p: np.hypot(p[0][0] - p[1][0], p[0][1] - p[1][1]))
    left, top, width, height = picture_in(box)
    return (x - left - width / 2) / height, (top + height / 2 - y) / height


class Recording:
    """`robot-rl record` in a process of its own; lines of its terminal are kept."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self._lines = process, queue.SimpleQueue[str]()
        self._log = log.open("w", buffering=1)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._log.write(line)
            self._lines.put(line)

    def link(self) -> str:
        """What the terminal says to open. Raises `RobotRLError` when it says nothing."""

        def told() -> str:
            if self.process.poll() is not None:
                raise RobotRLError("the run has ended", got=f"exit code {self.process.returncode}")
            while not self._lines.empty():
                if found := LINK.search(self._lines.get()):
                    return found[0]
            return ""

        return until(told, "the run prints its link", START_S)


@contextmanager
def _recording(
    task: str, seed: int, demos: int, folder: Path, source: Path | None
) -> Iterator[Recording]:
    words = [
        f"experiment={task}", "runtime=ros", "operator=console", f"seed={seed}", f"--demos={demos}",
        f"run_dir={folder.resolve() / 'run'}",
    ]  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    if source is not None:
        env["PYTHONPATH"] = os.pathsep.join(str(source / p) for p in ("", "sim", "hardware"))
    process = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli.main", "record", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=env | {"PYTHONUNBUFFERED": "1"}, cwd=source,
    )  # fmt: skip
    try:
        yield Recording(process, folder / "terminal.log")
    finally:
        process.terminate()
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
