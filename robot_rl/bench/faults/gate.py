"""Cases of the gate: killed, asked for the impossible, without a state, when clocks jump."""

from __future__ import annotations

import math
import os
import signal
import time
from functools import partial

from robot_rl.bench.faults import adversary
from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, known, spread
from robot_rl.bench.faults.driving import (
    GIVE_UP_S,
    Actor,
    held_ms,
    let_live,
    moved_by_itself,
)
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.bench.faults.worlds import ArmWorld
from robot_rl.ros import wire
from robot_rl.ros.topics import GATE_STATE, WRENCH
from robot_rl.types import Driver

FORCE_N = (0.0, 0.0, 90.0)  # the tool hits something: beyond the limit of 50 N
STEPS_S = (3600.0, -3600.0, -0.5, 0.5)  # of the clock, one after the other
ASKS_S = 0.5  # wall; how long an actor goes on asking: longer than any time-out
AGAIN_S = 10.0  # wall; after a clock was set, a person gets the arm going within this


# --- 4: the gate is killed -----------------------------------------------------------------------


def gate_killed(context: Context) -> Measured:
    """Wall time from kill -9 until the arm's driver tells that its controller is stopped."""
    from robot_rl.bench.faults.stopwatch import DRIVER_STOPPED

    world, took_ms = context.world(), []
    assert isinstance(world, ArmWorld)
    for deaths, i in enumerate(context.trials()):
        with Actor(world, f"orphan-{i}") as actor:
            actor.until_moving()
            before = world.stopwatch.newest(DRIVER_STOPPED)
            killed_s = time.monotonic()
            os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)
            stopped_s = _stopped_s(world, killed_s)
            if before is None or not before[1].data:
                took_ms.append(1e3 * (stopped_s - killed_s))
            else:  # a busy machine had it stopped already
                context.void()
        wait_for(lambda: "gate" in world.supervisor.pids(), 10.0, "the gate is started again")
        world.ready()
        let_live(deaths)
    return Measured.of(spread("time to stop", took_ms, "ms"), n=len(took_ms))


def _stopped_s(world: ArmWorld, after_s: float) -> float:
    """When the driver told that its controller is stopped; `GIVE_UP_S` later when it did not."""
    from robot_rl.bench.faults.stopwatch import DRIVER_STOPPED

    while time.monotonic() < after_s + GIVE_UP_S:
        said = world.stopwatch.since(DRIVER_STOPPED, after_s)
        if stopped := [at_s for at_s, message in said if message.data]:
            return stopped[0]
        time.sleep(0.005)
    return after_s + GIVE_UP_S


# --- 25: the state stops -------------------------------------------------------------------------


def state_stops(context: Context) -> Measured:
    """The driver stands still (SIGSTOP) while an actor goes on asking."""
    world, took_ms, named = context.world(), [], []
    assert isinstance(world, ArmWorld)
    for i in context.trials():
        pid = world.supervisor.pids()["sim"]
        try:
            with Actor(world, f"blind-{i}") as actor:
                actor.until_moving()
                stopped_s = time.monotonic()
                os.kill(pid, signal.SIGSTOP)
                took_ms.append(context.timed(held_ms(world, stopped_s)))
                named.append(protective(world, stopped_s)[1].startswith("state"))
        finally:
            os.kill(pid, signal.SIGCONT)
    return Measured.of(
        spread("time to stop", known(took_ms), "ms"),
        Figure("without a protective stop", named.count(False), ""),
        n=len(known(took_ms)),
    )


def protective(world: ArmWorld, since_s: float) -> tuple[float, str]:
    """When the gate first told of a protective stop after a moment, and why; never: inf and ""."""
    said = world.stopwatch.since(GATE_STATE, since_s)
    reports = ((at_s, wire.decode_report(message.data)) for at_s, message in said)
    stops = ((at_s, r.reason) for at_s, r in reports if r.mode == "protective_stop")
    return next(stops, (math.inf, ""))


# --- 26: a force ---------------------------------------------------------------------------------


def force(context: Context) -> Measured:
    """The wrench tells of a blow; in each second trial the arm has stopped by itself."""
    world, took_ms, own_ms, named, moved = context.world(), [], [], [], 0
    assert isinstance(world, ArmWorld)
    limit_n, ready = world.experiment.robot.max_force_n, world.experiment.driver.ready[0]
    for i in context.trials():
        try:
            with Actor(world, f"pushed-{i}") as actor:
                actor.until_moving()
                begun_s = time.monotonic()
                if i % 2:
                    world.stopwatch.fault(ready={ready.topic: False})
                    own_ms.append(context.timed(held_ms(world, begun_s)))
                else:
                    world.stopwatch.fault(touch_n=FORCE_N)
                    begun_s = wait_for(partial(_felt_s, world, begun_s, limit_n), 2.0, "a force")
                    took_ms.append(context.timed(held_ms(world, begun_s)))
                stopped_s, cause = protective(world, begun_s)
                named.append(cause.startswith("arm" if i % 2 else "force"))
                world.stopwatch.fault()  # the cause is gone, and the actor goes on asking
                time.sleep(ASKS_S)
                moved += moved_by_itself(world, stopped_s)
        finally:
            world.stopwatch.fault()
    return Measured.of(
        spread("time to stop", known(took_ms), "ms"),
        spread("time to stop after the arm's own stop", known(own_ms), "ms"),
        Figure("without a protective stop that names the cause", named.count(False), ""),
        Figure("moved without an acknowledgement", moved, ""),
        n=len(known(took_ms + own_ms)),
    )


def _felt_s(world: ArmWorld, since_s: float, limit_n: float) -> float | None:
    """When the first force beyond the limit arrived."""
    for at_s, message in world.stopwatch.since(WRENCH, since_s):
        felt = message.wrench.force
        if math.hypot(felt.x, felt.y, felt.z) > limit_n:
            return at_s
    return None


# --- 27: the clock is set ------------------------------------------------------------------------


def clock_jumps(context: Context) -> Measured:
    """The clocks of all nodes are set, an hour and half a second, forwards and back."""
    from robot_rl.bench.faults.pad import Pad

    world, mistaken, again_s = context.world(), [], []
    assert isinstance(world, ArmWorld)
    offset_s = 0.0
    with Pad(world) as pad, Actor(world, "jump", Driver.CORRECTION) as actor:
        actor.until_moving(pad)
        for i in context.trials():
            offset_s += STEPS_S[i % len(STEPS_S)]
            set_s = time.monotonic()
            world.clock.step(offset_s)
            time.sleep(ASKS_S)
            told = world.stopwatch.since(GATE_STATE, set_s)
            said = [wire.decode_report(message.data) for _, message in told]
            mistaken += [r.reason for r in said if r.mode != "run" and "clock" not in r.reason]
            begun_s = time.monotonic()
            actor.until_moving(pad)
            again_s.append(time.monotonic() - begun_s)
            world.stopwatch.forget()
    return Measured.of(
        Figure("false time-outs", len(mistaken), ""),
        Figure("time until it moves again, max", max(again_s), "s"),
        n=len(again_s),
        note=f"for example: {mistaken[0]}" if mistaken else "",
    )


# --- 21: commands beyond every limit -------------------------------------------------------------


def beyond_limits(context: Context) -> Measured:
    """Adversarial commands through the gate's rules, and an independent check of what it sends."""
    counts: dict[str, int] = {}
    broken = 0
    for seed in context.trials(context.case.full // adversary.BLOCK):
        broken += sum(adversary.attack_block(seed, counts).values())
    n = sum(counts.values())
    passed = sum(count for outcome, count in counts.items() if not outcome.startswith("hold"))
    return Measured.of(
        Figure("violations", broken, ""), Figure("sent on", 100.0 * passed / n, "%"), n=n
    )


CASES = (
    Case(
        number=4,
        name="gate_killed",
        title="gate killed",
        injection="kill -9 of the gate while an actor moves the arm",
        promise="the watchdog stops the arm's controller within 200 ms",
        limits=(Limit("time to stop, p99", "ms", at_most=200.0),),
        fails_if="without the watchdog, or with one that only tells of a stop, the controller "
        "follows its last target",
        full=50,
        measure=gate_killed,
        world="arm",
    ),
    Case(
        number=25,
        name="state_stops",
        title="state topic stops",
        injection="SIGSTOP of the arm's driver while an actor moves the arm",
        promise="a protective stop within 100 ms",
        limits=(
            Limit("time to stop, p99", "ms", at_most=100.0),
            Limit("without a protective stop", "", at_most=0.0),
        ),
        fails_if="a gate that judges by the last state it has goes on sending targets",
        full=50,
        measure=state_stops,
        world="arm",
    ),
    Case(
        number=26,
        name="force",
        title="force spike, reflex",
        injection="the wrench tells of 90 N more, or the driver of a stop of the arm's own, while "
        "an actor moves the arm",
        promise="a protective stop before the next command (after the arm's own stop: within "
        "1 s), which names its cause and waits for a person",
        limits=(
            Limit("time to stop, p99", "ms", at_most=100.0),
            Limit("time to stop after the arm's own stop, max", "ms", at_most=1000.0),
            Limit("without a protective stop that names the cause", "", at_most=0.0),
            Limit("moved without an acknowledgement", "", at_most=0.0),
        ),
        fails_if="a gate that does not look at the wrench goes on; one that only pauses moves "
        "again with the next command",
        full=50,
        least=2,
        measure=force,
        world="arm",
    ),
    Case(
        number=27,
        name="clock_jumps",
        title="clock set by an hour, NTP step",
        injection="the clocks of all nodes jump by an hour or half a second, forwards and back, "
        "while a person's device is held and the arm moves",
        promise="nothing is mistaken for a time-out; the arm moves again as soon as a person wants",
        limits=(
            Limit("false time-outs", "", at_most=0.0),
            Limit("time until it moves again, max", "s", at_most=AGAIN_S),
        ),
        fails_if="ages that are measured on the clock of the day are an hour: state stale, command "
        "late, or a device ignored for an hour",
        full=40,
        least=len(STEPS_S),
        measure=clock_jumps,
        world="arm",
    ),
    Case(
        number=21,
        name="beyond_limits",
        title="action beyond box, speed or step",
        injection="random commands: NaN, 1e307, wrong shapes, replayed, stale, from strangers, "
        "from people who let go of their device, beside robots that jump, push and vanish",
        promise="clipped or held; what is sent on keeps every limit",
        limits=(
            Limit("violations", "", at_most=0.0),
            Limit("sent on", "%", at_least=20.0),
        ),
        fails_if="a limit or a check that is left out is broken by some of the commands; a gate "
        "that always holds sends nothing on",
        full=1_000_000,
        least=20_000,
        measure=beyond_limits,
    ),
)
