"""The console's eyes and its stop buttons: answers the console's questions from the graph's topics.

A process of its own, so that pictures never stand in the way of the person's device or the gate. It
speaks to the console over `link.panel` (a Unix socket), and commands nothing but the services
that stop and release: whatever moves the arm goes through operator, actor and gate.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from robot_rl.errors import LinkError
from robot_rl.link.panel import Answer, PanelServer, picture_answer, socket_address
from robot_rl.observe.cameras import CameraConfig
from robot_rl.observe.places import Place, place_of
from robot_rl.ports import Task
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.cameras import CameraReader
from robot_rl.ros.endpoints import Caller, Newest
from robot_rl.ros.reader import StateReader
from robot_rl.ros.readiness import Item
from robot_rl.ros.runtime import Shell
from robot_rl.safety.advice import AT_THE_END
from robot_rl.tasks.common import VIEWS
from robot_rl.tasks.goals import Goals
from robot_rl.types import Outcome, RobotState, Verdict

log = logging.getLogger(__name__)

SERVE_S = 0.005  # wall; between two looks at the graph
CALL_S = 0.8  # wall; below the time the console waits
PICTURE_S = 1 / 30  # wall; the mirror is drawn at most this often
SHARE = 0.25  # of a core that drawing may take: without a GPU it is slow
AT_EACH_START = ("step", "speed", "acceleration")  # a key that is pressed asks for more at once
CLIPPED_S = 1.0  # so long a clip is told: longer than a glance, shorter than the next thought
STALE_S = 1.0  # wall; older words of the gate or of the operator's device do not count
ARM_SILENT_S = 2.0  # wall; the arm node tells its list twice a second
ACCEPT_SERVICE = "arm/set_parameters"  # of the arm node, for its parameter `accept`
MOVING_M_S = 0.005
SERVICES = {
    "hold": topics.GATE_HOLD,
    "stop": topics.GATE_STOP,
    "go": topics.GATE_RESUME,
    "acknowledge": topics.GATE_ACKNOWLEDGE,
    "resume": topics.CONTROLLER_RESUME,
    "ready": topics.ACTOR_READY,
}


NOTHING = 0, -math.inf, np.zeros((0, 0, 3), np.uint8)  # before the first picture


class Scene:
    """Draws the scene from the newest state, in the views that somebody looks at.

    In a thread of its own: to open the scene takes a second, and words and stops must not wait for
    that. All views together take `SHARE` of a core: whoever asks while nothing may be drawn yet, or
    while something is being drawn, gets the picture before. It is opened when somebody looks.
    """

    def __init__(self, make: Callable[[], Any], read: Callable[[], RobotState | None]) -> None:
        self._make, self._read, self._mirror = make, read, None
        self._painter = ThreadPoolExecutor(1, "painter")  # OpenGL wants one thread
        self._drawing: Future[None] | None = None
        self._free_s = -math.inf  # when the next picture may be drawn
        self._newest: dict[str, tuple[int, float, NDArray[np.uint8]]] = {}
        self.places: dict[str, Place] = {}

    def newest(self, view: str) -> tuple[int, float, NDArray[np.uint8]]:
        """(number, wall time of the state, RGB); number 0 = nothing is drawn yet."""
        now_s = time.monotonic()
        picture = self._newest.get(view, NOTHING)
        if self._drawing is not None and self._drawing.done():
            self._drawing.result()  # raises what went wrong
            self._drawing = None
        if self._drawing is None and now_s >= max(self._free_s, picture[1] + PICTURE_S):
            state = self._read()
            if state is None:
                raise LinkError("no robot state to draw yet")
            self._drawing = self._painter.submit(self._draw, view, state, now_s)
        return picture

    def _draw(self, view: str, state: RobotState, seen_s: float) -> None:
        """Draw a view: in the painter's thread."""
        if self._mirror is None:
            self._mirror = self._make()  # needs OpenGL: only when somebody looks
            self.places = self._mirror.places()
        used_s = time.process_time()  # not the wait for a core that others use
        rgb = self._mirror.picture(state, view)
        number = self._newest.get(view, NOTHING)[0] + 1
        self._free_s = seen_s + (time.process_time() - used_s) / SHARE
        self._newest[view] = number, seen_s, rgb


class Drawn:
    """A view of the scene, as a camera."""

    def __init__(self, scene: Scene, view: str) -> None:
        self._scene, self._view = scene, view

    def newest(self) -> tuple[int, float, NDArray[np.uint8]]:
        """See `Scene.newest`."""
        return self._scene.newest(self._view)


class Received:
    """A camera of the graph, read as the actor reads it."""

    def __init__(self, reader: CameraReader) -> None:
        self._reader = reader

    def newest(self) -> tuple[int, float, NDArray[np.uint8]]:
        """(number, wall time of arrival, RGB). Raises `LinkError` before the first picture."""
        reader = self._reader
        rgb = reader.read()
        if rgb is None:
            raise LinkError(f"no picture on {reader.topic} yet", got=reader.refused)
        return reader.number, reader.received_s, rgb


class ViewNode:
    """Newest words of the graph, and the services a person may call.

    Args:
        mirror: makes a `robot_rl_sim.mirror.Mirror` that draws the simulated scene; None on a real
            robot.
    """

    def __init__(
        self,
        shell: Shell,
        task: Task,
        cameras: Mapping[str, CameraConfig],
        mirror: Callable[[], Any] | None,
        reader: StateReader,
    ) -> None:
        node, self._shell = shell.node, shell
        self._reader = reader
        self._goals = Goals(task)
        self._gate = Newest(node, topics.GATE_STATE)
        self._verdicts = Newest(node, topics.GATE_VERDICT)
        self._clipped, self._clipped_s = "", -math.inf
        self._joy = Newest(node, topics.OPERATOR_JOY)
        self._episode = Newest(node, topics.OPERATOR_EPISODE)
        self._stopped = Newest(node, topics.CONTROLLER_STOPPED)
        self._asks = Newest(node, topics.ACTOR_ASKS)
        self._problem = Newest(node, topics.OPERATOR_PROBLEM)
        self._present = Newest(node, topics.OPERATOR_PRESENT)
        self._ready = Newest(node, topics.ARM_READINESS)
        self._accept = Caller(node, ACCEPT_SERVICE, CALL_S, SetParameters.Request())
        self._services = {k: Caller(node, v.name, CALL_S) for k, v in SERVICES.items()}
        self._cameras: dict[str, Drawn | Received] = {
            name: Received(CameraReader(shell, name, config, task.spec.picture_size(name)))
            for name, config in cameras.items()
        }
        found = {n: place_of(c, task.spec.picture_size(n)) for n, c in cameras.items()}
        self._places = {name: where for name, where in found.items() if where is not None}
        self._scene = None if mirror is None else Scene(mirror, self._reader.read)
        if self._scene is not None:
            self._cameras |= {view: Drawn(self._scene, view) for view in VIEWS}

    def answer(self, question: Mapping[str, Any]) -> Answer:
        """Answer one question of the console. Raises `LinkError` when that is not possible."""
        match question.get("want"):
            case "view":
                return self._view(), b""
            case "picture":
                return self._picture(str(question.get("camera")), question.get("after"))
            case "command":
                return self._command(str(question.get("verb"))), b""
            case "accept":
                name, on = str(question.get("name")), question.get("on") is True
                return self._set_accepted(name, on=on), b""
        known = "view, picture, command or accept"
        raise LinkError("unknown question", expected=known, got=str(question))

    def _view(self) -> dict[str, Any]:
        state, joy, stopped = self._reader.read(), self._joy.read(), self._stopped.read()
        buttons = joy.buttons if joy is not None and self._joy.silent_s < STALE_S else ()
        if len(buttons) != convert.JOY_BUTTONS:
            buttons = (0,) * convert.JOY_BUTTONS
        view: dict[str, Any] = {
            "gate": self._gate_words(),
            "clipped": self._clip_words(),
            "episode": self._episode_words(),
            "stopped": stopped is not None and bool(stopped.data),
            "driving": bool(buttons[0]),
            "present": (there := self._present.read()) is not None and bool(there.data),
            "driver": str(convert.DRIVERS[buttons[3] % len(convert.DRIVERS)]),
            "asks": _text(self._asks),
            "device_problem": _text(self._problem),
            "ready": self._ready_words(),
            "places": self._scene.places if self._scene is not None else self._places,
        }
        if state is not None:
            speed_m_s = float(np.linalg.norm(state.tcp_twist_in_base[:3]))
            tcp = state.tcp_in_base.position_m, state.tcp_in_base.quaternion_xyzw
            view |= {
                "force_n": float(np.linalg.norm(state.wrench_in_tcp[:3])),
                "speed_mm_s": speed_m_s * 1e3,
                "gripper_mm": state.gripper_width_m * 1e3,
                "tcp_in_base": np.concatenate(tcp).tolist(),
                "moving": speed_m_s > MOVING_M_S,
                "goal": self._goals.words(state),
            }
        return view

    def _gate_words(self) -> dict[str, Any]:
        msg = self._gate.read()
        if msg is None or self._gate.silent_s > STALE_S:
            return {}
        report = wire.decode_report(msg.data)
        return {
            "mode": report.mode,
            "reason": report.reason,
            "rejected": report.rejected,
            "waits": report.waits,
            "refusal": report.refusal,
        }

    def _clip_words(self) -> str:
        """The limit that the tool has lately met, "" = none: then it does not follow as told."""
        for msg in self._verdicts.arrived():
            answer = wire.decode_answer(msg.data)
            if isinstance(answer, Verdict) and answer.outcome is Outcome.CLIPPED:
                limits = [name for name in answer.reason.split(",") if name not in AT_EACH_START]
                if limits:
                    self._clipped = AT_THE_END if "box" in limits else f"limit: {limits[0]}"
                    self._clipped_s = time.monotonic()
        return self._clipped if time.monotonic() - self._clipped_s < CLIPPED_S else ""

    def _ready_words(self) -> dict[str, Any] | None:
        """The readiness list; None where there is none (a simulated arm, no vendor's driver)."""
        msg = self._ready.read()
        if msg is None:
            return None
        report = wire.decode_readiness(msg.data)
        if self._ready.silent_s > ARM_SILENT_S:
            fix = "it is started again; its log is logs/arm.log"
            gone = Item("arm", "fail", "the arm node is silent", fix, "nobody would look")
            report = wire.ReadinessReport((gone,), report.accept)
        items = [dataclasses.asdict(item) for item in report.items]
        return {"items": items, "accept": list(report.accept)}

    def _episode_words(self) -> dict[str, Any]:
        msg = self._episode.read()
        if msg is None:
            return {}
        call = wire.decode_episode(msg.data)
        return {"purpose": call.purpose, "active": call.active, "seed": call.seed}

    def _picture(self, name: str, after: object) -> Answer:
        camera = self._cameras.get(name)
        if camera is None:
            raise LinkError(f"no camera '{name}'", expected=", ".join(self._cameras), got=name)
        number, seen_s, rgb = camera.newest()
        if not number:
            return {"number": after}, b""
        return picture_answer(rgb, number, after, time.monotonic() - seen_s)

    def _command(self, verb: str) -> dict[str, Any]:
        """Call a service and wait for its answer: what follows must not overtake a stop."""
        caller = self._services.get(verb)
        if caller is None:
            raise LinkError(f"no command '{verb}'", expected=", ".join(self._services), got=verb)
        response = self._call(caller, f"'{verb}'")
        if not response.success:
            raise LinkError(response.message)
        return {"said": response.message}

    def _set_accepted(self, name: str, *, on: bool) -> dict[str, Any]:
        """Accept an item of the readiness list, or take that back. Raises `LinkError`."""
        msg = self._ready.read()
        if msg is None:
            raise LinkError("there is no readiness list: nothing to accept", got=name)
        before = wire.decode_readiness(msg.data).accept
        names = [n for n in before if n != name] + ([name] if on else [])
        value = Parameter("accept", value=names or [""])  # ROS has no empty list of strings
        self._accept.request = SetParameters.Request(parameters=[value.to_parameter_msg()])
        result = self._call(self._accept, f"accepting '{name}'").results[0]
        if not result.successful:
            raise LinkError(result.reason)
        return {"said": f"{'accepted' if on else 'no longer accepted'}: {name}"}

    def _call(self, caller: Caller, what: str) -> Any:
        """The answer of a service. Raises `LinkError` when there is none."""
        caller.forget()
        give_up_s = time.monotonic() + CALL_S
        while time.monotonic() < give_up_s:
            response = caller.poll()
            if response is not None:
                return response
            self._shell.spin(0.002)
        raise LinkError(f"nobody answered {what}", expected=caller.name, got="nothing")


def _text(topic: Newest) -> str:
    """The newest words on a topic, "" before the first."""
    msg = topic.read()
    return "" if msg is None else msg.data


def run_view(
    shell: Shell,
    task: Task,
    cameras: Mapping[str, CameraConfig],
    mirror: Callable[[], Any] | None,
    reader: StateReader,
) -> None:
    """Serve the console until the node is told to end. Arguments: see `ViewNode`."""
    view = ViewNode(shell, task, cameras, mirror, reader)
    server = PanelServer(socket_address(Path(shell.params["run_dir"]), "view"))
    try:
        while shell.running:
            shell.spin(0.0)
            server.serve(view.answer, SERVE_S)
    finally:
        server.close()
