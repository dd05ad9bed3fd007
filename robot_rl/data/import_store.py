"""The store that an import makes: complete or not there.

`train.dataset=FOLDER` takes it like that of another run. It gets its final name when all episodes
are in it; until then a repeated command goes on where it was.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import STORE
from robot_rl.data.folder import Progress, as_json, write_file
from robot_rl.errors import ConfigError, SpecError
from robot_rl.spec import BoxActionSpec, Spec, told_apart
from robot_rl.store.dataset import find_store
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, EpisodeStart, Frame, Row

log = logging.getLogger(__name__)

ACTOR = "import"  # in place of an actor's name
UNFINISHED = "import.unfinished.sqlite"
SUMMARY = "import.json"
Judge = Callable[[Sequence[Row]], list[Row]]
"""Says of an episode's rows where it ends, and whether it succeeded."""

FILES = "files"  # in what the store says of its import: file -> digest, of the episodes in it
SOURCE = "source"  # there: where the dataset is

RANGE = 1.0 + 1e-4  # of an action, with room for rounding to float32


def no_files(_episode: int) -> Mapping[str, str]:
    """Of data that is not read from files of its own."""
    return {}


def _nothing(_store: Path) -> Mapping[str, Any]:
    return {}


def write_import(
    out: Path,
    spec: Spec,
    rows: Callable[[EpisodeId], Sequence[Row]],
    *,
    mark: Mapping[str, Any],
    figures: Mapping[str, Any],
    progress: Progress,
    files: Callable[[int], Mapping[str, str]] = no_files,
    counted: Callable[[Path], Mapping[str, Any]] = _nothing,
) -> None:
    """Write `out`/store.sqlite with every episode; a repeated call goes on.

    Args:
        rows: of an episode; asked for the episodes that are not in the store.
        mark: JSON values that tell this import from another.
        figures: for import.json; "episodes" is how many there are, "source" where they are from.
        files: of an episode: the files from which it is read -> digests of what they hold.
        counted: more figures for import.json, which only the finished store tells.

    Raises:
        ConfigError: `out` holds something else, or other data was imported there.
        StoreError: the disk is full.
    """
    count, source = figures["episodes"], str(figures[SOURCE])
    if not _is_complete(out, spec, mark, files, count):
        with _begin(out, spec, mark, files, source) as store:
            read_from = dict(store.meta(ACTOR)[FILES])
            for number in range(count):
                id_ = EpisodeId(out.resolve().name, ACTOR, number)
                if store.ending(id_) is None:
                    found = sorted(rows(id_), key=_when)
                    its_files = files(number)
                    if not its_files.items() <= read_from.items():
                        read_from |= its_files  # first: an episode's files are always known
                        store.set_meta(ACTOR, {**mark, FILES: read_from, SOURCE: source})
                    store.append(found)
                progress(number + 1, count)
        (out / UNFINISHED).replace(out / STORE)
    elif (out / SUMMARY).is_file():
        return
    write_file(out / SUMMARY, as_json({**mark, **figures, **counted(out / STORE)}))


def _when(row: Row) -> float:
    """Where a row of an episode stands if a control loop records it: each step after its frame.

    A base policy that is asked about the rows in turn thus notices that a person drives.
    """
    if isinstance(row, EpisodeStart):
        return -1.0
    if isinstance(row, Frame):
        return row.frame
    return math.inf if row.step is None else row.step + 0.5


def own_actions(
    spec: Spec, values: NDArray[Any], episode: int, *, ours: bool = False
) -> NDArray[np.float32]:
    """Recorded actions [N, ...] as [N, A] in [-1, 1].

    ours: they were recorded by us; else those of a Gymnasium environment are in its own units.

    Raises:
        SpecError: they lie outside of the bounds, or are not finite.
    """
    actions = values.reshape(len(values), -1).astype(np.float32)
    lowest, highest = actions.min(axis=0), actions.max(axis=0)
    bounds = "in [-1, 1]"
    good = np.abs(actions) <= RANGE
    if isinstance(spec.action, BoxActionSpec) and not ours:
        bounds = "in the environment's units"
        room = (RANGE - 1.0) * (np.array(spec.action.high) - spec.action.low)
        good = (actions >= spec.action.low - room) & (actions <= spec.action.high + room)
        actions = spec.action.action(actions.astype(np.float64))
    if not good.all():
        raise SpecError(
            f"the actions of episode {episode} are not those of '{spec.task}'",
            expected=f"{spec.action.size} entries {bounds}: {spec.action}",
            got=f"from {lowest.tolist()} to {highest.tolist()}",
            fix="convert them to the action of the task first; see docs/data.md",
        )
    return actions


def _is_complete(
    out: Path,
    spec: Spec,
    mark: Mapping[str, Any],
    files: Callable[[int], Mapping[str, str]],
    count: int,
) -> bool:
    """Whether this import was finished here. Raises `ConfigError` if `out` holds something else."""
    other = find_store(out)
    if other is None:
        return False
    with Store(other) as store:
        before, theirs = store.meta(ACTOR), store.spec
    _require_same(other, before, mark)
    if theirs is None or theirs.hash != spec.hash:
        raise SpecError(
            f"{out} holds the same data for another observation or action",
            expected=f"an import for '{spec.task}', spec {spec.hash}",
            got=told_apart(spec, theirs),
            fix="give the experiment for which it was imported, or choose another folder: --out",
        )
    if FILES not in before:
        log.warning("%s does not say from which files it is: an older version made it", out)
        return True
    changed = _changed(before[FILES], _digests(files, range(count)))
    if changed:
        raise _other_data(out, changed)
    return True


def _begin(
    out: Path,
    spec: Spec,
    mark: Mapping[str, Any],
    files: Callable[[int], Mapping[str, str]],
    source: str,
) -> Store:
    """The unfinished store, new or as an interruption left it.

    Where files were repaired or replaced in the meantime it is made anew: nobody has worked with
    it, and what is in it may be of either.
    """
    path, known = out / UNFINISHED, {}
    store = Store(path, spec=spec)
    if store.last_seq():
        with _closed_on_error(store):
            before = store.meta(ACTOR)
            _require_same(path, before, mark)
            now = _digests(files, [s.id.episode for s in store.episodes()])
            known = before.get(FILES)
            changed = _changed({n: known.get(n) for n in now}, now) if known is not None else []
            if changed and before.get(SOURCE) != source:
                raise _other_data(out, changed)
        if changed:
            log.warning("%s changed: the import begins again", ", ".join(changed[:3]))
            store.close()
            for old in out.glob(UNFINISHED + "*"):  # with what SQLite keeps beside it
                old.unlink()
            return _begin(out, spec, mark, files, source)
        if known is None:
            log.warning("an older version began this import; is the dataset still the same?")
            known = now
    store.set_meta(ACTOR, {**mark, FILES: known, SOURCE: source})
    return store


def _digests(files: Callable[[int], Mapping[str, str]], numbers: Iterable[int]) -> dict[str, str]:
    """File -> digest, of these episodes."""
    return {name: digest for number in numbers for name, digest in files(number).items()}


@contextmanager
def _closed_on_error(store: Store) -> Iterator[None]:
    try:
        yield
    except BaseException:
        store.close()
        raise


def _changed(was: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """Files that hold something else than when they were imported, or are new or gone."""
    return sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))


def _other_data(out: Path, changed: Sequence[str]) -> ConfigError:
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return ConfigError(
        f"{out} holds another dataset",
        expected="the files that were imported there, unchanged",
        got=f"something else in {', '.join(changed[:3])}{more}",
        fix="choose another folder: --out FOLDER; nothing was changed in this one",
    )


def _require_same(path: Path, before: Any, mark: Mapping[str, Any]) -> None:
    said = before if isinstance(before, dict) else {}
    if {k: v for k, v in said.items() if k not in (FILES, SOURCE)} != mark:
        raise ConfigError(
            f"{path.parent} holds something else",
            expected="an empty folder, or the same import, which goes on",
            got="another import" if before else "the store of a run",
            fix="choose another folder: --out FOLDER",
        )
