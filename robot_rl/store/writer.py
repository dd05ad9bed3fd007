"""A thread between the control loop and the disk, so that no tick waits for a commit.

`put` checks and copies rows in the caller (0.1 ms for two 128x128 images) and returns; the thread
commits whatever has gathered in one transaction. Nothing is dropped silently: when the disk has
failed or the queue is full, the next `put` raises.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Self

from robot_rl.errors import RobotRLError, StoreError
from robot_rl.store.rows import FlatRow, RowKind
from robot_rl.store.store import Store
from robot_rl.types import Row

log = logging.getLogger(__name__)

QUEUE_BYTES = 256 << 20  # about 4 minutes of two 128x128 cameras at 10 Hz while a disk stalls


class StoreWriter:
    """Commits rows in the background, in the order of `put`. A kill loses at most `lag()` rows.

    Args:
        store: stays open and is not closed here.
        max_bytes: bound of the queue.
        after: called in the thread after each commit, for other work that may wait for the disk.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_bytes: int = QUEUE_BYTES,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self._store, self._max_bytes, self._after = store, max_bytes, after
        self._wake = threading.Condition()
        self._queue: list[FlatRow] = []
        self._queued_bytes = 0
        self._uncommitted = 0
        self._closing = False
        self._failure: RobotRLError | None = None
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def put(self, rows: Iterable[Row]) -> None:
        """Accept rows for writing and return at once; arrays are copied.

        Raises:
            StoreError: the disk has failed, the queue is full, the writer is closed, or a new
                episode was asked for on a nearly full disk. None of these rows is stored.
            SpecError, CodecError: a row does not fit the spec, or holds an invalid value.
        """
        self._require_working()
        flats = [self._store.prepare(row) for row in rows]
        if any(flat.kind == RowKind.EPISODE for flat in flats):
            self._store.check_reserve()
        size = sum(flat.size for flat in flats)
        with self._wake:
            self._require_working()
            if self._queued_bytes + size > self._max_bytes:
                raise StoreError(
                    "the disk is slower than the rows that arrive",
                    expected=f"at most {self._max_bytes >> 20} MB waiting for the disk",
                    got=f"{self._uncommitted} rows waiting",
                    fix="use a faster disk, or fewer or smaller images",
                )
            self._queue += flats
            self._queued_bytes += size
            self._uncommitted += len(flats)
            self._wake.notify_all()

    def lag(self) -> int:
        """Rows accepted and not yet committed."""
        with self._wake:
            return self._uncommitted

    def flush(self, timeout_s: float = 10.0) -> None:
        """Wait until every accepted row is committed.

        Raises:
            StoreError: the disk has failed, or `timeout_s` has passed.
        """
        with self._wake:
            done = self._wake.wait_for(
                lambda: self._uncommitted == 0 or self._failure is not None, timeout_s
            )
            waiting = self._uncommitted
        self._require_working(closed_is_fine=True)
        if not done:
            raise StoreError(
                "the disk did not take all rows in time",
                expected=f"all rows committed within {timeout_s:.1f} s",
                got=f"{waiting} rows waiting",
                fix="check the disk; a slow network share is no place for a run folder",
            )

    def close(self, timeout_s: float = 10.0) -> None:
        """Commit what is queued and end the thread; twice is fine. Raises like `flush`."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout_s)
        self.flush(timeout_s=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_working(self, closed_is_fine: bool = False) -> None:
        with self._wake:
            failure, closing, lost = self._failure, self._closing, self._uncommitted
        if failure is not None:
            raise StoreError(
                f"recording has stopped, {lost} rows are not stored: {failure.summary}",
                expected=failure.expected,
                got=failure.got,
                fix=f"{failure.fix}; then start the actor again",
            ) from failure
        if closing and not closed_is_fine:
            raise StoreError(
                "the store writer is closed",
                expected="put() before close()",
                got="put() after close()",
                fix="close the writer last",
            )

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._store.insert(batch)
                self._after()
            except Exception as error:  # whatever it is, the control loop must hear of it
                log.exception("the step store failed")
                with self._wake:
                    self._failure = _as_own(error)
                    self._wake.notify_all()
                return
            with self._wake:
                self._uncommitted -= len(batch)
                self._wake.notify_all()

    def _next_batch(self) -> list[FlatRow]:
        """Everything queued; empty once closing and drained."""
        with self._wake:
            self._wake.wait_for(lambda: self._queue or self._closing)
            batch, self._queue, self._queued_bytes = self._queue, [], 0
            return batch


def _as_own(error: Exception) -> RobotRLError:
    if isinstance(error, RobotRLError):
        return error
    return StoreError("unexpected failure", got=repr(error), fix="see the log")
