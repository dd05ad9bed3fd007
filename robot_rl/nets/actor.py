"""The part of an agent that travels to the robot: policy, gripper head, observation scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.errors import SpecError
from robot_rl.nets import heads
from robot_rl.nets.encoder import Encoder, EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.spec import Spec
from robot_rl.types import Observation

GRIPPER_CHOICES = 3  # close, keep, open: index = round(action[6]) + 1
GRIPPER_DEAD_ZONE = 0.5  # as spec.ActionSpec.gripper_width_m
SCALED_LIMIT = 10.0  # standard deviations; beyond, the input says "far away" and nothing more


def state_keys(spec: Spec) -> tuple[str, ...]:
    """Names of the float vectors that make up the network input, in a fixed order.

    Raises:
        SpecError: there is neither a float vector nor an image, or something else.
    """
    kinds = {k: v.dtype if len(v.shape) != 3 else "image" for k, v in spec.observation.items()}
    wrong = {k: v for k, v in kinds.items() if v not in ("float32", "image")}
    if wrong or not kinds:
        raise SpecError(
            "the observation holds something no network here reads",
            expected="float32 vectors, and uint8 images [H, W, C]",
            got=str({k: spec.observation[k] for k in wrong}) if wrong else "(nothing)",
            fix="convert it in the task's observe()",
        )
    return tuple(k for k in sorted(kinds) if kinds[k] == "float32")


def image_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Camera key -> (H, W, C) of the images in the observation.

    Raises:
        SpecError: an image is not uint8.
    """
    images = {k: v for k, v in sorted(spec.observation.items()) if len(v.shape) == 3}
    for key, value in images.items():
        if value.dtype != "uint8":
            raise SpecError(
                f"image '{key}' is not uint8",
                expected="uint8 [H, W, C], as cameras deliver it",
                got=f"{value.dtype} {list(value.shape)}",
                fix="leave images as they are; they are scaled on the way into the network",
            )
    return {k: v.shape for k, v in images.items()}


@dataclass(frozen=True, slots=True)
class ActorNet:
    """Shapes of an actor; the numbers are in `tensors`, a dict that `init` makes:

        {"policy":  float32 [1, P],   # features -> mean and log_std of the pose action
         "gripper": float32 [1, P'],  # features -> Q of close, keep, open; only with a gripper
         "encoder": float32 [P"],     # images -> features; only with cameras
         "mean":    float32 [S],      # state scaling: (state - mean) * scale, clipped
         "scale":   float32 [S]}

    Features [B, F] are the scaled state followed by what the encoder makes of the images.

    keys: float entries that are concatenated to the state; policy, gripper, encoder: see the
    tensors; state_size: S.
    """

    keys: tuple[str, ...]
    policy: EnsembleMLP
    gripper: EnsembleMLP | None
    encoder: Encoder | None
    state_size: int

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        hidden: tuple[int, ...],
        activation: str = "relu",
        bf16: bool = False,
        encoder: EncoderConfig | None = None,
    ) -> ActorNet:
        """Fit an actor to a run's observation and action.

        Raises:
            SpecError: the observation holds something no network here reads.
        """
        keys, shapes = state_keys(spec), image_shapes(spec)
        eyes = Encoder(encoder or EncoderConfig(), shapes, bf16) if shapes else None
        state_size = sum(int(np.prod(spec.observation[k].shape)) for k in keys)
        size = state_size + (eyes.size if eyes else 0)
        pose_size = spec.action.size - spec.action.gripper
        policy = EnsembleMLP(1, (size, *hidden, 2 * pose_size), activation, bf16)
        gripper = EnsembleMLP(1, (size, *hidden, GRIPPER_CHOICES), activation, bf16)
        return cls(keys, policy, gripper if spec.action.gripper else None, eyes, state_size)

    @property
    def feature_size(self) -> int:
        """F."""
        return self.policy.sizes[0]

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """Every entry of the observation that is looked at."""
        return self.keys + (self.encoder.keys if self.encoder else ())

    @property
    def pose_size(self) -> int:
        """Continuous action entries (all but the gripper)."""
        return self.policy.sizes[-1] // 2

    def init(self, generator: torch.Generator, std: float = 1.0) -> dict[str, Tensor]:
        """Fresh tensors: mean action near zero, `std` before the squash, no scaling."""
        tensors = {"policy": self.policy.init(generator, last_scale=0.01)}
        bias = self.policy.layers(tensors["policy"])[-1][1]
        bias[..., self.pose_size :] = math.log(std)
        if self.gripper:
            tensors["gripper"] = self.gripper.init(generator, last_scale=0.01)
        if self.encoder:
            tensors["encoder"] = self.encoder.init(generator)
        tensors["mean"] = torch.zeros(self.state_size)
        tensors["scale"] = torch.ones(self.state_size)
        return tensors

    def state(self, observation: Mapping[str, NDArray | Tensor]) -> Tensor:
        """Concatenate the float entries of a batch: each [B, ...] -> [B, S]."""
        parts = [torch.as_tensor(observation[k]).flatten(1) for k in self.keys]
        if not parts:
            return torch.zeros(len(next(iter(observation.values()))), 0)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def images(self, observation: Mapping[str, NDArray | Tensor]) -> dict[str, Tensor]:
        """The images of a batch: camera key -> uint8 [B, H, W, C]."""
        keys = self.encoder.keys if self.encoder else ()
        return {k: torch.as_tensor(observation[k]) for k in keys}

    def digest(self, tensors: Mapping[str, Tensor]) -> Callable[[Observation], Observation] | None:
        """What a frame may be kept as instead of its images: a frozen trunk's output, float16.

        None where images are needed: without cameras, when the trunk learns or images are shifted.
        """
        encoder = self.encoder
        if encoder is None or not encoder.config.frozen or encoder.config.shift_px:
            return None

        def look(observation: Observation) -> Observation:
            device = tensors["encoder"].device
            images = {k: torch.as_tensor(observation[k])[None].to(device) for k in encoder.keys}
            tokens = encoder.look(images, tensors["encoder"])
            return observation | {k: v[0].half().cpu().numpy() for k, v in tokens.items()}

        return look

    def features(
        self, scaled: Tensor, images: Mapping[str, Tensor], encoder: Tensor | None
    ) -> Tensor:
        """What the heads see: scaled state [B, S] and encoded images -> [B, F]."""
        if self.encoder is None or encoder is None:
            return scaled
        return torch.cat((scaled, self.encoder(images, encoder)), -1)

    def scaled(self, state: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """What the networks see: [B, S] -> [B, S]."""
        scaled = (state.to(tensors["mean"].device) - tensors["mean"]).mul_(tensors["scale"])
        return scaled.clamp_(-SCALED_LIMIT, SCALED_LIMIT)

    def distribution(self, features: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log std [B, pose] before the squash."""
        return heads.split(self.policy(features, policy)[0])

    @torch.no_grad()
    def act(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None = None,
        gripper_epsilon: float = 0.0,
    ) -> Tensor:
        """Actions [B, A] for a batch of observations; the gripper entry is -1, 0 or +1.

        deterministic: tanh of the mean, and no random gripper; else a sample, and with probability
        `gripper_epsilon` a uniformly random gripper command.
        """
        scaled = self.scaled(self.state(observation), tensors)
        images = {k: v.to(scaled.device) for k, v in self.images(observation).items()}
        features = self.features(scaled, images, tensors.get("encoder"))
        mean, log_std = self.distribution(features, tensors["policy"])
        if deterministic:
            pose = torch.tanh(mean)
        else:
            noise = torch.randn(mean.shape, generator=generator).to(mean.device)
            pose = torch.tanh(mean + noise * log_std.exp())
        if not self.gripper:
            return pose
        choice = self.gripper(features, tensors["gripper"])[0].argmax(-1)
        if not deterministic and gripper_epsilon > 0.0:
            explore = torch.rand(choice.shape, generator=generator) < gripper_epsilon
            other = torch.randint(GRIPPER_CHOICES, choice.shape, generator=generator)
            choice = torch.where(explore.to(choice.device), other.to(choice.device), choice)
        return torch.cat((pose, (choice - 1.0).unsqueeze(-1)), -1)


def gripper_index(action: Tensor) -> Tensor:
    """Gripper command [B] in [-1, 1] -> index of close, keep, open: int64 [B]."""
    return 1 + (action > GRIPPER_DEAD_ZONE).long() - (action < -GRIPPER_DEAD_ZONE).long()
