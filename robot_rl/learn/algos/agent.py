"""What an actor-critic consists of: networks, slow copies, optimisers, and a batch as they see it.

How it learns is in `actor_critic`. State dicts name every tensor: "actor/..." travels to the robot.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.base import Trained
from robot_rl.learn.replay import Batch, View
from robot_rl.learn.transitions import Moment, Transitions
from robot_rl.nets import heads
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.cpu import bf16_is_faster
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.values import HlGauss, Numbers, Values
from robot_rl.policy.runtime import ExploresGripper
from robot_rl.spec import Spec
from robot_rl.types import Observation

MOST_BEHIND = 250  # practice steps that the policy which drives is behind the newest
BF16_WIDTH = 256  # of a layer: from here on bfloat16 pays on a CPU (10 % at 256, with AMX)


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Defaults are HIL-SERL's, where nothing else is said."""

    hidden: tuple[int, ...] = (256, 256)
    critics: int = 2  # RLPD and SERL: 10
    target_subset: int = 2  # critics that are drawn for each target; the lowest counts
    gamma: float = 0.97  # horizon of 33 steps; 0.98-0.985 above 120 steps
    n_step: int = 1  # DrQ-v2 and ResFiT: 3; ends at a change of driver
    tau: float = 0.005
    policy_tau: float = 1.0  # how fast the policy that drives follows the newest; 1 = at once
    critic_weight_decay: float = 0.0  # of AdamW; of all that the critics' loss trains
    learning_rate: float = 3e-4
    actor_learning_rate: float | None = None  # None = learning_rate; ResFiT's is 100 times smaller
    batch_size: int = 256
    demo_fraction: float = 0.5  # RLPD's symmetric sampling; 0 = plain SAC
    critic_actor_ratio: int = 2
    temperature_init: float = 0.01
    target_entropy_per_dim: float = -0.5
    std_init: float = 1.0  # of the untrained policy, before the squash; less = a calmer start
    value_range: tuple[float, float] | None = None  # known bounds of the return, e.g. (0, 1)
    value_bins: int = 0  # critics predict histograms over value_range (HL-Gauss); 0 = numbers
    encoder: EncoderConfig = field(default_factory=EncoderConfig)  # used when there are images
    precision: str = "auto"  # float32 | bfloat16 | auto: bfloat16 where it is faster, see bf16()

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 1 <= self.target_subset <= self.critics:
            raise ValueError(f"target_subset must lie in 1..critics, got {self.target_subset}")
        if not (0.0 < self.gamma < 1.0 and 0.0 < self.tau <= 1.0 and 0.0 < self.policy_tau <= 1.0):
            raise ValueError("gamma must lie in (0, 1), tau and policy_tau in (0, 1]")
        if not 0.0 <= self.demo_fraction <= 1.0:
            raise ValueError(f"demo_fraction must lie in [0, 1], got {self.demo_fraction}")
        sizes = (self.batch_size, self.critic_actor_ratio, self.n_step, *self.hidden)
        if min(*sizes, len(self.hidden)) < 1:
            raise ValueError("batch_size, critic_actor_ratio, n_step, hidden must be at least 1")
        rates = (self.learning_rate, self.actor_learning_rate or self.learning_rate)
        if min(*rates, self.temperature_init, self.std_init) <= 0.0:
            raise ValueError("learning rates, temperature_init and std_init must be positive")
        if not 0.0 <= self.critic_weight_decay * rates[0] < 1.0:
            raise ValueError("critic_weight_decay must lie in [0, 1 / learning_rate)")
        if self.value_range is not None and self.value_range[0] >= self.value_range[1]:
            raise ValueError(f"value_range must be (low, high), got {self.value_range}")
        if self.value_bins and (self.value_bins < 2 or self.value_range is None):
            raise ValueError("value_bins needs a value_range, and at least 2 bins")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"precision must be auto, float32 or bfloat16, got {self.precision}")

    def bf16(self, device: str = "cpu", images: bool = False) -> bool:
        """Whether matrix products run in bfloat16 on a kind of device of this machine.

        auto: on a GPU; on a CPU that is faster so, for layers of `BF16_WIDTH` or images: narrow
        layers lose more by conversions than they save (docs/design.md has figures).
        """
        wide = images or max(self.hidden) >= BF16_WIDTH
        faster = device == "cuda" or (wide and bf16_is_faster())
        return self.precision == "bfloat16" or (self.precision == "auto" and faster)

    def paced(self, utd: float) -> Self:
        """The same with a `policy_tau` that suits `utd` gradient steps per practice step.

        The last 500 policies are of 125 practice steps at 8 gradient steps each, of 1,000 at one.
        """
        least = self.critic_actor_ratio / utd / MOST_BEHIND
        found = copy(self)  # `replace` would lose a base that was opened
        object.__setattr__(found, "policy_tau", min(max(self.policy_tau, least), 1.0))
        return found

    @property
    def view(self) -> View:
        """What the replay shall offer."""
        return View(n_step=self.n_step, gamma=self.gamma)

    def make_actor(self, spec: Spec) -> ActorNet:
        """The network that drives, always in float32."""
        return self.net(spec, bf16=False)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """The same network; bf16: with products in bfloat16."""
        return ActorNet.from_spec(spec, self.hidden, bf16=bf16, encoder=self.encoder)


class Agent(Trained[ActorNet]):
    """Policy, critics, slow copies and optimisers, and how they see a batch.

    A subclass says how they learn: `ActorCritic`.
    """

    config: Any  # an ActorCriticConfig
    learned_with_critics: ClassVar[tuple[str, ...]] = ("encoder",)  # names of the actor's tensors

    def __init__(
        self, config: Any, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.refuse_privileged()
        self.config, bf16 = config, config.bf16(self.device.type, bool(spec.cameras))
        self.view, self.steps_per_update = config.view, config.critic_actor_ratio
        self.net = config.net(spec, bf16)
        bins, bounds = config.value_bins, config.value_range
        self.values: Values = Numbers()
        if bins and bounds:
            self.values = HlGauss(bounds[0], bounds[1], bins, self.device)
        sizes = (self.critic_input, *config.hidden, self.values.outputs)
        self.critic_net = EnsembleMLP(config.critics, sizes, bf16)

        actor = self.net.init(generator, config.std_init)
        self.actor = {k: v.to(self.device) for k, v in actor.items()}
        self.critic = self.critic_net.init(generator, last_scale=0.01).to(self.device)
        self.values.start_(self.critic_net.layers(self.critic)[-1][1])
        self.critics = {"critic": self.critic}  # what the critics' loss trains
        self.critics |= {k: self.actor[k] for k in self.learned_with_critics if k in self.actor}
        self.slow = {k: v.clone() for k, v in self.critics.items()}
        if config.policy_tau < 1.0:
            self.slow["policy"] = self.actor["policy"].clone()
        temperature = math.log(math.expm1(config.temperature_init))
        self.temperature = torch.tensor(temperature, device=self.device)
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)

        policy = {"policy": self.actor["policy"], "temperature": self.temperature}
        for tensor in (*self.critics.values(), *policy.values()):
            tensor.requires_grad_()
        rate, decay = config.learning_rate, config.critic_weight_decay
        self.critic_optimizer = Adam(self.critics, rate, decay, self.net.fixed)
        self.actor_optimizer = Adam(policy, config.actor_learning_rate or rate)

    @property
    def critic_input(self) -> int:
        """Numbers in `judged`."""
        return self.net.feature_size + self.net.judged_size

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A] for observations with a leading batch axis."""
        config = self.config
        return self.net.act(
            observation,
            self.actor_state(),
            deterministic=deterministic,
            generator=self.generator,
            gripper_epsilon=config.gripper_epsilon if isinstance(config, ExploresGripper) else 0.0,
        )

    @torch.no_grad()
    def moment(self, observation: Observation) -> Moment:
        """What the networks see of observations."""
        features = self.net.look(observation, self.actor)
        return Moment(features, {}, self.net.base(observation, self.actor))

    def actor_state(self) -> dict[str, Tensor]:
        """As in `Trained`; a slow policy drives with the slow encoder and the slow gripper head."""
        state = super().actor_state()
        if "policy" not in self.slow:
            return state
        return state | {k: self.slow[k] for k in self._followed}

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """As in `Trained`; slow copies that the state lacks begin equal to what they follow."""
        names = {f"{k}_slow": f"actor/{k}" for k in self._followed}
        super().start_from({k: state[v] for k, v in names.items() if v in state} | dict(state))

    @property
    def _followed(self) -> tuple[str, ...]:
        """Names of the actor's tensors that have a slow copy."""
        return tuple(k for k in ("policy", *self.learned_with_critics) if k in self.slow)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"actor/{k}": v for k, v in self.actor.items()}
        tensors |= {f"{k}_slow": v for k, v in self.slow.items()}
        tensors |= {"critic": self.critic, "temperature": self.temperature, "updates": self.updates}
        for name, adam in (("critic", self.critic_optimizer), ("actor", self.actor_optimizer)):
            tensors |= {f"{name}_optimizer/{k}": v for k, v in adam.state_dict().items()}
        return tensors

    @torch.no_grad()
    def transitions(self, batch: Batch) -> Transitions:
        """Return a batch as tensors, a' drawn for all critic steps at once (pi does not change)."""
        net, both = self.net, (batch.observation, batch.next_observation)
        states = [net.scaled(net.state(seen), self.actor) for seen in both]
        images = [self._look(seen) for seen in both]
        base = [net.base(seen, self.actor, self.generator) for seen in both]
        now, then = (Moment(*parts) for parts in zip(states, images, base, strict=True))
        features = net.features(then.features, then.images, self.actor.get("encoder"))
        next_action = self.next_action(then._replace(features=features))
        nowhere = np.zeros((len(batch.mask), 2), np.float32)
        return Transitions(
            now=now,
            action=self.executed(batch),
            reward=self.reward(batch),
            then=then,
            mask=self.mask(batch),
            discount=self.config.gamma ** self._tensor(batch.steps),
            next_action=next_action,
            human=self._tensor(batch.human),
            toggle=self._tensor(batch.toggle),
            return_to_go=self._tensor(batch.return_to_go),
            room=self._tensor(nowhere if batch.room is None else batch.room),
            valid=None if batch.valid is None else self._tensor(batch.valid),
            weight=self.weight(batch),
        )

    def executed(self, batch: Batch) -> Tensor:
        """The actions that critics learn from: [B, A]."""
        return self._tensor(self.net.executed(batch))

    def weight(self, batch: Batch) -> Tensor | None:
        """Weights [B] of the rows in the critics' loss; None = all count alike."""
        return None

    def reward(self, batch: Batch) -> Tensor:
        """Rewards r [B] that the critics learn from."""
        return self._tensor(batch.reward)

    def mask(self, batch: Batch) -> Tensor:
        """m [B], 0 after a terminal step and 1 elsewhere."""
        return self._tensor(batch.mask)

    def see(self, batch: Transitions) -> Transitions:
        """Encode images: those of s with gradient for the encoder, of s' with the slow encoder."""
        if "encoder" not in self.slow:
            return batch
        net, now, then = self.net, batch.now, batch.then
        with torch.no_grad():
            after = net.features(then.features, then.images, self.slow["encoder"])
        seen = net.features(now.features, now.images, self.actor["encoder"])
        return batch._replace(
            now=now._replace(features=seen, images={}),
            then=then._replace(features=after, images={}),
        )

    @abstractmethod
    def next_action(self, moment: Moment) -> Tensor:
        """a' [B, pose] in s' for the target."""

    def q(self, moment: Moment, action: Tensor, critics: Tensor) -> Tensor:
        """Values [E, B] of pose actions [B, pose]."""
        return self.values.value(self._critics(moment, action, critics))

    def _critics(self, moment: Moment, action: Tensor, critics: Tensor) -> Tensor:
        """Return the raw outputs of the critics: [E, B, K]."""
        return self.critic_net(self.judged(moment, action), critics)

    def judged(self, moment: Moment, action: Tensor) -> Tensor:
        """What critics see of pose actions [B, pose] in a moment."""
        return torch.cat((moment.features, self.net.judged(action, moment.base)), -1)

    def draw(self, features: Tensor, count: int = 1) -> tuple[Tensor, Tensor]:
        """Draw `count` decisions of the policy for each row, with gradient.

        Returns decisions [B count, d] and their log probabilities [B count], row by row.
        """
        mean, log_std = self.net.distribution(features, self.actor["policy"])
        if count > 1:
            mean, log_std = (x.repeat_interleave(count, 0) for x in (mean, log_std))
        return heads.sample(mean, log_std, self._normal(mean.shape))
