"""The result of an episode, read with aggregate queries and without its observations."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart

HUMAN = ", ".join(f"'{driver.value}'" for driver in Driver if driver.is_human)
"""Drivers that are people, as an SQL list."""

# SQLite takes the bare columns of a max() query from the row that holds the maximum: the last step
_STEPS = f"""
SELECT run, actor, episode, count(*), sum(driver IN ({HUMAN})), max(step), ending, success
FROM steps GROUP BY run, actor, episode
"""
_ABORTED = "SELECT DISTINCT run, actor, episode FROM events WHERE name=?"
_LAST_ENDING = """
SELECT ending FROM steps WHERE run=? AND actor=? AND episode=? ORDER BY step DESC LIMIT 1
"""
_WAS_ABORTED = "SELECT 1 FROM events WHERE run=? AND actor=? AND episode=? AND name=?"


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """Figures of one stored episode; success None = nobody has said."""

    id: EpisodeId
    purpose: str
    steps: int
    human_steps: int
    ending: Ending | None  # None: still running, or cut short and not yet recovered
    success: bool | None
    stamp_ns: int  # when it started


def episode_records(
    db: sqlite3.Connection, aborted_event: str
) -> Callable[[EpisodeStart], EpisodeRecord]:
    """Read the figures of all episodes; return a function that gives the record of one."""
    steps = {EpisodeId(*row[:3]): row[3:] for row in db.execute(_STEPS)}
    aborted = {EpisodeId(*row) for row in db.execute(_ABORTED, (aborted_event,))}

    def record(start: EpisodeStart) -> EpisodeRecord:
        count, human, _, ending, success = steps.get(start.id, (0, 0, None, None, None))
        if ending is None and start.id in aborted:
            ending = Ending.ABORTED
        return EpisodeRecord(
            id=start.id,
            purpose=start.purpose,
            steps=count,
            human_steps=human,
            ending=None if ending is None else Ending(ending),
            success=None if success is None else bool(success),
            stamp_ns=start.stamp_ns,
        )

    return record


def episode_ending(db: sqlite3.Connection, id: EpisodeId, aborted_event: str) -> Ending | None:
    """Why one episode ended: its last step says so, or an event that it was cut short."""
    key = (id.run, id.actor, id.episode)
    last = db.execute(_LAST_ENDING, key).fetchone()
    if last is not None and last[0] is not None:
        return Ending(last[0])
    return Ending.ABORTED if db.execute(_WAS_ABORTED, (*key, aborted_event)).fetchone() else None
