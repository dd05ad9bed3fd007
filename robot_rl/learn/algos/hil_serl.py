"""HIL-SERL's learner: SAC with a critic ensemble, half the batch from people, a discrete gripper.

Paper: HIL-SERL (arXiv 2410.21845). Pose and critics are those of `actor_critic`. For an arm with a
gripper, a critic Q_g of its own values the three commands k (close, keep, open); it is trained in
the same step:

    gripper_loss  y = r - penalty toggle + gamma m Q'_g(s', argmax_k Q_g(s', k))
                  L = mean_B (Q_g(s, k) - y)^2                                    (Double DQN)

Deviations from HIL-SERL's code, besides those of `actor_critic`: |A| counts the pose dimensions
only (the gripper has its own head); ReLU, as in RLPD, instead of tanh (30x cheaper on a CPU, and
the point task is learned sooner); a toggle is a command opposite to the last command, not to the
measured width; the gripper may explore (`gripper_epsilon`), in HIL-SERL it never does; with cameras
the argmax over commands sees s' through the slow encoder.

Metrics: those of `actor_critic`, gripper/loss, gripper/q_mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.actor_critic import ActorCritic
from robot_rl.learn.algos.agent import ActorCriticConfig
from robot_rl.learn.algos.asymmetric import Asymmetric
from robot_rl.learn.algos.taco import Taco
from robot_rl.learn.transitions import Transitions
from robot_rl.nets.actor import gripper_index
from robot_rl.spec import Spec


@register("algo", "hil_serl")
@dataclass(frozen=True, kw_only=True)
class HilSerlConfig(ActorCriticConfig):
    """HIL-SERL's numbers where `ActorCriticConfig` has none."""

    gripper_penalty: float = 0.02  # charged per reversal
    gripper_epsilon: float = 0.0  # HIL-SERL: exploration of the gripper comes from the person
    estimate_weight: float = 1.0  # where critics see more than the policy: see `asymmetric`
    taco_weight: float = 0.0  # elsewhere, of what the encoder learns beside values: see `taco`

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.gripper_penalty < 0.0 or not 0.0 <= self.gripper_epsilon <= 1.0:
            raise ValueError("gripper_penalty must be >= 0, gripper_epsilon lie in [0, 1]")
        if min(self.estimate_weight, self.taco_weight) < 0.0:
            got = f"{self.estimate_weight} and {self.taco_weight}"
            raise ValueError(f"estimate_weight and taco_weight must not be negative, got {got}")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> HilSerl:
        """A fresh learner; an asymmetric one where the observation has privileged entries."""
        kind = AsymmetricHilSerl if spec.privileged else HilSerl
        return kind.init(self, spec, seed, device)


class HilSerl(ActorCritic):
    """`ActorCritic`, and a critic of the gripper's commands."""

    losses = (*ActorCritic.losses, "gripper_loss")
    learned_with_critics = ("encoder", "gripper")
    taco: Taco | None = None

    def __init__(
        self, config: Any, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        if config.taco_weight and "encoder" in self.critics:
            self.taco = Taco(self.net, spec.action.size, generator, self.device)
            learned, decay = self.critics | self.taco.tensors, config.critic_weight_decay
            self.critic_optimizer = Adam(learned, config.learning_rate, decay, self.net.fixed)

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """As in `Agent`, but logits of a gripper are not taken for the values of its commands.

        After IQL its own Q_g begins here, after cloning, which has none, a fresh one.
        """
        logits = "gripper_critic" in state or "gripper_slow" not in state
        if self.net.gripper and logits and "actor/gripper" in state:
            values = state.get("gripper_critic", self.actor["gripper"]).detach()
            moments = "critic_optimizer/gripper/"  # of the logits
            state = {k: v for k, v in state.items() if not k.startswith(moments)}
            state |= {"actor/gripper": values, "gripper_slow": values}
        super().start_from(state)

    def critic_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the losses of pose critics, gripper critic and TACO in one, and metrics."""
        loss, metrics = super().critic_loss(batch)
        if self.taco is not None:
            taco_loss, taco_metrics = self.taco.loss(batch)
            loss, metrics = loss + self.config.taco_weight * taco_loss, metrics | taco_metrics
        if self.net.gripper is None:
            return loss, metrics
        gripper_loss, gripper_metrics = self.gripper_loss(batch)
        return loss + gripper_loss, metrics | gripper_metrics

    def gripper_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Double DQN over close, keep, open; the penalty for a toggle is part of the reward."""
        net = self.net.gripper
        assert net is not None
        fast, slow, then = self.actor["gripper"], self.slow["gripper"], batch.then
        with torch.no_grad():
            best = self.net.choose_gripper(net(then.features, fast)[0], then.base)
            value = net(then.features, slow)[0].gather(-1, best[:, None]).squeeze(-1)
            reward = batch.reward - self.config.gripper_penalty * batch.toggle
            target = reward + batch.discount * batch.mask * value
        taken = gripper_index(batch.action[:, -1]).unsqueeze(-1)
        q = net(batch.now.features, fast)[0].gather(-1, taken).squeeze(-1)
        loss = (q - target).square().mean()
        return loss, {"gripper/loss": loss, "gripper/q_mean": q.mean()}

    def _tensors(self) -> dict[str, Tensor]:
        return super()._tensors() | (self.taco.tensors if self.taco else {})


class AsymmetricHilSerl(Asymmetric, HilSerl):
    """`HilSerl` whose critics see what the policy does not; the gripper's sees what drives it."""

    def critic_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """The pose critics' loss alone: pictures are encoded in the actor step."""
        return ActorCritic.critic_loss(self, batch)

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """As in `Asymmetric`, plus the loss of the gripper's critic."""
        loss, log_prob, metrics = super().actor_loss(batch)
        if self.net.gripper is None:
            return loss, log_prob, metrics
        gripper_loss, gripper_metrics = self.gripper_loss(batch)
        return loss + gripper_loss, log_prob, metrics | gripper_metrics
