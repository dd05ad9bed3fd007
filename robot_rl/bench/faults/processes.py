"""Cases of the processes: killed in the middle of an episode, frozen, asked to end."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, known, spread
from robot_rl.bench.faults.driving import (
    SETTLE_S,
    alone,
    commands,
    held_ms,
    let_live,
    newest_episode,
    until_moving,
)
from robot_rl.bench.faults.poisoned import NAN, PAUSE, PAUSE_S
from robot_rl.bench.faults.worlds import RunWorld
from robot_rl.config.run_folder import ACTOR_STORE
from robot_rl.run.dump import DUMPS, STEPS
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId

LOOK_S = 2.0  # wall; commands that are looked for in the store
NEAR_S = 0.05  # half a control period
ENOUGH = 8  # commands in a second of practice
EXIT_S = 5.0
GONE_S = 20.0  # what has not ended by then does not end


# --- 3: the actor is killed ----------------------------------------------------------------------


def actor_killed(context: Context) -> Measured:
    """kill -9 of the actor while its policy drives; what its store holds when it is back."""
    world, took_ms, lost, unmarked = context.world(), [], [], 0
    assert isinstance(world, RunWorld)
    for _ in context.trials():
        world.until_policy()
        let_live(len(took_ms))
        time.sleep(1.0)
        until_moving(world)
        time.sleep(context.rng.uniform(0.0, 0.1))  # somewhere in a tick
        pid, cut = world.supervisor.pids()["actor"], newest_episode(world)
        with alone(world):
            killed_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            took_ms.append(context.timed(held_ms(world, killed_s)))
            asked = commands(world, killed_s - LOOK_S)
            with Store(world.run_dir / ACTOR_STORE) as store:  # before the next actor has read it
                ended_before = _ending(store, cut) is not None
        world.until_policy()  # it is back, and has read its store
        with Store(world.run_dir / ACTOR_STORE) as store:
            ending = _ending(store, cut)
            stamps_s = np.array([1e-9 * step.stamp_ns for step in store.steps(cut)])
        if not math.isnan(took_ms[-1]):
            lost.append(_missing([c.stamp_s for _, c in asked], stamps_s) - 1)
            unmarked += not ended_before and ending is not Ending.ABORTED
    return Measured.of(
        spread("time to hold", known(took_ms), "ms"),
        Figure("steps lost, max", max(lost, default=math.nan), ""),
        Figure("episodes not marked", unmarked, ""),
        n=len(known(took_ms)),
    )


def _ending(store: Store, episode: EpisodeId) -> Ending | None:
    return next(e.ending for e in store.episode_summaries() if e.id == episode)


def _missing(asked_s: list[float], stored_s: NDArray[np.float64]) -> int:
    """How many commands have no step in the store, by their stamps.

    A step has the stamp of the state from which its command was made, a few ms before. The last
    command's step is among them: it was in flight, and had no result to lose.
    """
    near = [np.abs(stored_s - at_s).min(initial=math.inf) < NEAR_S for at_s in asked_s]
    return near.count(False)


# --- 19: the policy proposes NaN -----------------------------------------------------------------


def not_a_number(context: Context) -> Measured:
    """The policy proposes NaN in the middle of an episode; other weights do not come."""
    world, took_ms, reached, moved = context.world(), [], 0, 0
    assert isinstance(world, RunWorld)
    dumped, lacking = list[int](), list[int]()
    for _ in context.trials():
        world.until_policy()
        let_live(len(took_ms))
        time.sleep(0.5)
        until_moving(world)
        running = newest_episode(world)
        try:
            with alone(world):
                poisoned_s = time.monotonic()
                world.poison(NAN).touch()
                took_ms.append(context.timed(held_ms(world, poisoned_s)))
                world.carer.cares = True  # a person lets it go on; the policy must not drive
                time.sleep(1.5)
                moved += len(commands(world, poisoned_s + SETTLE_S))
                reached += world.stopwatch.not_finite(poisoned_s)
        finally:
            world.poison(NAN).unlink(missing_ok=True)
        steps, due = _dumped(world.run_dir, running)
        dumped.append(steps)
        lacking.append(due - steps)
        os.kill(world.supervisor.pids()["actor"], signal.SIGKILL)  # weights are read anew
    world.until_policy()
    return Measured.of(
        Figure("NaN that reached the driver", reached, ""),
        spread("time to hold", known(took_ms), "ms"),
        Figure("commands of the frozen policy", moved, ""),
        Figure("steps in the dump, fewest", min(dumped), ""),
        Figure("steps that the dump lacks, most", max(lacking), ""),
        n=len(known(took_ms)),
    )


def _dumped(run_dir: Path, episode: EpisodeId) -> tuple[int, int]:
    """Steps in an episode's dump, 0 without one that says what was refused; and steps due in it."""
    with Store(run_dir / ACTOR_STORE) as store:
        taken = next(e.steps for e in store.episode_summaries() if e.id == episode)
    path = run_dir / DUMPS / f"episode-{episode.episode}.json"
    facts = json.loads(path.read_text()) if path.is_file() else {}
    said = "nan" in (facts.get("refused_action") or ())
    return len(facts["steps"]) if said else 0, min(STEPS, taken)


# --- 28: a process that stands still -------------------------------------------------------------


def frozen(context: Context) -> Measured:
    """The actor's interpreter is held for 300 ms in a tick; in each second trial, all cores are."""
    world, bursts, gap_s, busy, stopped = context.world(), [], [], 0, 0
    assert isinstance(world, RunWorld)
    period_s = 1.0 / world.experiment.task.spec.control_hz
    for i in context.trials():
        world.until_policy()
        until_moving(world)
        time.sleep(context.rng.uniform(0.0, period_s))
        begun_s, hogged = time.monotonic(), i % 2 == 1
        with hog() if hogged else nullcontext():
            if not hogged:
                world.poison(PAUSE).touch()
            time.sleep(PAUSE_S + 10 * period_s)
        asked = [command.stamp_s for _, command in commands(world, begun_s - 2 * period_s)]
        world.stopwatch.forget()
        is_whole = len(asked) >= ENOUGH  # or the arm was stopped, or the episode ended meanwhile
        if len(asked) < 2 or not (is_whole or hogged):
            context.void()
            continue
        # where cores are few the arm's state may come so late that the gate stops the arm
        busy += hogged
        stopped += hogged and not is_whole
        gaps_s = np.diff(asked)
        bursts.append(int((gaps_s < period_s / 2).sum()))
        gap_s += [] if hogged else [float(gaps_s.max())]
    note = f"in {stopped} of {busy} trials with busy programs the arm was stopped"
    return Measured.of(
        Figure("commands less than half a tick apart", max(bursts, default=math.nan), ""),
        Figure("shortest gap that the pause left", 1e3 * min(gap_s, default=math.nan), "ms"),
        n=len(bursts),
        note=note if stopped else "",
    )


@contextmanager
def hog() -> Iterator[None]:
    """Twice as many busy programs as there are cores."""
    busy = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(busy) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for one in hogs:
            one.kill()
            one.wait()


# --- 34: every process is asked to end -----------------------------------------------------------


def asked_to_end(context: Context) -> Measured:
    """SIGTERM to every process of a run, in the order in which a run ends; then its store."""
    took_s: dict[str, float] = {}
    unsealed = without_hold = n = 0
    for _ in context.trials():
        n += 1
        world = context.world()
        assert isinstance(world, RunWorld)
        world.until_policy()
        world.carer.cares = False
        pids, asked_s = world.supervisor.pids(), time.monotonic()
        for name in sorted(pids, key=_rank):
            one_s = time.monotonic()
            os.kill(pids[name], signal.SIGTERM)
            took_s[name] = max(took_s.get(name, 0.0), _ended_s(pids[name]) - one_s)
            if name == "actor":
                time.sleep(SETTLE_S)
                without_hold += world.stopwatch.held_s(asked_s) is None
        with Store(world.run_dir / ACTOR_STORE) as store:
            store.verify()
            unsealed += sum(e.ending is None for e in store.episode_summaries())
        context.worlds.spoil()  # an actor that has ended is not started again
    slowest = max(took_s, key=lambda name: took_s[name])
    return Measured.of(
        Figure("slowest exit", took_s[slowest], "s"),
        Figure("episodes left open", unsealed, ""),
        Figure("without a hold", without_hold, ""),
        n=n,
        note=f"the slowest is the {slowest}",
    )


def _rank(name: str) -> int:
    """The order in which a run ends."""
    order = ("actor", "learner", "operator", "view", "watchdog", "gate", "arm", "sim")
    return order.index(name) if name in order else 3


def _ended_s(pid: int) -> float:
    """When a process has ended."""
    give_up_s = time.monotonic() + GONE_S
    while time.monotonic() < give_up_s:
        with suppress(OSError):
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.002)
                continue
        return time.monotonic()
    return np.inf


CASES = (
    Case(
        number=3,
        name="actor_killed",
        title="actor killed in the middle of an episode",
        injection="kill -9 of the actor while its policy moves the arm",
        promise="the arm is told to stand; when the actor is back the episode is there to its last "
        "written step, and marked as cut short",
        limits=(
            Limit("time to hold, p99", "ms", at_most=120.0),
            Limit("steps lost, max", "", at_most=1.0),
            Limit("episodes not marked", "", at_most=0.0),
        ),
        fails_if="a gate that only waits for the next command holds up to one and a half control "
        "periods later, 150 ms at 10 Hz; a store that writes at the end of an episode has lost all "
        "of it",
        full=50,
        measure=actor_killed,
        world="run",
    ),
    Case(
        number=19,
        name="not_a_number",
        title="NaN or infinite action",
        injection="the policy proposes NaN in the middle of an episode, with finite weights",
        promise="nothing of it reaches the driver; the arm is held, the policy is frozen until "
        "other weights come, and its last 100 steps are written down",
        limits=(
            Limit("NaN that reached the driver", "", at_most=0.0),
            Limit("time to hold, p99", "ms", at_most=300.0),
            Limit("commands of the frozen policy", "", at_most=0.0),
            Limit("steps in the dump, fewest", "", at_least=1.0),
            Limit("steps that the dump lacks, most", "", at_most=0.0),
        ),
        fails_if="a loop that replaces NaN by zero drives on; one that only drops the tick drives "
        "again with the next",
        full=20,
        measure=not_a_number,
        world="run",
    ),
    Case(
        number=28,
        name="frozen",
        title="processor taken away, or garbage collected for 300 ms",
        injection="the actor's interpreter is held for 300 ms in a tick; or twice as many busy "
        "programs as cores for a second",
        promise="the lost time is given up: at most one command per tick, no burst",
        limits=(
            Limit("commands less than half a tick apart", "", at_most=0.0),
            Limit("shortest gap that the pause left", "ms", at_least=300.0),
        ),
        fails_if="a loop that catches up sends three commands at once",
        full=100,
        least=2,
        measure=frozen,
        world="run",
    ),
    Case(
        number=34,
        name="asked_to_end",
        title="SIGTERM to every process",
        injection="SIGTERM to each process of a run while the policy drives",
        promise="each ends within 5 s; the episode is closed, the store is whole, the arm is told "
        "to stand",
        limits=(
            Limit("slowest exit", "s", at_most=EXIT_S),
            Limit("episodes left open", "", at_most=0.0),
            Limit("without a hold", "", at_most=0.0),
        ),
        fails_if="a process that ignores the signal, or waits for another, is still there after "
        "20 s; an episode that nobody closes stays open",
        full=10,
        measure=asked_to_end,
        world="run",
    ),
)
