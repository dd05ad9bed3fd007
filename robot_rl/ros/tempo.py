"""How fast the run time of a simulation goes: as asked for, unless somebody cannot keep up.

At three times real time a held device must be heard every 33 ms of wall time. A small machine that
also draws a browser page misses that now and then; the gate then holds, as it must, and the run
stutters. Slower is faster here.
"""

from __future__ import annotations

LATE = ("operator_silent", "command_late")  # reasons of the gate's: somebody had no time
SLOWER, FASTER = 0.8, 1.02
AGAIN_S = 5.0  # without a hold: try a little faster
REAL_TIME = 1.0  # slower than this would help nobody: then the machine is too small


class Tempo:
    """Real-time factor in force; between real time and what was asked for.

    Args:
        asked: real-time factor of the configuration.
    """

    def __init__(self, asked: float) -> None:
        self._asked = self._now = asked
        self._changed_s = 0.0
        self._heard: tuple[str, str] | None = None

    def hear(self, mode: str, reason: str, now_s: float) -> None:
        """What the gate reports, again and again; a new hold for lateness slows down."""
        if (mode, reason) != self._heard and reason.startswith(LATE):
            self._now = max(self._now * SLOWER, min(self._asked, REAL_TIME))
            self._changed_s = now_s
        self._heard = (mode, reason)

    def factor(self, now_s: float, *, person: bool) -> float:
        """Run seconds per wall second. person: somebody has the seat, and hands know real time."""
        if now_s - self._changed_s >= AGAIN_S:
            self._now = min(self._now * FASTER, self._asked)
            self._changed_s = now_s
        return min(self._now, REAL_TIME) if person else self._now
