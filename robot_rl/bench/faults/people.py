"""Cases of the operator's page while a person drives: its server is killed, it falls silent."""

from __future__ import annotations

import time

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, known, spread
from robot_rl.bench.faults.driving import HOLD_MS, alone, held_ms, moved_by_itself, take_over
from robot_rl.bench.faults.worlds import RunWorld, need_console

# --- 5: the console is killed --------------------------------------------------------------------


def console_killed(context: Context) -> Measured:
    """kill -9 of the page's server while a person at it moves the arm; another stands ready."""
    need_console()
    from robot_rl.bench.console.browser import Server
    from robot_rl.bench.console.drive import ScriptedPage

    world, took_ms = context.world(), []
    assert isinstance(world, RunWorld)
    servers = [Server(world.run_dir)]
    try:
        for _ in context.trials():
            with ScriptedPage(servers[0].link) as hand:
                servers.append(Server(world.run_dir))
                assert servers[1].link  # waits until it serves
                take_over(world, hand)
                with alone(world):
                    killed_s = time.monotonic()
                    servers[0].process.kill()
                    took_ms.append(context.timed(held_ms(world, killed_s)))
            servers.pop(0).close()
    finally:
        for server in servers:
            server.close()
    return Measured.of(spread("time to hold", known(took_ms), "ms"), n=len(known(took_ms)))


# --- 6: the page is hidden, the laptop sleeps, the Wi-Fi drops -----------------------------------


def page_silent(context: Context) -> Measured:
    """A page that says nothing over an open connection, and comes back with the key still held."""
    need_console()
    from robot_rl.bench.console.browser import Server
    from robot_rl.bench.console.drive import ScriptedPage

    world, took_ms, resumed = context.world(), [], 0
    assert isinstance(world, RunWorld)
    with Server(world.run_dir) as server, ScriptedPage(server.link) as hand:
        for _ in context.trials():
            take_over(world, hand)
            with alone(world):
                silent_s = time.monotonic()
                hand.silent = True
                took_ms.append(context.timed(held_ms(world, silent_s)))
                back_s = time.monotonic()
                hand.silent = False  # drive is still held
                time.sleep(0.5)
                resumed += moved_by_itself(world, back_s)
            hand.held, hand.axes = [], [0.0] * 6
    return Measured.of(
        spread("time to hold", known(took_ms), "ms"),
        Figure("resumed by itself", resumed, ""),
        n=len(known(took_ms)),
    )


CASES = (
    Case(
        number=5,
        name="console_killed",
        title="console killed, or its tab closed, while a person drives",
        injection="kill -9 of the page's server in the middle of a motion",
        promise="the arm is told to stand within 120 ms",
        limits=(Limit("time to hold, p99", "ms", at_most=HOLD_MS),),
        fails_if="without the gate's own time-out for the person's device the last command goes on "
        "and the arm is never told to stand",
        full=50,
        measure=console_killed,
        world="run",
    ),
    Case(
        number=6,
        name="page_silent",
        title="tab hidden, laptop asleep, Wi-Fi gone",
        injection="the page says nothing more over an open connection, then comes back with the "
        "drive key held",
        promise="the arm is told to stand within 120 ms, and nothing resumes by itself",
        limits=(
            Limit("time to hold, p99", "ms", at_most=HOLD_MS),
            Limit("resumed by itself", "", at_most=0.0),
        ),
        fails_if="a gate that trusts the last message goes on; one that only waits for news moves "
        "again when the page is back",
        full=50,
        measure=page_silent,
        world="run",
    ),
)
