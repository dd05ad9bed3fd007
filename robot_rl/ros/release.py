"""Simulated time is released, not guessed: it goes on when those who must act in it have acted.

Each of them says until when the run's clock may go on without it (its *horizon*, on the topic
`clock/horizon`):

    gate       has judged all that had arrived at t: until one period after t
    operator   has passed on the device's word: until the next one is due
    actor      has acted, and the gate has answered it: until its next control tick
    learner    keeps its update target within a small backlog: until the same tick (told by the
               actor's process, which has the link to it; meanwhile it tells that the learner is at
               work, by a horizon that has passed)

The simulator goes on as long as its clock is below the smallest of these horizons, as fast as the
machine can: on a slow or busy machine simulated time is slower, but nobody is late. This is the
conservative synchronisation of parallel simulations (Chandy and Misra 1979; the time advance
request of IEEE 1516), with one exception: whoever holds up time for longer than a limit of wall
time is given up until it speaks again. Time then goes on, at real time, and the real watchdogs act
as on a robot. Who has never spoken is not waited for, so a graph without an actor runs, too; while
nobody has spoken at all, at real time, so that whoever joins finds a clock that does not leap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

LIMITS_S: Mapping[str, float] = {"gate": 1.0, "operator": 1.0, "actor": 3.0, "learner": 30.0}
"""Whom the clock waits for, and for how much wall time. Waiting for several counts for the first.

The limits are far above what a process of a busy machine waits for its turn (tens of milliseconds).
The learner's leaves room for a checkpoint on a slow disk and for a restart; while it is at work,
time waits for it as long as it takes: practice that nothing was learned from is lost."""

TOLD_BY = {"learner": "actor"}  # whose horizon another process tells: not waited for without it
SLACK_S = 1e-6  # horizons and clock are rounded to nanoseconds on their way
REAL_TIME = 1.0
"""Run seconds per wall second while a person drives, somebody is given up or nobody has spoken."""


@dataclass(slots=True)
class _Member:
    until_s: float = -math.inf  # run time
    waits_since_s: float | None = None  # wall time; None = time is not waiting for it
    given_up: bool = False


class Release:
    """Who has acted, as the simulator sees it: depends only on what it hears and on wall time."""

    def __init__(self, limits_s: Mapping[str, float] = LIMITS_S) -> None:
        self._limits_s = limits_s
        self._members: dict[str, _Member] = {}
        self._waited_s = dict.fromkeys(limits_s, 0.0)
        self._before_s: float | None = None  # wall time of the newest look

    def hear(self, who: str, until_s: float) -> bool:
        """Take a horizon (run time). True when `who` is back after having been given up."""
        if who not in self._limits_s or not math.isfinite(until_s):
            return False
        member = self._members.setdefault(who, _Member())
        back, member.given_up = member.given_up, False
        if until_s != member.until_s or who in TOLD_BY:  # it is slow, not gone
            member.until_s, member.waits_since_s = until_s, None
        return back

    def waiting(self, now_s: float, wall_s: float, *, person: bool = False) -> list[str]:
        """Who has to act before the clock may leave `now_s`; empty = it may. Ask until it is empty.

        person: somebody has the seat. A person does not wait for the learner, which catches up.
        """
        waiting = []
        for who in self._limits_s:
            if person and who == "learner":
                continue
            member = self._members.get(who)
            if member is None or member.given_up or TOLD_BY.get(who) in self.given_up:
                continue
            if member.until_s > now_s + SLACK_S:
                member.waits_since_s = None
                continue
            if member.waits_since_s is None:
                member.waits_since_s = wall_s
            if wall_s - member.waits_since_s > self._limits_s[who]:
                member.given_up, member.waits_since_s = True, None
                continue
            waiting.append(who)
        if self._before_s is not None and waiting:
            self._waited_s[waiting[0]] += wall_s - self._before_s
        self._before_s = wall_s if waiting else None
        return waiting

    @property
    def heard(self) -> bool:
        """Whether anybody has spoken yet."""
        return bool(self._members)

    @property
    def given_up(self) -> list[str]:
        """Who held up time for too long and has not spoken since."""
        return [who for who, member in self._members.items() if member.given_up]

    def waited_s(self) -> dict[str, float]:
        """Wall seconds in which time waited for each, since the last call."""
        waited, self._waited_s = self._waited_s, dict.fromkeys(self._limits_s, 0.0)
        return waited
