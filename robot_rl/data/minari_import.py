"""Make a store from a Minari dataset (Farama's format of recorded Gymnasium episodes).

For the task of a Gymnasium environment whose observation has the same parts. Every step becomes a
demonstration. Rewards and endings are those of the environment that was recorded, and an episode
succeeded if its last `info` or its return says so (`GymTask.success`).

Minari makes an environment when a dataset does not say what its spaces are, from a module that the
dataset names. Such a dataset is refused: data must not choose what code is run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.data.folder import Progress, silent
from robot_rl.data.import_store import own_actions, write_import
from robot_rl.data.source_files import SourceFiles
from robot_rl.errors import SetupError, SpecError, StoreError
from robot_rl.tasks.gym import EnvState, GymTask
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Frame, Outcome, Row, Step

if TYPE_CHECKING:
    from minari import EpisodeData, MinariDataset

log = logging.getLogger(__name__)

METADATA = "metadata.json"
SPACES = ("observation_space", "action_space")


def is_minari(source: Path) -> bool:
    """Whether the folder is a Minari dataset, or the `data` in one."""
    return _metadata_file(source) is not None


def import_minari(
    source: Path, task: GymTask, out: Path, success: str = "", progress: Progress = silent
) -> dict[str, int]:
    """Write `out`/store.sqlite with every episode of the dataset; a repeated call goes on.

    Args:
        success: "last" = every episode succeeds at its last step, whatever was recorded.

    Raises:
        SetupError: `minari` is not installed.
        SpecError: another observation or action than the environment's.
        ConfigError: `out` holds something else.
        StoreError: the dataset is damaged, or the disk full.
    """
    file = _metadata_file(source)
    if file is None:
        raise StoreError(
            f"{source} is no Minari dataset",
            expected=f"{METADATA} in it, or in its folder `data`",
            got="no such file",
            fix="name the folder of the dataset, e.g. ~/.minari/datasets/D4RL/door/human-v2",
        )
    text = file.read_bytes()
    dataset = _open(file, text)
    _check(dataset, task)
    mark = {"info": hashlib.sha256(text).hexdigest()[:16], "success": success}
    figures = {"episodes": dataset.total_episodes, "steps": dataset.total_steps}

    def rows(id_: EpisodeId) -> list[Row]:
        return list(_rows(_episode(dataset, id_.episode), task, id_, success))

    said = {"source": str(source), **figures}
    known = SourceFiles(file.parent)
    paths = sorted(path for path in file.parent.rglob("*") if path.is_file())

    def files(_number: int) -> dict[str, str]:
        return known.digests(paths)

    write_import(out, task.spec, rows, mark=mark, figures=said, progress=progress, files=files)
    return figures


def _metadata_file(source: Path) -> Path | None:
    """The file that describes a dataset; None if this is none of Minari's."""
    for file in (source / METADATA, source / "data" / METADATA):
        if file.is_file():
            try:
                return file if "minari_version" in json.loads(file.read_text()) else None
            except ValueError:
                return None
    return None


def _open(file: Path, text: bytes) -> MinariDataset:
    try:
        import minari
    except ImportError as error:
        raise SetupError(
            "reading a Minari dataset needs the package minari",
            expected="import minari works",
            got=str(error),
            fix="pip install 'robot-rl[minari]'",
        ) from error
    lacking = [name for name in SPACES if name not in json.loads(text)]
    if lacking:
        raise StoreError(
            f"{file} does not say what the spaces of its environment are",
            expected=" and ".join(SPACES),
            got=f"no {' and no '.join(lacking)}",
            fix="record the dataset with minari 0.4 or newer; environments named by a dataset are "
            "not made, because a dataset must not choose what code is run",
        )
    try:
        return minari.MinariDataset(file.parent)
    except Exception as error:  # Minari promises nothing about what it raises
        raise _damaged(file.parent, error) from error


def _check(dataset: MinariDataset, task: GymTask) -> None:
    """Compare the spaces; say so where the environment has another name.

    Raises:
        SpecError: listing both sides of everything that differs.
    """
    spec = task.spec
    wrong = []
    for path, shape in task.parts():
        try:
            theirs = reduce(getitem, path, dataset.observation_space).shape
        except (KeyError, TypeError, AttributeError):
            theirs = None
        if theirs != shape:
            got = "nothing" if theirs is None else list(theirs)
            wrong.append(f"{'/'.join(path) or 'observation'}: {got} -> {list(shape)}")
    theirs = getattr(dataset.action_space, "shape", None) or ()
    if math.prod(theirs) != spec.action.size or not theirs:
        wrong.append(f"action: {dataset.action_space} -> {spec.action}")
    if wrong:
        raise SpecError(
            "the dataset belongs to another environment (theirs -> ours)",
            expected=f"what '{task.env_id}' observes and does",
            got="\n            ".join(wrong),
            fix="name the environment that was recorded: task.env_id=..., with its wrappers",
        )
    recorded = dataset.env_spec.id if dataset.env_spec else "an environment without a name"
    if recorded not in (task.env_id, task.name):
        log.info("recorded in %s, imported for %s: the spaces agree", recorded, task.env_id)


def _episode(dataset: MinariDataset, number: int) -> EpisodeData:
    try:
        return dataset[number]
    except Exception as error:  # h5py, pyarrow and pillow raise what they like
        raise _damaged(Path(dataset.storage.data_path), error, f"episode {number}: ") from error


def _damaged(folder: Path, error: Exception, where: str = "") -> StoreError:
    return StoreError(
        f"{folder} cannot be read",
        expected="a Minari dataset, whole",
        got=f"{where}{type(error).__name__}: {error}"[:300],
        fix="fetch the dataset again; its format may need a newer minari",
    )


def _rows(episode: EpisodeData, task: GymTask, id_: EpisodeId, success: str) -> Iterator[Row]:
    """Header, N + 1 frames and N steps."""
    count, spec = len(episode), task.spec
    actions = np.asarray(episode.actions)
    if count < 1 or len(actions) != count:
        raise SpecError(
            f"episode {id_.episode} of the dataset is not whole",
            expected="as many actions as rewards, and at least one",
            got=f"{len(actions)} actions, {count} rewards",
            fix="leave it out: minari's split and filter functions make a smaller dataset",
        )
    ours = own_actions(spec, actions, id_.episode)
    ending, won, rewards = _end(episode, task, success)
    yield EpisodeStart(
        id=id_,
        purpose="demo",
        task=spec.task,
        spec_hash=spec.hash,
        limits_hash="",
        seed=0,
        stamp_ns=0,
    )
    stamps_ns = [round(k * 1e9 / spec.control_hz) for k in range(count + 1)]
    for k, stamp_ns in enumerate(stamps_ns):
        state = EnvState.of(1e-9 * stamp_ns, _at(episode.observations, k))
        yield Frame(id_, k, stamp_ns, task.observe(state))
    for k in range(count):
        over = k == count - 1
        yield Step(
            id=id_,
            step=k,
            frame=k,
            next_frame=k + 1,
            segment=0,
            driver=Driver.DEMO,
            action=ours[k],
            policy_action=np.zeros_like(ours[k]),
            outcome=Outcome.PASS,
            reason="",
            reward=rewards[k],
            ending=ending if over else None,
            success=won if over else None,
            weights_version=-1,
            stamp_ns=stamps_ns[k],
        )


def _end(
    episode: EpisodeData, task: GymTask, success: str
) -> tuple[Ending, bool | None, list[float | None]]:
    """Why the episode ended, whether it succeeded, and the reward of each step."""
    if success == "last":
        return Ending.TERMINATED, True, [*[0.0] * (len(episode) - 1), 1.0]
    said = [float(r) for r in episode.rewards]
    rewards = [r if math.isfinite(r) else None for r in said]
    won = task.success(_last(episode.infos or {}), math.fsum(r or 0.0 for r in rewards), over=False)
    ending = Ending.TERMINATED if episode.terminations[-1] else Ending.TRUNCATED
    return ending, won, rewards


def _at(observations: Any, k: int) -> Any:
    """Observation `k` of an episode, as the environment gave it."""
    if isinstance(observations, Mapping):
        return {key: _at(value, k) for key, value in observations.items()}
    return observations[k]


def _last(infos: Mapping[str, Any]) -> dict[str, Any]:
    """The last `info`."""
    return {
        key: _last(value) if isinstance(value, Mapping) else value[-1]
        for key, value in infos.items()
        if isinstance(value, Mapping) or len(value)
    }
