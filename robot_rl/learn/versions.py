"""Numbers of published weights: one is never given to two contents, whatever is restarted.

A learner that falls back to an older checkpoint counts its updates again from there, but not its
versions: rows, exports and a policy's facts name weights by version for ever. So a mark that no
number has passed is kept on the disk; it is moved ahead by many at once, as a sync for each
publication would slow down a simulation. What a restart leaves unused of them is skipped.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

MARK = "weights_versions"  # meta key: no version above this one was published
AHEAD = 100  # versions for one sync: over a minute of publications at their usual pace


@runtime_checkable
class Meta(Protocol):
    """The part of `store.Store` that keeps values; `set_meta` is on the disk when it returns."""

    def meta(self, key: str) -> Any:
        """JSON value kept under `key`, None if absent."""

    def set_meta(self, key: str, value: Any) -> None:
        """Keep a JSON value under `key`."""


class Versions:
    """Counts 0, 1, 2 ...; after a restart on, above every number that may have been given.

    meta: where the mark is kept; None = nowhere: the rows are not on a disk either.
    """

    def __init__(self, meta: Meta | None) -> None:
        self._meta = meta
        mark = None if meta is None else meta.meta(MARK)
        self.newest = self._mark = -1 if mark is None else int(mark)

    def next(self) -> int:
        """The next number. Raises `StoreError` when the disk does not take a new mark."""
        if self._meta is not None and self.newest >= self._mark:
            mark = self.newest + AHEAD
            self._meta.set_meta(MARK, mark)
            self._mark = mark
        self.newest += 1
        return self.newest

    def at_least(self, version: int) -> None:
        """Go on above `version`: a checkpoint knows it, the store's mark may be lost."""
        self.newest = max(self.newest, version)
