"""What the operator's page shows of a Gymnasium environment: its pictures, and who drives.

It answers the console as the view node answers for an arm (`link.panel`), in a thread beside the
run. The pictures are drawn in the run's own thread, since an environment belongs to one, after each
step that somebody looks at. There is no gate, and so nothing to stop: letting go is enough.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.loop import ControlLoop
from robot_rl.errors import LinkError
from robot_rl.link.panel import Answer, PanelServer, picture_answer, socket_address
from robot_rl.operate.pace import AtTheirPace
from robot_rl.tasks.gym import GymTask
from robot_rl.types import Frame, RobotState

log = logging.getLogger(__name__)

SERVE_S = 0.02  # between two looks whether the run has ended
LOOKING_S = 2.0  # after a question for a picture, somebody is looking for so long
IMAGE = "image/"


class GymView:
    """Answers the console's questions about an environment."""

    def __init__(self, task: GymTask, person: AtTheirPace) -> None:
        self._task, self._person = task, person
        self._asked_s = -math.inf
        self._newest: dict[str, tuple[int, float, NDArray[np.uint8]]] = {}
        self._count = 0

    def saw(self, frame: Frame, state: RobotState) -> None:
        """Keep the pictures of a new frame; called in the run's thread."""
        self._count += 1
        now_s = time.monotonic()
        newest = {
            key.removeprefix(IMAGE): (self._count, now_s, value)
            for key, value in frame.observation.items()
            if key.startswith(IMAGE)
        }
        looked_at = now_s - self._asked_s < LOOKING_S or frame.frame == 0
        if self._task.is_drawn and looked_at:
            picture = np.asarray(self._task.env.render(), np.uint8)
            newest["video"] = (self._count, now_s, picture)
        self._newest = {**self._newest, **newest}  # one assignment: the thread sees all or nothing

    def answer(self, question: Mapping[str, Any]) -> Answer:
        """Answer one question of the console. Raises `LinkError` when that is not possible."""
        match question.get("want"):
            case "view":
                return self._view(), b""
            case "picture":
                return self._picture(str(question.get("camera")), question.get("after"))
            case "command":
                raise LinkError(
                    "an environment has no gate to stop or to release",
                    expected="the drive key, success and failure",
                    got=str(question.get("verb")),
                    fix="let go of the drive key; Ctrl-C ends the run",
                )
        raise LinkError("unknown question", expected="view, picture", got=str(question))

    def _view(self) -> dict[str, Any]:
        person, said = self._person, self._person.said
        running = {"purpose": person.purpose, "active": True, "seed": 0}
        return {
            "gate": {"mode": "run", "reason": "", "rejected": 0, "waits": ""},
            "episode": running if person.purpose else {},
            "stopped": False,
            "driving": said is not None and said.driving,
            "driver": str(said.driver) if said is not None else "",
            "asks": "",
            "device_problem": person.problem,
            "ready": None,
        }

    def _picture(self, name: str, after: object) -> Answer:
        self._asked_s = time.monotonic()
        if name not in self._newest:
            raise LinkError(f"no picture of '{name}' yet", expected=", ".join(self._newest))
        number, seen_s, rgb = self._newest[name]
        return picture_answer(rgb, number, after, time.monotonic() - seen_s)


@contextmanager
def shown(loop: ControlLoop, run_dir: Path) -> Iterator[None]:
    """Serves the page of a run inside the `with`, where a person drives an environment."""
    task: object = loop.task
    if not isinstance(task, GymTask) or not isinstance(loop.operator, AtTheirPace):
        yield
        return
    view, over = GymView(task, loop.operator), threading.Event()
    loop.on_frame = view.saw
    server = PanelServer(socket_address(run_dir, "view"))

    def serve() -> None:
        while not over.is_set():
            server.serve(view.answer, SERVE_S)
        server.close()

    thread = threading.Thread(target=serve, name="gym-view", daemon=True)
    thread.start()
    log.info("the page of this run: robot-rl console %s", run_dir)
    try:
        yield
    finally:
        over.set()
        thread.join()
