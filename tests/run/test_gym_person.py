"""A person at the page drives a Gymnasium environment: in wall time, and with its pictures."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from robot_rl.errors import LinkError
from robot_rl.link.panel import ControlSender, Panel, socket_address
from robot_rl.operate.pace import AtTheirPace
from robot_rl.ports import OperatorInput
from robot_rl.run.console import about
from robot_rl.run.experiment import Experiment
from robot_rl.run.record import record
from robot_rl.run.train import train
from robot_rl.store.store import Store
from robot_rl.tasks.gym import EnvState
from robot_rl.types import Driver, Step
from tests.support.gym import POINT, register_point

PERIOD_S = 0.1  # of the point
STATE = EnvState.of(0.0, None)
STILL = np.zeros(2, np.float32)


@pytest.fixture(autouse=True)
def _place(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The point is registered, and the run's sockets lie in a folder of the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("x")))  # sockets: short
    before = dict(gymnasium.registry)
    register_point()
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


class PersonAtThePage:
    """Sees the point and leads it to its goal, as the page says what is held; in a thread."""

    def __init__(self, experiment: Experiment) -> None:
        self._point: Any = experiment.task.env.unwrapped  # type: ignore[attr-defined]
        self._run_dir = experiment.run_dir
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)
        self.views: list[Mapping[str, Any]] = []
        self.pictures: list[Mapping[str, Any]] = []
        self.refusal = ""
        self.pressed_s = 0.0

    def __enter__(self) -> PersonAtThePage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _live(self) -> None:
        panel, sender = Panel(socket_address(self._run_dir, "view")), ControlSender(self._run_dir)
        began_s, looked_s = time.monotonic(), 0.0
        while not self._over.is_set():
            now_s = time.monotonic()
            rests = (now_s - began_s) % 3.0 < 1.0  # lets go now and then, as between two episodes
            axes, held = [0.0] * 6, []
            if not rests and hasattr(self._point, "place"):
                self.pressed_s = self.pressed_s or now_s
                way = 10.0 * (self._point.goal - self._point.place)
                axes[:2], held = np.clip(way, -1.0, 1.0).tolist(), ["drive"]
            sender.send(json.dumps({"axes": axes, "held": held}))
            if now_s - looked_s > 0.2:
                looked_s = now_s
                await self._look(panel)
            await asyncio.sleep(0.02)
        sender.close()
        await panel.close()

    async def _look(self, panel: Panel) -> None:
        try:
            view, _ = await panel.ask("view", timeout_s=0.1)
            self.views.append(view)
            self.pictures.append((await panel.ask("picture", camera="video", timeout_s=0.1))[0])
        except LinkError:
            return
        if not self.refusal:
            try:
                await panel.ask("command", verb="stop", timeout_s=0.1)
            except LinkError as error:
                self.refusal = str(error)


def at_the_page(folder: Path, *words: str) -> Experiment:
    more = ("operator=console", "task.env_kwargs.render_mode=rgb_array", f"run_dir={folder}")
    return Experiment.compose(["experiment=gym", f"task.env_id={POINT}", *more, *words])


def steps_of(folder: Path) -> list[Step]:
    with Store(folder / "store.sqlite") as store:
        return [row for row in store.rows_since(0, 10_000)[0] if isinstance(row, Step)]


@pytest.mark.waits
@pytest.mark.alone  # or the person is late in each demonstration
def test_a_demonstration_waits_for_the_person_and_keeps_to_the_wall_clock(tmp_path: Path) -> None:
    experiment = at_the_page(tmp_path / "r", "train.demos=1")
    assert about(experiment)["cameras"] == ["video"]
    with PersonAtThePage(experiment) as person:
        done = record(experiment)
        took_s = time.monotonic() - person.pressed_s
    assert done["successes"] == 1
    steps = steps_of(tmp_path / "r")
    first = [step for step in steps if step.id.episode == 0]
    assert first[0].driver is Driver.DEMO and first[0].action.max() > 0.1  # nothing moved before
    assert took_s > (len(steps) - 2) * PERIOD_S  # simulated alone, it takes no time at all
    assert any(view["driving"] and view["episode"]["purpose"] == "demo" for view in person.views)
    assert (person.pictures[0]["height"], person.pictures[0]["width"]) == (16, 16)
    assert "no gate" in person.refusal


@pytest.mark.waits
@pytest.mark.alone  # or practice is over before the person is there
def test_the_person_corrects_the_policy_in_practice(tmp_path: Path) -> None:
    small = ("algo.hidden=[16,16]", "algo.batch_size=16", "train.max_env_steps=200")
    few = ("train.eval_episodes=1", "train.stochastic_eval_episodes=0", "train.video=false")
    experiment = at_the_page(tmp_path / "t", "train.demos=0", *small, *few)
    with PersonAtThePage(experiment):
        result = train(experiment)
    assert result["human_steps"] > 0
    assert {step.driver for step in steps_of(tmp_path / "t")} == {Driver.POLICY, Driver.CORRECTION}


class FakeHand:
    """A device that drives from a number of polls on."""

    held: frozenset[str] = frozenset()
    problem = ""

    def __init__(self, *, present: bool, drives_at: int = 0) -> None:
        self.present, self.drives_at, self.polls = present, drives_at, 0

    def begin_episode(self, seed: int, purpose: str) -> None:
        self.polls = 0

    def poll(self, state: Any) -> OperatorInput:
        self.polls += 1
        return OperatorInput(self.polls > self.drives_at, STILL)

    def wait(self, timeout_s: float) -> bool:
        time.sleep(timeout_s)
        return False


@pytest.mark.parametrize("present", [True, False])
def test_time_keeps_to_the_wall_clock_while_somebody_is_at_the_device(present: bool) -> None:
    hand = FakeHand(present=present)
    pace, done = AtTheirPace(hand), threading.Event()
    pace.begin_episode(0, "train")
    pace.poll(STATE)
    waits = threading.Thread(target=lambda: (pace.pause(60.0), done.set()), daemon=True)
    waits.start()
    assert done.wait(0.5 if present else 15.0) is not present
    assert (hand.polls > 1) == present  # a tap between two steps is noticed
    hand.present = False  # somebody who has left is not waited for
    assert done.wait(15.0)


def test_a_demonstration_begins_when_the_person_drives() -> None:
    hand = FakeHand(present=True, drives_at=3)
    pace = AtTheirPace(hand)
    pace.begin_episode(0, "demo")
    assert pace.poll(STATE).driving and hand.polls == 4
    pace.begin_episode(0, "train")
    assert not pace.poll(STATE).driving and hand.polls == 1
