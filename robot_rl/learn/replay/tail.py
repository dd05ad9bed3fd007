"""Which rows a learner need not read when it begins again: those that its replay would only forget.

A replay of 200,000 steps that reads a store of a million from its beginning forgets four fifths of
what it read. Which episodes these are follows from their numbers of steps: a full replay forgets
the oldest practice first (`Replay._evict`), so whatever lies before as many newer steps as it holds
is gone in the end. What is left is the same; the places differ, and with them the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.learn.replay.storage import OFFLINE
from robot_rl.store.summary import EpisodeRecord
from robot_rl.types import Ending, EpisodeId


@dataclass(frozen=True)
class Tail:
    """Where to begin to read.

    cursor: rows up to here need not be read, except those of the episodes `early`; gone: practice
    that is left out; env_steps: how many practice steps it had.
    """

    cursor: int = 0
    early: tuple[EpisodeId, ...] = ()
    gone: frozenset[EpisodeId] = frozenset()
    env_steps: int = 0


def tail_of(records: Sequence[EpisodeRecord], spec_hash: str, capacity: int) -> Tail:
    """Where a replay of `capacity` steps may begin. records: all episodes in commit order."""
    known = [r for r in records if r.spec_hash == spec_hash and r.purpose != "eval"]
    practice = [r for r in known if r.purpose not in OFFLINE]
    newest = {(r.id.run, r.id.actor): r.id for r in practice}.values()
    held = sum(r.steps for r in known if r.purpose in OFFLINE and r.ending is not Ending.ABORTED)
    first = len(practice)  # of the practice that is read
    while first and held < capacity:
        first -= 1
        held += practice[first].steps * (practice[first].ending is not Ending.ABORTED)
    if not first:
        return Tail()
    cursor = practice[first].seq - 1 if first < len(practice) else known[-1].seq
    left_out = [r for r in practice[:first] if r.id not in newest]
    early = [r.id for r in known if r.seq <= cursor and (r.purpose in OFFLINE or r.id in newest)]
    return Tail(
        cursor=cursor,
        early=tuple(early),
        gone=frozenset(r.id for r in left_out),
        env_steps=sum(r.steps for r in left_out),
    )
