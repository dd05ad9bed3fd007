"""DSRL-SAC (arXiv 2506.15799): soft actor-critic whose action is the noise that a base starts from.

The learner never asks the base, so the base may be large, slow and elsewhere (`base=served`): each
frame says which noise its plan came from and how many ticks ago that noise was decided. A
transition begins where a plan begins and ends where the next plan begins:

    (s_t, w, sum_{k<n} gamma^k r_{t+k}, s_{t+n}),  n <= `span`

Everything else is SAC's (`actor_critic`) with w in the place of the action. Steps that a person
drove have no noise and are not learned from; `algo=dsrl`, which runs the base, learns from them.

Deviations: noise is decided at `knots` moments of a chunk, linear in between (1 = the same in the
whole chunk, as in dsrl_pi0); if the base answers later than within a tick, a plan counts as decided
when it arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.actor_critic import ActorCritic
from robot_rl.learn.algos.agent import ActorCriticConfig
from robot_rl.learn.algos.base import Sampler
from robot_rl.learn.algos.small_sparse import SmallSparse
from robot_rl.learn.replay import View
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.noise import NoiseNet
from robot_rl.spec import Spec


@register("algo", "dsrl_sac")
@dataclass(frozen=True, kw_only=True)
class DsrlSacConfig(SmallSparse, ActorCriticConfig):
    """DSRL's numbers where the task does not decide."""

    demo_fraction: float = 0.0  # people choose no noise
    knots: int = 4  # moments of a chunk at which noise is decided
    reach: float = 1.5  # of a decision, in standard deviations of the noise
    span: int = 16  # steps that a transition covers at most; a plan lasts base.execute, or less

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if min(self.knots, self.span) < 1 or self.reach <= 0.0:
            raise ValueError("knots and span must be at least 1, reach positive")
        if self.n_step != 1:
            raise ValueError("returns of a noise head span a plan: n_step stays 1")

    @property
    def view(self) -> View:
        """What the replay shall offer: plans of the base, each as one transition."""
        return View(n_step=self.span, gamma=self.gamma, decisions=True)

    def noise_size(self, spec: Spec) -> int:
        """Numbers of a decision, recorded with each frame."""
        return self.knots * spec.action.size

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> DsrlSac:
        """A fresh learner."""
        return DsrlSac.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`."""
        return NoiseNet.of_base(
            spec,
            self.hidden,
            bf16=bf16,
            encoder=self.encoder,
            knots=self.knots,
            reach=self.reach,
        )


class DsrlSac(ActorCritic):
    """As `ActorCritic`, for decisions about noise."""

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """As in `ActorCritic`; from the first update on, the policy decides."""
        metrics = super().update(sample)
        self.actor["share"].fill_(1.0)
        return metrics
