"""Cameras of a double: their own size, cropped and scaled for the network, and a short freeze."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from robot_rl.errors import LinkError
from robot_rl.link.panel import Panel, socket_address
from robot_rl.store.store import Store
from robot_rl.types import Ending
from tests.support.rehearsal import Teacher
from tests.support.ros import new_domain

pytestmark = [pytest.mark.ros, pytest.mark.alone]


@contextmanager
def recording(run: Path, *words: str) -> Iterator[tuple[Teacher, subprocess.Popen[bytes]]]:
    """`robot-rl record` on a double of a UR5e, and a person beside it."""
    domain_id = new_domain()
    given = ["experiment=reach", "runtime=ros", "ros=real", "ros.double=true", "robot=ur5e"]
    given += ["operator=twist", f"ros.domain_id={domain_id}", f"run_dir={run}", *words]
    tool = Path(sys.executable).with_name("robot-rl")
    teacher = Teacher(domain_id)
    process = subprocess.Popen([str(tool), "record", *given])
    try:
        yield teacher, process
    finally:
        process.terminate()
        process.wait(30.0)
        teacher.probe.close()


def until_recorded(
    teacher: Teacher, process: subprocess.Popen[bytes], meanwhile: Callable[[], object] = bool
) -> None:
    """Drive until the demonstrations are there."""
    give_up_s = time.monotonic() + 100.0
    while process.poll() is None and time.monotonic() < give_up_s:
        teacher.turn()
        meanwhile()
        time.sleep(0.02)
    assert process.poll() == 0


class Freeze:
    """Freezes the double's cameras for 0.3 s, once, in the middle of an episode."""

    LASTS_S = 0.3

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher
        self._client = teacher.probe.node.create_client(SetParameters, "sim/set_parameters")
        self._until_s: float | None = None

    def turn(self) -> None:
        """Call it often."""
        now_s = time.monotonic()
        if self._until_s is None and self._teacher.driven_s > 0.5:
            self._until_s = now_s + self.LASTS_S
            self._say('{"frozen_cameras": true}')
        elif self._until_s is not None and now_s > self._until_s:
            self._until_s = float("inf")
            self._say("")

    def _say(self, fault: str) -> None:
        parameter = Parameter("fault", value=fault).to_parameter_msg()
        self._client.call_async(SetParameters.Request(parameters=[parameter]))


@pytest.mark.slow
@pytest.mark.gl
def test_cameras_are_cropped_and_a_short_freeze_teaches_nothing(tmp_path: Path) -> None:
    """One camera raw, one as JPEG under a name of its own; both at their own size."""
    run = tmp_path / "run"
    words = ["task.images=[wrist,front]", "task.image_size=[48,64]", "ros.with_view=true"]
    words += ["cameras.wrist.crop=[100,20,160,200]", "cameras.front.topic=/top/rgb/compressed"]
    words += [f"cameras.{c}.{k}" for c in ("wrist", "front") for k in ("width=320", "height=240")]
    with recording(run, *words, "--demos", "1") as (teacher, process), ThreadPoolExecutor() as pool:
        looked = pool.submit(lambda: asyncio.run(on_the_page(run, ("wrist", "front"))))
        until_recorded(teacher, process, Freeze(teacher).turn)
    pages = looked.result()
    assert [(page["height"], page["width"]) for page in pages] == [(48, 64)] * 2
    with Store(run / "actor.sqlite") as store:
        stale, *_, done = store.episode_summaries()
        assert (stale.ending, stale.success) == (Ending.STALE, None) and done.success
        last = store.steps(stale.id)[-1]
        assert last.ending is Ending.STALE and last.success is None
        frame = store.frames(done.id)[-1]
        for camera in ("wrist", "front"):
            picture = frame.observation[f"image/{camera}"]
            assert picture.shape == (48, 64, 3) and picture.std() > 5.0
    cameras = json.loads((run / "cameras.json").read_text())
    wrist, front = cameras["wrist"], cameras["front"]
    assert (wrist["source_width"], wrist["source_height"]) == (320, 240)
    assert wrist["part"] == [100, 60, 160, 120] and front["part"] == [0, 0, 320, 240]
    assert wrist["k"][0][0] == pytest.approx(wrist["source_k"][0][0] * 64 / 160)
    assert front["k"][0][0] == pytest.approx(front["source_k"][0][0] / 5)
    assert front["topic"] == "/top/rgb/compressed"
    figures = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert figures[-1]["camera/wrist/age_p99_ms"] < 500.0
    assert figures[-1]["camera/wrist/unread"] == 0.0 and "camera/skew_ms" in figures[-1]


async def on_the_page(run: Path, cameras: Sequence[str]) -> list[Any]:
    """What the console is told of the first pictures."""
    panel = Panel(socket_address(run, "view"))
    found: list[Any] = []
    try:
        while len(found) < len(cameras):
            with suppress(LinkError):
                found.append((await panel.ask("picture", camera=cameras[len(found)]))[0])
            await asyncio.sleep(0.05)
    finally:
        await panel.close()
    return found
