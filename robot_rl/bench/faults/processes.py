"""Cases of the processes: killed in the middle of an episode, frozen, asked to end."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, known, spread
from robot_rl.bench.faults.driving import alone, held_ms, until_moving
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.bench.faults.worlds import RUNS_S, RunWorld
from robot_rl.config.run_folder import ACTOR_STORE
from robot_rl.store.store import Store
from robot_rl.types import Command, Ending

PAUSE_S = 0.3  # what a collection of garbage may take at worst
EXIT_S = 5.0
GONE_S = 20.0  # what has not ended by then does not end


def commands(
    world: RunWorld, since_s: float, until_s: float = np.inf
) -> list[tuple[float, Command]]:
    """The commands of the policy that arrived at the gate in between."""
    from robot_rl.ros import topics, wire

    found = []
    for at_s, message in world.stopwatch.since(topics.GATE_REQUEST, since_s):
        request = wire.decode_request(message.data)
        if isinstance(request, Command) and request.driver == "policy" and at_s < until_s:
            found.append((at_s, request))
    return found


# --- 3: the actor is killed ----------------------------------------------------------------------


def actor_killed(context: Context) -> Measured:
    """kill -9 of the actor while its policy drives; what its store holds when it is back."""
    world, took_ms, lost, unmarked = context.world(), [], [], 0
    assert isinstance(world, RunWorld)
    for _ in context.trials():
        world.until_policy()
        time.sleep(1.0)
        until_moving(world)
        time.sleep(context.rng.uniform(0.0, 0.1))  # somewhere in a tick
        begun_s, pid = _episode_begun(world), world.supervisor.pids()["actor"]
        with alone(world):
            killed_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            took_ms.append(held_ms(world, killed_s))
            asked = len(commands(world, begun_s))
        world.until_policy()  # it is back, and has read its store
        with Store(world.run_dir / ACTOR_STORE) as store:
            cut = store.episode_summaries()[-2]
        if not math.isnan(took_ms[-1]):
            lost.append(asked - 1 - cut.steps)  # the step in flight has no result to lose
            unmarked += cut.ending is not Ending.ABORTED
    return Measured.of(
        spread("time to hold", known(took_ms), "ms"),
        Figure("steps lost, max", max(lost, default=math.nan), ""),
        Figure("episodes not marked", unmarked, ""),
        n=len(known(took_ms)),
    )


def _episode_begun(world: RunWorld) -> float:
    """When the episode that runs has begun: the newest command that is not the policy's."""
    from robot_rl.ros import topics, wire

    begun_s = 0.0
    for at_s, message in world.stopwatch.since(topics.GATE_REQUEST, 0.0):
        request = wire.decode_request(message.data)
        if not isinstance(request, Command) or request.driver != "policy":
            begun_s = at_s
    return begun_s


# --- 28: a process that stands still -------------------------------------------------------------


def frozen(context: Context) -> Measured:
    """The actor is frozen for 300 ms, as by a collection of garbage; then all cores are taken."""
    world, bursts, late = context.world(), [], []
    assert isinstance(world, RunWorld)
    period_s = 1.0 / world.experiment.task.spec.control_hz
    for _ in context.trials():
        world.until_policy()
        time.sleep(0.3 + context.rng.uniform(0.0, period_s))
        pid, froze_s = world.supervisor.pids()["actor"], time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)
        time.sleep(10 * period_s)
        stamps_s = np.array([request.stamp_s for _, request in commands(world, froze_s)])
        gaps_s = np.diff(stamps_s)
        bursts.append(int(max((gaps_s < period_s / 2).sum(), 0)) if len(gaps_s) else 99)
        late.append(float(gaps_s.max(initial=0.0)))
        world.stopwatch.forget()
    return Measured.of(
        Figure("commands less than half a tick apart", max(bursts), ""),
        Figure("longest gap seen", 1e3 * max(late), "ms"),
        n=len(bursts),
    )


# --- 34: every process is asked to end -----------------------------------------------------------


def asked_to_end(context: Context) -> Measured:
    """SIGTERM to every process of a run, in the order in which a run ends; then its store."""
    took_s: dict[str, float] = {}
    world, held = context.world(), []
    assert isinstance(world, RunWorld)
    n = 0
    for _ in context.trials():
        world.until_policy()
        pids = world.supervisor.pids()
        n += 1
        asked_s = time.monotonic()
        for name in sorted(pids, key=_rank):
            asked_one_s = time.monotonic()
            os.kill(pids[name], signal.SIGTERM)
            ended_s = _ended_s(pids[name])
            took_s[name] = max(took_s.get(name, 0.0), ended_s - asked_one_s)
            if name == "actor":
                held.append(world.stopwatch.held_s(asked_s) is not None)
        all_back = len(pids)
        wait_for(lambda n=all_back: len(world.supervisor.pids()) == n, RUNS_S, "all are back")
        world.until_policy()
        with Store(world.run_dir / ACTOR_STORE) as store:
            store.verify()
            unsealed = [e for e in store.episode_summaries()[:-1] if e.ending is None]
    slowest = max(took_s, key=lambda name: took_s[name])
    return Measured.of(
        Figure("slowest exit", took_s[slowest], "s"),
        Figure("episodes left open", len(unsealed), ""),
        Figure("without a hold", held.count(False), ""),
        n=n * len(took_s),
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
        fails_if="a gate without a time-out for commands never holds; a store that writes at the "
        "end of an episode has lost all of it",
        full=50,
        measure=actor_killed,
        world="run",
    ),
    Case(
        number=28,
        name="frozen",
        title="processor taken away, or garbage collected for 300 ms",
        injection="SIGSTOP of the actor for 300 ms at any moment of a tick",
        promise="the lost time is given up: at most one command per tick, no burst",
        limits=(
            Limit("commands less than half a tick apart", "", at_most=0.0),
            Limit("longest gap seen", "ms", at_least=300.0),
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
