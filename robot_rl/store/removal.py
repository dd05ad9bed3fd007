"""What an actor's store removes, so that its file does not grow for ever.

Removed are the frames, the steps and the scores of whole practice episodes, oldest first, once the
learner has them all and the file holds more than it may. What stays: demonstrations, data, the
newest episodes, episodes that are set aside, and of every episode its header, its figures, its
events and what people said of it. So numbers, lists and tallies are as before, and what a new
learner can still be sent is what its replay would hold (`replay.tail`): demonstrations and the
newest practice.

Meta key FORGOTTEN is the commit number of the newest row that was removed: up to it there may be
gaps, behind it there are none. BOUNDARY is the identity of that row: a learner that has it has
everything before it, too, because rows are sent in commit order. Both are written in the
transaction that removes the first rows of an episode; a process that dies in the middle of an
episode finds there which one it has to finish.

The file: space that was freed takes the next rows. Where much more is free, as after a night
without a learner, pages are given back from the end of the file. Rows stay in one file, and are not
in a file per day or per million rows, because everybody who reads a run would have to know of all
of them, while a store of one file is bounded without that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

from robot_rl.store import schema
from robot_rl.store.labels import MODEL_REWARD, PROGRESS, PROGRESS_CHANGE, SUCCESS_SCORE
from robot_rl.store.rows import TABLES, Key, RowKind, Value
from robot_rl.store.summary import FORGOTTEN, KEPT, REMOVED

BOUNDARY = "forgotten_row"  # meta key
BATCH_BYTES = 4 << 20  # of pictures in one transaction: some milliseconds
BATCH_ROWS = 256
SPARE_BYTES = 64 << 20  # what may be free in the file before it is made shorter
BATCH_PAGES = 256  # given back in one transaction: each may have to be copied

_SCORES = ", ".join(f"'{k}'" for k in (SUCCESS_SCORE, PROGRESS, PROGRESS_CHANGE, MODEL_REWARD))
_OF = "run=?1 AND actor=?2 AND episode=?3"
_NEXT = f"""
SELECT run, actor, episode, seq FROM episodes AS e
WHERE seq > ?1 AND seq < (
  SELECT min(seq) FROM (SELECT seq FROM episodes ORDER BY seq DESC LIMIT ?2)
)
AND purpose NOT IN ({KEPT})
AND EXISTS (
  SELECT 1 FROM frames AS f WHERE f.run=e.run AND f.actor=e.actor AND f.episode=e.episode
) ORDER BY seq
"""
_LAST = " UNION ALL ".join(
    f"SELECT max(seq) AS seq, {int(kind)} AS kind FROM {TABLES[kind].name} WHERE {_OF}"
    for kind in (RowKind.FRAME, RowKind.STEP)
)
_HEADERS = "SELECT count(*) FROM episodes WHERE seq > ? AND seq < ?"
_SCORES_BEFORE_THE_LAST = f"""
SELECT seq FROM labels WHERE {_OF} AND kind IN ({_SCORES}) AND seq <= ?4
AND step < (SELECT last_step FROM results WHERE {_OF}) LIMIT {BATCH_ROWS}
"""
_ROWS_LEFT = f"""
SELECT EXISTS(SELECT 1 FROM steps WHERE {_OF}) OR EXISTS(SELECT 1 FROM frames WHERE {_OF})
OR EXISTS({_SCORES_BEFORE_THE_LAST})
"""
_FOLLOWING = "SELECT min(seq) FROM ({})".format(
    " UNION ALL ".join(
        f"SELECT min(seq) AS seq FROM {t.name} WHERE seq > ?1" for t in TABLES.values()
    )
)
_REMOVED = f"""
SELECT e.run, e.actor, e.episode FROM episodes AS e JOIN results AS r
ON r.run=e.run AND r.actor=e.actor AND r.episode=e.episode WHERE {REMOVED}
"""

Episode = tuple[Value, ...]
"""(run, actor, episode)."""


class Limits(NamedTuple):
    """How much stays: bytes of the file that are in use, and newest episodes in any case."""

    keep_bytes: int
    keep_episodes: int


def removed_to(db: sqlite3.Connection) -> int:
    """Commit number up to which rows may have been removed, 0 = none was."""
    return schema.read_number(db, FORGOTTEN)


def boundary(db: sqlite3.Connection) -> Key | None:
    """Identity of the newest row that was removed."""
    found = schema.read_meta(db, BOUNDARY)
    if found is None:
        return None
    if not isinstance(found, list) or [type(v) for v in found] != [int, str, str, int, int]:
        raise sqlite3.DatabaseError(f"the value of {BOUNDARY!r} is not the identity of a row")
    return tuple(found)


def removed_episodes(db: sqlite3.Connection) -> set[Episode]:
    """Episodes whose steps were removed, wholly or in part."""
    return set(db.execute(_REMOVED))


def following(db: sqlite3.Connection, seq: int) -> int | None:
    """Commit number of the first row behind `seq`."""
    return db.execute(_FOLLOWING, (seq,)).fetchone()[0]


def used_bytes(db: sqlite3.Connection) -> int:
    """Bytes of the file that hold something."""
    return (_pragma(db, "page_count") - _pragma(db, "freelist_count")) * _pragma(db, "page_size")


def candidate(
    db: sqlite3.Connection, limits: Limits, acked: int, aside: Collection[Episode]
) -> tuple[Episode, Key | None, int] | None:
    """What is to be removed next: episode, identity and number of its newest row; None = nothing.

    acked: commit number up to which the learner has every row; aside: episodes that it has not. An
    episode whose removal has begun has None for the identity: that is written down.
    """
    begun = boundary(db)
    if begun is not None and _rows_left(db, begun[1:4]):
        return begun[1:4], None, removed_to(db)
    if used_bytes(db) <= limits.keep_bytes:
        return None
    for *episode, header in db.execute(_NEXT, (removed_to(db), max(1, limits.keep_episodes))):
        if tuple(episode) in aside:
            continue
        end, kind = max(row for row in db.execute(_LAST, episode) if row[0] is not None)
        (between,) = db.execute(_HEADERS, (header, end)).fetchone()
        if end > acked or between:  # a store of several actors: nothing is removed
            return None
        table = TABLES[RowKind(kind)]
        index = f"SELECT {table.columns[3].name} FROM {table.name} WHERE seq=?"
        (number,) = db.execute(index, (end,)).fetchone()
        return tuple(episode), (kind, *episode, number), end
    return None


def remove(db: sqlite3.Connection, episode: Episode, key: Key | None, end: int) -> None:
    """Remove some rows of a `candidate`, the first first."""
    if key is not None:
        schema.write_meta(db, FORGOTTEN, end)
        schema.write_meta(db, BOUNDARY, key)
    steps = f"SELECT seq FROM steps WHERE {_OF} ORDER BY step LIMIT {BATCH_ROWS}"
    _delete(db, RowKind.STEP, db.execute(steps, episode).fetchall())
    frames = f"SELECT seq, length(observation) FROM frames WHERE {_OF} ORDER BY frame LIMIT ?4"
    chosen, size = [], 0
    for seq, length in db.execute(frames, (*episode, BATCH_ROWS)):
        chosen.append((seq,))
        size += length
        if size >= BATCH_BYTES:
            break
    _delete(db, RowKind.FRAME, chosen)
    scores = db.execute(_SCORES_BEFORE_THE_LAST, (*episode, end)).fetchall()
    _delete(db, RowKind.LABEL, scores)


def has_spare_pages(db: sqlite3.Connection) -> bool:
    """Whether the file is much longer than it need be, and can be made shorter."""
    spare = _pragma(db, "freelist_count") * _pragma(db, "page_size")
    return spare > SPARE_BYTES and _pragma(db, "auto_vacuum") == schema.INCREMENTAL


def give_back(db: sqlite3.Connection) -> None:
    """Make the file some pages shorter."""
    for _ in range(BATCH_PAGES):  # one by one: Python's sqlite3 does not go on with this PRAGMA
        db.execute("PRAGMA incremental_vacuum(1)")


def _rows_left(db: sqlite3.Connection, episode: Episode) -> bool:
    """Whether an episode that is being removed still has rows that are to go."""
    return bool(db.execute(_ROWS_LEFT, (*episode, removed_to(db))).fetchone()[0])


def _delete(db: sqlite3.Connection, kind: RowKind, seqs: list[tuple[int]]) -> None:
    db.executemany(f"DELETE FROM {TABLES[kind].name} WHERE seq=?", seqs)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return db.execute(f"PRAGMA {name}").fetchone()[0]
