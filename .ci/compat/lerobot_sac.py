"""LeRobot's own SAC learner in our loop: algo=lerobot_sac.

`ROBOT_RL_PLUGINS=lerobot_sac` imports it. Demonstrations, takeovers, replay, updates per step, exam
and evaluation are those of our algorithms. Networks, losses, optimisers and the order of the steps
are those of LeRobot 0.4.4, the newest for Python 3.11: its `SACPolicy` is built and called as its
`rl/learner.py` does, and its actor drives. A gripper of three commands gets its discrete critic.

Settings are the defaults of its `SACConfig`, except for what its guide to HIL-SERL has users set:
in words temperature_init 0.01, in the example configuration that they begin with discount 0.97, two
critic steps per actor step and batches of 256. With the defaults for these, too:
algo.temperature_init=1.0 algo.discount=0.99 algo.utd_ratio=1.

Deviations from LeRobot:

- The numbers of the state are scaled to [-1, 1] by their least and greatest values, as `SACConfig`
  says. The 0.4.4 learner has lost that step; 0.6 has it again. LeRobot's users write the values
  into a file. Here they are those of the states before the first update, half of which people
  drove. Those of the demonstrations alone would not do: what never changes there is divided by
  1e-8, and practice saw the gripper of drawer-open at -1e8.
- Exams and evaluation take the mean of the actor. LeRobot's `select_action` always draws.
- Nothing is compiled: LeRobot 0.6 turned that off ("policy does not converge when enabled").
- The newest weights drive after every update, not after every fourth second.
- Not LeRobot's code, but written after it: the order of the steps and the making of the optimisers
  (`rl/learner.py` needs its robots and gRPC), and the scaling (one line).
- Actions are in [-1, 1] already, and stay as they are.
- A discrete gripper pays for a command that reverses the one before, as in `hil_serl`; in LeRobot
  for one that reverses the measured width. It was run on made-up data only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from robot_rl.config.registry import register
from robot_rl.errors import SpecError
from robot_rl.learn.algos.base import Sampler, Trained
from robot_rl.learn.replay import Batch, View
from robot_rl.nets.actor import GRIPPER_CHOICES, gripper_index
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import Spec
from robot_rl.types import Observation

try:
    import torchvision  # noqa: F401
except RuntimeError:  # built for CUDA, beside a torch for the CPU: its operators are not there
    for _name in ("nms", "qnms"):  # LeRobot imports it for images; there are none here
        torch.library.define(f"torchvision::{_name}", "(Tensor a, Tensor b, float c) -> Tensor")

from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.sac.configuration_sac import SACConfig
from lerobot.policies.sac.modeling_sac import SACPolicy
from lerobot.utils.constants import ACTION, OBS_STATE

EPS = 1e-8  # of LeRobot's NormalizerProcessorStep: the range of a number that never changed
DRIVES = ("encoder_critic.", "actor.", "discrete_critic.")  # parameters that the robot needs


@register("algo", "lerobot_sac")
@dataclass(frozen=True, kw_only=True)
class LerobotSacConfig:
    """What a user of LeRobot would set; all else are the defaults of its `SACConfig`."""

    discount: float = 0.97
    temperature_init: float = 0.01
    utd_ratio: int = 2  # critic steps, the last of which is followed by one of the actor
    batch_size: int = 256
    demo_fraction: float = 0.5  # LeRobot: half from the demonstrations and takeovers
    gripper_penalty: float = 0.02  # charged per reversal of a discrete gripper

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0.0 < self.discount < 1.0 or not 0.0 <= self.demo_fraction <= 1.0:
            raise ValueError("discount must lie in (0, 1), demo_fraction in [0, 1]")
        if min(self.utd_ratio, self.batch_size) < 1 or self.temperature_init <= 0.0:
            raise ValueError("utd_ratio, batch_size and temperature_init must be positive")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> LerobotSac:
        """A fresh learner."""
        return LerobotSac.init(self, spec, seed, device)

    def make_actor(self, spec: Spec) -> LerobotNet:
        """The network that drives."""
        return self.net(spec, torch.Generator().manual_seed(0))

    def net(self, spec: Spec, generator: torch.Generator, device: str = "cpu") -> LerobotNet:
        """LeRobot's policy for the state and the action of a run.

        Raises:
            SpecError: there are images.
        """
        front = ObservationNet.of(spec)
        if front.encoder is not None:
            raise SpecError(
                "lerobot_sac learns from state alone here",
                expected="an observation of float32 vectors",
                got=", ".join(spec.observation),
                fix="leave the images out of the task",
            )
        gripper = spec.action.gripper
        moves = PolicyFeature(FeatureType.ACTION, (spec.action.size - gripper,))
        settings = SACConfig(
            device=device,
            input_features={OBS_STATE: PolicyFeature(FeatureType.STATE, (front.state_size,))},
            output_features={ACTION: moves},
            num_discrete_actions=GRIPPER_CHOICES if gripper else None,
            discount=self.discount,
            temperature_init=self.temperature_init,
            utd_ratio=self.utd_ratio,
            use_torch_compile=False,
        )
        return LerobotNet(front.keys, None, front.state_size, Driver.fresh(settings, generator))


class Driver(nn.Module):
    """What LeRobot's policy does with a state."""

    def __init__(self, policy: SACPolicy) -> None:
        super().__init__()
        self.policy = policy

    @classmethod
    def fresh(cls, settings: SACConfig, generator: torch.Generator) -> Driver:
        """A policy as LeRobot begins with one, drawn from `generator`."""
        with drawn_from(generator):
            return cls(SACPolicy(settings).to(settings.device))

    @property
    def drives(self) -> dict[str, nn.Parameter]:
        """The parameters that choose the action, by LeRobot's names with ours before."""
        named = self.policy.named_parameters()
        return {f"policy.{k}": v for k, v in named if k.startswith(DRIVES)}

    def forward(self, state: Tensor, deterministic: bool) -> Tensor:
        """Actions [B, A]: the actor's mean or its draw, and the best command of a gripper."""
        seen = {OBS_STATE: state}
        drawn, _, mean = self.policy.actor(seen)
        action = torch.tanh(mean) if deterministic else drawn
        if self.policy.config.num_discrete_actions is None:
            return action
        command = self.policy.discrete_critic(seen).argmax(-1, keepdim=True) - 1
        return torch.cat((action, command.to(action.dtype)), -1)


@dataclass(frozen=True, slots=True)
class LerobotNet(ObservationNet):
    """LeRobot's policy as the policy runtime drives it.

    Its tensors: what `Driver.drives` names, and "low" and "high", the bounds of the state.
    """

    driver: Driver

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors; the state is not scaled yet."""
        drives = Driver.fresh(self.driver.policy.config, generator).drives
        return {k: v.detach() for k, v in drives.items()} | self.unscaled()

    def unscaled(self) -> dict[str, Tensor]:
        """The bounds with which `scaled` changes nothing."""
        ones = torch.ones(self.state_size, device=self.driver.policy.config.device)
        return {"low": -ones, "high": ones}

    def scaled(self, state: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """States [B, S] as LeRobot's NormalizerProcessorStep returns them with MIN_MAX."""
        low, span = tensors["low"], tensors["high"] - tensors["low"]
        return 2.0 * (state.to(low.device) - low) / torch.where(span == 0.0, EPS, span) - 1.0

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
        """Actions [B, A] for a batch of observations."""
        state = self.scaled(self.state(observation), tensors)
        drives = {k: v for k, v in tensors.items() if k not in ("low", "high")}
        with drawn_from(generator):
            return functional_call(self.driver, drives, (state, deterministic))


class LerobotSac(Trained[LerobotNet]):
    """The steps of LeRobot's `rl/learner.py`; the methods are those of every algorithm."""

    def __init__(
        self,
        config: LerobotSacConfig,
        spec: Spec,
        generator: torch.Generator,
        device: str = "cpu",
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.config, self.steps_per_update = config, config.utd_ratio
        self.view = View(gamma=config.discount)
        self.net = config.net(spec, generator, device)
        self.policy = policy = self.net.driver.policy.train()
        self.actor = self.net.driver.drives | self.net.unscaled()
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)
        self.learned = {
            "critic": list(policy.critic_ensemble.parameters()),
            "actor": list(policy.actor.parameters()),
            "temperature": [policy.log_alpha],
        }
        if spec.action.gripper:
            self.learned["discrete_critic"] = list(policy.discrete_critic.parameters())
        settings = policy.config
        without_encoder = {"actor": policy.get_optim_params()["actor"]}
        self.optimizers = {
            name: _adam(trained, settings.actor_lr if name == "actor" else settings.critic_lr)
            for name, trained in (self.learned | without_encoder).items()
        }

    def compile(self) -> None:
        """Nothing is compiled: see above."""

    def standardize(self, observation: Observation) -> None:
        """Take the bounds of the state, once: LeRobot's stay as they are."""
        if not self.updates:
            state = self.net.state(observation).to(self.device)
            self.actor["low"].copy_(state.amin(0))
            self.actor["high"].copy_(state.amax(0))

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A] for observations with a leading batch axis."""
        return self.net.act(
            observation, self.actor, deterministic=deterministic, generator=self.generator
        )

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """`utd_ratio` steps of the critics, then one of the actor and one of the temperature."""
        metrics: dict[str, Tensor] = {}
        critics = [name for name in self.learned if name.endswith("critic")]
        with drawn_from(self.generator):
            for left in reversed(range(self.config.utd_ratio)):
                batch = self._batch(sample(self.batch_size, self.config.demo_fraction))
                if not left:  # as in LeRobot: the last step knows no penalty
                    del batch["complementary_info"]
                names = critics if left else [*critics, "actor", "temperature"]
                metrics |= {f"{name}/loss": self._step(name, batch) for name in names}
                self.policy.update_target_networks()
        self.updates += self.config.utd_ratio
        nothing = torch.zeros(())  # LeRobot skips no step
        metrics["temperature/value"] = self.policy.log_alpha.detach().exp()
        return metrics | {"optimizer/skipped": nothing, "optimizer/bad_in_a_row": nothing}

    def _step(self, name: str, batch: dict[str, Any]) -> Tensor:
        """One gradient step on one of LeRobot's losses; returns the loss."""
        loss = self.policy(batch, model=name)[f"loss_{name}"]
        self.optimizers[name].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.learned[name], self.policy.config.grad_clip_norm)
        self.optimizers[name].step()
        return loss.detach()

    def _batch(self, batch: Batch) -> dict[str, Any]:
        """Return a batch as LeRobot's losses read it."""
        action = self._tensor(batch.action)
        if self.spec.action.gripper:
            action = torch.cat((action[:, :-1], gripper_index(action[:, -1:])), -1)
        now, then = (
            {OBS_STATE: self.net.scaled(self.net.state(seen), self.actor)}
            for seen in (batch.observation, batch.next_observation)
        )
        penalty = -self.config.gripper_penalty * self._tensor(batch.toggle)
        return {
            ACTION: action,
            "reward": self._tensor(batch.reward),
            "state": now,
            "next_state": then,
            "done": 1.0 - self._tensor(batch.mask),
            "complementary_info": {"discrete_penalty": penalty},
        }

    def _tensors(self) -> dict[str, Tensor]:
        rest = {k: v for k, v in self.policy.named_parameters() if not k.startswith(DRIVES)}
        tensors = {f"actor/{k}": v for k, v in self.actor.items()} | {"updates": self.updates}
        tensors |= {f"policy/{k}": v for k, v in rest.items()}
        for name, optimizer in self.optimizers.items():
            for index, state in optimizer.state_dict()["state"].items():
                tensors |= {f"{name}_optimizer/{index}/{k}": v for k, v in state.items()}
        return tensors


def _adam(parameters: list[nn.Parameter], rate: float) -> torch.optim.Adam:
    """Adam as LeRobot makes it, its moments there from the start, so that a state can be loaded."""
    adam = torch.optim.Adam(parameters, lr=rate)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    adam.step()  # by nothing
    for state in adam.state.values():
        state["step"].zero_()
    adam.zero_grad()
    return adam


@contextmanager
def drawn_from(generator: torch.Generator | None) -> Iterator[None]:
    """Have LeRobot, which knows torch's own generator only, draw from this one on the CPU."""
    if generator is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        yield
        generator.set_state(torch.get_rng_state())
