"""Cases of the fault table that need a graph, on recordings of systems that are broken."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from tests.support.clock import SimulatedTime
from tests.support.ros import HAS_ROS, NO_ROS

if not HAS_ROS:
    pytest.skip(NO_ROS, allow_module_level=True)
pytest.importorskip("torch", reason="torch is not installed")

from robot_rl.bench.faults import cameras, case, devices, gate, learning, processes, table
from robot_rl.bench.faults.case import MET, NOT_MET, Context, Figure, Measured, judge
from robot_rl.bench.faults.stopwatch import DRIVER_STOPPED, Stopwatch
from robot_rl.bench.faults.worlds import ArmWorld, RunWorld
from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE
from robot_rl.ros import topics, wire
from robot_rl.ros.topics import Topic
from robot_rl.run.dump import DUMPS
from robot_rl.store.store import Store
from robot_rl.types import ONLY_ACTOR, Command, Driver, EpisodeId, Pose

SPEC = sample_spec()
HERE = Pose(np.array((0.4, 0.0, 0.3)), np.array((1.0, 0.0, 0.0, 0.0)))
time = SimulatedTime()  # of these tests and of the measurements


@pytest.fixture(autouse=True)
def _no_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in list(sys.modules.items()):
        ours = name.startswith(f"{table.__package__}.") and module is not case
        if ours and hasattr(module, "time"):
            monkeypatch.setattr(module, "time", time)


class Recording(Stopwatch):
    """A stopwatch that hears what a test tells it. react: what the double does when it is broken,
    or mended (without faults)."""

    def __init__(self) -> None:
        super().__init__(0, {})
        self.react: Callable[[dict[str, Any]], None] = lambda faults: None

    def fault(self, **faults: Any) -> None:
        self.react(faults)

    def tell(self, topic: Topic, message: Any, in_s: float = 0.0) -> None:
        """Let a message arrive in so many seconds."""
        self.heard[topic.name].append((time.monotonic() + in_s, message))

    def report(self, mode: str, reason: str = "", in_s: float = 0.0) -> None:
        """Let the gate tell its mode."""
        said = wire.GateReport(mode, reason, "actor", 1.0, 0, "", "", "")
        self.tell(topics.GATE_STATE, SimpleNamespace(data=wire.encode_report(said)), in_s)

    def since(self, topic: Topic, at_s: float) -> list[tuple[float, Any]]:
        now_s = time.monotonic()
        return [x for x in super().since(topic, at_s) if x[0] <= now_s]


class Nobody:
    """In place of an actor or a gamepad: says nothing."""

    def __init__(self, *_: object) -> None:
        self.sent_s: list[float] = []

    def until_moving(self, pad: object = None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def arm_world(patch: pytest.MonkeyPatch) -> tuple[ArmWorld, Recording]:
    """A world without a graph, in which nobody asks for anything."""
    ready = SimpleNamespace(topic="ready")
    experiment = SimpleNamespace(
        robot=SimpleNamespace(max_force_n=50.0), driver=SimpleNamespace(ready=[ready])
    )
    supervisor = SimpleNamespace(pids=lambda: {"gate": 1})
    watch = Recording()
    patch.setattr(ArmWorld, "ready", lambda self: None)
    patch.setattr(gate, "Actor", Nobody)
    nobody: Any = SimpleNamespace()
    return ArmWorld(experiment, supervisor, nobody, watch, nobody), watch  # type: ignore[arg-type]


def run_world(
    patch: pytest.MonkeyPatch, run_dir: Path, control_hz: float = 10.0
) -> tuple[RunWorld, Recording]:
    """The same of a run."""
    run_dir.mkdir(exist_ok=True)
    experiment = SimpleNamespace(
        task=SimpleNamespace(spec=SimpleNamespace(control_hz=control_hz)), run_dir=run_dir
    )
    supervisor = SimpleNamespace(pids=lambda: {"actor": 1, "learner": 1})
    watch = Recording()
    patch.setattr(RunWorld, "until_policy", lambda self: None)
    carer = SimpleNamespace(cares=True)
    return RunWorld(experiment, supervisor, carer, watch), watch  # type: ignore[arg-type]


def measured(name: str, world: object, folder: Path) -> tuple[str, str, Measured]:
    """Verdict, reason and figures of the smallest measurement of a case."""
    (chosen,) = table.chosen([name])
    worlds: Any = SimpleNamespace(get=lambda _: world, spoil=lambda: None)
    found = chosen.measure(Context(chosen, folder, 0.0, worlds))
    return *judge(chosen, found), found


def figure(found: Measured, name: str) -> float:
    return next(f.value for f in found.figures if f.name == name)


# --- 1: the learner is killed --------------------------------------------------------------------


class Run:
    """An actor that records and asks 20 times a second, and a learner that is killed."""

    HZ, AWAY_S = 20.0, 0.4

    def __init__(self, run_dir: Path, watch: Recording, *, forgets: bool, stops: bool) -> None:
        self._watch, self._forgets, self._stops = watch, forgets, stops
        self._stores = [
            Store(run_dir / name, spec=SPEC, reserve_bytes=0)
            for name in (ACTOR_STORE, LEARNER_STORE)
        ]
        self._rows = iter(episode_rows(SPEC, EpisodeId("run", ONLY_ACTOR, 0), 2000))
        self._late: list[Any] = []
        self._ticks, self._killed_s = itertools.count(), math.inf

    def kill(self, pid: int, number: int) -> None:
        self._killed_s = time.monotonic()

    def _tick(self) -> None:
        (actor, learner), number = self._stores, next(self._ticks)
        away_s = time.monotonic() - self._killed_s
        if self._stops and away_s > 0.0:
            return
        asked = Command(number, number / self.HZ, Driver.POLICY, "actor", HERE)
        self._watch.tell(topics.GATE_REQUEST, SimpleNamespace(data=wire.encode_request(asked)))
        new = [next(self._rows), next(self._rows)]
        actor.append(new)
        self._late += new
        if not 0.0 < away_s < self.AWAY_S:
            learner.append(self._late)
        if self._forgets or not 0.0 < away_s < self.AWAY_S:
            self._late = []

    def __enter__(self) -> Self:
        time.every(1.0 / self.HZ, self._tick)
        return self

    def __exit__(self, *_: object) -> None:
        time.forget()
        for store in self._stores:
            store.close()


@pytest.mark.parametrize(
    ("broken", "limits"),
    [
        ({}, []),
        ({"forgets": True}, ["rows lost: at most 0"]),
        ({"stops": True}, ["control ticks missed: at most 0", "commands in the outage"]),
    ],
    ids=["as it is", "forgets", "stops"],
)
def test_1_rows_that_are_forgotten_and_an_actor_that_stops_are_seen(
    broken: dict[str, bool], limits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, watch = run_world(monkeypatch, tmp_path / "run", Run.HZ)
    monkeypatch.setattr(learning, "until_moving", lambda world: time.sleep(0.3))
    monkeypatch.setattr(learning, "OUTAGE_S", 0.6)
    monkeypatch.setattr(learning, "LOST_S", 1.5)
    with Run(world.run_dir, watch, **{"forgets": False, "stops": False} | broken) as run:
        monkeypatch.setattr(os, "kill", run.kill)
        verdict, reason, _ = measured("learner_killed", world, tmp_path)
    assert verdict == (NOT_MET if limits else MET), reason
    assert all(limit in reason for limit in limits), reason


# --- 4: the gate is killed -----------------------------------------------------------------------


@pytest.mark.parametrize("stops", [True, False])
def test_4_a_stop_that_is_announced_and_never_comes_is_none(
    stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, watch = arm_world(monkeypatch)

    def killed(pid: int, number: int) -> None:
        yes = SimpleNamespace(data=True)
        watch.tell(topics.CONTROLLER_STOPPED, yes, 0.1)
        if stops:
            watch.tell(DRIVER_STOPPED, yes, 0.12)

    monkeypatch.setattr(os, "kill", killed)
    verdict, reason, found = measured("gate_killed", world, tmp_path)
    assert verdict == (MET if stops else NOT_MET), reason
    if stops:
        assert figure(found, "time to stop, max") == pytest.approx(120.0, abs=30.0)
    else:
        assert "time to stop, p99: at most 200 ms" in reason


# --- 10: a device that jitters -------------------------------------------------------------------


def test_10_every_hold_is_counted_and_only_time_in_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, watch = arm_world(monkeypatch)

    class Held(Nobody):
        """Runs for half a second, each time."""

        def until_moving(self, pad: object = None) -> None:
            watch.report("run")
            watch.report("pause", "operator_silent: no heartbeat while driving", 0.5)

    monkeypatch.setattr(devices, "Actor", Held)
    monkeypatch.setattr("robot_rl.bench.faults.pad.Pad", Nobody)
    verdict, reason, found = measured("jitter", world, tmp_path)
    assert verdict == NOT_MET and "false holds in the graph: at most 0" in reason
    assert figure(found, "false holds in the graph") >= 4.0
    assert figure(found, "time in RUN") == pytest.approx(devices.RUN_S, abs=0.6)


# --- 17: commands that are replayed --------------------------------------------------------------


def test_17_half_of_the_answers_are_not_all() -> None:
    (replayed,) = table.chosen(["replayed"])
    passed = Figure("old commands that passed", 0.0, "")
    for refused, verdict in ((60.0, NOT_MET), (99.6, MET)):
        said = Figure("refused for their age, number or lease", refused, "%")
        assert judge(replayed, Measured.of(passed, said, n=replayed.least))[0] == verdict


# --- 19: NaN -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dumped", "limit"),
    [(12, ""), (5, "steps that the dump lacks"), (0, "steps in the dump, fewest: at least 1")],
)
def test_19_the_dump_is_that_of_this_episode_and_holds_all_its_steps(
    dumped: int, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict, reason = not_a_number(tmp_path, monkeypatch, dumped=dumped)
    assert verdict == (NOT_MET if limit else MET), reason
    assert limit in reason


def test_19_a_late_orientation_that_is_nan_has_reached_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict, reason = not_a_number(tmp_path, monkeypatch, dumped=12, nan_in_s=0.8)
    assert verdict == NOT_MET and "NaN that reached the driver: at most 0, got 1" in reason


def not_a_number(
    folder: Path, patch: pytest.MonkeyPatch, *, dumped: int, nan_in_s: float = math.inf
) -> tuple[str, str]:
    """Case 19 of an episode of 12 steps after another, whose dump is there as well."""
    world, watch = run_world(patch, folder / "run")
    first, running = (EpisodeId("run", ONLY_ACTOR, number) for number in (0, 1))
    with Store(world.run_dir / ACTOR_STORE, spec=SPEC, reserve_bytes=0) as store:
        for episode in (first, running):
            store.append(episode_rows(SPEC, episode, 12))
    (world.run_dir / DUMPS).mkdir()
    for episode, steps in ((first, 12), (running, dumped)):
        facts = {"refused_action": ["nan"], "steps": [{}] * steps}
        if steps:
            path = world.run_dir / DUMPS / f"episode-{episode.episode}.json"
            path.write_text(json.dumps(facts))

    def held_ms(world: object, since_s: float) -> float:
        where = SimpleNamespace(x=0.1, y=0.2, z=0.3)
        how = SimpleNamespace(x=math.nan, y=0.0, z=0.0, w=1.0)
        target = SimpleNamespace(pose=SimpleNamespace(position=where, orientation=how))
        watch.tell(topics.TARGET_POSE, target, nan_in_s)
        return 100.0

    patch.setattr(processes, "held_ms", held_ms)
    patch.setattr(processes, "commands", lambda *_: [])
    patch.setattr(processes, "until_moving", lambda _: None)
    patch.setattr(os, "kill", lambda *_: None)
    return measured("not_a_number", world, folder)[:2]


# --- 23, 24: cameras -----------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [False, True])
def test_23_pictures_of_a_camera_that_is_away_are_counted(
    repeats: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed")

    class Watch:
        """Hears a picture whenever it is asked: of the film, or of a node that repeats its last."""

        def since(self, topic: object, at_s: float) -> list[tuple[float, object]]:
            there = repeats or (tmp_path / "camera.avi").is_file()
            return [(time.monotonic(), None)] if there else []

        def forget(self) -> None:
            pass

    @contextmanager
    def pictures(experiment: object) -> Iterator[tuple[object, Watch]]:
        yield None, Watch()

    supervisor = SimpleNamespace(pids=lambda: {"camera": 1})
    monkeypatch.setattr(cameras, "pictures", pictures)
    monkeypatch.setattr(cameras, "supervised", lambda *_: nullcontext(supervisor))
    monkeypatch.setattr(cameras, "AWAY_S", (0.1, 0.1))
    verdict, reason, _ = measured("camera_unplugged", None, tmp_path)
    assert verdict == (NOT_MET if repeats else MET), reason
    assert not repeats or "pictures while it was away: at most 0" in reason


def test_24_a_first_picture_that_was_not_heard_says_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = run_world(monkeypatch, tmp_path / "run")
    frames = [SimpleNamespace(number=number) for number in range(25)]
    monkeypatch.setattr(cameras, "_slow_steps", lambda _: [(frame, []) for frame in frames])
    monkeypatch.setattr(cameras, "_behind", lambda frame, sent: (1, 0.1) if frame.number else None)
    verdict, reason, found = measured("camera_slow", world, tmp_path)
    assert verdict == MET, reason
    assert figure(found, "pictures behind the newest, max") == 1.0


# --- 28: a process that stands still -------------------------------------------------------------


@pytest.mark.parametrize(
    ("busy", "limit", "note"),
    [
        ([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], "", ""),
        ([0.0, 0.1, 0.25], "", "in 1 of 1 trials with busy programs the arm was stopped"),
        ([0.0, 0.1, 0.32, 0.33, 0.34], "commands less than half a tick apart: at most 0", "1 of 1"),
    ],
    ids=["goes on", "is stopped", "catches up"],
)
def test_28_few_cores_may_stop_the_arm_and_excuse_no_burst(
    busy: list[float], limit: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = run_world(monkeypatch, tmp_path / "run")
    paused = [0.0, 0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    trials = iter([busy[:1], paused[:3], paused, busy[:1], busy])  # too few say nothing

    def commands(_: object, since_s: float) -> list[tuple[float, Command]]:
        asked_s = next(trials)
        return [(s, Command(1, s, Driver.POLICY, "actor", HERE)) for s in asked_s]

    monkeypatch.setattr(processes, "commands", commands)
    monkeypatch.setattr(processes, "until_moving", lambda _: None)
    monkeypatch.setattr(processes, "PAUSE_S", -1.0)  # nothing is waited for
    monkeypatch.setattr(processes, "hog", nullcontext)
    monkeypatch.setattr(RunWorld, "poison", lambda self, name: tmp_path / name)
    verdict, reason, found = measured("frozen", world, tmp_path)
    assert verdict == (NOT_MET if limit else MET), reason
    assert limit in reason and note in found.note
    assert bool(found.note) == bool(note) and found.n == 2
    assert figure(found, "shortest gap that the pause left") == pytest.approx(400.0)


# --- 26: a force ---------------------------------------------------------------------------------


@pytest.mark.parametrize("resumes", [False, True])
def test_26_a_gate_that_goes_on_once_the_cause_is_gone_is_seen_and_a_late_stop_is_none(
    resumes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, watch = arm_world(monkeypatch)

    def react(faults: dict[str, Any]) -> None:
        if "touch_n" in faults:
            felt = SimpleNamespace(x=0.0, y=0.0, z=90.0)
            watch.tell(topics.WRENCH, SimpleNamespace(wrench=SimpleNamespace(force=felt)))
            watch.report("protective_stop", "force: contact beyond the limit", 0.01)
        elif faults:  # the arm's own stop is told late, and the gate runs until then
            watch.report("run", in_s=0.4)
            watch.report("protective_stop", "arm: not ready", 0.45)
        elif resumes:
            watch.report("run", in_s=0.1)

    watch.react = react

    def held_ms(world: object, since_s: float) -> float:
        time.sleep(0.5)
        return 50.0

    monkeypatch.setattr(gate, "held_ms", held_ms)
    verdict, reason, _ = measured("force", world, tmp_path)
    assert verdict == (NOT_MET if resumes else MET), reason
    assert not resumes or "moved without an acknowledgement: at most 0, got 2" in reason


# --- 34: SIGTERM ---------------------------------------------------------------------------------


def test_34_samples_are_trials_and_not_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = run_world(monkeypatch, tmp_path / "run")
    with Store(world.run_dir / ACTOR_STORE, spec=SPEC, reserve_bytes=0) as store:
        store.append(episode_rows(SPEC, EpisodeId("run", ONLY_ACTOR, 0), 3))
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append(number))
    monkeypatch.setattr(processes, "_ended_s", lambda pid: time.monotonic())
    monkeypatch.setattr(Recording, "held_s", lambda self, after_s: after_s)
    verdict, reason, found = measured("asked_to_end", world, tmp_path)
    assert (verdict, found.n) == (MET, 1), reason
    assert signals == [signal.SIGTERM] * 2
