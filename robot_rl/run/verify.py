"""Is everything in a run folder as it was written? Configuration, stores, checkpoints, policies.

Also what is not there is told, where the folder itself says that it once was: whoever lost a store
or the weights would not see it among lines that are all well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from robot_rl.config.run_folder import (
    ACTOR_STORE,
    ARMS,
    CHECKPOINTS,
    LEARNER_METRICS,
    LEARNER_STORE,
    METRICS,
    POLICY,
    STORE,
)
from robot_rl.config.yaml_file import UNFIT, read_yaml
from robot_rl.data.import_store import SUMMARY
from robot_rl.errors import ConfigError, ReadOnlyError, SetupError, UnknownNameError
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

    checks: dict[str, Check] = {"configuration": partial(_here, _configuration, run)}
    folders = {"": run} | {f"{ARMS}/{arm.name}/": arm for arm in sorted((run / ARMS).glob("*"))}
    for place, folder in folders.items():
        stores = [folder / name for name in (STORE, ACTOR_STORE, LEARNER_STORE)]
        for path in (*(p for p in stores if p.is_file()), *day_files(folder)):
            checks[place + path.name] = partial(_store, path, progress)
        for path in CheckpointFolder(folder / CHECKPOINTS).paths():
            checks[f"{place}{CHECKPOINTS}/{path.name}"] = partial(_checkpoint, path)
        if (folder / POLICY).is_file():
            checks[place + "policy"] = partial(_here, _policy, run, folder)
        for name, (says, fix) in _gone(run, folder).items():
            checks[place + name] = partial(_missing, name, says, fix)
    return checks


def _gone(run: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """What a folder once had and has no more -> (what says so, the fix)."""
    gone: dict[str, tuple[str, str]] = {}
    back = "put the file back from a copy; the episodes are nowhere else in this folder"
    kept = [folder / name for name in (STORE, ACTOR_STORE)]
    if not any(path.is_file() for path in kept) and not day_files(folder):
        if (folder / SUMMARY).is_file():
            gone[STORE] = (f"{SUMMARY} tells of an import", f"{back}, or import again")
        elif not _has_learner_store(run, folder) and _has_recorded(folder / METRICS):
            gone[STORE] = (f"{METRICS} tells of recorded episodes", back)
    stores = [folder / name for name in (STORE, LEARNER_STORE)]
    if not gone and _updates(folder) and not any(path.is_file() for path in stores):
        gone[LEARNER_STORE] = (f"{LEARNER_METRICS} tells of a learner", back)
    manifest = (folder / POLICY).with_suffix(".json")
    if manifest.is_file() and not (folder / POLICY).is_file():
        fix = (
            "put it back from a copy; robot-rl train with the same run_dir writes the newest again"
        )
        gone["policy"] = (f"{manifest.name} names a policy", fix)
    ended = manifest.is_file() and (folder / LEARNER_METRICS).is_file()
    if not any((folder / CHECKPOINTS).glob("*")) and (ended or _updates(folder) > _every(run)):
        fix = "put the folder back from a copy: without it the learner begins anew from the store"
        gone[CHECKPOINTS] = (f"{LEARNER_METRICS} tells of a learner that saved some", fix)
    return gone


def _missing(name: str, says: str, fix: str) -> Checked:
    return "fail", f"{name} is not there, and {says}", fix


def _has_learner_store(run: Path, folder: Path) -> bool:
    """Whether the rows of a folder are at the learner: an arm on a Ray cluster keeps none."""
    return any((place / LEARNER_STORE).is_file() for place in (folder, run))


def _has_recorded(metrics: Path) -> bool:
    """Whether a run has told of an episode that it stored; one of an evaluation is none."""
    if not metrics.is_file():
        return False
    with metrics.open(errors="replace") as lines:
        return any('"episode/' in line or '"demo_episode/' in line for line in lines)


def _updates(folder: Path) -> float:
    """How many updates the learner has told of."""
    path, newest = folder / LEARNER_METRICS, 0.0
    if path.is_file():
        with path.open(errors="replace") as lines:
            for line in lines:
                try:
                    newest = max(newest, float(json.loads(line)["learner/updates"]))
                except (ValueError, KeyError, TypeError):  # a torn line, or one of something else
                    continue
    return newest


def _every(run: Path) -> float:
    """Updates after which there is a checkpoint for certain; infinity where nobody can tell."""
    try:
        config = read_yaml(run / "config.yaml")["learner"]
        return float(config["checkpoint_updates"] or "inf")
    except (OSError, ConfigError, *UNFIT):
        return float("inf")


def _here(check: Callable[..., Checked], *where: Path) -> Checked:
    """A check that needs the run's own packages: where they are missing it says nothing."""
    try:
        return check(*where)
    except (UnknownNameError, SetupError) as error:
        return "warn", f"cannot be checked here: {error.summary}", error.fix


def _configuration(run: Path) -> Checked:
    return "ok", f"task {Experiment.load(run).task.name}", ""


def _store(path: Path, progress: Progress) -> Checked:
    try:
        with Store(path) as store:
            store.verify(progress)
            rows, episodes = store.last_seq(), store.episode_summaries()
    except ReadOnlyError as error:  # that says nothing of the rows
        return "warn", f"not read: {error.got}", error.fix
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
