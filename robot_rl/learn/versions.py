"""Numbers of published weights: a version is one content for ever, whatever is restarted.

A learner that falls back to an older checkpoint counts its updates again from there, but not its
versions: rows, exports and a policy's facts name weights by version. Numbers are reserved on the
disk before the first of them is used, many at once, as a sync for each publication would slow down
a simulation. What a restart leaves of them is skipped.
"""

from __future__ import annotations

from typing import Any, Protocol

RESERVED = "weights_reserved"  # meta key: versions below it may have been published
AHEAD = 100  # reserved at once: some 50 s of training


class Kept(Protocol):
    """The part of `store.Store` that keeps values."""

    def meta(self, key: str) -> Any:
        """What is kept under `key`; None if nothing is."""
        ...

    def set_meta(self, key: str, value: Any) -> None:
        """Keep a value; it is on the disk when this returns."""
        ...


class Versions:
    """Counts 0, 1, 2 ...; after a restart from above every number that may have been given."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._reserved = int(kept.meta(RESERVED) or 0)
        self.newest = self._reserved - 1

    def next(self) -> int:
        """The next number. Raises `StoreError` when the disk does not take the reservation."""
        version = self.newest + 1
        if version >= self._reserved:
            self._kept.set_meta(RESERVED, version + AHEAD)
            self._reserved = version + AHEAD
        self.newest = version
        return version

    def at_least(self, version: int) -> None:
        """Go on above `version`: a checkpoint may know it where the store's end was lost."""
        self.newest = max(self.newest, version)
