"""How fast the page is: three cameras, the driver's keys beside them, eight hours of telemetry.

    video(seconds)["video/lag_ms_p95"]

Real: the server's process, the sockets, the browser, the page. Made up: the robot side. One process
answers as the view node does, with three cameras of 640x480 at 30 Hz (gradient, bars that move,
sensor noise); another listens as the operator's node does. Not in it: what ROS 2 needs to carry a
picture from a camera to the view node, and what the compositor and a screen need to show a canvas.
"""

from __future__ import annotations

import multiprocessing
import random
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from robot_rl.bench.console.browser import (
    PageClock,
    Server,
    browser,
    clock_of,
    open_page,
    quantiles,
    run_folder,
    take_seat,
)
from robot_rl.bench.console.drive import ScriptedPage
from robot_rl.link.panel import Answer, PanelServer, picture_answer, socket_address
from robot_rl.operate.remote import parse
from robot_rl.tasks.common import VIEWS

PRESS = struct.Struct("<d")  # when a press arrived, `time.monotonic`
PICTURE_HZ = 30.0
HEIGHT, WIDTH = 480, 640
RING = 30  # different pictures, shown in turn: the same one again would be called frozen
NOISE = 8.0  # standard deviation of a pixel, of 255: one JPEG is 43 kB, as of a real camera
WARM_UP_S = 2.0
TELEMETRY_HZ = 10
LEARNT_EVERY = 30  # messages between two with news of the learner
CHUNK = 6000  # messages fed per call
WARM_UP = 6000  # messages until all code is compiled and every curve has its points
VIEW: Mapping[str, Any] = {
    "gate": {"mode": "run", "reason": "", "rejected": 0},
    "episode": {"purpose": "train", "active": True, "seed": 1},
    "stopped": False,
    "driving": False,
    "driver": "policy",
    "force_n": 3.2,
    "speed_mm_s": 41.0,
    "gripper_mm": 12.0,
    "moving": True,
}
FEED = """
async ([from, to, learnt]) => {  // what a run says, as fast as the page takes it
  const now = JSON.parse(bench.words), history = 200;
  const names = ["episode/success", "episode/intervention_rate", "critic/q_mean", "critic/q_std",
    "critic/loss", "actor/entropy", "learner/utd", "episode/success_rate"];
  const points = Object.fromEntries(names.map((n) => [n, []]));
  for (let i = from; i < to; i++) {
    const at = i % 120;  // an episode of 12 s: the policy, a correction, the policy, the reset
    now.word = at < 40 ? "POLICY" : at < 60 ? "HUMAN" : at < 100 ? "POLICY" : "RESETTING";
    now.reason = at < 100 ? "" : `hands off: episode ${Math.floor(i / 120)}`;
    Object.assign(now.robot, { force_n: 20 * Math.random(), speed_mm_s: 100 * Math.random(),
      gripper_mm: 40 * Math.random() });
    now.score = { author: "success-0", value: Math.random() };
    if (i % learnt === 0) {
      now.learning += 1;
      for (const name of names) {
        points[name].push([i, Math.random()]);
        if (points[name].length > history) points[name].shift();
      }
      now.curves = points;
      now.figures = { ...now.figures, env_steps: i, state: "practice", "weights/version": i, "replay/online": i,
        "critic/q_mean": Math.random(), "critic/q_std": 0.1, "learner/utd": 7.9, "weights/staleness_s": 0.8 };
      now.findings = i % (7 * learnt) ? [] : [{ what: `found at ${i}`, fix: "take over sooner" }];
    }
    bench.telemetry.onmessage({ data: JSON.stringify(now) });
    if (i % 100 === 0) await new Promise(requestAnimationFrame);  // the page draws
  }
}
"""  # noqa: E501


def video(seconds: float) -> dict[str, float]:
    """Three cameras and the driver's keys for about `seconds`.

    Figures, over all pictures: lag_ms (capture to drawn on the canvas, one clock), page_lag_ms (the
    same as the page computes it for the badge on each camera, without the way from the server),
    frames per second of each camera. Over all control messages: round_trip_ms (page to server and
    back). Over presses of the drive key: key_to_robot_ms (key to the operator's node's socket; one
    that does not arrive counts as infinitely late).

    Raises:
        SetupError: no browser, or a package is missing.
        RobotRLError: server or page do not come up.
    """
    with run_folder() as run_dir, _robot_side(run_dir) as (began_s, heard):
        with Server(run_dir) as server, browser() as running:
            page = open_page(running, server.link)
            take_seat(page)
            clock = clock_of(page)
            time.sleep(WARM_UP_S)
            while heard.poll():
                heard.recv_bytes()
            page.evaluate("bench.forget()")
            from_s = time.monotonic()
            _press_now_and_then(page, from_s + seconds)
            seen = page.evaluate("({ ...bench, telemetry: 0, forget: 0 })")
            took_s = time.monotonic() - from_s
            page_says = page.evaluate("robotRL.views.flatMap((view) => view.lags)")
        arrived_s = [PRESS.unpack(heard.recv_bytes())[0] for _ in iter(heard.poll, False)]
    lags_ms = [x for n in seen["drawn"] for x in _lags_ms(seen["drawn"][n], clock, began_s[n])]
    keys_s = [clock.seconds(ms) for ms in seen["keys"]]
    return {
        **fps(began_s, seen["drawn"], took_s),
        **quantiles("video/lag_ms", lags_ms, 50, 95, 99),
        **quantiles("video/page_lag_ms", page_says, 50, 95, 99),
        **quantiles("control/round_trip_ms", seen["trips"], 50, 99),
        **quantiles("control/key_to_robot_ms", first_after_ms(keys_s, arrived_s), 50, 99),
        "control/clock_bound_ms": clock.bound_s * 1e3,
    }


def server(seconds: float) -> dict[str, float]:
    """The same cameras and messages without a browser: what the server alone takes.

    Figures: frames per second of each camera, as they arrive at a client that draws nothing;
    round_trip_ms of the control messages beside them.

    Raises:
        SetupError, RobotRLError: see `video`.
    """
    with (
        run_folder() as run_dir,
        _robot_side(run_dir) as (began_s, _),
        Server(run_dir) as served,
        ScriptedPage(served.link) as driver,
    ):
        watching = [_Watching(driver.open(f"video/{name}"), name) for name in began_s]
        time.sleep(WARM_UP_S)
        driver.trips_ms.clear()
        before = {w.name: w.pictures for w in watching}
        time.sleep(seconds)
        trips_ms = list(driver.trips_ms)
        rates = {w.name: (w.pictures - before[w.name]) / seconds for w in watching}
        for w in watching:
            w.close()
    return {
        **{f"server/{name}_fps": rate for name, rate in rates.items()},
        **quantiles("server/round_trip_ms", trips_ms, 50, 99),
    }


class _Watching:
    """Asks for picture after picture, as the page does, in a thread. pictures: how many came."""

    def __init__(self, socket: Any, name: str) -> None:
        self.name, self.pictures, self._socket, self._going = name, 0, socket, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with suppress(Exception):  # the socket closes under us at the end
            while self._going:
                self._socket.send("next")
                self.pictures += bool(self._socket.recv())

    def close(self) -> None:
        """Stop asking."""
        self._going = False
        self._thread.join()
        self._socket.close()


def _press_now_and_then(page: Any, until_s: float) -> None:
    dice = random.Random(0)
    while time.monotonic() < until_s:
        page.keyboard.down("Space")
        time.sleep(dice.uniform(0.05, 0.1))
        page.keyboard.up("Space")
        time.sleep(dice.uniform(0.05, 0.15))


def _lags_ms(drawn: list[list[float]], clock: PageClock, began_s: float) -> list[float]:
    """Capture to drawn, from (number of the picture, page time in ms)."""
    return [(clock.seconds(ms) - began_s - number / PICTURE_HZ) * 1e3 for number, ms in drawn]


def fps(
    cameras: Iterable[str], drawn: Mapping[str, Sequence[object]], took_s: float
) -> dict[str, float]:
    """Pictures per second of each camera, 0 where none was drawn; drawn: of each camera."""
    return {f"video/{name}_fps": len(drawn.get(name, ())) / took_s for name in cameras}


def first_after_ms(asked_s: list[float], answered_s: list[float]) -> list[float]:
    """Milliseconds to the first answer after each question and before the next; infinite = none."""
    found, answers = [], np.asarray(answered_s)
    for at_s, next_s in zip(asked_s, [*asked_s[1:], np.inf], strict=True):
        after = answers[(answers >= at_s) & (answers < next_s)]
        found.append((float(after[0]) - at_s) * 1e3 if after.size else np.inf)
    return found


# --- the robot side, made up --------------------------------------------------------------------


@contextmanager
def _robot_side(run_dir: Path) -> Iterator[tuple[dict[str, float], Connection]]:
    """Run the robot side; yields camera -> monotonic time of picture 0, and times of presses."""
    began_s = time.monotonic()
    names = ("front", "wrist", *VIEWS)  # free-running cameras: a third of a period apart
    cameras = {name: began_s + i / PICTURE_HZ / len(names) for i, name in enumerate(names)}
    fresh = multiprocessing.get_context("spawn")
    here, there = fresh.Pipe(duplex=False)
    sides = [
        fresh.Process(target=_view, args=(str(run_dir), cameras), daemon=True),
        fresh.Process(target=_listen, args=(str(run_dir), there), daemon=True),
    ]
    for side in sides:
        side.start()
    try:
        yield cameras, here
    finally:
        for side in sides:
            side.terminate()
            side.join()


def pictures() -> list[NDArray[np.uint8]]:
    """`RING` different RGB pictures, [HEIGHT, WIDTH, 3] uint8."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    made = []
    for i in range(RING):
        rgb = np.stack((x * 255 / WIDTH, y * 255 / HEIGHT, 128 + 0 * x), axis=-1)
        rgb[:, (x[0] // 40 + i) % 8 == 0] *= 0.4
        rgb += rng.normal(0.0, NOISE, rgb.shape)
        made.append(np.clip(rgb, 0, 255).astype(np.uint8))
    return made


def _view(run_dir: str, cameras: Mapping[str, float]) -> None:
    """Answers as the view node does, until the process is ended."""
    ring = pictures()
    server = PanelServer(socket_address(Path(run_dir), "view"))

    def answer(question: Mapping[str, Any]) -> Answer:
        if question["want"] != "picture":
            return VIEW, b""
        since_s = time.monotonic() - cameras[question["camera"]]
        number = int(since_s * PICTURE_HZ)
        age_s = since_s - number / PICTURE_HZ
        return picture_answer(ring[number % RING], number, question["after"], age_s)

    while True:
        server.serve(answer, 1.0)


def _listen(run_dir: str, heard: Connection) -> None:
    """Receives as the operator's node does; tells when the drive key went down."""
    before = False
    with zmq.Context.instance().socket(zmq.PULL) as line:
        line.bind(socket_address(Path(run_dir), "control"))
        while True:
            data, now_s = line.recv_multipart()[-1], time.monotonic()
            held = "drive" in parse(data, now_s).held
            if held and not before:
                heard.send_bytes(PRESS.pack(now_s))
            before = held


# --- memory -------------------------------------------------------------------------------------


def memory(hours: float) -> dict[str, float]:
    """What the page keeps after `hours` of telemetry at 10 Hz, fed as fast as it takes it.

    The messages go into the page's own handler of its telemetry socket. JavaScript heap and nodes
    are counted after forced collection. Pictures and keys of those hours are not played.

    Raises:
        SetupError, RobotRLError: see `video`.
    """
    count = round(hours * 3600 * TELEMETRY_HZ)
    with run_folder() as run_dir, _robot_side(run_dir), Server(run_dir) as server, browser() as b:
        page = open_page(b, server.link)
        session = page.context.new_cdp_session(page)
        page.evaluate(FEED, [0, WARM_UP, LEARNT_EVERY])
        before = kept(page, session)
        began_s = time.monotonic()
        for start in range(0, count, CHUNK):
            page.evaluate(FEED, [start, min(start + CHUNK, count), LEARNT_EVERY])
        took_s = time.monotonic() - began_s
        after = kept(page, session)
    return {
        "memory/messages": float(count),
        "memory/messages_per_s": count / took_s,
        "memory/heap_megabytes": after["heap"] / 1e6,
        "memory/growth_megabytes": (after["heap"] - before["heap"]) / 1e6,
        "memory/nodes": after["nodes"],
        "memory/nodes_growth": after["nodes"] - before["nodes"],
    }


def kept(page: Any, session: Any) -> dict[str, float]:
    """Bytes (JavaScript, DOM objects and buffers) and nodes after collection."""
    page.wait_for_timeout(1500)  # tones end, timers fire
    page.evaluate("bench.forget()")  # the benchmark's own data does not count
    session.send("HeapProfiler.enable")
    for _ in range(3):  # what a first collection frees may hold on to more
        session.send("HeapProfiler.collectGarbage")
    use = session.send("Runtime.getHeapUsage")
    names = ("usedSize", "embedderHeapUsedSize", "backingStorageSize")
    heap = float(sum(use.get(name, 0) for name in names))
    return {"heap": heap, "nodes": float(session.send("Memory.getDOMCounters")["nodes"])}
