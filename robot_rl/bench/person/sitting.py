"""A person sits down at the page: starts the run, opens its link, looks, thinks, presses.

The folder of a sitting gets `looks.jsonl`, a line for every look (what was read and seen, what was
pressed and why), and some of the pictures that were seen.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import re
import subprocess
import sys
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
from robot_rl.bench.person.mind import ENDED, WAITS, Act, Mind, Words
from robot_rl.config.run_folder import METRICS
from robot_rl.console.address import HOST
from robot_rl.errors import RobotRLError
from robot_rl.link.panel import link_file
from robot_rl.system.files import Tail
from robot_rl.system.ports import probe
from robot_rl.system.supervised import end

START_S = 120.0
NICE = -10
STANDS_S = 0.25  # after a press, until the tool stands
LATE_S = 2.0  # a picture that is later than that is taken as it is
HEARD_S = 0.6  # after a key that asks the page for something, before it is pressed again
PAUSE, PAUSE_S = 0.2, (0.5, 2.0)  # share of episodes after which the person rests, and how long
KEPT = 5  # every so many looks the picture is kept
READ = """
() => {
  const seen = (e) => Boolean(e?.checkVisibility()), all = (q) => [...document.querySelectorAll(q)];
  const text = (q) => { const e = document.querySelector(q); return seen(e) ? e.innerText.trim() : ""; };
  const box = (e) => { const b = e?.getBoundingClientRect(); return seen(e) ? [b.x, b.y, b.width, b.height] : null; };
  const large = document.querySelector(".camera.chosen") ?? document.querySelector(".camera");
  const words = { word: "#word", reason: "#reason", advice: "#advice", result: "#result", seat: "#lease",
    device: "#device", asks: "#asks", force: "#v-force", speed: "#v-speed", gripper: "#v-gripper" };
  return {
    ...Object.fromEntries(Object.entries(words).map(([name, q]) => [name, text(q)])),
    go: seen(document.querySelector("#go")), acknowledge: seen(document.querySelector("#acknowledge")),
    view: large?.querySelector(".name b")?.innerText ?? "", age: large?.querySelector(".age")?.innerText ?? "",
    views: all(".camera").length, large: box(large),
    arrows: [...(large?.querySelectorAll(".tip line") ?? [])].map(box),
  };
}
"""  # noqa: E501
"""What is written on the page where it can be seen, where the large picture is, and its arrows."""

LOOK = f"""
() => {{
  const said = {{ ...({READ})(), picture: "" }};
  const shown = (document.querySelector(".camera.chosen") ?? document.querySelector(".camera"))?.querySelector("canvas");
  if (!shown?.width) return said;
  const copy = Object.assign(document.createElement("canvas"), {{ width: 640, height: 480 }});
  copy.getContext("2d", {{ willReadFrequently: true }}).drawImage(shown, 0, 0, 640, 480);
  return {{ ...said, picture: copy.toDataURL("image/jpeg", 0.92).split(",")[1] }};  // a blob would wait for idle time
}}
"""  # noqa: E501
"""The same, and the pixels of the large picture. A screenshot of the whole page would take the two
cores for so long that the page could not send its keys in time; a person's eyes take nothing."""


@dataclass
class Sitting:
    """What came of it.

    at_s: when each demonstration had succeeded, from opening the page; browser_first: whether the
    browser went before other programs, see `_prefer_browser`.
    """

    task: str
    seed: int
    demos: int = 0
    failures: int = 0
    presses: int = 0
    slips: int = 0
    at_s: list[float] = field(default_factory=list[float])
    browser_first: bool = False


def sit(
    task: str, seed: int, folder: Path, *, demos: int, limit_s: float, source: Path | None = None
) -> Sitting:
    """Show the task `demos` times, for `limit_s` at most; the arguments are those of `bench`.

    Raises:
        RobotRLError: the run does not come up, or fails before the sitting is over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _recording(task, seed, demos, folder, source) as run, browser() as running:
        page = running.new_context(viewport=SIZE).new_page()
        link = link_file(folder / "run").read_text().strip()
        began_s = time.monotonic()
        page.goto(link)
        found = Sitting(task, seed, browser_first=_prefer_browser())
        person = _Person(page, found, folder, began_s)
        while time.monotonic() < began_s + limit_s and run.poll() is None:
            person.turn()
            if found.demos >= demos:
                break
        if run.poll():
            raise _died(run)
        person.hands.let_go()
        person.count()
    found.presses, found.slips = person.hands.pressed, person.hands.slips
    (folder / "sitting.json").write_text(json.dumps(asdict(found), indent=1))
    return found


class _Person:
    """Somebody in front of the page. found: what has come of it so far."""

    def __init__(self, page: Any, found: Sitting, folder: Path, began_s: float) -> None:
        self.found, self._page, self._folder, self._began_s = found, page, folder, began_s
        self._dice = random.Random(found.seed)
        self.hands, self._mind = Hands(page.keyboard, self._dice), Mind(found.task)
        self._log = (folder / "looks.jsonl").open("w", buffering=1)
        self._looks = 0
        self._metrics = Tail(folder / "run" / METRICS)

    def turn(self) -> None:
        """Look once, think, press."""
        looked_s = time.monotonic()
        said = self._page.evaluate(LOOK)
        jpeg = base64.b64decode(said.pop("picture"))
        words = words_of(said)
        self.count()
        sight = Sight(None, None)
        if jpeg:
            tip = tip_of(said["arrows"], said["large"])
            sight = see(decoded(jpeg), words.view, self.found.task, tip)
        act = self._mind.next(words, sight)
        think_s = self._dice.uniform(*REACTION_S)
        time.sleep(max(looked_s + think_s - time.monotonic(), 0.0))
        acted_s = time.monotonic()
        self.hands.act(act.keys)
        self._note((looked_s, acted_s), act, words=asdict(words), sight=asdict(sight))
        if jpeg and self._looks % KEPT == 0:
            (self._folder / f"look{self._looks:05d}.jpg").write_bytes(jpeg)
        self._looks += 1
        if act.why.startswith(WAITS):
            time.sleep(HEARD_S)
        if act.settle:
            self._wait_for_picture(time.monotonic())
        if act.why == ENDED and self._dice.random() < PAUSE:
            time.sleep(self._dice.uniform(*PAUSE_S))

    def count(self) -> None:
        """Tries and demonstrations, as the run records them: measured, not seen by the person."""
        now_s, found = time.monotonic() - self._began_s, self.found
        for line in self._metrics.lines():
            if "demo_episode/success" in line:
                won = line["demo_episode/success"] > 0
                found.demos, found.failures = found.demos + won, found.failures + (not won)
                found.at_s += [now_s] * won

    def _note(self, at_s: tuple[float, float], act: Act, **saw: Any) -> None:
        """A line of the log. at_s: when the look began, and the press."""
        line = {
            "look": self._looks,
            "at_s": [round(s - self._began_s, 3) for s in (*at_s, time.monotonic())],
            "why": act.why,
            "keys": dict(act.keys),
            **saw,
        }
        self._log.write(json.dumps(line) + "\n")

    def _wait_for_picture(self, since_s: float) -> None:
        """Until the page shows how it has become: the age of a picture is written on it."""
        time.sleep(STANDS_S)
        while time.monotonic() < since_s + LATE_S:
            age_s = age_of(self._page.evaluate(READ)["age"])
            if age_s < time.monotonic() - since_s - STANDS_S / 2:
                return
            time.sleep(0.1)


def _prefer_browser() -> bool:
    """Let the browser go first, as it does on a computer of its own; whether the system lets us.

    Nodes with a deadline still go before it (`system.priority`).
    """
    let = False
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
                    let = True
    return let


def age_of(text: str) -> float:
    """Seconds of "412 ms" or "1.3 s old"; infinite where no number is written."""
    found = re.match(r"(\d+(?:\.\d+)?) (ms|s)", text)
    return math.inf if found is None else float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


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
    return np.ascontiguousarray(bgr[..., ::-1], np.uint8)


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


def _died(run: subprocess.Popen[bytes]) -> RobotRLError:
    return RobotRLError(
        "the run has ended",
        expected="`robot-rl record` lives as long as somebody sits at its page",
        got=f"exit code {run.returncode}",
        fix="read terminal.log in the folder of the sitting",
    )


@contextmanager
def _recording(
    task: str, seed: int, demos: int, folder: Path, source: Path | None
) -> Iterator[subprocess.Popen[bytes]]:
    """`robot-rl record` in a process of its own, once it has left the link to its page.

    A run that goes on beside it, perhaps of a real arm, is neither heard nor disturbed.
    """
    from robot_rl.ros.graph import free_domain

    run_dir = folder.resolve() / "run"
    words = [
        f"experiment={task}", "runtime=ros", "operator=console", f"seed={seed}", f"--demos={demos}",
        f"ros.domain_id={free_domain()}", f"link.port={probe(HOST, 0)}", f"run_dir={run_dir}",
    ]  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    if source is not None:
        source = source.resolve()
        own = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []  # ROS 2, perhaps
        folders = [str(source / name) for name in ("", "sim", "hardware")]
        env["PYTHONPATH"] = os.pathsep.join([*folders, *own])
    with (folder / "terminal.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "robot_rl.cli.main", "record", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=source,
        )  # fmt: skip

    def is_up() -> bool:
        if process.poll() is not None:
            raise _died(process)
        return link_file(run_dir).is_file()

    try:
        until(is_up, "the run leaves its link", START_S)
        yield process
    finally:
        end(process, 20.0)
