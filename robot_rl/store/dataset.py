"""Episodes of other runs as offline data: copied into a run's store, marked as such."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
    path = _store_of(Path(source))
    with Store(path) as other:
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


def _store_of(path: Path) -> Path:
    found = (
        path if path.is_file() else next((path / n for n in NAMES if (path / n).is_file()), None)
    )
    if found is None:
        raise StoreError(
            f"no data in {path}",
            expected=f"a store file, or a run folder with one of {', '.join(NAMES)}",
            got="neither",
            fix="name a run folder in train.dataset; robot-rl record makes one",
        )
    return found
