"""Whose rows a key may bring: the identity in a row follows the key of the connection.

A key proves which machine speaks. What this machine may say follows from the run: rows of its own
actor, what people and its own models say of these episodes, and, for one key of the run, episodes
of other runs (`train.dataset`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robot_rl.store.labels import LEARNER_SOURCES
from robot_rl.store.rows import TABLES, FlatRow, RowKind
from robot_rl.types import ONLY_ACTOR

_SOURCE = [column.name for column in TABLES[RowKind.LABEL].columns].index("source")


class Roster:
    """The actors of a run.

    Args:
        actors: name of a key -> identity of the rows that it brings; other keys do not belong to
            the run. None = the key "actor" brings those of `ONLY_ACTOR`, any other its own.
        run: name of the run, if known.
        data_by: name of the key that brings episodes of other runs.
    """

    def __init__(
        self, actors: Mapping[str, str] | None = None, run: str = "", data_by: str = "actor"
    ) -> None:
        self._actors, self._data_by = actors, data_by
        self._runs = {run}

    def identity(self, key: str) -> str | None:
        """Identity of the actor that a key belongs to; None = to none of this run."""
        if self._actors is not None:
            return self._actors.get(key)
        return ONLY_ACTOR if key == "actor" else key

    def begins(self, run: str) -> None:
        """Note the name that an actor gives its run: folders may differ between two machines."""
        self._runs.add(run)

    def foreign(self, key: str, rows: Sequence[FlatRow]) -> str:
        """What a key may not bring among these rows, in words; "" = it may bring all of them."""
        own = self.identity(key)
        for row in rows:
            run, actor = row.values[:2]
            if actor != own and (key != self._data_by or self._is_ours(run)):
                return f"it brings a row of {actor!r} in run {run!r}"
            by_model = row.kind is RowKind.LABEL and row.values[_SOURCE] in LEARNER_SOURCES
            if by_model and self._is_ours(run):
                return f"it brings a label by {row.values[_SOURCE]!r}, which the learner gives"
        return ""

    def _is_ours(self, run: object) -> bool:
        return run in self._runs
