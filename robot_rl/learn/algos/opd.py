"""On-policy distillation: a small policy imitates what the base would do in the small one's states.

Paper: VLA-OPD (arXiv 2603.26666). A large and slow base policy becomes a small one, which looks at
the state or the pictures alone and needs no base afterwards. This is `bc` with the base in the
place of the person, in the states that the small policy itself gets into. For Gaussians of fixed
spread the reverse KL is the squared distance of the means.

Deviation: VLA-OPD follows a score-function gradient of token probabilities; a base here gives
actions, not densities. Metrics: those of `bc`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.learn.algos.bc import Bc, BcConfig
from robot_rl.learn.replay import Batch, View
from robot_rl.nets.actor import ActorNet
from robot_rl.spec import BASE_ACTION, Spec


@register("algo", "opd")
@dataclass(frozen=True, kw_only=True)
class OpdConfig(BcConfig):
    """The keys of `bc`; a base has to be given."""

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.own_successes:
            raise ValueError("own_successes has no meaning with a teacher: it is asked everywhere")

    @property
    def view(self) -> View:
        """What the replay shall offer: every state, whoever drove."""
        return View()

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Opd:
        """A fresh learner."""
        return Opd.init(self, spec, seed, device)

    def make_actor(self, spec: Spec) -> ActorNet:
        """The network that drives.

        Raises:
            ConfigError: there is no base.
        """
        if BASE_ACTION not in spec.observation:
            raise ConfigError(
                "distillation needs a base policy, which teaches",
                expected="base=..., whose next action is recorded with each frame",
                got="no base",
                fix="base=served base.run=FOLDER base.execute=1, or imitate people: algo=bc",
            )
        return StudentNet.from_spec(spec.without_base(), self.hidden, encoder=self.encoder)


class Opd(Bc):
    """`Bc` that imitates the base."""

    demo_fraction = 0.5

    def imitated(self, batch: Batch) -> Tensor:
        """What the base would do in these states: [B, A]."""
        return self._tensor(batch.observation[BASE_ACTION][:, 0])


class StudentNet(ActorNet):
    """An actor that does not see the base's actions; only its training does."""

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """What the actor looks at, and the actions of the teacher."""
        return (*super().observation_keys, BASE_ACTION)
