"""A demonstration begins with the person: until then, the robot stands and nothing is kept."""

from __future__ import annotations

from typing import Any

from robot_rl.control.summary import EpisodeSummary
from robot_rl.types import Driver, Ending, Outcome

MAX_HELD_TICKS = 10  # held this long (1 s at 10 Hz): somebody must look; the episode is aborted
HELD = "held by the gate"  # why an episode was aborted: held for long, nobody let it go on


def await_hand(loop: Any, summary: EpisodeSummary) -> bool:
    """Stand still until the person drives, however long that takes.

    loop: a `control.loop.ControlLoop`. False where there is a reason not to begin: `summary` says
    which.
    """
    period_s, held = 1.0 / loop.task.spec.control_hz, 0
    tick_s, where = loop.clock.now_s(), loop.robot.read().tcp_in_base
    while True:
        state, _, stale = loop.observe()
        human = loop.operator.poll(state)
        if stale:
            summary.ending = Ending.STALE
        held_for = HELD if held >= MAX_HELD_TICKS else ""
        asked = "operator abort" if human.abort else ""
        summary.reason = stale or loop.stopping() or asked or held_for
        if summary.reason or human.driving:
            return not summary.reason
        # to one place: "no motion" from wherever it is would let a load carry the arm away
        command = loop.command_to(where, None, Driver.POLICY, state)
        verdict = loop.gate.request(command, state)
        if verdict is not None:
            loop.robot.apply(verdict.command)
        tick_s = max(tick_s + period_s, loop.clock.now_s())
        loop.clock.sleep_until_s(tick_s)
        verdict = verdict or loop.gate.verdict(command.sequence)
        held = 0 if verdict is not None and verdict.outcome is not Outcome.HOLD else held + 1
