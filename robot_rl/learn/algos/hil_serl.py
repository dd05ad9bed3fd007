"""HIL-SERL's learner: SAC with a critic ensemble, half the batch from people, a discrete gripper.

Papers: SAC (arXiv 1801.01290, 1812.05905), RLPD (arXiv 2302.02948), HIL-SERL (arXiv 2410.21845).
Notation: transition (s, a, r, s', m), m = 1 - terminated; critics Q_i with slow copies Q'_i; policy
pi; temperature alpha; a~ is drawn from the policy with the reparameterisation trick.

    critic_loss       y = r + gamma^n m min_{i in S} Q'_i(s', a'), a' ~ pi(s'), S a random subset,
                      r the discounted rewards of n steps (`n_step`; 1 = HIL-SERL)
                      L = mean_i mean_B (Q_i(s, a) - y)^2     (y clipped to `value_range`, if given,
                      as far as it is possible in s: `Batch.room`)
                      with `value_bins` the critics predict histograms, L is a cross entropy
    gripper_loss      y = r - penalty toggle + gamma m Q'_g(s', argmax_k Q_g(s', k))
                      L = mean_B (Q_g(s, k) - y)^2                               (Double DQN)
    actor_loss        L = mean_B [ alpha log pi(a~|s) - mean_i Q_i(s, a~) ]
                        + bc_weight mean_human |tanh(mean(s)) - a|^2             (off by default)
    temperature_loss  L = alpha mean_B( -log pi(a~|s) - H ), alpha = softplus(x), H = -|A| / 2
    slow copies       Q' <- tau Q + (1 - tau) Q' after every critic step, encoder included;
                      with `policy_tau` < 1 a slow copy of the policy drives, after every actor step

RLIF (arXiv 2311.12996) is the same learner with another reward (`configs/algo/rlif.yaml`): -1 on
the policy's last step before a person took over, 0 elsewhere, and m = 1 always.

On a base policy (`residual` > 0) it is ResFiT's (arXiv 2509.19301): the executed action is
a = clip(a_base + residual u) with u ~ pi(s, a_base), when acting, in the target (with what the base
said in s') and in the actor's loss. Deviations: critics see a_base and (a - a_base) / residual
beside a, theirs the sum alone; the gripper is the base's until another command is worth
`gripper_margin` more; u may be a squashed Gaussian (`td3` has their deterministic one).

All random numbers are drawn on the CPU, so that a seed means the same on every device.

With cameras, s is the scaled state and the encoded images (`nets.encoder`). The critic's loss alone
trains the encoder; policy and temperature see its features as given. s' is seen by Q' through the
slow encoder. Each image is shifted anew per draw (DrQ with K = M = 1).

One `update` = `critic_actor_ratio` critic (and gripper) steps on fresh batches, then one actor and
temperature step on the last batch.

Deviations from HIL-SERL's code: |A| counts the pose dimensions only (the gripper has its own head);
ReLU, as in RLPD, instead of tanh (30x cheaper on a CPU, and the point task is learned sooner);
states are standardised with the moments of the first data, frozen then; Q starts near 0, not at
random values that the actor would chase (the point task takes a third of the steps); time limits
bootstrap (m = 1); an averaged policy may drive (Polyak and Juditsky 1992): the newest one is better
or worse from update to update, most visibly where contact punishes haste; a toggle is a command
opposite to the last command, not to the measured width; the gripper may explore
(`gripper_epsilon`), theirs never does; with cameras, a' and the gripper's argmax come from the
encoder as it was one update ago and from the slow one; a step with a non-finite gradient is
skipped; products may be bfloat16 (`precision`).

Metrics: critic/loss, critic/q_mean, critic/target_mean, actor/loss, actor/entropy, actor/bc_loss,
temperature/value, gripper/loss, gripper/q_mean, optimizer/skipped, optimizer/bad_in_a_row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from robot_rl.config.registry import register
from robot_rl.learn.algos.base import Adam, Sampler, Trained
from robot_rl.learn.replay import Batch, View
from robot_rl.nets import heads
from robot_rl.nets.actor import ActorNet, gripper_index
from robot_rl.nets.cpu import has_native_bf16
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import ACTIVATIONS, EnsembleMLP
from robot_rl.spec import Spec
from robot_rl.types import Observation

BF16_WIDTH = 256  # of a layer: from here on bfloat16 pays on a CPU (10 % at 256, with AMX)


@register("algo", "hil_serl")
@dataclass(frozen=True, kw_only=True)
class HilSerlConfig:
    """Defaults are HIL-SERL's, where nothing else is said."""

    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"  # "tanh" is HIL-SERL's; see the deviations
    critics: int = 2  # RLPD and SERL: 10
    target_subset: int = 2  # critics that vote on each target
    gamma: float = 0.97  # horizon of 33 steps; 0.98-0.985 above 120 steps
    tau: float = 0.005
    policy_tau: float = 1.0  # how fast the policy that drives follows the newest; 1 = is the newest
    learning_rate: float = 3e-4
    batch_size: int = 256
    demo_fraction: float = 0.5  # RLPD's symmetric sampling; 0 = plain SAC
    critic_actor_ratio: int = 2
    temperature_init: float = 0.01
    std_init: float = 1.0  # of the untrained policy, before the squash; less = a calmer start
    target_entropy_per_dim: float = -0.5
    residual: float = (
        0.0  # > 0: correct the base's action by at most this much (ResFiT: 0.1 to 0.2)
    )
    gripper_margin: float = 0.05  # of value, until the base's gripper command is overruled
    actor_learning_rate: float | None = None  # None = learning_rate; ResFiT's is 100 times smaller
    actor_delay_updates: int = 0  # updates of the critics alone, before the actor begins
    n_step: int = 1  # DrQ-v2 and ResFiT: 3; ends at a change of hands
    task_reward: bool = True  # False = RLIF: only takeovers count
    takeover_penalty: float = 0.0  # charged on the policy's last step before a takeover; RLIF: 1
    backup_entropy: bool = False  # an entropy bonus drowns a sparse reward
    gripper_penalty: float = 0.02  # charged per reversal
    gripper_epsilon: float = 0.0  # HIL-SERL: exploration of the gripper comes from the person
    bc_weight: float = 0.0  # pull the mean towards human actions; 0 = HIL-SERL
    bc_decay_updates: int = 0  # actor steps until bc_weight has faded to 0; 0 = never fades
    value_range: tuple[float, float] | None = None  # known bounds of the return, e.g. (0, 1)
    value_bins: int = 0  # critics predict histograms over value_range (HL-Gauss); 0 = numbers
    standardize: bool = True  # a millimetre and a radian both become about 1
    encoder: EncoderConfig = field(default_factory=EncoderConfig)  # used when there are images
    precision: str = "auto"  # float32 | bfloat16 | auto: bfloat16 where it is faster, see bf16()

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 1 <= self.target_subset <= self.critics:
            raise ValueError(f"target_subset must lie in 1..critics, got {self.target_subset}")
        taus = (self.tau, self.policy_tau)
        if not 0.0 < self.gamma < 1.0 or min(taus) <= 0.0 or max(taus) > 1.0:
            raise ValueError("gamma must lie in (0, 1), tau and policy_tau in (0, 1]")
        if not 0.0 <= self.demo_fraction <= 1.0 or not 0.0 <= self.gripper_epsilon <= 1.0:
            raise ValueError("demo_fraction and gripper_epsilon must lie in [0, 1]")
        if min(self.batch_size, self.critic_actor_ratio, *self.hidden, len(self.hidden)) < 1:
            raise ValueError("batch_size, critic_actor_ratio and hidden must be at least 1")
        rates = (self.learning_rate, self.actor_learning_rate or self.learning_rate)
        if min(*rates, self.temperature_init, self.std_init) <= 0.0:
            raise ValueError("learning rates, temperature_init and std_init must be positive")
        if self.value_range is not None and self.value_range[0] >= self.value_range[1]:
            raise ValueError(f"value_range must be (low, high), got {self.value_range}")
        if self.value_bins and (self.value_bins < 2 or self.value_range is None):
            raise ValueError("value_bins needs a value_range, and at least 2 bins")
        charges = (self.gripper_penalty, self.takeover_penalty, self.bc_weight)
        if min(*charges, self.bc_decay_updates, self.actor_delay_updates) < 0:
            raise ValueError("penalties, bc_weight and numbers of updates must not be negative")
        if not 0.0 <= self.residual <= 1.0:
            raise ValueError(f"residual must lie in [0, 1], got {self.residual}")
        if self.n_step < 1:
            raise ValueError(f"n_step must be at least 1, got {self.n_step}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {self.activation}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"precision must be auto, float32 or bfloat16, got {self.precision}")

    def bf16(self, device: str = "cpu", images: bool = False) -> bool:
        """Whether matrix products run in bfloat16 on a kind of device of this machine.

        auto: on a GPU, and on a CPU that has it in hardware for layers of `BF16_WIDTH` or images.
        Converting back and forth costs narrow layers more than it saves (policy_decorator, layers
        of 128, batches of 128, a CPU with AMX: 255 updates/s in bfloat16, 316 in float32).
        """
        wide = images or max(self.hidden) >= BF16_WIDTH
        faster = device == "cuda" or (has_native_bf16() and wide)
        return self.precision == "bfloat16" or (self.precision == "auto" and faster)

    @property
    def view(self) -> View:
        """What the replay shall offer."""
        return View(n_step=self.n_step, gamma=self.gamma)

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> HilSerl:
        """A fresh learner."""
        return HilSerl.init(self, spec, seed, device)

    def make_actor(self, spec: Spec) -> ActorNet:
        """The network that drives, always in float32."""
        return self.net(spec, bf16=False)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """The same, maybe with products in bfloat16."""
        return ActorNet.from_spec(
            spec,
            self.hidden,
            activation=self.activation,
            bf16=bf16,
            encoder=self.encoder,
            residual=self.residual,
            gripper_margin=self.gripper_margin,
        )


class Transitions(NamedTuple):
    """A batch as tensors; states are scaled. Shapes [B, ...], see `replay.Batch`.

    `HilSerl.see` replaces state and next_state by features: from then on the images are not needed.
    """

    state: Tensor
    action: Tensor
    reward: Tensor
    next_state: Tensor
    mask: Tensor
    human: Tensor
    toggle: Tensor
    next_action: Tensor  # a' ~ pi(s'), and its log probability
    next_log_prob: Tensor
    discount: Tensor  # gamma^n
    return_to_go: Tensor
    room: Tensor  # [B, 2]
    base: Tensor  # [B, ?]: what the net needs of the base in s, and in s' (`ActorNet.base`)
    next_base: Tensor
    images: dict[str, Tensor]  # camera key -> uint8 [B, H, W, C], shifted
    next_images: dict[str, Tensor]

    def part(self, index: int, size: int) -> Transitions:
        """Rows `index * size` to `(index + 1) * size`."""
        rows = slice(index * size, (index + 1) * size)
        cut = ({k: v[rows] for k, v in x.items()} if isinstance(x, dict) else x[rows] for x in self)
        return Transitions(*cut)  # type: ignore[arg-type]


class HilSerl(Trained[ActorNet]):
    """State and losses. `init` makes one; `update` is all that a learner calls."""

    losses = ("critic_loss", "gripper_loss", "actor_loss", "_next_action", "see")
    follows: ClassVar[Mapping[str, str]] = {  # slow copy -> what of the actor it follows
        "policy_slow": "policy",
        "encoder_slow": "encoder",
        "gripper_slow": "gripper",
    }

    def __init__(
        self, config: HilSerlConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.config, bf16 = config, config.bf16(self.device.type, bool(spec.cameras))
        self.view = config.view
        self.steps_per_update = config.critic_actor_ratio
        self.net = config.net(spec, bf16)
        self.histogram: heads.HlGauss | None = None
        if config.value_bins and config.value_range:
            self.histogram = heads.HlGauss(*config.value_range, config.value_bins, self.device)
        outputs = config.value_bins or 1
        sizes = (self.net.feature_size + self.net.judged_size, *config.hidden, outputs)
        self.critic_net = EnsembleMLP(config.critics, sizes, config.activation, bf16)
        actor = self.net.init(generator, config.std_init)
        self.actor = {k: v.to(self.device) for k, v in actor.items()}
        self.critic = self.critic_net.init(generator, last_scale=0.01).to(self.device)
        if self.histogram:  # starts near 0, as numbers do
            start = (self.histogram.encode(torch.zeros((), device=self.device)) + 1e-4).log()
            self.critic_net.layers(self.critic)[-1][1].copy_(start)
        self.critic_slow = self.critic.clone()
        self.gripper_slow = self.actor["gripper"].clone() if self.net.gripper else None
        self.encoder_slow = self.actor["encoder"].clone() if self.net.encoder else None
        self.policy_slow = self.actor["policy"].clone() if config.policy_tau < 1.0 else None
        temperature = math.log(math.expm1(config.temperature_init))
        self.temperature = torch.tensor(temperature, device=self.device)
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)
        self._delay = config.actor_delay_updates  # updates left of it
        critics = {"critic": self.critic}
        critics |= {k: self.actor[k] for k in ("gripper", "encoder") if k in self.actor}
        for tensor in (*critics.values(), self.temperature, self.actor["policy"]):
            tensor.requires_grad_()
        self.critic_optimizer = Adam(critics, config.learning_rate)
        self.actor_optimizer = Adam(
            {"policy": self.actor["policy"], "temperature": self.temperature},
            config.actor_learning_rate or config.learning_rate,
        )

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A] for observations with a leading batch axis."""
        return self.net.act(
            observation,
            self.actor_state(),
            deterministic=deterministic,
            generator=self.generator,
            gripper_epsilon=self.config.gripper_epsilon,
        )

    @torch.no_grad()
    def worth(self, observation: Observation, action: NDArray[np.float32]) -> Tensor:
        """What the critics, on average, think of recorded actions [B, A]: [B]."""
        features = self.net.look(observation, self.actor)
        base = self.net.base(observation, self.actor)
        pose = self._tensor(action)[:, : self.net.pose_size]
        return self._q(features, pose, base, self.critic).mean(0)

    def actor_state(self) -> dict[str, Tensor]:
        """As in `Trained`; where a slow policy drives, it sees and grips with the slow copies."""
        if self.policy_slow is None:
            return super().actor_state()
        slow = {
            "policy": self.policy_slow,
            "encoder": self.encoder_slow,
            "gripper": self.gripper_slow,
        }
        return super().actor_state() | {k: v for k, v in slow.items() if v is not None}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As in `Trained`."""
        super().load_state_dict(state)
        self._delay = max(0, self.config.actor_delay_updates - int(self.updates))

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """As in `Trained`; slow copies that were not kept there begin as what they follow."""
        names = {k: f"actor/{v}" for k, v in self.follows.items()}
        actor = {k: state[v] for k, v in names.items() if v in state}
        super().start_from(actor | dict(state))

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """`critic_actor_ratio` critic steps and one actor step; returns scalar metrics."""
        config = self.config
        if config.standardize:
            self._standardize(sample, config.demo_fraction)
        everything = self.transitions(
            sample(self.batch_size * self.steps_per_update, config.demo_fraction)
        )
        metrics: dict[str, Tensor] = {}
        batch = everything
        for index in range(self.steps_per_update):
            batch = self.see(everything.part(index, self.batch_size))
            metrics |= self._critic_step(batch)
        if self._delay:
            self._delay -= 1
        else:
            metrics |= self._actor_step(batch._replace(state=batch.state.detach()))
        self.updates += 1
        return {k: v.detach() for k, v in metrics.items()} | {
            "optimizer/skipped": self.critic_optimizer.skipped + self.actor_optimizer.skipped,
            "optimizer/bad_in_a_row": torch.maximum(
                self.critic_optimizer.bad_in_a_row, self.actor_optimizer.bad_in_a_row
            ),
        }

    @torch.no_grad()
    def transitions(self, batch: Batch) -> Transitions:
        """Tensors of a batch, with a' drawn for all critic steps at once (pi rests meanwhile)."""
        net, config = self.net, self.config
        state = net.scaled(net.state(batch.observation), self.actor)
        next_state = net.scaled(net.state(batch.next_observation), self.actor)
        images, next_images = (
            self._look(observation) for observation in (batch.observation, batch.next_observation)
        )
        features = net.features(next_state, next_images, self.actor.get("encoder"))
        base, next_base = (
            net.base(observation, self.actor, self.generator)
            for observation in (batch.observation, batch.next_observation)
        )
        next_action, next_log_prob = self._next_action(features, next_base)
        nowhere = np.zeros((len(batch.mask), 2), np.float32)
        return Transitions(
            state=state,
            action=self._executed(batch),
            reward=self._reward(batch),
            next_state=next_state,
            mask=self._tensor(batch.mask if config.task_reward else np.ones_like(batch.mask)),
            human=self._tensor(batch.human),
            toggle=self._tensor(batch.toggle),
            next_action=next_action,
            next_log_prob=next_log_prob,
            discount=config.gamma ** self._tensor(batch.steps),
            return_to_go=self._tensor(batch.return_to_go),
            room=self._tensor(nowhere if batch.room is None else batch.room),
            base=base,
            next_base=next_base,
            images=images,
            next_images=next_images,
        )

    def see(self, batch: Transitions) -> Transitions:
        """States to features: s with the gradient that trains the encoder, s' with the slow one."""
        if self.encoder_slow is None:
            return batch
        with torch.no_grad():
            after = self.net.features(batch.next_state, batch.next_images, self.encoder_slow)
        now = self.net.features(batch.state, batch.images, self.actor["encoder"])
        return batch._replace(state=now, next_state=after, images={}, next_images={})

    def critic_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """TD error of every critic against the lowest of a random subset of slow critics."""
        config = self.config
        slow = self.critic_slow
        if config.target_subset < config.critics:
            order = torch.randperm(config.critics, generator=self.generator)
            slow = slow[order[: config.target_subset].to(self.device)]
        with torch.no_grad():
            value = self._q(batch.next_state, batch.next_action, batch.next_base, slow).amin(0)
            if config.backup_entropy:
                value -= softplus(self.temperature) * batch.next_log_prob
            target = batch.reward + batch.discount * batch.mask * value
        return self.td_loss(batch, self.possible(batch, target))

    def possible(self, batch: Transitions, value: Tensor) -> Tensor:
        """Values [B] in the states of a batch, clipped to what they can be there."""
        if self.config.value_range is None:
            return value
        (low, high), (above, below) = self.config.value_range, batch.room.unbind(-1)
        return torch.minimum(torch.maximum(value, low + above), high - below)

    def td_loss(self, batch: Transitions, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """How far every critic is from targets [B] on the recorded actions."""
        action = batch.action[:, : self.net.pose_size]
        output = self._judge(batch.state, action, batch.base, self.critic)
        if self.histogram:
            loss, q = self.histogram.loss(output, target), self.histogram.value(output)
        else:
            q = output.squeeze(-1)
            loss = (q - target).square().mean()
        return loss, {
            "critic/loss": loss,
            "critic/q_mean": q.mean(),
            "critic/target_mean": target.mean(),
        }

    def gripper_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Double DQN over close, keep, open; the penalty is part of the reward in every step."""
        net, fast, slow = self.net.gripper, self.actor.get("gripper"), self.gripper_slow
        assert net is not None and fast is not None and slow is not None
        with torch.no_grad():
            best = self.net.choose_gripper(net(batch.next_state, fast)[0], batch.next_base)
            value = net(batch.next_state, slow)[0].gather(-1, best[:, None]).squeeze(-1)
            reward = batch.reward - self.config.gripper_penalty * batch.toggle
            target = reward + batch.discount * batch.mask * value
        taken = gripper_index(batch.action[:, -1]).unsqueeze(-1)
        q = net(batch.state, fast)[0].gather(-1, taken).squeeze(-1)
        loss = (q - target).square().mean()
        return loss, {"gripper/loss": loss, "gripper/q_mean": q.mean()}

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """(loss, log_prob [B], metrics). The critics judge, and take no gradient."""
        mean, log_std = self.net.distribution(batch.state, self.actor["policy"])
        decision, log_prob = self._draw(mean, log_std)
        action = self.net.compose(decision, batch.base, self.actor)
        q = self._q(batch.state, action, batch.base, self.critic.detach())
        loss = self._soft(q.mean(0), log_prob)
        metrics = {"actor/loss": loss, "actor/entropy": -log_prob.mean()}
        if self.config.bc_weight > 0.0:
            mean_action = self.net.compose(torch.tanh(mean), batch.base, self.actor)
            error = (mean_action - batch.action[:, : self.net.pose_size]).square().sum(-1)
            bc = (error * batch.human).sum() / batch.human.sum().clamp_min(1)
            loss = loss + self._bc_weight() * bc
            metrics["actor/bc_loss"] = bc
        return loss, log_prob, metrics

    def temperature_loss(self, log_prob: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Raises alpha while the entropy is below its target, lowers it above."""
        alpha = softplus(self.temperature)
        target = self.config.target_entropy_per_dim * self.net.decision_size
        loss = alpha * (-log_prob.detach() - target).mean()
        return loss, {"temperature/value": alpha}

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"actor/{k}": v for k, v in self.actor.items()}
        tensors |= {"critic": self.critic, "critic_slow": self.critic_slow}
        tensors |= {"temperature": self.temperature, "updates": self.updates}
        if self.encoder_slow is not None:
            tensors["encoder_slow"] = self.encoder_slow
        if self.policy_slow is not None:
            tensors["policy_slow"] = self.policy_slow
        if self.gripper_slow is not None:
            tensors["gripper_slow"] = self.gripper_slow
        for name, adam in (("critic", self.critic_optimizer), ("actor", self.actor_optimizer)):
            tensors |= {f"{name}_optimizer/{k}": v for k, v in adam.state_dict().items()}
        return tensors

    def _critic_step(self, batch: Transitions) -> dict[str, Tensor]:
        loss, metrics = self.critic_loss(batch)
        if self.gripper_slow is not None:
            gripper_loss, gripper_metrics = self.gripper_loss(batch)
            loss, metrics = loss + gripper_loss, metrics | gripper_metrics
        self.critic_optimizer.step(loss)
        self.critic_slow.lerp_(self.critic.detach(), self.config.tau)
        if self.gripper_slow is not None:
            self.gripper_slow.lerp_(self.actor["gripper"].detach(), self.config.tau)
        if self.encoder_slow is not None:
            self.encoder_slow.lerp_(self.actor["encoder"].detach(), self.config.tau)
        return metrics

    def _actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        loss, log_prob, metrics = self.actor_loss(batch)
        temperature_loss, temperature_metrics = self.temperature_loss(log_prob)
        self.actor_optimizer.step(loss + temperature_loss)  # they share no parameter
        if self.policy_slow is not None:
            self.policy_slow.lerp_(self.actor["policy"].detach(), self.config.policy_tau)
        return metrics | temperature_metrics

    def _q(self, state: Tensor, action: Tensor, base: Tensor, critics: Tensor) -> Tensor:
        """Values [E, B]."""
        output = self._judge(state, action, base, critics)
        return self.histogram.value(output) if self.histogram else output.squeeze(-1)

    def _judge(self, state: Tensor, action: Tensor, base: Tensor, critics: Tensor) -> Tensor:
        """What the critics put out for pose actions: numbers [E, B, 1], or logits [E, B, K]."""
        return self.critic_net(torch.cat((state, self.net.judged(action, base)), -1), critics)

    def _reward(self, batch: Batch) -> Tensor:
        """What a step is worth: the task's reward, or what the person's takeovers say (RLIF)."""
        reward = self._tensor(batch.reward)
        if not self.config.task_reward:
            reward = torch.zeros_like(reward)
        if self.config.takeover_penalty:
            reward = reward - self.config.takeover_penalty * self._tensor(batch.before_takeover)
        return reward

    def _executed(self, batch: Batch) -> Tensor:
        """The actions that critics learn from: [B, A]."""
        return self._tensor(self.net.executed(batch))

    def _next_action(self, features: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's action [B, pose] in s' for the target, and its log probability [B]."""
        decision, log_prob = self._draw(*self.net.distribution(features, self.actor["policy"]))
        return self.net.compose(decision, base, self.actor), log_prob

    def _draw(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.randn(mean.shape, generator=self.generator)
        return heads.sample(mean, log_std, noise.to(self.device))

    def _soft(self, worth: Tensor, log_prob: Tensor) -> Tensor:
        """SAC's actor loss: value [B] and entropy of what was drawn, the larger the better."""
        return (softplus(self.temperature.detach()) * log_prob - worth).mean()

    def _bc_weight(self) -> Tensor | float:
        fade = self.config.bc_decay_updates
        left = 1.0 - self.updates / fade if fade else torch.ones((), device=self.device)
        return self.config.bc_weight * left.clamp_min(0.0)
