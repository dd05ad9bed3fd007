"""The figures of each episode, kept up to date beside its rows: nobody has to count the steps.

Table `results` follows from the steps and events, and is written in the transaction that writes
them; `check` counts again (`Store.verify`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from robot_rl.store.rows import TABLES, FlatRow, RowKind
from robot_rl.types import Driver, Ending, EpisodeId

EPISODE_ABORTED = "episode_aborted"  # event name: the process died before it ended the episode
HUMAN = ", ".join(f"'{driver.value}'" for driver in Driver if driver.is_human)
"""Drivers that are people, as an SQL list."""

FORGOTTEN = "forgotten"  # meta key: seq up to which rows may have been removed (`store.removal`)
ALWAYS_KEPT = ("demo", "data")  # purposes of episodes that are never removed
KEPT = ", ".join(f"'{purpose}'" for purpose in ALWAYS_KEPT)

# an episode `e` whose figures `r` count steps, and whose first step is gone
REMOVED = f"""(
  e.seq <= (SELECT CAST(value AS INTEGER) FROM meta WHERE key='{FORGOTTEN}') AND r.steps > 0
  AND NOT EXISTS (
    SELECT 1 FROM steps AS s
    WHERE s.run=e.run AND s.actor=e.actor AND s.episode=e.episode AND s.step=0
  )
)"""

CREATE = """
CREATE TABLE results (
  run TEXT NOT NULL,
  actor TEXT NOT NULL,
  episode INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  human_steps INTEGER NOT NULL,
  last_step INTEGER NOT NULL,
  ending TEXT,
  success INTEGER,
  aborted INTEGER NOT NULL,
  PRIMARY KEY (run, actor, episode)
) WITHOUT ROWID
""".strip()

# SQLite takes the bare columns of a max() query from the row that holds the maximum: the last step
_COUNTED = f"""
SELECT run, actor, episode, count(*), sum(driver IN ({HUMAN})), max(step), ending, success, 0
FROM steps GROUP BY run, actor, episode
"""
_ABORTED = "SELECT DISTINCT run, actor, episode, 0, 0, -1, NULL, NULL, 1 FROM events WHERE name=?"
_ADD = """
INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
  steps=steps+excluded.steps,
  human_steps=human_steps+excluded.human_steps,
  ending=iif(excluded.last_step > last_step, excluded.ending, ending),
  success=iif(excluded.last_step > last_step, excluded.success, success),
  last_step=max(last_step, excluded.last_step),
  aborted=max(aborted, excluded.aborted)
"""
_RECORDS = f"""
SELECT e.run, e.actor, e.episode, e.purpose, e.stamp_ns, e.seq, e.spec_hash, {REMOVED}, r.steps,
  r.human_steps, r.ending, r.success, r.aborted
FROM episodes AS e LEFT JOIN results AS r
ON r.run=e.run AND r.actor=e.actor AND r.episode=e.episode
WHERE (?1 IS NULL OR e.run=?1) AND (?2 IS NULL OR e.actor=?2) ORDER BY e.seq
"""
_ENDING = "SELECT ending, aborted FROM results WHERE run=? AND actor=? AND episode=?"
_STEP = {column.name: i for i, column in enumerate(TABLES[RowKind.STEP].columns)}
_NAME = [column.name for column in TABLES[RowKind.EVENT].columns].index("name")
_PEOPLE = {driver.value for driver in Driver if driver.is_human}


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
    seq: int  # of its header, in commit order
    spec_hash: str
    removed: bool = False  # its steps are not in this store any more: the learner's has them


def add(db: sqlite3.Connection, new: Iterable[FlatRow]) -> None:
    """Count rows that have just been inserted."""
    totals: dict[tuple, list] = {}  # type: ignore[type-arg]
    for flat in new:
        values = flat.values
        if flat.kind is RowKind.STEP:
            total = totals.setdefault(values[:3], [0, 0, -1, None, None, 0])
            total[0] += 1
            total[1] += values[_STEP["driver"]] in _PEOPLE
            if values[3] > total[2]:  # type: ignore[operator]
                total[2:5] = values[3], values[_STEP["ending"]], values[_STEP["success"]]
        elif flat.kind is RowKind.EVENT and values[_NAME] == EPISODE_ABORTED:
            totals.setdefault(values[:3], [0, 0, -1, None, None, 0])[5] = 1
    db.executemany(_ADD, [(*episode, *total) for episode, total in totals.items()])


def fill(db: sqlite3.Connection) -> None:
    """Count all rows of a store."""
    db.executemany(_ADD, db.execute(_COUNTED).fetchall())
    db.executemany(_ADD, db.execute(_ABORTED, (EPISODE_ABORTED,)).fetchall())


def check(db: sqlite3.Connection, removed_to: int) -> None:
    """Count again, except practice that began up to `removed_to`, a seq: it may be gone.

    Raises:
        sqlite3.DatabaseError: the table says something else.
    """
    own = sqlite3.connect(":memory:", isolation_level=None)
    own.execute(CREATE)
    own.executemany(_ADD, db.execute(_COUNTED).fetchall())
    own.executemany(_ADD, db.execute(_ABORTED, (EPISODE_ABORTED,)).fetchall())
    counted = {row[:3]: row for row in own.execute("SELECT * FROM results")}
    own.close()
    starts = "SELECT run, actor, episode FROM episodes WHERE seq <= ? AND purpose NOT IN ({})"
    gone = set(db.execute(starts.format(KEPT), (removed_to,)))
    kept = {row[:3]: row for row in db.execute("SELECT * FROM results")}
    for episode in kept.keys() | counted.keys():
        if episode not in gone and kept.get(episode) != counted.get(episode):
            raise sqlite3.DatabaseError(f"the figures of episode {episode} do not match its steps")


def episode_records(
    db: sqlite3.Connection, run: str | None, actor: str | None
) -> list[EpisodeRecord]:
    """The records of all episodes, or of those of a run and an actor, in commit order."""
    found = []
    for row in db.execute(_RECORDS, (run, actor)):
        number, (purpose, stamp_ns, seq, spec_hash, removed, *result) = row[:3], row[3:]
        steps, human, ending, success, aborted = result
        found.append(
            EpisodeRecord(
                id=EpisodeId(*number),
                purpose=purpose,
                steps=steps or 0,
                human_steps=human or 0,
                ending=_ended(ending, aborted),
                success=None if success is None else bool(success),
                stamp_ns=stamp_ns,
                seq=seq,
                spec_hash=spec_hash,
                removed=bool(removed),
            )
        )
    return found


def episode_ending(db: sqlite3.Connection, id: EpisodeId) -> Ending | None:
    """Why one episode ended: its last step says so, or an event that it was cut short."""
    found = db.execute(_ENDING, (id.run, id.actor, id.episode)).fetchone()
    return None if found is None else _ended(*found)


def _ended(ending: str | None, aborted: int | None) -> Ending | None:
    if ending is not None:
        if ending not in tuple(Ending):
            raise sqlite3.DatabaseError(f"an episode that ended by {ending!r}")
        return Ending(ending)
    return Ending.ABORTED if aborted else None
