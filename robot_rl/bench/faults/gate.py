"""Cases of the gate: killed, asked for the impossible, without a state, when clocks jump."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from robot_rl.bench.faults import adversary
from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, spread
from robot_rl.bench.faults.worlds import ArmWorld, wait_for
from robot_rl.geometry import pose

GIVE_UP_S = 2.0  # wall; what has not stopped by then does not stop
TICK_S = 0.1  # between two commands of an actor
STEP_M = 0.008  # of one command


def drive(world: ArmWorld, lease: str, ticks: int) -> None:
    """Arm, and move the TCP back and forth as an actor would, `ticks` commands long."""
    world.ready()
    world.person.arm(lease)
    start = world.person.tcp()
    for i in range(1, ticks + 1):
        away_m = np.array((0.0, 0.0, STEP_M * i))
        world.person.ask(lease, pose(start.position_m + away_m, start.quaternion_xyzw))
        until_s = time.monotonic() + TICK_S
        while time.monotonic() < until_s:
            world.person.turn(0.005)


# --- 4: the gate is killed -----------------------------------------------------------------------


def gate_killed(context: Context) -> Measured:
    """Wall time from kill -9 until the arm tells that its controller is stopped."""
    from robot_rl.ros import topics

    world, took_ms = context.world(), []
    assert isinstance(world, ArmWorld)
    for i in context.trials():
        drive(world, f"orphan-{i}", 3)
        killed_s = time.monotonic()
        os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)

        def stopped_s(after_s: float = killed_s) -> float | None:
            said = world.stopwatch.since(topics.CONTROLLER_STOPPED, after_s)
            return next((at_s for at_s, message in said if message.data), None)

        wait_for(stopped_s, GIVE_UP_S, "the watchdog stops the controller")
        took_ms.append(1e3 * ((stopped_s() or np.inf) - killed_s))
        wait_for(lambda: "gate" in world.supervisor.pids(), 10.0, "the gate is started again")
        world.ready()
    return Measured.of(spread("time to stop", took_ms, "ms"), n=len(took_ms))


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
        fails_if="without the watchdog the controller follows its last target, and nobody tells "
        "that it is stopped",
        full=50,
        least=2,
        measure=gate_killed,
        world="arm",
    ),
    Case(
        number=21,
        name="beyond_limits",
        title="action beyond box, speed or step",
        injection="random commands: NaN, 1e307, wrong shapes, replayed, stale, from strangers, "
        "beside robots that jump, push and vanish",
        promise="clipped or held; what is sent on keeps every limit",
        limits=(
            Limit("violations", "", at_most=0.0),
            Limit("sent on", "%", at_least=20.0),
        ),
        fails_if="a limit that is not enforced is broken by a tenth of the commands; a gate that "
        "always holds sends nothing on",
        full=1_000_000,
        least=20_000,
        measure=beyond_limits,
    ),
)
