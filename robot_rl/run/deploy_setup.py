"""A trained run on another robot side: its experiment, whether it fits, and its policy."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config.compose import SHORT, compose, groups
from robot_rl.config.registry import build
from robot_rl.config.run_folder import CHECKPOINTS, POLICY
from robot_rl.errors import CheckpointError, ConfigError, SpecError
from robot_rl.run.experiment import GROUPS, SEVERAL, Experiment
from robot_rl.run.raised import is_own_run, refuse_raised
from robot_rl.safety.limits import Limits
from robot_rl.spec import diff
from robot_rl.tasks.gym import GymTask

if TYPE_CHECKING:
    from robot_rl.learn.checkpoint import Checkpoint
    from robot_rl.types import Weights

FIXED = ("experiment", "algo", "base", "task")
"""Groups that a policy was trained with: another choice would be another policy."""


def experiment_on(
    run: Path, words: Sequence[str], folder: Path, extra_dir: Path | None = None
) -> Experiment:
    """The experiment of a run with `words` on top (robot=PROFILE double=true ...), in `folder`.

    Limits are those of the run and of the named robot, whichever is narrower; values of the words
    replace both. Without a choice of who helps, a person does, at the operator's page; in lockstep
    nobody.

    Raises:
        ConfigError: no run, words that name nothing, a task, algorithm or robot of another kind,
            or limits above the robot's own, of a run that came from elsewhere.
        SpecError: what the policy would see or do differs from what it was trained on.
    """
    trained = Experiment.load(run, foreign_limits=True)
    config = copy.deepcopy({k: v for k, v in trained.config.items() if k not in SEVERAL})
    config["link"] = {"name": "local"}  # no learner, on whichever machine it was
    choices, values = _split(words, extra_dir)
    named = {word.partition("=")[0] for word in choices}
    if any(word.partition("=")[0].partition(".")[0] in SEVERAL for word in values):
        raise ConfigError(
            "a policy is deployed on one arm at a time",
            expected="words about that arm: robot=PROFILE ros.namespace=...",
            got=" ".join(words),
            fix="give the command once for each arm, each with its own --out and ros.domain_id",
        )
    if any(word.startswith("run_dir=") for word in values):
        raise ConfigError(
            "run_dir= does not say where a deployment is recorded",
            expected="--out FOLDER; without it RUN/deploy",
            got=" ".join(word for word in values if word.startswith("run_dir=")),
        )
    for group in named & set(FIXED):
        raise ConfigError(
            f"{group}= cannot be chosen for a policy that is there already",
            expected="words about the robot: robot=PROFILE double=true operator=... cameras....",
            got=next(w for w in choices if w.startswith(f"{group}=")),
            fix="leave it out; robot-rl train learns another policy",
        )
    if choices:
        plain, chosen = compose([], extra_dir), compose(choices, extra_dir)
        for key in (*GROUPS, "runtime"):
            if key in named or chosen.get(key) != plain.get(key):
                config[key] = chosen.get(key)
        if "robot" in named:
            config["safety"] = _narrowest(trained, chosen)
        config["ros"] = _graph(trained, config)
    if not named & {"operator"} and not any(w.startswith("operator.") for w in values):
        config["operator"] = _operator(config, trained, values)
    if values:
        _set(config, values, extra_dir)
    config["run_dir"] = str(folder)
    experiment = Experiment.from_dict(config)
    if not is_own_run(run):
        refuse_raised(experiment.limits_of_arms, words)
    _refuse_other(trained, experiment, run)
    return experiment


def _split(words: Sequence[str], extra_dir: Path | None) -> tuple[list[str], list[str]]:
    """Choices of groups (robot=ur5e_fzi), and values (safety.max_speed_m_s=0.05)."""
    known = set(groups(extra_dir))
    choices = [w for w in words if w.partition("=")[0] in known]
    return choices, [w for w in words if w not in choices]


def _set(config: dict[str, Any], words: Sequence[str], extra_dir: Path | None) -> None:
    """Put values into a composed config, as the command line of a training does."""
    read = compose(words, extra_dir)  # checks and parses them
    for word in words:
        key = word.partition("=")[0].lstrip("+~")
        path = SHORT.get(key, key).split(".")
        value: Any = read
        for part in path:
            value = value[part] if isinstance(value, Mapping) else None
        here = config
        for part in path[:-1]:
            here[part] = dict(here.get(part) or {})
            here = here[part]
        here[path[-1]] = value


def _operator(
    config: Mapping[str, Any], trained: Experiment, values: Sequence[str]
) -> dict[str, Any]:
    """Who helps when nobody says so: whoever helped in training, unless that was a script."""
    lockstep = "runtime=lockstep" in values
    if lockstep or (config["runtime"] == "lockstep" and "runtime=ros" not in values):
        return {"name": "none"}
    before = dict(trained.config.get("operator") or {})
    person = before.get("name") not in (None, "none", "scripted", "impatient")
    return before if person and not before.get("with_script") else {"name": "console"}


def _graph(trained: Experiment, config: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen graph with the values of a training in a graph of this kind (domain, remaps).

    Not whether a double stands in for the arm, nor what a person has accepted: that is said anew.
    """
    chosen, before = dict(config.get("ros") or {}), dict(trained.config.get("ros") or {})
    if before.get("name") != chosen.get("name"):
        return chosen
    kept = {k: v for k, v in before.items() if k not in ("double", "accept")}
    return {**kept, **{k: v for k, v in chosen.items() if k in ("double", "accept")}}


def _narrowest(trained: Experiment, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Limits of the named robot that are nowhere wider than those of the training."""
    given = {k: v for k, v in (chosen.get("safety") or {}).items() if k != "name"}
    other = Experiment.from_dict({**trained.config, "robot": chosen["robot"]})
    if other.robot.name != trained.robot.name:  # refused further down, with a better word
        return {"name": other.robot.name, **given}
    base = dataclasses.asdict(Limits.of(other.robot))
    theirs = build(Limits, base | given, "safety")
    both = dataclasses.asdict(theirs.within(trained.robot_limits))
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in both.items()}
    return {"name": other.robot.name, **plain}


def _refuse_other(trained: Experiment, experiment: Experiment, run: Path) -> None:
    """Raise unless the policy of `trained` may drive `experiment`."""
    if isinstance(experiment.task, GymTask):
        raise ConfigError(
            f"{run} is a run of a Gymnasium environment",
            expected="a run of a task with a robot",
            got=f"task={experiment.task.name}",
            fix="robot-rl eval measures it",
        )
    if experiment.robot.name != trained.robot.name:
        raise SpecError(
            f"the policy of {run} was trained with another arm",
            expected=f"robot: {trained.robot.name}",
            got=f"robot: {experiment.robot.name}",
            fix=f"a profile of the {trained.robot.name}, or train on the {experiment.robot.name}",
        )
    lines = diff(trained.spec.of_policy().as_dict(), experiment.spec.of_policy().as_dict())
    if lines:
        raise SpecError(
            f"the policy of {run} was trained to see or to do something else",
            expected="cameras, observation, actions and control rate of the training",
            got="trained -> here:\n    " + "\n    ".join(lines),
            fix="leave out the words that change them, or train with these words",
        )


def policy_weights(run: Path, experiment: Experiment, given: Path | None = None) -> Weights:
    """The policy of a run: `policy.safetensors`, or the newest checkpoint while there is none.

    given: another policy.safetensors, or the folder of a checkpoint, of the same run or not.

    Raises:
        CheckpointError: there is none, it is damaged, or made for another observation or action.
    """
    from robot_rl.learn.checkpoint import CheckpointFolder, read_checkpoint
    from robot_rl.policy.runtime import load_policy

    if given is None:
        checkpoint = None
        if not (run / POLICY).is_file():
            checkpoint = CheckpointFolder(run / CHECKPOINTS).load(experiment.spec.hash)
        if checkpoint is None:
            return load_policy(run, experiment.spec)
        return _of_checkpoint(checkpoint, experiment)
    if given.is_dir():
        return _of_checkpoint(read_checkpoint(given, experiment.spec.hash), experiment)
    if given.name != POLICY or not given.is_file():
        raise CheckpointError(
            f"no policy in {given}",
            expected=f"a file {POLICY} with its policy.json, or a folder of checkpoints/",
            got="another file" if given.is_file() else "no such file",
            fix=f"--policy RUN/{POLICY}, or --policy RUN/checkpoints/NUMBER",
        )
    return load_policy(given.parent, experiment.spec)


def _of_checkpoint(checkpoint: Checkpoint, experiment: Experiment) -> Weights:
    """The policy inside a learner's checkpoint, as its learner would have published it."""
    import safetensors.torch

    from robot_rl.types import Weights

    algo = experiment.algorithm.make(experiment.spec, experiment.seed)
    algo.load_state_dict(checkpoint.tensors)
    data = safetensors.torch.save({k: v.cpu().contiguous() for k, v in algo.actor_state().items()})
    version = int(checkpoint.facts.get("version", 0))
    return Weights(version, hashlib.sha256(data).hexdigest(), data)
