"""The part of an agent that travels to the robot: policy, gripper head, observation scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets import heads
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import GRIPPER_DEAD_ZONE, Spec
from robot_rl.types import Observation

GRIPPER_CHOICES = 3  # close, keep, open: index = round(action[-1]) + 1


class Executed(Protocol):
    """What was carried out: `learn.replay.Batch`, as far as a network needs it."""

    @property
    def observation(self) -> Observation:
        """Name -> [B, ...]."""
        ...

    @property
    def action(self) -> NDArray[np.float32]:
        """[B, A]."""
        ...

    @property
    def chunk(self) -> NDArray[np.float32] | None:
        """[B, h, A], where chunks are learned from."""
        ...


@dataclass(frozen=True, slots=True)
class ActorNet(ObservationNet):
    """Shapes of an actor; the numbers are in `tensors`, a dict that `init` makes:

        {"policy":  float32 [1, P],   # features -> mean and log_std of the pose decision
         "gripper": float32 [1, P'],  # features -> Q of close, keep, open; only with a gripper
         "encoder": float32 [P"],     # images -> features; only with cameras
         "mean":    float32 [S],      # state scaling: (state - mean) * scale, clipped
         "scale":   float32 [S]}

    What the policy decides, u in [-1, 1]^d, is the pose action itself. A head on a base policy
    makes an action from u and the output of the base (`base`, `compose`): see the algorithms with
    such a head.
    """

    policy: EnsembleMLP
    gripper: EnsembleMLP | None

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        hidden: tuple[int, ...],
        *,
        bf16: bool = False,
        encoder: EncoderConfig | None = None,
        **more: Any,
    ) -> Self:
        """Fit an actor to a run's observation and action; more: fields of a subclass.

        Raises:
            SpecError: the observation holds something no network here reads.
        """
        front = ObservationNet.of(spec, encoder, bf16)
        pose_size = spec.action.size - spec.action.gripper
        policy = EnsembleMLP(1, (front.feature_size, *hidden, 2 * pose_size), bf16)
        gripper = EnsembleMLP(1, (front.feature_size, *hidden, GRIPPER_CHOICES), bf16)
        return cls(
            keys=front.keys,
            encoder=front.encoder,
            state_size=front.state_size,
            policy=policy,
            gripper=gripper if spec.action.gripper else None,
            **more,
        )

    @property
    def decision_size(self) -> int:
        """Numbers that the policy decides."""
        return self.policy.sizes[-1] // 2

    @property
    def pose_size(self) -> int:
        """Continuous action entries that a decision becomes (all but the gripper)."""
        return self.decision_size

    def init(
        self, generator: torch.Generator, std: float = 1.0, last_scale: float = 0.01
    ) -> dict[str, Tensor]:
        """Fresh tensors: mean decision near zero, `std` before the squash, no scaling.

        last_scale: of the last layers' weights; at 0 every mean is zero, exactly.
        """
        tensors = {"policy": self.policy.init(generator, last_scale=last_scale)}
        bias = self.policy.layers(tensors["policy"])[-1][1]
        bias[..., self.decision_size :] = math.log(std)
        if self.gripper:
            tensors["gripper"] = self.gripper.init(generator, last_scale=last_scale)
        return tensors | self.init_observation(generator)

    def executed(self, batch: Executed) -> NDArray[np.float32]:
        """The actions [B, A] whose value the critics learn: those that were carried out."""
        return batch.action

    def base(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """What `compose` needs of a base policy, by name, each [B, ...]; here nothing."""
        return {}

    def compose(
        self, decision: Tensor, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Pose action [B, pose] of a decision u: u itself."""
        return decision

    def judged(self, action: Tensor, base: Mapping[str, Tensor]) -> Tensor:
        """What a critic sees of pose actions [B, pose]: [B, judged_size]."""
        return action

    @property
    def judged_size(self) -> int:
        """Numbers per action in `judged`."""
        return self.pose_size

    def choose_gripper(self, q: Tensor, base: Mapping[str, Tensor]) -> Tensor:
        """Index [B] of the best of close, keep, open, from their values [B, 3]."""
        return q.argmax(-1)

    def distribution(self, features: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log std [B, pose] before the squash."""
        return heads.split(self.policy(features, policy)[0])

    def decision(
        self,
        features: Tensor,
        policy: Tensor,
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """What the policy decides, u [B, d]: tanh of the mean, or a sample."""
        mean, log_std = self.distribution(features, policy)
        if not deterministic:
            noise = torch.randn(mean.shape, generator=generator).to(mean.device)
            mean = mean + noise * log_std.exp()
        return torch.tanh(mean)

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
        features = self.look(observation, tensors)
        base = self.base(observation, tensors, generator)
        decision = self.decision(
            features, tensors["policy"], deterministic=deterministic, generator=generator
        )
        pose = self.compose(decision, base, tensors)
        if not self.gripper:
            return pose
        choice = self.choose_gripper(self.gripper(features, tensors["gripper"])[0], base)
        if not deterministic and gripper_epsilon > 0.0:
            explore = torch.rand(choice.shape, generator=generator) < gripper_epsilon
            other = torch.randint(GRIPPER_CHOICES, choice.shape, generator=generator)
            choice = torch.where(explore.to(choice.device), other.to(choice.device), choice)
        return torch.cat((pose, (choice - 1.0).unsqueeze(-1)), -1)


def gripper_index(action: Tensor) -> Tensor:
    """Gripper command [B] in [-1, 1] -> index of close, keep, open: int64 [B]."""
    return 1 + (action > GRIPPER_DEAD_ZONE).long() - (action < -GRIPPER_DEAD_ZONE).long()
