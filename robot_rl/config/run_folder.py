"""Names of the files in a run folder, and how its facts in JSON are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import ConfigError
from robot_rl.system import plain_json

RUN = "run.json"  # hash of the configuration, git, versions, the run's name
STORE = "store.sqlite"  # of a lockstep run
ACTOR_STORE = "actor.sqlite"  # of a run over ROS 2: the actor's side; old practice may be removed
LEARNER_STORE = "learner.sqlite"  # the learner's side
ARMS = "arms"  # of a run with several arms: a run folder for each
METRICS = "metrics.jsonl"  # one line for each episode
LEARNER_METRICS = "learner.jsonl"
EVALUATION = "eval.json"
POLICY = "policy.safetensors"
CHECKPOINTS = "checkpoints"  # folder: everything that the learner goes on from
CAMERAS = "cameras.json"  # size, crop and intrinsics of each camera of a run over ROS 2
LINK = "link.json"  # state of the link to a learner on another machine, every second
PAIRING = "pairing.json"  # on the learner's machine: where it listens, and for which robot
PREFLIGHT = "preflight.json"  # what was found of an arm's driver before the start
PLAN = "plan.json"  # what a deployment or a comparison is to do
DEPLOYMENT = "deploy.json"  # what a deployment has come to
COMPARISON = "comparison.json"  # what a comparison has come to; written when it has ended
DRAWS = "draws.jsonl"  # what was drawn for each episode of a randomised task, in lockstep
MIRROR = "mirror.jsonl"  # how far the mirror was from the arm, stretch by stretch
AT_WORK = ".process.json"  # behind a verb: which process works in the folder, and how it ended
PAUSED = "paused.json"  # while it is there, no episode begins
COMPATIBLE = "compatible"  # folder: who contradicts whom, and networks that say so at once
COMPATIBLE_EPISODES = "episodes.json"  # in it: how far each episode agrees with the base
SCENE_PICTURES = "scene"  # folder: pictures by which a person restores a scene

MAX_NAME = 256


def run_name(folder: Path) -> str:
    """The name under which the rows of a run are stored: that of its folder when it was made.

    So a folder that was moved or renamed goes on where it stopped.

    Raises:
        ConfigError: run.json is damaged, or names something that no folder is called.
    """
    path, name = folder / RUN, folder.resolve().name
    if path.is_file():
        name = read_facts(path).get("run", name)
    plain = isinstance(name, str) and len(name) < MAX_NAME and name.isprintable()
    if not plain or Path(name).name != name or name in ("", ".."):
        raise ConfigError(
            f"{path} gives the run a name that no folder has",
            expected="run: the name of the folder in which the run was made",
            got=repr(name)[:80],
            fix="restore the file; or take the key `run` out, if the folder has its first name",
        )
    return name


def read_facts(path: Path) -> dict[str, Any]:
    """What a file of JSON in a run folder says, which another machine may have written.

    Raises:
        ConfigError: it cannot be read, or holds something else than keys with values.
    """
    try:
        found = plain_json.loads(path.read_text())
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} is damaged",
            expected="keys and values in JSON, as robot-rl writes them",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="restore the file; if it is a result, delete it and repeat the command",
        ) from error
    return found


def config_hash(resolved: Mapping[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 over every value in force."""
    text = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
