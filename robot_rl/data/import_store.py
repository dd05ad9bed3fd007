"""The store that an import makes: complete or not there.

`train.dataset=FOLDER` takes it like that of another run. It gets its final name when all episodes
are in it; until then a repeated command goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import STORE
from robot_rl.data.folder import Progress, as_json, write_file
from robot_rl.errors import ConfigError, SpecError
from robot_rl.spec import BoxActionSpec, Spec
from robot_rl.store.dataset import find_store
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Row

ACTOR = "import"  # in place of an actor's name
UNFINISHED = "import.unfinished.sqlite"
SUMMARY = "import.json"
Judge = Callable[[Sequence[Row]], list[Row]]
"""Says of an episode's rows where it ends, and whether it succeeded."""

RANGE = 1.0 + 1e-4  # of an action, with room for rounding to float32


def write_import(
    out: Path,
    spec: Spec,
    rows: Callable[[EpisodeId], Sequence[Row]],
    *,
    mark: Mapping[str, Any],
    figures: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Write `out`/store.sqlite with every episode; a repeated call goes on.

    Args:
        rows: of an episode; asked for the episodes that are not in the store.
        mark: JSON values that tell this import from another.
        figures: for import.json; "episodes" is how many there are.

    Raises:
        ConfigError: `out` holds something else.
        StoreError: the disk is full.
    """
    if not _is_complete(out, mark):
        with _begin(out, spec, mark) as store:
            for number in range(figures["episodes"]):
                id_ = EpisodeId(out.resolve().name, ACTOR, number)
                if store.ending(id_) is None:
                    store.append(rows(id_))
                progress(number + 1, figures["episodes"])
        (out / UNFINISHED).replace(out / STORE)
    write_file(out / SUMMARY, as_json({**mark, **figures}))


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


def _is_complete(out: Path, mark: Mapping[str, Any]) -> bool:
    """Whether this import was finished here. Raises `ConfigError` if `out` holds something else."""
    other = find_store(out)
    if other is None:
        return False
    with Store(other) as store:
        _require_same(other, store.meta(ACTOR), mark)
    return True


def _begin(out: Path, spec: Spec, mark: Mapping[str, Any]) -> Store:
    """The unfinished store, new or as an interruption left it."""
    path = out / UNFINISHED
    store = Store(path, spec=spec)
    if store.last_seq():
        _require_same(path, store.meta(ACTOR), mark)
    store.set_meta(ACTOR, dict(mark))
    return store


def _require_same(path: Path, before: Any, mark: Mapping[str, Any]) -> None:
    if before != mark:
        raise ConfigError(
            f"{path.parent} holds something else",
            expected="an empty folder, or the same import, which goes on",
            got="another import" if before else "the store of a run",
            fix="choose another run_dir=...",
        )
