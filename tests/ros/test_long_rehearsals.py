"""Minutes on a double: two cameras of 640 x 480, and a hundred cycles of the gripper."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sensor_msgs.msg import Joy

from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from robot_rl.types import Ending
from tests.support.rehearsal import Teacher
from tests.support.ros import new_domain

log = logging.getLogger(__name__)

PROFILE = "ur5e_fzi"
CHANGES = 200  # a hundred cycles
DRIVE, SUCCESS, CLOSE, OPEN = 5, 3, 2, 5  # of the layout `joy`: buttons, then axes

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]


@contextmanager
def recording(run: Path, domain_id: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`robot-rl record` of a profile's double."""
    given = [
        f"robot={PROFILE}",
        "double=true",
        f"ros.domain_id={domain_id}",
        f"run_dir={run}",
        *words,
    ]
    tool = Path(sys.executable).with_name("robot-rl")
    process = subprocess.Popen([str(tool), "record", *given])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30.0)


def topics_of(profile: str) -> Mapping[str, str]:
    """Our name of a topic -> the driver's."""
    return Experiment.compose([f"robot={profile}"]).driver.topics


def episodes(run: Path) -> list[dict[str, Any]]:
    """Metrics of each episode so far."""
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


@pytest.mark.gl
def test_two_cameras_of_vga_at_10_hz_lose_nothing_and_delay_nothing(tmp_path: Path) -> None:
    """Ten demonstrations of `reach` on the double of a UR5e."""
    run, domain_id = tmp_path / "run", new_domain()
    words = ["experiment=reach", "operator=twist", "task.images=[wrist,front]"]
    words += ["--demos", "10"]
    with recording(run, domain_id, *words) as process:
        teacher = Teacher(domain_id, remaps=topics_of(PROFILE))
        give_up_s = time.monotonic() + 300.0
        while process.poll() is None and time.monotonic() < give_up_s:
            teacher.turn()
            time.sleep(0.02)
        teacher.probe.close()
        assert process.poll() == 0
    cameras = json.loads((run / "cameras.json").read_text())
    assert [(c["source_width"], c["source_height"]) for c in cameras.values()] == [(640, 480)] * 2
    figures = episodes(run)
    ticks = sum(e["demo_episode/length"] for e in figures)
    late = sum(e["loop/late_ticks"] for e in figures)
    unread = sum(e[f"camera/{name}/unread"] for e in figures for name in cameras)
    ages_ms = {name: max(e[f"camera/{name}/age_p99_ms"] for e in figures) for name in cameras}
    period_ms = max(e["loop/period_ms_p99"] for e in figures)
    log.info("%d ticks, %d late, period p99 %.1f ms, ages %s", ticks, late, period_ms, ages_ms)
    assert (late, unread) == (0, 0)
    with Store(run / "actor.sqlite") as store:
        found = store.episode_summaries()
        assert not [e for e in found if e.ending is Ending.STALE]
        assert sum(bool(e.success) for e in found) == 10


class Joystick:
    """A person who holds the drive button of a joystick and says after a while that it is done.

    In every second episode the person also closes and opens the gripper, again and again.
    """

    EPISODE_S, CHANGE_S, PRESS_S = 20.0, 0.8, 0.3

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher
        self._joy = teacher.probe.node.create_publisher(Joy, "joy", 1)
        self.changes = self._episode = 0
        self._was_s, self._closing = 0.0, False

    def turn(self) -> None:
        """Call it 50 times a second."""
        self._teacher.turn()
        lasted_s = self._teacher.driven_s
        if lasted_s < self._was_s:
            self._episode += 1
        self._was_s = lasted_s
        message = Joy(axes=[0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0], buttons=[0] * 11)
        message.buttons[DRIVE] = int(lasted_s > 0.5)
        if 1.0 < lasted_s < self.EPISODE_S and self._episode % 2:
            number, within_s = divmod(lasted_s - 1.0, self.CHANGE_S)
            closing = int(number) % 2 == 0
            self.changes += closing is not self._closing
            self._closing = closing
            message.axes[CLOSE if closing else OPEN] = -1.0 if within_s < self.PRESS_S else 1.0
        message.buttons[SUCCESS] = int(lasted_s > self.EPISODE_S)
        self._joy.publish(message)


def test_a_hundred_cycles_of_the_gripper_delay_nothing(tmp_path: Path) -> None:
    """One goal per change, and a control period that does not know about the gripper."""
    run, domain_id = tmp_path / "run", new_domain()
    words = ["experiment=lift", "operator=joy", "task.max_steps=1000"]
    with recording(run, domain_id, *words, "--demos", "100") as process:
        teacher = Teacher(domain_id, remaps=topics_of(PROFILE))
        person = Joystick(teacher)
        goals = 0
        give_up_s = time.monotonic() + 1200.0
        while person.changes < CHANGES and time.monotonic() < give_up_s:
            assert process.poll() is None
            person.turn()
            goals = max(
                goals, int(float(teacher.probe.diagnostics("/arm").get("gripper_goals", 0)))
            )
            time.sleep(0.02)
        teacher.probe.close()
    figures = episodes(run)
    still, moved = figures[0::2], figures[1::2]
    log.info("%d changes, %d goals", person.changes, goals)
    for key in ("loop/period_ms_p99", "loop/wall_ms_p99"):
        values = [[round(e[key], 1) for e in some] for some in (still, moved)]
        log.info("%s: gripper still %s, moving %s", key, *values)
    assert person.changes >= CHANGES and goals <= person.changes + 2 * len(moved)
