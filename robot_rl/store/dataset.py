"""Episodes of other runs as offline data: copied into a run's store, marked as such."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from robot_rl.errors import SpecError, StoreError
from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.types import EpisodeStart, Row

log = logging.getLogger(__name__)

ROWS_PER_READ = 2048
NAMES = ("store.sqlite", "learner.sqlite", "actor.sqlite")  # of a run folder, the first that exists


def import_dataset(store: Store, source: str, spec: Spec) -> int:
    """Copy every episode of `source` (run folder or store file) that fits `spec`.

    Evaluation episodes stay out; the others keep their identity and get the purpose "data". A row
    that is here already is left alone, so an interrupted import goes on. Returns the episodes.

    Raises:
        StoreError: there is no store.
        SpecError: none of its episodes fits the spec of this run.
    """
    with open_store(Path(source)) as other:
        path = other.path
        starts = [s for s in other.episodes() if s.purpose != "eval"]
        fitting = {s.id for s in starts if s.spec_hash == spec.hash}
        if starts and not fitting:
            raise SpecError(
                f"the episodes of {path} belong to another observation or action",
                expected=f"spec {spec.hash}",
                got=", ".join(sorted({s.spec_hash for s in starts})),
                fix="record them with the same task settings as this run",
            )
        for rows in _read(other):
            store.append([_as_data(r) for r in rows if r.id in fitting])
    log.info("%d episodes of offline data from %s", len(fitting), path)
    return len(fitting)


def _as_data(row: Row) -> Row:
    return replace(row, purpose="data") if isinstance(row, EpisodeStart) else row


def _read(store: Store) -> Iterator[list[Row]]:
    cursor = 0
    while True:
        rows, cursor = store.rows_since(cursor, ROWS_PER_READ)
        if not rows:
            return
        yield rows


def find_store(path: Path, names: Sequence[str] = NAMES) -> Path | None:
    """A store file, or the first of `names` that a run folder has; None when there is none."""
    paths = [path] if path.is_file() else [path / name for name in names]
    return next((p for p in paths if p.is_file()), None)


def open_store(source: Path) -> Store:
    """The store of a run folder, or a store file.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    found = find_store(source)
    if found is None:
        raise StoreError(
            f"no data in {source}",
            expected=f"a store file, or a run folder with one of {', '.join(NAMES)}",
            got="neither" if source.exists() else "no such folder",
            fix="give the folder that robot-rl record, train or import wrote",
        )
    return Store(found)
