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

LOOK = (
    """
async () => {
  const said = ("""
    + READ
    + """)();
  const shown = (document.querySelector(".camera.chosen") ?? document.querySelector(".camera"))?.querySelector("canvas");
  said.picture = "";
  if (!shown?.width) return said;
  const copy = new OffscreenCanvas(640, 480);
  copy.getContext("2d", { willReadFrequently: true }).drawImage(shown, 0, 0, 640, 480);
  const bytes = new Uint8Array(await (await copy.convertToBlob({ type: "image/jpeg", quality: 0.92 })).arrayBuffer());
  for (let i = 0; i < bytes.length; i += 8192) said.picture += String.fromCharCode(...bytes.subarray(i, i + 8192));
  said.picture = btoa(said.picture);
  return said;
}
"""
)
"""The same, and the pixels of the large picture. A screenshot of the whole page would take the two
cores for so long that the page could not send its keys in time; a person's eyes take nothing."""


@dataclass
class Sitting:
    """What came of it. at_s: when each demonstration had succeeded, from opening the page."""

    task: str
    seed: int
    demos: int = 0
    failures: int = 0
    presses: int = 0
    slips: int = 0
    at_s: list[float] = field(default_factory=list[float])


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
    (folder / "sitting.json").write_text(json.dumps(asdict(found), indent=1))
    return found


def _drive(
    page: Any, hands: Hands, mind: Mind, dice: random.Random, run: Recording, found: Sitting,
    log: Any, folder: Path, began_s: float, limit_s: float,
) -> None:  # fmt: skip
    number, tries, drove = 0, 0, False
    while time.monotonic() < began_s + limit_s and run.process.poll() is None:
        looked_s = time.monotonic()
        said = page.evaluate(LOOK)
        seen_s = time.monotonic() - looked_s
        words = words_of(said)
        if (m := DEMOS.search(words.result)) and int(m[1]) > found.demos:
            found.demos = int(m[1])
            found.at_s.append(looked_s - began_s)
            if found.demos >= int(m[2]):
                return
        tries += drove and words.word == "Resetting"
        drove = words.word != "Resetting" and (drove or words.word == "You are driving")
        found.failures = tries - found.demos
        jpeg = base64.b64decode(said.pop("picture"))
        sight = Sight(None, None)
        if jpeg:
            tip = tip_of(said["arrows"], said["large"])
            sight = see(decoded(jpeg), words.view, mind.task, tip)
        act = mind.next(words, sight)
        time.sleep(max(looked_s + dice.uniform(*REACTION_S) - time.monotonic(), 0.0))
        acted_s = time.monotonic()
        hands.act(act.keys)
        line = {
            "at_s": round(looked_s - began_s, 3), "acted_s": round(acted_s - began_s, 3),
            "done_s": round(time.monotonic() - began_s, 3), "n": number, "why": act.why, "shot_s": round(seen_s, 3),
            "keys": dict(act.keys), "words": {k: v for k, v in said.items() if v not in ("", None, [])},
            "sight": asdict(sight),
        }  # fmt: skip
        log.write(json.dumps(line) + "\n")
        if jpeg and (number % SHOT_EVERY == 0 or act.why.startswith(KEEP)):
            (folder / f"look{number:05d}.jpg").write_bytes(jpeg)
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


def decoded(jpeg: bytes) -> Picture:
    """RGB of a JPEG."""
    import cv2

    bgr = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert bgr is not None
    return np.ascontiguousarray(bgr[..., ::-1])


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
