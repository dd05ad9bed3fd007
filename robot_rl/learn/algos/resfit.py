"""ResFiT: a small correction of a frozen base policy, learned off-policy.

Paper: ResFiT (arXiv 2509.19301). TD3 (`td3`) whose decision u corrects what the base would do:

    a = clip(a_base + residual u),  u ~ pi(s, a_base)

when acting, in the target (with the base's action in s') and in the actor's loss. What the base
would do is recorded with each frame, so the base may be large, slow and elsewhere.

Deviations: critics see (a - a_base) / residual beside a; ResFiT's see a alone, in which a
correction of 0.02 is lost among base actions that span 2. The gripper follows the base until
another command is worth `gripper_margin` more. In practice u is drawn around the mean, before the
squash (`std_init`). The mean correction starts at exactly zero (issue 1 of Policy Decorator's
repository). The actor begins later and learns more slowly than the critics. Metrics: those of
`td3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.learn.algos.small_sparse import SmallSparse
from robot_rl.learn.algos.td3 import Td3, Td3Config
from robot_rl.learn.transitions import Transitions
from robot_rl.nets.actor import GRIPPER_CHOICES, ActorNet, gripper_index
from robot_rl.spec import BASE_ACTION, Spec

CORRECTION_LIMIT = 3.0  # a person's action may differ more from the base's: clipped for critics


@register("algo", "resfit")
@dataclass(frozen=True, kw_only=True)
class ResFitConfig(SmallSparse, Td3Config):
    """The paper's numbers, and what small networks need."""

    residual: float = 0.2  # the base's action is corrected by at most this much
    gripper_margin: float = 0.05  # how much more value a command needs that is not the base's
    n_step: int = 3
    critics: int = 4
    critic_actor_ratio: int = 4
    std_init: float = 0.5  # of u; with less, critics cannot tell corrections apart
    actor_learning_rate: float | None = 1e-4  # ResFiT's is 1e-6, a hundredth of the critics'
    actor_delay_updates: int = 300  # a hasty actor saturates on critics that know nothing yet

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if not 0.0 < self.residual <= 1.0:
            raise ValueError(f"residual must lie in (0, 1], got {self.residual}")
        if self.actor_delay_updates < 0:
            raise ValueError("actor_delay_updates must not be negative")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> ResFit:
        """A fresh learner."""
        return ResFit.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ResidualNet:
        """See `ActorCriticConfig.net`.

        Raises:
            ConfigError: there is no base policy.
        """
        if BASE_ACTION not in spec.observation:
            raise ConfigError(
                "a residual needs a base policy",
                expected="base=..., whose actions are corrected",
                got="no base",
                fix="base=flow base.run=RUN (a run of algo=bc_flow)",
            )
        return ResidualNet.from_spec(
            spec,
            self.hidden,
            bf16=bf16,
            encoder=self.encoder,
            residual=self.residual,
            gripper_margin=self.gripper_margin,
        )


class ResFit(Td3):
    """`Td3` on a base; the actor waits for its critics."""

    def __init__(
        self, config: ResFitConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self._delay_updates = config.actor_delay_updates  # updates left

    def actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        """Do nothing until the delay is over; then as in `Td3`."""
        if self._delay_updates:
            self._delay_updates -= 1
            return {}
        return super().actor_step(batch)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As in `Trained`."""
        super().load_state_dict(state)
        self._delay_updates = max(0, self.config.actor_delay_updates - int(self.updates))


@dataclass(frozen=True, kw_only=True)
class ResidualNet(ActorNet):
    """Corrects the base's action. residual, gripper_margin: see `ResFitConfig`."""

    residual: float
    gripper_margin: float

    def init(
        self, generator: torch.Generator, std: float = 1.0, last_scale: float = 0.0
    ) -> dict[str, Tensor]:
        """As `ActorNet.init`; the correction starts at zero."""
        return super().init(generator, std, last_scale)

    def base(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """action [B, A]: what the base would do now."""
        action = torch.as_tensor(observation[BASE_ACTION])[:, 0]
        return {"action": action.to(tensors["mean"].device)}

    def compose(
        self, decision: Tensor, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Pose action [B, pose] of a correction u."""
        return corrected(base["action"][:, : self.pose_size], decision, self.residual)

    def judged(self, action: Tensor, base: Mapping[str, Tensor]) -> Tensor:
        """The action, and how it differs from the base's: [B, 2 pose]."""
        return beside(action, base["action"][:, : self.pose_size], self.residual)

    @property
    def judged_size(self) -> int:
        """Numbers per action in `judged`."""
        return 2 * self.pose_size

    def choose_gripper(self, q: Tensor, base: Mapping[str, Tensor]) -> Tensor:
        """What the base commands, unless another command is better by the margin: [B]."""
        own = one_hot(gripper_index(base["action"][:, -1]), GRIPPER_CHOICES)
        return (q + self.gripper_margin * own).argmax(-1)


def corrected(plan: Tensor, decision: Tensor, residual: float) -> Tensor:
    """What a base would do [B, n], corrected by decisions in [-1, 1]: [B, n]."""
    return (plan + residual * decision).clamp(-1.0, 1.0)


def beside(action: Tensor, plan: Tensor, residual: float) -> Tensor:
    """An action [B, n], and beside it its clipped distance from the plan: [B, 2 n]."""
    correction = (action - plan) / residual
    return torch.cat((action, correction.clamp(-CORRECTION_LIMIT, CORRECTION_LIMIT)), -1)
