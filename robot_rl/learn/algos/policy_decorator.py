"""Policy Decorator: correct a base policy's whole plan, chunk by chunk.

Paper: Policy Decorator (arXiv 2412.13630). `chunked` whose decision corrects the base's plan, which
is recorded with each frame: c = clip(c_base + residual u).

Deviations: the decision starts at zero, so that at first exactly the base drives; the paper's
progressive exploration is `ramp_updates`; critics see (c - c_base) / residual beside c, as in
`resfit`. Metrics: those of `actor_critic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.learn.algos.chunked import OnBase, OnBaseConfig
from robot_rl.learn.algos.resfit import beside, corrected
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import BasedChunkNet
from robot_rl.spec import BASE_ACTION, Spec


@register("algo", "policy_decorator")
@dataclass(frozen=True, kw_only=True)
class PolicyDecoratorConfig(OnBaseConfig):
    """How far a correction goes."""

    residual: float = 0.2
    target_entropy_per_dim: float = -1.0

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if not 0.0 < self.residual <= 1.0:
            raise ValueError(f"residual must lie in (0, 1], got {self.residual}")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> OnBase:
        """A fresh learner."""
        return OnBase.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`.

        Raises:
            ConfigError: no base, or its plan is too short.
        """
        need_plan(spec, self.chunk)
        return DecoratorNet.fit(
            spec,
            self.hidden,
            chunk=self.chunk,
            bf16=bf16,
            encoder=self.encoder,
            residual=self.residual,
        )


@dataclass(frozen=True, kw_only=True)
class DecoratorNet(BasedChunkNet):
    """Corrects the base's plan by at most `residual`."""

    residual: float

    def init(
        self, generator: torch.Generator, std: float = 1.0, last_scale: float = 0.0
    ) -> dict[str, Tensor]:
        """As `BasedChunkNet.init`; the correction starts at zero."""
        return super().init(generator, std, last_scale)

    def compose(
        self, decision: Tensor, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """The chunk [B, h A] of a correction u."""
        return corrected(base["plan"], decision, self.residual)

    def judged(self, action: Tensor, base: Mapping[str, Tensor]) -> Tensor:
        """The chunk, and how it differs from the plan: [B, 2 h A]."""
        return beside(action, base["plan"], self.residual)

    @property
    def judged_size(self) -> int:
        """Numbers per chunk in `judged`."""
        return 2 * self.pose_size


def need_plan(spec: Spec, chunk: int) -> None:
    """Check that the base's plan is recorded with each frame for a whole chunk.

    Raises:
        ConfigError: there is no base, or its plan is shorter.
    """
    ahead = spec.observation[BASE_ACTION].shape[0] if BASE_ACTION in spec.observation else 0
    if ahead < chunk:
        raise ConfigError(
            "a head that builds on the base's plan needs it for the whole chunk",
            expected=f"base.ahead of at least algo.chunk={chunk}",
            got=f"{ahead}" if ahead else "no base",
            fix=f"base=flow base.run=RUN base.ahead={chunk}",
        )
