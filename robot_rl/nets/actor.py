"""The part of an agent that travels to the robot: policy, gripper head, observation scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from robot_rl.errors import ConfigError
from robot_rl.nets import heads
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import BASE_ACTION, Spec
from robot_rl.types import Observation

GRIPPER_CHOICES = 3  # close, keep, open: index = round(action[6]) + 1
CORRECTION_LIMIT = 3.0  # a person's action may be far from the base's: "far" is enough then
GRIPPER_DEAD_ZONE = 0.5  # as spec.ActionSpec.gripper_width_m


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

    What the policy decides, u in [-1, 1], is the pose action itself; or, on a base policy, a
    correction of the base's: `compose`. policy, gripper: see the tensors; residual: how far a
    correction goes, 0 without a base; gripper_margin: how much better than the base's own a gripper
    command has to look.
    """

    policy: EnsembleMLP
    gripper: EnsembleMLP | None
    residual: float = 0.0
    gripper_margin: float = 0.0

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        hidden: tuple[int, ...],
        *,
        activation: str = "relu",
        bf16: bool = False,
        encoder: EncoderConfig | None = None,
        residual: float = 0.0,
        gripper_margin: float = 0.0,
    ) -> Self:
        """Fit an actor to a run's observation and action.

        Raises:
            SpecError: the observation holds something no network here reads.
            ConfigError: a residual, and no base policy.
        """
        front = ObservationNet.of(spec, encoder, bf16)
        if residual and BASE_ACTION not in front.keys:
            raise ConfigError(
                "a residual needs a base policy",
                expected="base=..., whose actions are corrected",
                got="no base",
                fix="base=flow base.run=RUN (a run of algo=bc_flow), or algo.residual=0",
            )
        pose_size = spec.action.size - spec.action.gripper
        policy = EnsembleMLP(1, (front.feature_size, *hidden, 2 * pose_size), activation, bf16)
        gripper = EnsembleMLP(1, (front.feature_size, *hidden, GRIPPER_CHOICES), activation, bf16)
        return cls(
            keys=front.keys,
            encoder=front.encoder,
            state_size=front.state_size,
            policy=policy,
            gripper=gripper if spec.action.gripper else None,
            residual=residual,
            gripper_margin=gripper_margin,
        )

    @property
    def decision_size(self) -> int:
        """Numbers that the policy decides."""
        return self.policy.sizes[-1] // 2

    @property
    def pose_size(self) -> int:
        """Continuous action entries that come of them (all but the gripper)."""
        return self.decision_size

    def init(self, generator: torch.Generator, std: float = 1.0) -> dict[str, Tensor]:
        """Fresh tensors: mean decision near zero, `std` before the squash, no scaling.

        A residual's mean is zero: at first the base drives, exactly (Policy Decorator's issue #1).
        """
        scale = 0.0 if self.residual else 0.01
        tensors = {"policy": self.policy.init(generator, last_scale=scale)}
        bias = self.policy.layers(tensors["policy"])[-1][1]
        bias[..., self.decision_size :] = math.log(std)
        if self.gripper:
            tensors["gripper"] = self.gripper.init(generator, last_scale=scale)
        return tensors | self.init_observation(generator)

    def executed(self, batch: Executed) -> NDArray[np.float32]:
        """What the critics learn the value of: the actions [B, A] that were carried out."""
        return batch.action

    def base(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """What `compose` needs of the base: what it would do now, [B, A]; nothing, [B, 0]."""
        if not self.residual:
            rows = len(next(iter(observation.values())))
            return torch.zeros(rows, 0, device=tensors["mean"].device)
        return torch.as_tensor(observation[BASE_ACTION])[:, 0].to(tensors["mean"].device)

    def compose(self, decision: Tensor, base: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Pose action [B, pose] of a decision u: u, or clip(a_base + residual u) (ResFiT)."""
        if not self.residual:
            return decision
        return (base[:, : self.pose_size] + self.residual * decision).clamp(-1.0, 1.0)

    def judged(self, action: Tensor, base: Tensor) -> Tensor:
        """What a critic sees of pose actions [B, pose]: with a base, also how they differ from it.

        A correction of 0.02 beside base actions that span 2 would not be seen in their sum.
        """
        if not self.residual:
            return action
        correction = (action - base[:, : self.pose_size]) / self.residual
        limit = CORRECTION_LIMIT
        return torch.cat((action, correction.clamp(-limit, limit)), -1)

    @property
    def judged_size(self) -> int:
        """Numbers per action in `judged`."""
        return self.pose_size * (2 if self.residual else 1)

    def choose_gripper(self, q: Tensor, base: Tensor) -> Tensor:
        """Index [B] of the best of close, keep, open, from their values [B, 3].

        On a base policy: what the base commands, unless another is better by the margin.
        """
        if not self.residual:
            return q.argmax(-1)
        own = one_hot(gripper_index(base[:, -1]), GRIPPER_CHOICES)
        return (q + self.gripper_margin * own).argmax(-1)

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
