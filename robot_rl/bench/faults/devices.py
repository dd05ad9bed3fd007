"""Cases of what a person holds: stuck keys, an unplugged gamepad, jitter, two browsers, replays."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, known, spread
from robot_rl.bench.faults.driving import HOLD_MS, Actor, held_ms
from robot_rl.bench.faults.gate_bench import GateBench
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.bench.faults.worlds import ArmWorld, need_console
from robot_rl.operate.calibration import AXES
from robot_rl.operate.handset import HELD, DeviceReading, Handset, HandsetConfig
from robot_rl.safety.states import Mode
from robot_rl.types import Driver, Outcome, Verdict

if TYPE_CHECKING:
    from robot_rl.bench.console.drive import ScriptedPage

HOUR_S = 3600.0
STEP_S = 0.02  # of a device, and of the gate's watchdogs on the bench
LATEST_S, GRAIN_S = 0.08, 0.001  # between two readings of a device that jitters; and of a sleep
SEEN_S = 0.1  # wall; until a hold has been told
RUN_S, ENOUGH = 2.0, 10  # wall; in RUN, beside a device that jitters; holds after which it ends
LOOK_S = 0.2  # wall; between two looks whether the gate holds: they take time that the device needs
TRIAL_S = 0.4  # how long something is stuck
BATCH = 100  # commands between two looks at the time
TAKE_S = 0.05  # wall; what the server passes on has arrived: it queues next to nothing
PAUSE_S = 0.002  # wall; ZeroMQ may take a millisecond to notice that its short queue is empty again
MINE, THEIRS = 0.25, -0.25  # where the sticks of two pages are, to tell their messages apart


# --- 7: something is held when the robot is armed ------------------------------------------------


def stuck(context: Context) -> Measured:
    """A random key that is down, or a stick that is out, before anything may drive."""
    drove = unnamed = refused = armed = n = 0
    for _ in context.trials():
        held, axes, culprit = _stuck(context.rng)
        handset = Handset(HandsetConfig(), 6)
        for tick in range(round(TRIAL_S / STEP_S)):
            said = handset.feed(DeviceReading(tick * STEP_S, axes, held), tick * STEP_S)
            drove += said.driving
        unnamed += culprit not in handset.problem
        bench = GateBench(armed=False)
        bench.heartbeat(driving=True)  # the same at the gate: a device that says it is held
        armed += not bench.arm().startswith("operator: release the device")
        bench.heartbeat(driving=False)
        refused += bool(bench.arm())  # a gate that arms nobody would pass otherwise
        n += 1
    return Measured.of(
        Figure("driven or armed", drove + armed, ""),
        Figure("culprit not named", unnamed, ""),
        Figure("refused at rest", refused, ""),
        n=n,
    )


def _stuck(rng: np.random.Generator) -> tuple[frozenset[str], np.ndarray, str]:
    """Held words, axes [6], and what must be named."""
    axes = np.zeros(6)
    if rng.random() < 0.5:
        word = str(rng.choice(sorted(HELD)))
        return frozenset({word}), axes, f"'{word}' is held"
    axis = int(rng.integers(6))
    axes[axis] = rng.choice((-1.0, 1.0)) * rng.uniform(0.15, 1.0)  # the dead zone ends at 0.1
    return frozenset(), axes, f"{AXES[axis]} is at"


# --- 8: a gamepad is unplugged -------------------------------------------------------------------


def unplugged(context: Context) -> Measured:
    """The joystick's topic falls silent while its drive button is held and the arm moves."""
    from robot_rl.bench.faults.pad import Pad

    world, took_ms = context.world(), []
    assert isinstance(world, ArmWorld)
    for i in context.trials():
        with Pad(world) as pad, Actor(world, f"pad-{i}", Driver.CORRECTION) as actor:
            actor.until_moving(pad)
            took_ms.append(context.timed(held_ms(world, pad.unplug())))
    return Measured.of(spread("time to hold", known(took_ms), "ms"), n=len(known(took_ms)))


# --- 10: heartbeats jitter -----------------------------------------------------------------------


def jitter(context: Context) -> Measured:
    """An hour at the gate's rules, heartbeats 10 to 90 ms apart; some time in the graph, 10 to 80.

    The gate waits for 90 ms, and what a message costs on its way through the graph is part of that.
    """
    from robot_rl.bench.faults.pad import Pad

    world, rng = context.world(), context.rng
    assert isinstance(world, ArmWorld)
    graph_s = context.seconds(60.0, RUN_S)
    in_run_s, holds, first_s = 0.0, list[float](), time.monotonic()
    with (
        uncollected(),
        Pad(world, lambda: float(rng.uniform(0.01, LATEST_S))) as pad,
        Actor(world, "jitter", Driver.CORRECTION) as actor,
    ):
        while in_run_s < graph_s and len(holds) < ENOUGH:
            actor.until_moving(pad)
            begun_s = time.monotonic()
            held_s = _first_hold_s(world, begun_s, begun_s + graph_s - in_run_s)
            ended_s = time.monotonic() if held_s is None else held_s
            in_run_s += ended_s - begun_s
            holds += [] if held_s is None else [held_s]
        silences = list(pairwise(pad.sent_s))
    # a thread that wakes too late breaks the promise itself: that is counted beside
    late = [(a, b) for a, b in silences if b > first_s and b - a > LATEST_S + GRAIN_S]
    mine = sum(any(a < at_s < b + SEEN_S for a, b in late) for at_s in holds)
    hours, false = 0.0, 0
    for _ in context.trials(36, at_least=1):
        false += _bench_holds(rng, HOUR_S / 36)
        hours += 1.0 / 36
    return Measured.of(
        Figure("false holds per hour", false / hours, "1/h"),
        Figure("false holds in the graph", len(holds) - mine, ""),
        Figure("time in RUN", in_run_s, "s"),
        Figure("readings later than 80 ms", len(late), ""),
        Figure("holds beside those", mine, ""),
        n=round(hours * HOUR_S / 0.05),
        note=f"{60 * hours:.0f} minutes of simulated time",
    )


def _first_hold_s(world: ArmWorld, since_s: float, until_s: float) -> float | None:
    """When the gate, which ran, first left RUN; None = not until `until_s`."""
    while not (holds := world.stopwatch.holds(since_s)) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    return holds[0] if holds else None


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected: here that takes 0.2 s, in which a device of ours would be silent."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _bench_holds(rng: np.random.Generator, seconds: float) -> int:
    """How often the gate leaves RUN while a person's heartbeats jitter and a command comes on time.

    The heartbeats are 10 to 90 ms apart, 50 in the mean.
    """
    bench, holds = GateBench(), 0
    bench.heartbeat(driving=True)
    while bench.now_s < seconds:
        bench.heartbeat(driving=True)
        if bench.now_s - bench.gate.moved_s >= 0.05:
            bench.judge((0.0, 0.0, 0.0), driver=Driver.CORRECTION)
        bench.wait(float(rng.uniform(0.01, 0.09)))
        bench.tick()
        if bench.gate.mode is not Mode.RUN:
            holds += 1
            seconds -= bench.now_s
            bench = GateBench()
            bench.heartbeat(driving=True)
    return holds


# --- 9: two browsers want to drive ---------------------------------------------------------------


def two_browsers(context: Context) -> Measured:
    """Two sessions at one server: both claim the seat and send; what reaches the robot side."""
    need_console()
    claims = refused = n = 0
    sticks: list[float] = []  # of what has reached the robot side
    with two_pages(context.folder) as (inbox, holder, other):
        lines = [(holder.open("control"), MINE), (other.open("control"), THEIRS)]

        def heard() -> bool:  # the server's line to the robot side comes up by itself
            lines[0][0].send(json.dumps({"axes": [0.0] * 6, "held": []}))
            lines[0][0].recv()
            return bool(inbox(TAKE_S))

        wait_for(heard, 20.0, "the first page is heard")
        for _ in context.trials(context.case.full // BATCH, at_least=2):
            claims += 1
            refused += not other.claims()
            for line, stick in lines:  # one after the other, as fast as the robot side takes them
                said = json.dumps({"axes": [stick] + [0.0] * 5, "held": ["drive"]})
                for _ in range(BATCH // 2):
                    line.send(said)
                    line.recv()
                    sticks += inbox(TAKE_S if stick == MINE else 0.0)
                    time.sleep(PAUSE_S)
                n += BATCH // 2
            sticks += inbox(TAKE_S)
        for line, _ in lines:
            line.close()
    return Measured.of(
        Figure("commands of the second", sticks.count(THEIRS), ""),
        Figure("claims of the second granted", claims - refused, ""),
        Figure("commands of the first", 100.0 * sticks.count(MINE) / (n / 2), "%"),
        n=n,
    )


@contextmanager
def two_pages(folder: Path) -> Iterator[tuple[Any, ScriptedPage, ScriptedPage]]:
    """The console's server of a run that is not started, and two pages, the first in the seat.

    Yields a function that takes what has reached the robot side (where the first stick was, of each
    message), and the pages.
    """
    import zmq

    from robot_rl.bench.console.browser import served
    from robot_rl.bench.console.drive import ScriptedPage
    from robot_rl.link.panel import socket_address
    from robot_rl.run.experiment import Experiment

    run_dir = Experiment.compose(["experiment=reach", f"run_dir={folder}/run"]).save()
    with zmq.Context.instance().socket(zmq.PULL) as line, served(run_dir) as invite:
        line.setsockopt(zmq.RCVHWM, 10 * BATCH)
        line.bind(socket_address(run_dir, "control"))

        def inbox(wait_s: float) -> list[float]:
            found = []
            while line.poll(0 if found else round(1e3 * wait_s)):
                found.append(json.loads(line.recv_multipart()[-1])["axes"][0])
            return found

        with (
            ScriptedPage(invite(), speaks=False) as holder,
            ScriptedPage(invite(), drives=False, speaks=False) as other,
        ):
            yield inbox, holder, other


# --- 17: an old command comes again --------------------------------------------------------------


def replayed(context: Context) -> Measured:
    """Commands that were recorded on their way to the gate are sent once more."""
    from robot_rl.ros import convert, topics, wire
    from robot_rl.ros.endpoints import publisher

    world, again, refused, passed = context.world(), 0, 0, 0
    assert isinstance(world, ArmWorld)
    sender = publisher(world.person.node, topics.GATE_REQUEST)
    for i in context.trials(context.case.full // BATCH):
        with Actor(world, f"replay-{i}") as actor:
            actor.until_moving()
            time.sleep(0.3)
            texts = [m.data for _, m in world.stopwatch.since(topics.GATE_REQUEST, 0.0)]
            old = [text for text in texts if '"move"' in text]
            begun_s = time.monotonic()
            for _ in range(BATCH):
                sender.publish(convert.text_to(str(context.rng.choice(old))))
                time.sleep(0.005)
            time.sleep(0.3)
            answers = [
                wire.decode_answer(message.data)
                for _, message in world.stopwatch.since(topics.GATE_VERDICT, begun_s)
            ]
        sent = {wire.decode_request(text).sequence for text in old}  # type: ignore[union-attr]
        mine = [a for a in answers if isinstance(a, Verdict) and a.sequence in sent]
        passed += sum(a.outcome is not Outcome.HOLD for a in mine)
        refused += sum(a.reason.startswith(("age", "sequence", "lease")) for a in mine)
        again += BATCH
    world.person.node.destroy_publisher(sender)
    return Measured.of(
        Figure("old commands that passed", passed, ""),
        Figure("refused for their age, number or lease", 100.0 * refused / again, "%"),
        n=again,
    )


CASES = (
    Case(
        number=7,
        name="stuck",
        title="stuck key, or stick not centred, at arming",
        injection="a random key is down, or a stick is out, from the beginning",
        promise="nothing is driven or armed, and the key or stick is named",
        limits=(
            Limit("driven or armed", "", at_most=0.0),
            Limit("culprit not named", "", at_most=0.0),
            Limit("refused at rest", "", at_most=0.0),
        ),
        fails_if="a device that is believed at once drives; a gate that ignores the device arms; "
        "one that never arms refuses at rest",
        full=1000,
        least=100,
        measure=stuck,
        weight=0.3,
    ),
    Case(
        number=8,
        name="unplugged",
        title="gamepad unplugged while it is held",
        injection="the joystick's topic falls silent while a person drives",
        promise="the arm is told to stand within 120 ms",
        limits=(Limit("time to hold, p99", "ms", at_most=HOLD_MS),),
        fails_if="an operator's node that repeats the last reading with a new stamp drives on",
        full=50,
        measure=unplugged,
        world="arm",
    ),
    Case(
        number=9,
        name="two_browsers",
        title="two browsers claim control",
        injection="two pages of one console claim the seat and send commands in turn",
        promise="the second is refused, and none of its commands gets to the robot",
        limits=(
            Limit("commands of the second", "", at_most=0.0),
            Limit("claims of the second granted", "", at_most=0.0),
            Limit("commands of the first", "%", at_least=95.0),
        ),
        fails_if="a server that passes on what any page sends passes half of them; one that passes "
        "nothing on fails the first page",
        full=10_000,
        least=200,
        measure=two_browsers,
    ),
    Case(
        number=10,
        name="jitter",
        title="control heartbeat jitters by 80 ms",
        injection="readings of the device 10 to 90 ms apart at the gate, 10 to 80 ms in the graph",
        promise="no false hold",
        limits=(
            Limit("false holds per hour", "1/h", at_most=0.0),
            Limit("false holds in the graph", "", at_most=0.0),
            Limit("time in RUN", "s", at_least=RUN_S),
        ),
        fails_if="a time-out that is shorter than the jitter holds several times a minute",
        full=72_000,
        least=1000,
        measure=jitter,
        world="arm",
    ),
    Case(
        number=17,
        name="replayed",
        title="old commands are replayed",
        injection="recorded commands of this lease and of earlier ones are sent again while the "
        "arm is driven",
        promise="none passes; they are refused, for their age, number or lease, as far as answers "
        "are heard",
        limits=(
            Limit("old commands that passed", "", at_most=0.0),
            Limit("refused for their age, number or lease", "%", at_least=95.0),
        ),
        fails_if="a gate that looks at the lease alone lets those of this lease pass",
        full=10_000,
        least=100,
        measure=replayed,
        world="arm",
    ),
)
