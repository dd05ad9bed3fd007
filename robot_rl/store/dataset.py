"""Episodes of other runs as offline data: copied into a run's store, marked as such."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE, STORE
from robot_rl.errors import SpecError, StoreError
from robot_rl.spec import BASE, BASE_ACTION, Spec, told_apart
from robot_rl.store.daily import day_files
from robot_rl.store.days import Days
from robot_rl.store.labels import review
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import (
    Driver,
    EpisodeId,
    EpisodeStart,
    Event,
    Frame,
    Label,
    Observation,
    Row,
    Step,
)

log = logging.getLogger(__name__)

ROWS_PER_READ = 2048
NAMES = (STORE, LEARNER_STORE, ACTOR_STORE)  # of a run folder, the first that exists


class Annotator(Protocol):
    """What adds a base policy's proposals to frames; `policy.runtime.PolicyRuntime`."""

    def begin_episode(self) -> None:
        """Forget the last episode."""
        ...

    def annotate(self, observation: Observation) -> Observation:
        """The observation with what the base would do from here."""
        ...

    def interrupt(self) -> None:
        """Drop what was planned: somebody else drove."""
        ...


def import_dataset(
    store: Store,
    source: str,
    spec: Spec,
    policy: Annotator | None = None,
    *,
    only_successes: bool = False,
) -> int:
    """Copy every episode of `source` (run folder or store file) that fits `spec`.

    Evaluation episodes stay out; the others keep their identity and get the purpose "data". A row
    that is here already is left alone, so an interrupted import can be repeated. So is an event or
    a label by whose name and number something else was said here. Episodes recorded without the
    run's base policy are passed through it once, frame by frame; where the run has none, what
    another run's base said is left out. Returns the number of episodes.

    Args:
        spec: of the task; `store.spec` is that of the run, to which a base policy adds entries.
        policy: adds what the base policy says; None where the run has no base policy.
        only_successes: leave episodes out that did not succeed, as recorded and reviewed; those
            that are excluded or neutral as well. An episode that is here already stays, and hears
            what is said of it now.

    Raises:
        StoreError: there is no store; no episode that fits succeeded, and others are not wanted.
        SpecError: none of its episodes fits the spec of this run.
    """
    with open_store(Path(source)) as other:
        starts = [s for s in other.episodes() if s.purpose != "eval"]
        own = store.spec or spec
        accepted = {own.hash} if policy is None else {own.hash, spec.hash}
        based = other.spec
        if own.hash == spec.hash and based is not None and based.without_base().hash == spec.hash:
            accepted.add(based.hash)
        fitting = {s.id for s in starts if s.spec_hash in accepted}
        fitting -= {r.id for r in other.episode_summaries() if r.removed}
        if starts and not fitting:
            raise SpecError(
                f"the episodes of {source} belong to another observation or action",
                expected=f"spec {spec.hash}",
                got=told_apart(spec, other.spec),
                fix="record them with the same task settings as this run",
            )
        if only_successes:
            won = _successes(other) | {s.id for s in store.episodes()}
            if fitting and not fitting & won:
                raise StoreError(
                    f"no episode of {source} succeeded",
                    expected="episodes that succeed, as train.dataset_successes=true says",
                    got=f"{len(fitting)} episodes that fit, none of them a success after review",
                    fix="say in review which succeeded, or train.dataset_successes=false",
                )
            fitting &= won
        asked = policy if own.hash != spec.hash else None
        known = _frames_of(store, fitting) if asked else set()
        for rows in _read(other):
            chosen = [as_data(r) for r in rows if r.id in fitting and not _is_said(store, r)]
            if asked is not None:
                chosen = _annotated(chosen, own.hash, asked, known)
            elif own.hash == spec.hash:
                chosen = [_plain(r, own.hash) for r in chosen]
            store.append(chosen)
    log.info("%d episodes of offline data from %s", len(fitting), source)
    return len(fitting)


def _successes(store: Store) -> set[EpisodeId]:
    """Episodes that succeeded, with people's word on it; none that is excluded or neutral."""
    verdicts = ((r, review(store.labels(r.id))) for r in store.episode_summaries())
    return {r.id for r, said in verdicts if said.outcome(r.success) and not said.excluded}


def as_data(row: Row) -> Row:
    """The row of an episode that counts as recorded data, whatever it was recorded for."""
    return replace(row, purpose="data") if isinstance(row, EpisodeStart) else row


def _is_said(store: Store, row: Row) -> bool:
    """Whether the store has an event or a label of this identity, whatever it says."""
    return isinstance(row, Event | Label) and store.has(flatten(row).key)


def _plain(row: Row, spec_hash: str) -> Row:
    """`row` without what a base policy added."""
    if isinstance(row, EpisodeStart):
        return replace(row, spec_hash=spec_hash)
    if isinstance(row, Frame) and BASE_ACTION in row.observation:
        kept = {k: v for k, v in row.observation.items() if not k.startswith(BASE)}
        return replace(row, observation=kept)
    return row


def _frames_of(store: Store, episodes: set[EpisodeId]) -> set[tuple[EpisodeId, int]]:
    """Frames that an earlier import has brought: a base asked again might say something else."""
    here = episodes & {s.id for s in store.episodes()}
    return {(id_, frame.frame) for id_ in here for frame in store.frames(id_)}


def _annotated(
    rows: list[Row], spec_hash: str, policy: Annotator, known: set[tuple[EpisodeId, int]]
) -> list[Row]:
    """New rows with what the base proposes in each frame, as the loop would record it."""
    found: list[Row] = []
    for row in rows:
        if isinstance(row, EpisodeStart):
            policy.begin_episode()
            found.append(replace(row, spec_hash=spec_hash))
        elif isinstance(row, Frame) and BASE_ACTION not in row.observation:
            if (row.id, row.frame) not in known:
                found.append(replace(row, observation=policy.annotate(row.observation)))
        else:
            found.append(row)
        if isinstance(row, Step) and row.driver is not Driver.POLICY:
            policy.interrupt()
    return found


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
    """The store of a run folder, or a store file; of a deployment, all its days as one store.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    days = day_files(source)  # none beside a file
    if days:
        return Days(days)
    found = find_store(source)
    if found is None:
        raise StoreError(
            f"no data in {source}",
            expected=f"a store file, or a run folder with one of {', '.join(NAMES)}",
            got="neither" if source.exists() else "no such folder",
            fix="give the folder that robot-rl record, train or import wrote",
        )
    return Store(found)
