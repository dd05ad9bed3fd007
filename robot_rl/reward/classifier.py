"""Reward from a success classifier: the pictures of this moment, no ground truth.

    p_t = sigmoid(logit(images_t));  success once p >= threshold for `hold_steps` ticks in a row

It runs in the control loop (tier A of the design: some milliseconds), so it may end the episode.
`robot-rl reward train` makes the model folder:

    success.safetensors    the tensors
    success.json           cameras and sizes, threshold, hold, hash, what it was trained on, figures
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from robot_rl.act.policy import tensors_of
from robot_rl.config import build
from robot_rl.errors import CheckpointError, ConfigError, LinkError, SpecError
from robot_rl.files import write_synced
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.success import SuccessNet
from robot_rl.ports import RewardResult
from robot_rl.reward.predicate import PredicateReward
from robot_rl.spec import Spec
from robot_rl.types import Observation, RobotState, Weights

FORMAT = 1
TENSORS, FACTS = "success.safetensors", "success.json"


@dataclass(frozen=True)
class SuccessModel:
    """A trained classifier and the facts that are saved with it.

    threshold: of the logit; hold_steps: ticks in a row at or above it; figures: on held-out
    episodes; source: the runs that it learned from.
    """

    net: SuccessNet
    tensors: dict[str, torch.Tensor]
    threshold: float
    hold_steps: int
    figures: dict[str, Any]
    source: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """First 12 hex digits of the tensors' SHA-256: which model said it."""
        return hashlib.sha256(safetensors.torch.save(self.tensors)).hexdigest()[:12]

    @torch.no_grad()
    def logit(self, observation: Observation) -> float:
        """Of one observation."""
        images = {k: observation[k][None] for k in self.net.keys}
        return float(self.net(images, self.tensors))

    def save(self, folder: Path) -> None:
        """Write the two files."""
        folder.mkdir(parents=True, exist_ok=True)
        data = safetensors.torch.save(self.tensors)
        write_synced(folder / TENSORS, data)
        facts = {
            "format": FORMAT,
            "sha256": hashlib.sha256(data).hexdigest(),
            "images": {k: list(v) for k, v in self.net.shapes.items()},
            "encoder": asdict(self.net.encoder_config),
            "hidden": list(self.net.hidden),
            "threshold": self.threshold,
            "hold_steps": self.hold_steps,
            "source": list(self.source),
            "figures": self.figures,
        }
        write_synced(folder / FACTS, json.dumps(facts, indent=2).encode())

    @classmethod
    def load(cls, folder: Path, spec: Spec) -> SuccessModel:
        """Read what `save` wrote, for a run whose observation has the same cameras.

        Raises:
            CheckpointError: not there, or damaged.
            ConfigError: the run's cameras are others.
        """
        try:
            facts = json.loads((folder / FACTS).read_text())
            data = (folder / TENSORS).read_bytes()
            images = {k: tuple(v) for k, v in facts["images"].items()}
            encoder, hidden = build(EncoderConfig, facts["encoder"]), tuple(facts["hidden"])
            numbers = float(facts["threshold"]), int(facts["hold_steps"])
            digest, source = str(facts["sha256"]), tuple(facts["source"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ConfigError) as error:
            raise _unusable(folder, str(error)) from error
        if facts.get("format") != FORMAT:
            raise _unusable(folder, f"format {facts.get('format')}")
        got = {k: spec.observation[k].shape for k in images if k in spec.observation}
        if got != images:
            raise ConfigError(
                "the success classifier sees other cameras than this run has",
                expected=f"images {images}",
                got=f"images {got or 'none'}",
                fix="task.images=[...] task.image_size=N as where it was trained, or train another",
            )
        net = SuccessNet(spec, encoder, hidden, tuple(images))
        like = net.init(torch.Generator().manual_seed(0))
        try:
            tensors = tensors_of(Weights(0, digest, data), like)
        except (LinkError, SpecError) as error:
            raise _unusable(folder, error.summary) from error
        return cls(net, tensors, *numbers, facts["figures"], source)


def _unusable(folder: Path, got: str) -> CheckpointError:
    return CheckpointError(
        f"{folder} is not a success classifier",
        expected=f"{FACTS} and {TENSORS} of `robot-rl reward train`",
        got=got,
        fix="robot-rl reward train RUN --out FOLDER, then reward=classifier reward.model=FOLDER",
    )


class ClassifierReward:
    """`RewardSource` on a model. Evaluation episodes are judged by the task's own predicate."""

    def __init__(self, model: SuccessModel, truth: PredicateReward, hold_steps: int = 0) -> None:
        self._model, self._truth = model, truth
        self._hold_steps, self._seen = hold_steps or model.hold_steps, 0
        self._evaluates, self._version = False, model.version

    def begin_episode(self, purpose: str) -> None:
        """See `ports.RewardSource`."""
        self._seen, self._evaluates = 0, purpose == "eval"
        self._truth.begin_episode(purpose)

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """Reward 1.0 and terminated at success as the model sees it, 0.0 before."""
        truth = self._truth.score(state, observation)
        if self._evaluates:
            return truth
        logit = self._model.logit(observation)
        self._seen = self._seen + 1 if logit >= self._model.threshold else 0
        success = self._seen >= self._hold_steps
        score = 1.0 / (1.0 + math.exp(-max(min(logit, 60.0), -60.0)))
        return RewardResult(
            reward=float(success),
            success=success,
            terminated=success,
            score=score,
            source="classifier",
            author=f"success-{self._version}",
            truth=bool(truth.success),
        )
