"""A store file for each day, for robots that work for days: `2026-11-24.sqlite`, in UTC.

Files are begun between two episodes, never in one, and nothing is deleted. `actor.sqlite` in the
same folder is a link to the newest one, so that whoever shows a run's store (review, the operator's
page) shows today's; whoever learns from it or exports it reads all of them (`days.Days`). Episodes
are numbered through all files.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from robot_rl.config.run_folder import ACTOR_STORE
from robot_rl.errors import StoreError
from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.store.writer import StoreWriter
from robot_rl.types import EpisodeId, Row

log = logging.getLogger(__name__)

_HAS = "SELECT 1 FROM episodes WHERE run=? AND actor=? AND episode=?"
DAYS = "[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9].sqlite"


def day_files(folder: Path) -> list[Path]:
    """The store files of a folder, oldest first."""
    return sorted(folder.glob(DAYS))


class DailyStore:
    """Today's store of a folder; `turn` begins the next one.

    Args:
        background: rows are committed by a thread (`StoreWriter`); False: by whoever records them.
        now_s: seconds since 1970, UTC.
        after: called after each commit of the thread.

    Raises:
        StoreError: no access, another spec, or a file that is no store.
    """

    def __init__(
        self,
        folder: Path,
        spec: Spec,
        *,
        background: bool = False,
        now_s: Callable[[], float] = time.time,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self.folder, self._spec, self._now_s = folder, spec, now_s
        self._background, self._after = background, after
        self._writer: StoreWriter | None = None
        self._told = ""  # a day that the clock named although a later one has begun
        self._open(self._day())

    @property
    def path(self) -> Path:
        """Today's file."""
        return self.store.path

    def record(self, rows: Iterable[Row]) -> None:
        """Keep rows. Raises as `StoreWriter.put` or `Store.append`."""
        if self._writer is None:
            self.store.append(rows)
        else:
            self._writer.put(rows)

    def lag(self) -> int:
        """Rows that are not committed yet."""
        return 0 if self._writer is None else self._writer.lag()

    def flush(self) -> None:
        """Wait until what was recorded is committed. Raises as `StoreWriter.flush`."""
        if self._writer is not None:
            self._writer.flush()

    def turn(self) -> bool:
        """Between two episodes: begin the file of a new day; True if there is one.

        Raises:
            StoreError: too little disk space for an episode, or the file cannot be made.
        """
        self.store.check_reserve()
        day = self._day()
        if day == self.path.stem:
            return False
        self.close()
        self._open(day)
        log.info("a new day: %s", self.path.name)
        return True

    def recover(self, run: str, actor: str) -> None:
        """Mark episodes that nobody ended as aborted, in the newest two files: see `Store`."""
        self.store.recover(run, actor)
        for path in day_files(self.folder)[-2:-1]:
            with Store(path) as before:
                before.recover(run, actor)

    @contextmanager
    def holding(self, id_: EpisodeId) -> Iterator[Store]:
        """The store of the day in which an episode began; today's where no other has it."""
        key = (id_.run, id_.actor, id_.episode)
        found = self.path
        for path in reversed(day_files(self.folder)):
            with Store(path) as store:
                if store.select(_HAS, key):
                    found = path
                    break
        if found == self.path:
            yield self.store
            return
        with Store(found) as store:
            yield store

    def close(self) -> None:
        """Commit what waits, and close the file."""
        with ExitStack() as stack:
            stack.callback(self.store.close)
            if self._writer is not None:
                stack.callback(self._writer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next_episode(self, run: str, actor: str) -> int:
        """First episode number that is not used in any of the files."""
        numbers = [self.store.next_episode(run, actor)]
        for path in day_files(self.folder):
            if path != self.path:
                with Store(path) as store:
                    numbers.append(store.next_episode(run, actor))
        return max(numbers)

    def _day(self) -> str:
        """Today; the newest file's day when the clock has been set back."""
        day = time.strftime("%Y-%m-%d", time.gmtime(self._now_s()))
        newest = max((path.stem for path in day_files(self.folder)), default=day)
        if day < newest and day != self._told:
            self._told = day
            log.warning(
                "the clock says %s, but %s.sqlite has been begun: it goes on in that file. If the "
                "clock was wrong then, move the file to a folder of its own; nothing is lost",
                day,
                newest,
            )
        return max(day, newest)

    def _open(self, day: str) -> None:
        self.store = Store(self.folder / f"{day}.sqlite", spec=self._spec)
        if self._background:
            self._writer = StoreWriter(self.store, after=self._after)
        self._link()

    def _link(self) -> None:
        """Let `actor.sqlite` lead to today's file; whole or as it was."""
        link = self.folder / ACTOR_STORE
        if link.exists() and not link.is_symlink():
            self.close()
            raise StoreError(
                f"{link} is a store of another kind of run",
                expected="a folder for a deployment: one store file for each day",
                got="a file that a training or an evaluation has written",
                fix="choose another folder",
            )
        new = link.with_name(f".{ACTOR_STORE}.{os.getpid()}")
        new.unlink(missing_ok=True)
        new.symlink_to(self.path.name)
        new.replace(link)
