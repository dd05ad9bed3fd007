"""Is everything in a run folder as it was written? Configuration, stores, checkpoints, policies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from robot_rl.config.run_folder import (
    ACTOR_STORE,
    ARMS,
    CHECKPOINTS,
    LEARNER_STORE,
    POLICY,
    STORE,
)
from robot_rl.run.experiment import Experiment
from robot_rl.store.daily import day_files
from robot_rl.store.store import Progress, Store, ignore
from robot_rl.system.machine import Checked

Check = Callable[[], Checked]


def parts(run: Path, progress: Progress = ignore) -> dict[str, Check]:
    """Name -> function that checks one part of a run folder, those of its arms included.

    progress: called with (rows read, rows in all) of the store that is being read.
    """
    from robot_rl.learn.checkpoint import CheckpointFolder  # needs torch; this module does not

    checks: dict[str, Check] = {"configuration": partial(_configuration, run)}
    folders = {"": run} | {f"{ARMS}/{arm.name}/": arm for arm in sorted((run / ARMS).glob("*"))}
    for place, folder in folders.items():
        stores = [folder / name for name in (STORE, ACTOR_STORE, LEARNER_STORE)]
        for path in (*(p for p in stores if p.is_file()), *day_files(folder)):
            checks[place + path.name] = partial(_store, path, progress)
        for path in CheckpointFolder(folder / CHECKPOINTS).paths():
            checks[f"{place}{CHECKPOINTS}/{path.name}"] = partial(_checkpoint, path)
        if (folder / POLICY).is_file():
            checks[place + "policy"] = partial(_policy, run, folder)
    return checks


def _configuration(run: Path) -> Checked:
    return "ok", f"task {Experiment.load(run).task.name}", ""


def _store(path: Path, progress: Progress) -> Checked:
    with Store(path) as store:
        store.verify(progress)
        rows, episodes = store.last_seq(), store.episode_summaries()
    removed = sum(episode.removed for episode in episodes)
    gone = f"; the steps of {removed} were removed, the learner has them" if removed else ""
    return "ok", f"{rows} rows of {len(episodes)} episodes, all intact{gone}", ""


def _checkpoint(path: Path) -> Checked:
    from robot_rl.learn.checkpoint import read_checkpoint

    found = read_checkpoint(path)
    size = sum(tensor.nbytes for tensor in found.tensors.values())
    return "ok", f"{len(found.tensors)} tensors, {size / 1e6:.1f} MB, all intact", ""


def _policy(run: Path, folder: Path) -> Checked:
    from robot_rl.policy.runtime import load_policy

    weights = load_policy(folder, Experiment.load(run).spec)
    return "ok", f"version {weights.version}, {len(weights.data) / 1e6:.1f} MB", ""
