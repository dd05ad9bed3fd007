"""A console with a robot side that we play ourselves: what the tests of the page stand on.

The sockets, the pages and the browser are the real ones; `RobotSide` answers as the view node does
and keeps what the operator's node would receive.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.console.page import VIEW
from robot_rl.store.labels import PROGRESS, SUCCESS_SCORE
from robot_rl.tasks.common import VIEWS
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Frame, Label, Outcome, Step

pytest.importorskip("fastapi", reason="the console extra is not installed")

CAMERAS = ("front", "wrist")
NETWORK_PIXELS = 32  # what the network of the run sees


PICTURES_HZ = 10  # of each camera: five at full speed would take both cores from the page


class RobotSide:
    """Plays view node and operator node: `view` is what it says, `heard` what the driver sent."""

    def __init__(self, run_dir: Path) -> None:
        import zmq

        from robot_rl.link.panel import PanelServer, socket_address

        self.view: dict[str, Any] = {**VIEW}
        self.heard: list[tuple[float, dict[str, Any]]] = []
        self.commands: list[str] = []
        self.frozen = False
        self.shapes = dict.fromkeys(CAMERAS, (NETWORK_PIXELS, NETWORK_PIXELS))
        self.shapes |= dict.fromkeys(VIEWS, (240, 320))
        self._server = PanelServer(socket_address(run_dir, "view"))
        self._control = zmq.Context.instance().socket(zmq.PULL)
        self._control.bind(socket_address(run_dir, "control"))
        self._going = True
        self._threads = [threading.Thread(target=f) for f in (self._serve, self._listen)]
        for thread in self._threads:
            thread.start()

    def _answer(self, question: Mapping[str, Any]) -> Any:
        from robot_rl.link.panel import picture_answer

        match question["want"]:
            case "view":
                return self.view, b""
            case "command":
                self.commands.append(question["verb"])
                return {"said": f"{question['verb']}: done"}, b""
            case "accept":
                return self._accept(question["name"], question["on"]), b""
        number = int(time.monotonic() * PICTURES_HZ)
        if number == question.get("after"):
            return {}, b""  # as a camera: there is no newer one yet
        height, width = self.shapes[question["camera"]]
        rgb = np.zeros((height, width, 3), np.uint8)
        shade = 0 if self.frozen else number * 5
        rgb[..., 0], rgb[..., 1] = np.arange(width) * 255 // width, shade % 255
        return picture_answer(rgb, number, None, 0.01)

    def _accept(self, name: str, on: bool) -> dict[str, Any]:
        """As the arm node does with its list."""
        self.commands.append(f"accept {name}" if on else f"take back {name}")
        ready = self.view["ready"]
        items = [
            {**item, "status": "accepted" if on else "fail"} if item["name"] == name else item
            for item in ready["items"]
        ]
        names = [n for n in ready["accept"] if n != name] + ([name] if on else [])
        self.view = self.view | {"ready": {"items": items, "accept": names}}
        return {"said": name}

    def _serve(self) -> None:
        while self._going:
            self._server.serve(self._answer, 0.02)

    def _listen(self) -> None:
        while self._going:
            if self._control.poll(20):
                self.heard.append((time.monotonic(), json.loads(self._control.recv_multipart()[1])))

    def close(self) -> None:
        """End the threads; twice does no harm."""
        if not self._going:
            return
        self._going = False
        for thread in self._threads:
            thread.join()
        self._server.close()
        self._control.close(0)


def rows_of(spec: Any, run: str, episode: int, steps: int, success: bool) -> list[Any]:
    """A made-up episode."""
    rng = np.random.default_rng(episode)
    id_ = EpisodeId(run, "actor-0", episode)
    stamp_ns = 1_700_000_000_000_000_000 + episode * 10**10
    observation = {
        name: rng.integers(0, 255, t.shape).astype(t.dtype)
        if t.dtype == "uint8"
        else rng.normal(size=t.shape).astype(t.dtype)
        for name, t in spec.observation.items()
    }
    rows: list[Any] = [
        EpisodeStart(id_, "train", spec.task, spec.hash, "", episode, stamp_ns),
        Frame(id_, 0, stamp_ns, observation),
    ]
    for i in range(steps):
        last = i == steps - 1
        human = 3 <= i < 6
        action = rng.uniform(-1, 1, spec.action.size).astype(np.float32)
        rows += [
            Step(
                id=id_, step=i, frame=i, next_frame=i + 1,
                segment=1 if human else 0 if i < 3 else 2,
                driver=Driver.CORRECTION if human else Driver.POLICY,
                action=action, policy_action=action, outcome=Outcome.PASS, reason="",
                reward=float(success and last),
                ending=(Ending.TERMINATED if success else Ending.TRUNCATED) if last else None,
                success=success if last else None, weights_version=4, stamp_ns=stamp_ns + i * 10**8,
            ),
            Frame(id_, i + 1, stamp_ns + (i + 1) * 10**8, observation),
        ]  # fmt: skip
    return rows


def scores_of(
    episode: int, values: Sequence[float], source: str, author: str, kind: str = SUCCESS_SCORE
) -> list[Label]:
    """What a model says of the steps of a made-up episode, numbered as the loop does."""
    id_, of_frame = EpisodeId("run", "actor-0", episode), int(kind == PROGRESS)
    return [
        Label(id_, 2 * i + of_frame, i + of_frame, kind, value, source, author, i)
        for i, value in enumerate(values)
    ]


def write_figures(run_dir: Path, episodes: int = 40) -> None:
    """metrics.jsonl and learner.jsonl as a run writes them."""
    rng = np.random.default_rng(0)
    with (run_dir / "metrics.jsonl").open("a") as file:
        for i in range(episodes):
            line = {
                "env_steps": 50 * i,
                "episode/success": float(rng.random() < i / episodes),
                "episode/intervention_rate": max(0.0, 0.5 - i / episodes),
                "weights/version": i,
                "weights/staleness_s": 0.8,
                "link/queue": 0.0,
                "loop/late_ticks": 0.0,
                "state": "practice",
            }
            file.write(json.dumps(line) + "\n")
    with (run_dir / "learner.jsonl").open("a") as file:
        for i in range(episodes):
            line = {
                "env_steps": 50 * i,
                "critic/q_mean": i / episodes,
                "critic/q_std": 0.1,
                "learner/utd": 7.9,
                "replay/online": 50 * i,
                "replay/demo": 300,
                "diagnostics/time_limit": 1.0,
                "diagnostics/time_limit/what": "the time limit ends 9 of 10 episodes",
                "diagnostics/time_limit/fix": "take over sooner, or raise task.max_steps",
            }
            file.write(json.dumps(line) + "\n")


class Served:
    """A console that runs. url; invite(role) makes a link; console: what its routes share."""

    def __init__(
        self, run_dir: Path, certificate: Any = None, port: int = 0, remembered: Any = None
    ) -> None:
        from robot_rl.console.remembered import Role
        from robot_rl.console.serve import server_of
        from robot_rl.run.console import about, desks
        from robot_rl.run.experiment import Experiment

        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            port = probe.getsockname()[1]
        os.environ["ROBOT_RL_DISK_RESERVE_BYTES"] = "0"
        run = Experiment.load(run_dir)
        self.server, self.access = server_of(
            run_dir,
            "127.0.0.1",
            port,
            about(run),
            run.mirror,
            certificate=certificate,
            arms=desks(run),
            remembered=remembered,
        )
        self.port = port
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        self.invite: Callable[..., str] = lambda role=Role.OPERATOR: (
            f"{self.url}/enter?token={self.access.invite(Role(role))}"
        )
        self.console = self.server.config.app.state.doors  # type: ignore[union-attr]
        self.arms = self.server.config.app.state.arms  # type: ignore[union-attr]
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()
        deadline_s = time.monotonic() + 20
        while not self.server.started and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def close(self) -> None:
        """Stop serving; a page that is open waits for nothing any more, as after a second."""
        self.server.config.timeout_graceful_shutdown = 0
        self.server.should_exit = True
        self._thread.join()


def new_page(context: Any) -> Any:
    """A page of a browser that keeps its errors in `problems`."""
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on(
        "console",
        lambda m: (
            page.problems.append(f"{m.text} {m.location['url']}") if m.type == "error" else None
        ),
    )
    return page


def until(what: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Wait until `what()` is true; returns it. Fails with its last value."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := what()):
        assert time.monotonic() < deadline_s, f"still {value!r}"
        time.sleep(0.04)  # each look costs the page a few milliseconds
    return value
