"""Behaviour cloning: imitate every step that a person drove. The baseline that RL has to beat.

    actor_loss    L = mean_B |tanh(mean(s)) - a|^2
    gripper_loss  cross entropy of the commanded index under softmax of the gripper head

On corrections as well as demonstrations it is HG-DAgger (arXiv 1810.02890), trained continuously.
With `own_successes` it has RaC's data (arXiv 2509.07953): demonstrations, recoveries, corrections,
and the robot's own steps only where it succeeded alone.

Deviations: HG-DAgger and RaC retrain per round; here the same network goes on. RaC clones chunks
with flow matching; here one step with a Gaussian. The spread is not learned:
recorded actions are clipped at +-1, where a likelihood explodes. States are standardised as in
`actor_critic`. Metrics: actor/loss, gripper/loss, optimizer/skipped, optimizer/bad_in_a_row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from robot_rl.config.registry import register
from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.base import Sampler, Trained
from robot_rl.learn.replay import Batch, View
from robot_rl.nets.actor import ActorNet, gripper_index
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.spec import Spec
from robot_rl.types import Observation


@register("algo", "bc")
@dataclass(frozen=True, kw_only=True)
class BcConfig:
    """Network and optimiser are those of the RL that it is compared with."""

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    batch_size: int = 256
    encoder: EncoderConfig = field(default_factory=EncoderConfig)  # used when there are images
    own_successes: bool = False  # RaC: also clone episodes that succeeded without a person
    std: float = 0.05  # of the noise when it practises

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.batch_size < 1 or self.learning_rate <= 0.0 or not self.hidden:
            raise ValueError("batch_size and learning_rate must be positive, hidden not empty")
        if not 0.0 < self.std <= 1.0:
            raise ValueError(f"std must lie in (0, 1], got {self.std}")

    @property
    def view(self) -> View:
        """What the replay shall offer."""
        return View(demo_only=True, own_successes=self.own_successes)

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Bc:
        """A fresh learner."""
        return Bc.init(self, spec, seed, device)

    def make_actor(self, spec: Spec) -> ActorNet:
        """The network that drives."""
        return ActorNet.from_spec(spec, self.hidden, encoder=self.encoder)


class Bc(Trained[ActorNet]):
    """State and losses; the methods are those of every algorithm."""

    losses = ("actor_loss", "gripper_loss")
    steps_per_update = 1
    demo_fraction = 1.0  # of every batch

    def __init__(
        self, config: BcConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.config = config
        self.view = config.view
        self.net = config.make_actor(spec)
        self.actor = {k: v.to(self.device) for k, v in self.net.init(generator, config.std).items()}
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)
        learned = {k: self.actor[k] for k in ("policy", "gripper", "encoder") if k in self.actor}
        for tensor in learned.values():
            tensor.requires_grad_()
        self.optimizer = Adam(learned, config.learning_rate)

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A] for observations with a leading batch axis."""
        return self.net.act(
            observation, self.actor, deterministic=deterministic, generator=self.generator
        )

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """One gradient step."""
        batch = sample(self.batch_size, self.demo_fraction)
        features = self._features(batch.observation)
        action = self.imitated(batch)
        loss = self.actor_loss(features, action[:, : self.net.pose_size])
        metrics = {"actor/loss": loss.detach()}
        if self.net.gripper:
            gripper_loss = self.gripper_loss(features, action[:, -1])
            metrics["gripper/loss"] = gripper_loss.detach()
            loss = loss + gripper_loss
        self.optimizer.step(loss)
        self.updates += 1
        return metrics | self.optimizer.counts()

    def imitated(self, batch: Batch) -> Tensor:
        """Actions [B, A] to imitate: what the person did."""
        return self._tensor(batch.action)

    def actor_loss(self, features: Tensor, pose_action: Tensor) -> Tensor:
        """Squared distance of the policy's mean action from the person's, mean of the batch."""
        mean, _ = self.net.distribution(features, self.actor["policy"])
        return (torch.tanh(mean) - pose_action).square().sum(-1).mean()

    def gripper_loss(self, features: Tensor, command: Tensor) -> Tensor:
        """Cross entropy of the person's gripper command."""
        assert self.net.gripper is not None
        logits = self.net.gripper(features, self.actor["gripper"])[0]
        return cross_entropy(logits, gripper_index(command))

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"actor/{k}": v for k, v in self.actor.items()} | {"updates": self.updates}
        return tensors | {f"optimizer/{k}": v for k, v in self.optimizer.state_dict().items()}
