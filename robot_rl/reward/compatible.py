"""Where one person's demonstrations contradict another's (Gandhi et al., arXiv 2210.08073).

    ensemble        5 networks, cloned from the base demonstrations: out_i(s)
    mean, spread    mu(s) = mean_i out_i(s),   spread(s)^2 = mean_i |out_i(s) - mu(s)|^2
    far             |a - mu(s)|^2
    compatible      1 - min(far / lambda, 1)   where the ensemble is sure, spread(s) < eta
                    1                          where it is not: a new state is welcome
    of an episode   the mean over the steps that people drove where the ensemble is sure; else 1

Two people who solve a task in two ways are two teachers who contradict each other: a policy that
clones both does neither. Where they merely visit other states, both are worth having.

Nobody chooses eta and lambda. Some of the base episodes are held out, and say what the same person
does where the ensemble has not looked: eta is the `SURE` quantile of the spread there, lambda the
`FAR` quantile of the distance of the steps at which it is sure. An episode contradicts the base if
it is less compatible than the `USUAL` quantile of those episodes.

The gripper. Its command is one of close, keep, open; taken as a number, a hand that closes a tick
later would be further off than any motion can be. So it enters as three numbers, 1 for the command
that was given and 0 for the others, against the probabilities that the network gives them. Halved,
their squared distance is at most 1, and little where the base itself varies when to close.

All of this is numpy: the console judges each new step with it and needs no torch
(`console.compatible`). How the networks are cloned is in `compatible_train`.

Deviations: the paper takes lambda and eta as numbers to be tuned. It counts new states as
compatible in the mean of an episode, too; but whoever passes an obstacle on the other side
contradicts the base in few steps and is then where it has never been: that made up for it
(docs/results.md). It also has the person demonstrate again at once; here they see a bar, and go on.
Pictures are not looked at: a run with cameras is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.spec import Spec, gripper_index
from robot_rl.system import plain_json
from robot_rl.system.files import replace_json, write_synced

MEMBERS = 5
SURE, FAR = 0.95, 0.95  # quantiles of held-out steps; see the module
USUAL = 0.05  # quantile of held-out episodes
GRIPPER = 3  # close, keep, open
SCALED_LIMIT = 10.0  # standard deviations of a number of the state, as `nets.observation`
LAYER_NORM_EPS = 1e-6  # as `nets.ensemble`
LEAST_KNOWN = 5  # steps: with fewer on known ground nothing is said of an episode
NAME = "ensemble"  # of the two files
FORMAT = 1
MOST_LAYERS, WIDEST = 8, 4096  # that a file may ask for

Array = NDArray[np.float32]


def compatibility(
    spread: Array, distance: Array, eta: float, far: float
) -> tuple[Array, NDArray[np.bool_]]:
    """Compatibility in [0, 1] of steps [T], and where the ensemble is sure; far: the lambda."""
    sure = spread < eta
    value = np.where(sure, 1.0 - np.minimum(distance / far, 1.0), 1.0)
    return value.astype(np.float32), sure


def known_mean(value: Array, sure: NDArray[np.bool_]) -> float:
    """Mean of compatibilities [T] where the ensemble is sure; 1 where that is hardly ever."""
    return float(value[sure].mean()) if sure.sum() >= LEAST_KNOWN else 1.0


@dataclass(frozen=True)
class Ensemble:
    """Cloned networks, what is known ground (eta) and far to them, and what episodes usually reach.

    inputs: vector of the observation -> its shape, in the order of the state; hidden: widths of the
    layers; gripper: whether the action's last entry is one. tensors: "members" [5, P], laid out as
    `nets.ensemble.EnsembleMLP`; "mean", "scale" [S] of the state. source: what was cloned.
    """

    inputs: dict[str, tuple[int, ...]]
    hidden: tuple[int, ...]
    gripper: bool
    tensors: dict[str, Array]
    eta: float
    far: float
    usual: float
    source: tuple[str, ...] = ()

    def state(self, observation: Mapping[str, NDArray[Any]]) -> Array:
        """The state of a batch of observations, each [T, ...] -> [T, S]."""
        parts = [observation[k].reshape(len(observation[k]), -1) for k in self.inputs]
        return np.concatenate(parts, -1).astype(np.float32)

    def measure(self, state: Array, action: Array) -> tuple[Array, Array]:
        """Spread and distance, each [T], of steps with states [T, S] and actions [T, A]."""
        out = self.outputs(state)
        mean = out.mean(0)
        spread = np.sqrt(np.square(out - mean).sum(-1).mean(0))
        return spread, np.square(encoded(action, self.gripper) - mean).sum(-1)

    def judge(self, state: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Compatibility [T] of steps, and where the ensemble is sure."""
        return compatibility(*self.measure(state, action), self.eta, self.far)

    def outputs(self, state: Array) -> Array:
        """What each network would do in states [T, S]: [5, T, O], the form of `encoded`."""
        scaled = (state - self.tensors["mean"]) * self.tensors["scale"]
        h = np.clip(scaled, -SCALED_LIMIT, SCALED_LIMIT)[None]
        for weight, bias, *norm in self._layers():
            h = h @ weight + bias
            if norm:  # a hidden layer
                h = h - h.mean(-1, keepdims=True)
                h = h / np.sqrt(np.square(h).mean(-1, keepdims=True) + LAYER_NORM_EPS)
                h = np.maximum(h * norm[0] + norm[1], 0.0)
        if not self.gripper:
            return np.tanh(h)
        logits = h[..., -GRIPPER:]
        odds = np.exp(logits - logits.max(-1, keepdims=True))
        chances = odds / odds.sum(-1, keepdims=True)
        return np.concatenate((np.tanh(h[..., :-GRIPPER]), chances / np.sqrt(2.0)), -1)

    def _layers(self) -> list[list[Array]]:
        """Per layer: weight [5, I, O], bias [5, 1, O]; of a hidden one also gain and offset."""
        flat, at, found = self.tensors["members"], 0, []
        sizes = (len(self.tensors["mean"]), *self.hidden)
        rest = flat.shape[1] - parameters(sizes)
        outputs = rest // (sizes[-1] + 1)
        for i, (rows, columns) in enumerate(pairwise((*sizes, outputs))):
            parts = [flat[:, at : at + rows * columns].reshape(-1, rows, columns)]
            at += rows * columns
            for _ in range(3 if i < len(self.hidden) else 1):
                parts.append(flat[:, at : at + columns].reshape(-1, 1, columns))
                at += columns
            found.append(parts)
        return found

    def save(self, folder: Path) -> None:
        """Write ensemble.safetensors and ensemble.json."""
        import safetensors.numpy

        folder.mkdir(parents=True, exist_ok=True)
        data = safetensors.numpy.save(self.tensors)
        write_synced(folder / f"{NAME}.safetensors", data)
        facts = {
            "format": FORMAT,
            "sha256": hashlib.sha256(data).hexdigest(),
            "inputs": {k: list(v) for k, v in self.inputs.items()},
            "hidden": list(self.hidden),
            "gripper": self.gripper,
            "eta": self.eta,
            "far": self.far,
            "usual": self.usual,
            "source": list(self.source),
        }
        replace_json(folder / f"{NAME}.json", facts)  # last: then the tensors are there

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether a folder holds an ensemble."""
        return bool(cls.written_ns(folder))

    @classmethod
    def written_ns(cls, folder: Path) -> int:
        """When the ensemble in a folder was written; 0 where there is none."""
        path = folder / f"{NAME}.json"
        return path.stat().st_mtime_ns if path.is_file() else 0

    @classmethod
    def load(cls, folder: Path, spec: Spec) -> Ensemble:
        """Read what `save` wrote, for a run that observes and does the same.

        Raises:
            CheckpointError: it is not there, or damaged.
            ConfigError: the run observes something else, or has other actions.
        """
        import safetensors.numpy

        try:
            facts = plain_json.loads((folder / f"{NAME}.json").read_text())
            data = (folder / f"{NAME}.safetensors").read_bytes()
            if hashlib.sha256(data).hexdigest() != facts["sha256"]:
                raise ValueError("the tensors are not those of ensemble.json")
            found = cls(
                {str(k): tuple(map(int, v)) for k, v in facts["inputs"].items()},
                tuple(facts["hidden"]),
                bool(facts["gripper"]),
                safetensors.numpy.load(data),
                float(facts["eta"]),
                float(facts["far"]),
                float(facts["usual"]),
                tuple(map(str, facts["source"])),
            )
            found._check(facts["format"])
        except Exception as error:  # the file's, whatever it holds; safetensors has its own
            raise CheckpointError(
                f"{folder} holds no ensemble",
                expected=f"{NAME}.json and {NAME}.safetensors",
                got=f"{type(error).__name__}: {error}"[:200],
                fix="robot-rl filter RUN --compatible BASE --keep makes one",
            ) from error
        found._check_spec(spec)
        return found

    def _check(self, form: object) -> None:
        """Raise `ValueError` unless the parts of a file fit each other."""
        if form != FORMAT or not (0.0 < self.eta < np.inf and 0.0 < self.far < np.inf):
            raise ValueError(f"format {form}, eta {self.eta}, far {self.far}")
        if not 0.0 <= self.usual <= 1.0:
            raise ValueError(f"usual {self.usual}")
        if len(self.hidden) > MOST_LAYERS or not all(
            type(n) is int and 0 < n <= WIDEST for n in self.hidden
        ):
            raise ValueError(f"layers {self.hidden}")
        size = sum(int(np.prod(shape)) for shape in self.inputs.values())
        shapes = {k: v.shape for k, v in self.tensors.items()}
        members = shapes.get("members", (0, 0))
        want = {"members": (MEMBERS, members[1]), "mean": (size,), "scale": (size,)}
        floats = all(v.dtype == np.float32 and np.isfinite(v).all() for v in self.tensors.values())
        rest = members[1] - parameters((size, *self.hidden))
        if shapes != want or not floats or rest <= 0 or rest % (self.hidden[-1] + 1):
            raise ValueError(f"tensors {shapes}")

    def _check_spec(self, spec: Spec) -> None:
        sizes = (len(self.tensors["mean"]), *self.hidden)
        outputs = (self.tensors["members"].shape[1] - parameters(sizes)) // (sizes[-1] + 1)
        want = (inputs_of(spec), spec.action.gripper, outputs_of(spec))
        if (self.inputs, self.gripper, outputs) != want:
            raise ConfigError(
                "the ensemble looks at something else than this run has, or does something else",
                expected=f"observation {want[0]}, {want[2]} outputs",
                got=f"observation {self.inputs}, {outputs} outputs",
                fix="task settings as where the base was recorded, or another base",
            )


def parameters(sizes: tuple[int, ...]) -> int:
    """Parameters of the hidden layers of one network; sizes: of the state, and their widths."""
    return sum((i + 3) * o for i, o in pairwise(sizes))


def encoded(action: Array, gripper: bool) -> Array:
    """Actions [..., A] as the networks say them, [..., O]: the gripper as three numbers."""
    if not gripper:
        return action
    one = np.eye(GRIPPER, dtype=np.float32)[gripper_index(action[..., -1])] / np.sqrt(2.0)
    return np.concatenate((action[..., :-1], one), -1).astype(np.float32)


def outputs_of(spec: Spec) -> int:
    """Numbers that a network says of a run's action."""
    return spec.action.motion + GRIPPER * spec.action.gripper


def inputs_of(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Vectors of a run's observation -> their shapes.

    Raises:
        ConfigError: the run has cameras.
    """
    if spec.cameras:
        raise ConfigError(
            "demonstrations with pictures cannot be compared",
            expected="a run that observes its state only",
            got="cameras: " + ", ".join(spec.cameras),
            fix="robot-rl review RUN: exclude the episodes yourself",
        )
    return {k: tuple(v.shape) for k, v in sorted(spec.observation.items())}
