"""Exports with one file per episode (MCAP, Rerun): finished files stay, the rest is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.data.episodes import Chosen, Episode, fingerprint, read, spec_of
from robot_rl.data.folder import ExportFolder, Progress, as_json, silent
from robot_rl.spec import Spec
from robot_rl.store.store import Store

LIST = "episodes.json"  # written last: then the export is complete


def write_episodes(
    store: Store,
    chosen: Sequence[Chosen],
    out: Path,
    *,
    kind: str,
    encode: Callable[[Episode, Spec], bytes],
    progress: Progress = silent,
) -> dict[str, int]:
    """Export to `out`/episode-000000.<kind> ...; the same call goes on after an interruption.

    Args:
        kind: end of the file names.
        encode: the file of an episode.

    Raises:
        ConfigError: `out` holds something else, or another export.
        StoreError: the disk is full.
    """
    spec = spec_of(store)
    identity = {"format": kind, "spec": spec.as_dict(), "episodes": fingerprint(chosen)}
    listed: list[dict[str, Any]] = []
    with ExportFolder(out, identity) as folder:
        for number, one in enumerate(chosen):
            name = f"episode-{number:06d}.{kind}"
            if not folder.has(name):
                episode = read(store, one)
                if episode.steps:
                    folder.write(name, encode(episode, spec))
            if folder.has(name):
                listed.append(_about(one, name))
            progress(number + 1, len(chosen))
        folder.write(LIST, as_json(listed))
    return {"episodes": len(listed), "steps": sum(row["steps"] for row in listed)}


def _about(one: Chosen, name: str) -> dict[str, Any]:
    id_ = one.start.id
    return {
        "file": name,
        "run": id_.run,
        "actor": id_.actor,
        "episode": id_.episode,
        "purpose": one.start.purpose,
        "ending": one.outcome.value,
        "steps": one.steps,
    }
