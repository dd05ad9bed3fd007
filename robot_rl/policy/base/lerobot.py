"""LeRobot policies in this process: ACT, Diffusion, SmolVLA, pi0, pi0.5 (`lerobot_files.POLICIES`).

    base=lerobot base.path=FOLDER                  what lerobot-train wrote: weights and processors
    base=lerobot base.path=org/name base.revision=<40 hex digits>      from the hub, pinned

LeRobot's processors are part of a policy: they normalise what goes in and bring what comes out back
to the units of the data it was trained on (without them actions are z-scores). Weights are
safetensors; nothing is unpickled, and no backbone is downloaded, because the weights include it.
What the JSON files of a policy name is checked first (`lerobot_files`): it could be any code.

Deviations from LeRobot's own loop: whole chunks instead of its queue of single actions. A policy
that looks at several frames (Diffusion) sees the newest frame, repeated to that number.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.errors import CheckpointError, ConfigError, SetupError
from robot_rl.policy.base.lerobot_files import checked_folder
from robot_rl.policy.base.mapping import Actions, ForeignConfig, Inputs
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.spec import Spec
from robot_rl.types import Observation

TASK = "task"  # the instruction, for a VLA
STACKED = "observation.images"  # all cameras, in the memory of a policy of several frames
REVISION = re.compile(r"[0-9a-f]{40}")


class LeRobotBase:
    """`BasePolicy` on a LeRobot policy and its two processors."""

    def __init__(self, config: LeRobotConfig, spec: Spec) -> None:
        self._policy, self._before, self._after = _load(config)
        self._config = config
        self._inputs = Inputs(config, spec)
        self._actions = Actions(config, spec.action.size)
        theirs = self._policy.config
        _check_inputs(set(config.inputs), set(theirs.input_features))
        drawn, kept = _chunk_sizes(theirs)
        noise = None
        if _takes_noise(self._policy):
            noise = (drawn, int(getattr(theirs, "max_action_dim", theirs.action_feature.shape[0])))
        self.spec = BaseSpec(config.chunk or kept, spec.action.size, noise)

    def reset(self) -> None:
        """Forget the last episode."""
        self._policy.reset()

    @torch.no_grad()
    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `BasePolicy`."""
        batch = self._before({k: _tensor(k, v) for k, v in self._inputs(observation).items()})
        extra = {}
        if noise is not None:
            extra["noise"] = torch.as_tensor(noise, device=self._config.device)[None]
        if getattr(self._policy, "_queues", None):  # it stacks the frames that it remembers
            self._policy.reset()
            batch = self._remember(batch)
        chunk = self._after(self._policy.predict_action_chunk(batch, **extra))
        return self._actions(chunk[0].float().cpu().numpy())[: self.spec.chunk]

    def sample_many(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Chunks [B, H, A] for observations with a leading batch axis, one after the other."""
        count = len(next(iter(observation.values())))
        each = [{k: v[i] for k, v in observation.items()} for i in range(count)]
        drawn = [None] * count if noise is None else list(noise)
        return np.stack([self.sample(o, w) for o, w in zip(each, drawn, strict=True)])

    def description(self) -> dict[str, Any]:
        """What the policy was trained on, and what it is shown for each of that."""
        theirs = self._policy.config
        shapes = {k: list(getattr(v, "shape", ())) for k, v in theirs.input_features.items()}
        return {
            "type": theirs.type,
            "inputs": {
                k: {"shape": shapes.get(k, []), "from": v} for k, v in self._config.inputs.items()
            },
            "image_size": self._config.image_size,
            "prompt": self._config.prompt,
            "action": [int(n) for n in theirs.action_feature.shape],
            "low": self._config.low,
            "high": self._config.high,
        }

    def _remember(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Fill the policy's memory with this frame; return the batch in the memory's names."""
        queues = self._policy._queues
        seen = {k: v for k, v in batch.items() if k != "action"}  # their batches have that key, too
        if STACKED in queues:
            seen[STACKED] = torch.stack([batch[k] for k in self._policy.config.image_features], -4)
        for key, queue in queues.items():
            if key in seen:
                queue.extend([seen[key]] * queue.maxlen)
        return seen

    def close(self) -> None:
        """Nothing is open."""


@register("base", "lerobot")
@dataclass(frozen=True, kw_only=True)
class LeRobotConfig(ForeignConfig):
    """Which policy to load. inputs: {observation.state: state, observation.images.top: image/front,
    task: prompt}, in the names of the data that the policy was trained on.
    """

    path: str = ""  # a folder, or org/name on the hub
    revision: str = ""  # of the hub: a commit, so that what drives a robot does not change
    device: str = "cpu"

    def open(self, spec: Spec, seed: int) -> LeRobotBase:
        """See `BaseConfig`."""
        if not self.inputs:
            raise ConfigError(
                "base=lerobot has to be told what to show the policy",
                expected="base.inputs={observation.state: state, ...}",
                got="nothing",
                fix="see docs/bases.md; robot-rl check shows what this task observes",
            )
        torch.manual_seed(seed)  # LeRobot's policies draw from torch's global generator
        return LeRobotBase(self, spec)


def _load(config: LeRobotConfig) -> tuple[Any, Any, Any]:
    """Return (policy, the processor before it, the processor after it)."""
    local = Path(config.path).expanduser()
    if not config.path or not (local.is_dir() or REVISION.fullmatch(config.revision)):
        raise ConfigError(
            "base=lerobot needs a policy that stays the same",
            expected="base.path of a folder, or org/name with base.revision=<40 hex digits>",
            got=f"path={config.path!r}, revision={config.revision!r}",
            fix="give the folder that lerobot-train left (.../pretrained_model)",
        )
    try:
        configs = import_module("lerobot.configs.policies")
        factory = import_module("lerobot.policies.factory")
    except ImportError as error:
        raise SetupError(
            "base=lerobot needs LeRobot in this environment",
            expected="import lerobot works",
            got=str(error),
            fix="pip install lerobot; or serve the policy from an environment of its own",
        ) from error
    where = str(checked_folder(config.path, config.revision))
    try:
        theirs = configs.PreTrainedConfig.from_pretrained(where)
        theirs.device = config.device
        if hasattr(theirs, "pretrained_backbone_weights"):
            theirs.pretrained_backbone_weights = None  # the checkpoint has them
        kind = factory.get_policy_class(theirs.type)
        policy = kind.from_pretrained(where, config=theirs)
        on_device = {"device_processor": {"device": config.device}}
        before, after = factory.make_pre_post_processors(
            theirs, pretrained_path=where, preprocessor_overrides=on_device
        )
    except Exception as error:  # whatever their loaders throw: the folder is not what they expect
        raise CheckpointError(
            f"LeRobot cannot load {where}",
            expected="config.json, model.safetensors, policy_preprocessor.json and "
            "policy_postprocessor.json",
            got=f"{type(error).__name__}: {error}"[:400],
            fix="give the folder that lerobot-train left; LeRobot's own version must match",
        ) from error
    return policy.to(config.device).eval(), before, after


def _chunk_sizes(theirs: Any) -> tuple[int, int]:
    """(actions that the policy draws at once, how many of them it returns)."""
    if hasattr(theirs, "horizon"):  # Diffusion draws from the first frame that it looks at
        return int(theirs.horizon), int(theirs.n_action_steps)
    chunk = int(getattr(theirs, "chunk_size", 1))
    return chunk, chunk


def _takes_noise(policy: Any) -> bool:
    """Whether noise is a parameter (Diffusion, SmolVLA) or handed on to a flow (pi0, pi0.5)."""
    known = inspect.signature(policy.predict_action_chunk).parameters
    handed_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    return "noise" in known or (handed_on and hasattr(policy.config, "num_inference_steps"))


def _check_inputs(given: set[str], wanted: set[str]) -> None:
    """Raise `ConfigError` unless every entry that the policy looks at is named, and no other."""
    missing, unknown = wanted - given, given - wanted - {TASK}
    if missing or unknown:
        raise ConfigError(
            "base.inputs does not fit the policy",
            expected=", ".join(sorted(wanted)),
            got=", ".join(sorted(given)),
            fix=f"add {sorted(missing)}, remove {sorted(unknown)}",
        )


def _tensor(name: str, value: Any) -> Any:
    """An entry as LeRobot's policies take it: pictures float32 [3, H, W] in [0, 1]."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.uint8:
        return torch.from_numpy(value.copy()).permute(2, 0, 1).float() / 255.0
    return torch.as_tensor(value, dtype=torch.float32)
