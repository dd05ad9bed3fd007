"""The store files of a deployment, one for each day, read as one store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from robot_rl.store.rows import FlatRow
from robot_rl.store.store import READ_BYTES, Store
from robot_rl.store.summary import EpisodeRecord
from robot_rl.types import Ending, EpisodeId, EpisodeStart, Event, Frame, Label, Row, Step


class Days(Store):
    """What reads episodes finds those of all days, in their order; use from one thread.

    An episode is in one file, with what is said of it. Apart from the newest file one at a time is
    open, as a year has more of them than a process may open. What is not listed here, meta values
    for example, is that of the newest file.

    Args:
        files: of `daily.day_files`, at least one.

    Raises:
        StoreError: one of them cannot be read.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(files[-1])
        self._files, self._opened = list(files), Store(files[-1])
        self._file_of: dict[EpisodeId, Path] = {}
        self._ends: dict[Path, int] = {}  # of the days that are over
        for path in files[:-1]:
            day = self._day(path)
            self._ends[path] = day.last_seq()
            self._file_of |= dict.fromkeys((start.id for start in day.episodes()), path)

    def append(self, rows: Iterable[Row | FlatRow]) -> int:
        """As of one store, but a transaction for each episode."""
        new = 0
        for id_, some in groupby(rows, _id_of):
            new += self._holding(id_).append(some)
        return new

    def rows_since(
        self, cursor: int, limit: int, max_bytes: int = READ_BYTES
    ) -> tuple[list[Row], int]:
        """As of one store: the days follow one another."""
        before = 0
        for path in self._files:
            end = self._ends.get(path)
            if end is None or cursor < before + end:
                limit = limit if end is None else min(limit, before + end - cursor)
                rows, reached = self._day(path).rows_since(cursor - before, limit, max_bytes)
                return rows, before + reached
            before += end
        return [], cursor

    def episodes(
        self, run: str | None = None, actor: str | None = None, purpose: str | None = None
    ) -> list[EpisodeStart]:
        """As of one store."""
        return [start for day in self._each() for start in day.episodes(run, actor, purpose)]

    def episode_summaries(
        self, run: str | None = None, actor: str | None = None
    ) -> list[EpisodeRecord]:
        """As of one store."""
        return [record for day in self._each() for record in day.episode_summaries(run, actor)]

    def all_labels(self, kinds: Sequence[str] = (), after: int = 0) -> list[Label]:
        """As of one store; after: in each of its files."""
        return [label for day in self._each() for label in day.all_labels(kinds, after)]

    def steps(self, id: EpisodeId) -> list[Step]:
        """As of one store."""
        return self._holding(id).steps(id)

    def frames(self, id: EpisodeId) -> list[Frame]:
        """As of one store."""
        return self._holding(id).frames(id)

    def frame(self, id: EpisodeId, number: int) -> Frame | None:
        """As of one store."""
        return self._holding(id).frame(id, number)

    def events(self, id: EpisodeId) -> list[Event]:
        """As of one store."""
        return self._holding(id).events(id)

    def labels(self, id: EpisodeId) -> list[Label]:
        """As of one store."""
        return self._holding(id).labels(id)

    def ending(self, id: EpisodeId) -> Ending | None:
        """As of one store."""
        return self._holding(id).ending(id)

    def next_label(self, id: EpisodeId, author: str) -> int:
        """As of one store."""
        return self._holding(id).next_label(id, author)

    def close(self) -> None:
        """Close the files that are open; twice is fine."""
        self._opened.close()
        super().close()

    def _day(self, path: Path) -> Store:
        """The store of one file."""
        if self._opened.path != path:
            self._opened.close()
            self._opened = Store(path)
        return self._opened

    def _each(self) -> Iterator[Store]:
        return map(self._day, self._files)

    def _holding(self, id_: EpisodeId) -> Store:
        """The store that an episode is in: the newest, where it is in none of the others."""
        return self._day(self._file_of.get(id_, self._files[-1]))


def _id_of(row: Row | FlatRow) -> EpisodeId:
    return EpisodeId(*row.values[:3]) if isinstance(row, FlatRow) else row.id  # type: ignore[arg-type]
