"""What must be true of the machines of `simulation`, kept apart from the code that is judged."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.store.rows import FlatRow, Key, RowKind

Values = tuple[object, ...]


class Ledger:
    """Rows and weights: what was made, what somebody promised to keep, what was removed."""

    def __init__(self) -> None:
        self.made: set[tuple[Key, Values]] = set()  # rows that were ever handed to a store
        self.kept: dict[Key, Values] = {}  # that the robot's disk has promised to keep
        self.acknowledged: dict[Key, Values] = {}  # that the learner has promised to keep
        self.received: dict[Key, Values] = {}  # the same, of learners whose disk has lied, too
        self.removed: set[Values] = set()  # episodes of which the actor has removed rows
        self.published: dict[int, set[str]] = {}  # version of weights -> their hashes
        self.granted = ""  # lease that may move the arm
        self.trace: list[str] = []

    def require(self, holds: bool, what: str) -> None:
        """Raise `AssertionError` unless an invariant holds."""
        if not holds:
            raise AssertionError(what)

    def check_learner(self, rows: Sequence[FlatRow]) -> None:
        """Acknowledged rows are there once, and none was invented."""
        found = {row.key: row.values for row in rows}
        self.require(len(found) == len(rows), "a row is there twice")
        self.require({*found.items()} <= self.made, "a row was invented or has changed")
        lost = [key for key, values in self.acknowledged.items() if found.get(key) != values]
        self.require(not lost, f"acknowledged and gone: {lost[:3]}")

    def check_actor(self, rows: Sequence[FlatRow]) -> None:
        """What was committed on the robot's machine is there."""
        found = {row.key: row.values for row in rows}
        lost = [key for key, values in self.kept.items() if found.get(key) != values]
        self.require(not lost, f"committed by the actor and gone: {lost[:3]}")

    def remove(self, before: Sequence[FlatRow], left: Sequence[FlatRow]) -> None:
        """The actor has removed rows: its store before and afterwards."""
        headers = {row.values[:3]: row.values[3] for row in left if row.kind is RowKind.EPISODE}
        newest, kept = max(headers), {row.key for row in left}
        for row in before:
            if row.key in kept:
                continue
            episode = row.values[:3]
            is_there = self.received.get(row.key) == row.values
            self.require(is_there, f"removed, and the learner has not got it: {row.key}")
            self.require(row.kind in (RowKind.FRAME, RowKind.STEP), f"removed: {row.key}")
            self.require(headers[episode] != "demo", f"removed a demonstration: {row.key}")
            self.require(episode != newest, f"removed from the newest episode: {row.key}")
            self.removed.add(episode)
            self.kept.pop(row.key, None)
