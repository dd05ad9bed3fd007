"""The gate's modes as data: two small transition tables, and the guard that reads them.

What is not in a table cannot happen. The one property that matters can be read off the first table:
RUN is entered from HOLD by `arm` only, and from PAUSE only while that arming still stands.
"""

from __future__ import annotations

from enum import StrEnum

from robot_rl.errors import SafetyError


class Mode(StrEnum):
    """What the gate does with the robot."""

    HOLD = "hold"  # nobody may drive; the latched pose is re-sent
    RUN = "run"  # one lease is armed and its commands move the robot
    PAUSE = "pause"  # still armed, holding until that lease's next good command
    PROTECTIVE_STOP = "protective_stop"  # holding until acknowledged, then armed again

    @property
    def is_armed(self) -> bool:
        """True while some lease may drive."""
        return self in (Mode.RUN, Mode.PAUSE)


class Request(StrEnum):
    """What may change the mode."""

    ARM = "arm"  # a deliberate ask for the right to drive
    PAUSE = "pause"  # watchdog, or a command that no clipping makes safe
    RESUME = "resume"  # the armed lease sends a good command
    HOLD = "hold"  # soft stop: person, shutdown, or a command that is not finite
    PROTECTIVE_STOP = "protective_stop"  # force, or robot state that cannot be trusted
    ACKNOWLEDGE = "acknowledge"  # a person has seen why it stopped


TRANSITIONS: dict[tuple[Mode, Request], Mode] = {
    (Mode.HOLD, Request.ARM): Mode.RUN,
    (Mode.HOLD, Request.HOLD): Mode.HOLD,
    (Mode.HOLD, Request.PROTECTIVE_STOP): Mode.PROTECTIVE_STOP,
    (Mode.RUN, Request.ARM): Mode.RUN,  # by the same lease only: the gate checks
    (Mode.RUN, Request.RESUME): Mode.RUN,
    (Mode.RUN, Request.PAUSE): Mode.PAUSE,
    (Mode.RUN, Request.HOLD): Mode.HOLD,
    (Mode.RUN, Request.PROTECTIVE_STOP): Mode.PROTECTIVE_STOP,
    (Mode.PAUSE, Request.ARM): Mode.RUN,
    (Mode.PAUSE, Request.RESUME): Mode.RUN,
    (Mode.PAUSE, Request.PAUSE): Mode.PAUSE,
    (Mode.PAUSE, Request.HOLD): Mode.HOLD,
    (Mode.PAUSE, Request.PROTECTIVE_STOP): Mode.PROTECTIVE_STOP,
    (Mode.PROTECTIVE_STOP, Request.PROTECTIVE_STOP): Mode.PROTECTIVE_STOP,
    (Mode.PROTECTIVE_STOP, Request.HOLD): Mode.PROTECTIVE_STOP,  # a hold never softens a stop
    (Mode.PROTECTIVE_STOP, Request.ACKNOWLEDGE): Mode.HOLD,
}


class Engagement(StrEnum):
    """What the gate knows about the person's enabling device, from its heartbeats."""

    IDLE = "idle"  # not held
    DRIVING = "driving"  # held, heartbeats arrive
    SILENT = "silent"  # was held when the heartbeats stopped: must be released first
    RELEASED = "released"  # released after a silence; motion waits for a new press, or for `arm`


class DeviceEvent(StrEnum):
    """What may change the engagement."""

    PRESSED = "pressed"
    LET_GO = "let_go"
    SILENCE = "silence"
    ARM = "arm"


ENGAGEMENT_TRANSITIONS: dict[tuple[Engagement, DeviceEvent], Engagement] = {
    (Engagement.IDLE, DeviceEvent.PRESSED): Engagement.DRIVING,
    (Engagement.DRIVING, DeviceEvent.LET_GO): Engagement.IDLE,
    (Engagement.DRIVING, DeviceEvent.SILENCE): Engagement.SILENT,
    (Engagement.SILENT, DeviceEvent.LET_GO): Engagement.RELEASED,
    (Engagement.RELEASED, DeviceEvent.PRESSED): Engagement.DRIVING,
    (Engagement.RELEASED, DeviceEvent.ARM): Engagement.IDLE,
}
"""Pairs that are absent change nothing: heartbeats repeat the same event."""


def advance(mode: Mode, request: Request) -> Mode:
    """The mode after `request`.

    Raises:
        SafetyError: the table has no such transition.
    """
    after = TRANSITIONS.get((mode, request))
    if after is None:
        possible = [r.value for (m, r) in TRANSITIONS if m is mode]
        raise SafetyError(
            f"'{request.value}' is not possible in mode '{mode.value}'",
            expected=f"one of: {', '.join(possible)}",
            got=request.value,
            fix="acknowledge a protective stop, then arm; from hold, arm first",
        )
    return after


def engage(engagement: Engagement, hand: DeviceEvent) -> Engagement:
    """The engagement after `hand`; unchanged where the table has no entry."""
    return ENGAGEMENT_TRANSITIONS.get((engagement, hand), engagement)


def markdown_table() -> str:
    """The mode table as Markdown, rows = modes, columns = requests, for docs/hazards/gate.md."""
    requests = list(Request)
    lines = [
        "| mode | " + " | ".join(r.value for r in requests) + " |",
        "|---" * (len(requests) + 1) + "|",
    ]
    for mode in Mode:
        cells = (TRANSITIONS.get((mode, r)) for r in requests)
        lines.append(f"| {mode.value} | " + " | ".join(c.value if c else "-" for c in cells) + " |")
    return "\n".join(lines)
