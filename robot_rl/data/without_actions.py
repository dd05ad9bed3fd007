"""Imports whose actions are inferred: recordings of other systems, and arms guided by hand.

Each step whose action was inferred has a label of the source `inverse`, with how far the model's
parts disagree about it (`data.inverse`). So whoever looks at it later, or learns another model from
it, can tell it from a step whose command is known.

Of a run of ours the steps that a person drove are labelled: guided by hand they hold the motion
that was measured, which is not what has to be asked for. What a policy asked for is known, and so
is the gripper's command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import STORE
from robot_rl.data.episodes import choose, fingerprint, read, unbroken
from robot_rl.data.folder import Progress, silent
from robot_rl.data.import_store import no_files, write_import
from robot_rl.data.inverse import Inverse, need_run_of
from robot_rl.store.labels import ACTION_SPREAD, INVERSE, of_step
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Frame, Label, Row, Step

Rows = Callable[[EpisodeId], Sequence[Row]]


def write_inferred(
    out: Path,
    rows: Rows,
    inverse: Inverse,
    *,
    mark: Mapping[str, Any],
    figures: Mapping[str, Any],
    progress: Progress = silent,
    people_only: bool = False,
    files: Callable[[int], Mapping[str, str]] = no_files,
) -> dict[str, Any]:
    """`write_import` with the actions inferred; returns its figures, and how sure the model was.

    Args:
        rows: of an episode: frames and steps without a gap.
        people_only: leave the actions of steps that a policy drove as they are, and the gripper's
            command that a person gave.
        files: as in `write_import`.

    Raises:
        SpecError: a number in the frames is not finite.
        ConfigError: `out` holds something else.
        StoreError: the disk is full.
    """
    model = {
        "episodes": inverse.episodes,
        "steps": inverse.steps,
        "motion": round(inverse.overall, 4),
        "known": {name: round(value, 4) for name, value in inverse.known},
    }
    mark = {**mark, INVERSE: model}

    def inferred(id_: EpisodeId) -> list[Row]:
        return _inferred(rows(id_), inverse, people_only)

    @cache  # asked for import.json, and for what is returned
    def counted(path: Path) -> dict[str, Any]:
        with Store(path) as store:
            spread = [x.value for x in store.all_labels((ACTION_SPREAD,))]
            steps = sum(r.steps for r in store.episode_summaries())
        unsure = sum(value > inverse.sure for value in spread)
        return {"steps": steps, "inferred": len(spread), "unsure": unsure}

    write_import(
        out,
        inverse.spec,
        inferred,
        mark=mark,
        figures=figures,
        progress=progress,
        files=files,
        counted=counted,
    )
    return {"episodes": figures["episodes"], **counted(out / STORE)}


def _inferred(rows: Sequence[Row], inverse: Inverse, people_only: bool) -> list[Row]:
    """Rows of an episode, with a label for each action that was inferred."""
    action, spread = inverse.label([r for r in rows if isinstance(r, Frame)])
    found: list[Row] = []
    for row in rows:
        if not isinstance(row, Step) or (people_only and not row.driver.is_human):
            found.append(row)
            continue
        k, value = row.step, float(spread[row.step])
        said = action[k]
        if people_only and inverse.spec.action.gripper:
            said[-1] = row.action[-1]
        found.append(replace(row, action=said))
        found.append(
            Label(row.id, of_step(k), k, ACTION_SPREAD, value, INVERSE, INVERSE, row.stamp_ns)
        )
    return found


def import_run(
    source: Store,
    inverse: Inverse,
    out: Path,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write `out`/store.sqlite with the episodes of a run, as they are reviewed.

    Evaluation, aborted and excluded episodes and trimmed steps are left out, and an episode with a
    gap becomes several.

    Raises:
        SpecError: the run observes or does something else; a number is not finite.
        ConfigError: `out` holds something else.
        StoreError: there is no episode, or the disk is full.
    """
    spec = inverse.spec
    fix = "give the task settings with which it was recorded"
    need_run_of(source, spec, f"{source.path} is not a run of '{spec.task}'", fix)
    chosen = choose(source)
    pieces = [(c, i) for c in chosen for i in range(len(unbroken(read(source, c))))]
    mark = {"chosen": fingerprint(chosen)}

    def rows(id_: EpisodeId) -> list[Row]:
        one, index = pieces[id_.episode]
        piece = unbroken(read(source, one))[index]
        start = replace(piece.start, id=id_, purpose="demo", spec_hash=spec.hash)
        frames = [
            Frame(id_, k, f.stamp_ns, {name: f.observation[name] for name in spec.observation})
            for k, f in enumerate(piece.frames)
        ]
        steps = [
            replace(s, id=id_, step=k, frame=k, next_frame=k + 1) for k, s in enumerate(piece.steps)
        ]
        return [start, *frames, *steps]

    figures = {"source": str(source.path), "episodes": len(pieces)}
    return write_inferred(
        out, rows, inverse, mark=mark, figures=figures, progress=progress, people_only=True
    )
