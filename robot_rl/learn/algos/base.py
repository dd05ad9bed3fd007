"""What the learner and the policy runtime need of an algorithm, and nothing more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.learn import ranks
from robot_rl.learn.replay import Batch, View
from robot_rl.nets.cpu import need_compiler
from robot_rl.nets.encoder import random_shift
from robot_rl.nets.observation import ObservationNet
from robot_rl.policy.base.spec import BaseConfig
from robot_rl.policy.runtime import DrivingNet
from robot_rl.spec import Spec
from robot_rl.types import Observation

COUNTERS = ("updates", "skipped", "bad_in_a_row")  # how the names of counting tensors end
STD_FLOOR = 0.05  # of a number of the state: noise of what hardly moves is not blown up


class Sampler(Protocol):
    """Draws batches; `Replay.sample` with the learner's random generator."""

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        """`batch_size` transitions, `demo_fraction` of them driven by a person."""
        ...


class Algorithm(Protocol):
    """A learner of policies. Holds tensors only: no I/O, no logging, no clock.

    steps_per_update: gradient steps (critic steps, where there is a critic) that one `update` does.
    generator: of every random draw after `init`. net: of the actor. view: what the replay shall
    offer. device: where its tensors live.
    """

    steps_per_update: int
    device: torch.device
    generator: torch.Generator
    net: ObservationNet
    view: View

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """Every entry of the observation that is looked at."""
        ...

    @property
    def scaled_keys(self) -> tuple[str, ...]:
        """The entries that `standardize` looks at."""
        ...

    def standardize(self, observation: Observation) -> None:
        """Scale the state from now on so that these observations have unit spread around zero."""
        ...

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """Learn from fresh batches; returns scalar metrics, still on the device."""
        ...

    def compile(self) -> None:
        """Make updates faster from the next one on (`torch.compile`)."""
        ...

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A] for a batch of observations."""
        ...

    def actor_state(self) -> dict[str, Tensor]:
        """What the robot needs to act, and no more."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next update depends on."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state_dict()`. Raises `CheckpointError` if names or shapes differ."""
        ...

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """Begin with the networks of a `state_dict()`, maybe of another algorithm."""
        ...


class AlgorithmConfig(Protocol):
    """A registered config that builds its algorithm."""

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Algorithm:
        """A fresh learner, its tensors on `device`."""
        ...

    def make_actor(self, spec: Spec) -> DrivingNet:
        """The network that `Algorithm.actor_state` fills."""
        ...


@runtime_checkable
class RunsBase(Protocol):
    """A config whose algorithm runs the base policy itself, instead of reading its plan."""

    def on(self, base: BaseConfig | None, spec: Spec, seed: int) -> AlgorithmConfig:
        """Return the same config with the base.

        Raises:
            ConfigError: there is no base, or not one that the algorithm can run.
        """
        ...


@runtime_checkable
class ChoosesNoise(Protocol):
    """A config whose policy chooses the noise from which a base policy samples."""

    def noise_size(self, spec: Spec) -> int:
        """Numbers in one decision."""
        ...


@runtime_checkable
class BoundsValue(Protocol):
    """A config whose critic keeps its value within bounds."""

    @property
    def value_range(self) -> tuple[float, float] | None:
        """Lowest and highest value; None = any."""
        ...

    @property
    def gamma(self) -> float:
        """Discount of a step."""
        ...


def copy_tensors(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Overwrite every tensor of `target` with its namesake.

    Raises:
        CheckpointError: names, shapes or dtypes differ; nothing is written then.
    """
    want = {k: (tuple(v.shape), v.dtype) for k, v in target.items()}
    got = {k: (tuple(v.shape), v.dtype) for k, v in source.items()}
    if want != got:
        wrong = sorted(k for k in want.keys() | got.keys() if want.get(k) != got.get(k))
        raise CheckpointError(
            "the saved tensors belong to another network",
            expected=str({k: want.get(k) for k in wrong}),
            got=str({k: got.get(k) for k in wrong}),
            fix="use the algorithm and network sizes of the run that wrote them",
        )
    with torch.no_grad():
        for key, value in source.items():
            target[key].copy_(value)


NetT = TypeVar("NetT", bound=ObservationNet)


class Trained(ABC, Generic[NetT]):
    """What all algorithms here do alike: begin, look at images, save, continue.

    A subclass sets `config`, `net`, `actor` and `updates`, and names its tensors in `_tensors`.
    """

    losses: ClassVar[tuple[str, ...]] = ()  # methods that `compile` compiles
    sees_privileged: ClassVar[bool] = False  # whether its critics see what the policy does not
    net: NetT
    actor: dict[str, Tensor]
    updates: Tensor

    def __init__(
        self, config: Any, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        self.spec = spec
        self.generator, self.device = generator, torch.device(device)
        self.batch_size = ranks.share(config.batch_size)

    @classmethod
    def init(cls, config: Any, spec: Spec, seed: int, device: str = "cpu") -> Self:
        """Fresh networks; equal seeds give equal networks and equal draws, whatever the device."""
        return cls(config, spec, torch.Generator().manual_seed(seed), device)

    def refuse_privileged(self) -> None:
        """Raise `ConfigError` where critics could see more than the policy, and these cannot."""
        if self.spec.privileged and not self.sees_privileged:
            raise ConfigError(
                "this algorithm cannot learn from privileged entries of the observation",
                expected="hil_serl, hil_serl_state, hil_serl_pixels, rlpd, sac or drq",
                got=", ".join(self.spec.privileged),
                fix="task.asymmetric=false, or another algo",
            )

    def compile(self) -> None:
        """Fuse the arithmetic of the losses (`torch.compile`): half a minute, once.

        On a GPU the fused kernels are replayed as CUDA graphs. The mathematics is the same, the
        rounding is not. Random draws are not compiled.

        Raises:
            SetupError: there is no compiler.
        """
        need_compiler(self.device)
        graphs = self.device.type == "cuda"
        mode = "reduce-overhead" if graphs else None
        for name in self.losses:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False, mode=mode))
        for name in ("_normal", "_order"):
            setattr(self, name, torch.compiler.disable(getattr(self, name)))
        if graphs:
            setattr(self, "update", _replayed(self.update))  # noqa: B010 a method is no attribute to pyright

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """As in `Algorithm`."""
        return self.net.observation_keys

    @property
    def scaled_keys(self) -> tuple[str, ...]:
        """As in `Algorithm`."""
        return self.net.keys

    def actor_state(self) -> dict[str, Tensor]:
        """Policy, gripper head, encoder and scaling: what travels to the robot."""
        return {k: v.detach() for k, v in self.actor.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything the next update depends on, random state included, by name."""
        state = self._tensors() | {"generator": self.generator.get_state()}
        return {k: v.detach().clone() for k, v in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state_dict()`, bit for bit.

        Raises:
            CheckpointError: names or shapes differ.
        """
        rest = dict(state)
        generator = rest.pop("generator", None)
        copy_tensors(self._tensors(), rest)
        if generator is not None:
            self.generator.set_state(generator)

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """Begin with the networks and the scaling in the state of another run, not its counters.

        The state has to hold the whole actor. Other tensors are taken if both runs have them, and
        left alone otherwise: another algorithm's critics may be of another kind. Random draws stay
        this run's own.

        Raises:
            CheckpointError: no actor of this shape, or another shape differs; nothing is written.
        """
        own = {k: v for k, v in self._tensors().items() if not k.endswith(COUNTERS)}
        shared = {k: v for k, v in own.items() if k.startswith("actor/") or k in state}
        copy_tensors(shared, {k: v for k, v in state.items() if k in own or k.startswith("actor/")})

    def _normal(self, shape: Sequence[int]) -> Tensor:
        """Draw standard normal numbers on the CPU, so that a seed means the same on any device."""
        return torch.randn(shape, generator=self.generator).to(self.device)

    def _order(self, count: int) -> Tensor:
        """Draw a random order of 0 .. count - 1, as `_normal` does."""
        return torch.randperm(count, generator=self.generator).to(self.device)

    @abstractmethod
    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """As in `Algorithm`."""

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """The live tensors that make up the state, except the generator's."""

    def standardize(self, observation: Observation) -> None:
        """Set the scaling so that these observations, each entry [N, ...], get unit spread.

        The learner calls it again and again while its data grows. The networks stay as they are: if
        the data grows by a part, the moments move by a part, and what is learned from then on makes
        up for it. With several ranks, the moments are taken over the states of all ranks.
        """
        self._standardize(self.net.state(observation), self.actor)

    def _standardize(self, states: Tensor, scaling: Mapping[str, Tensor]) -> None:
        """Set "mean" and "scale" to those of states [N, S]."""
        states = states.to(scaling["mean"].device).double()
        moments = states.mean(0), states.square().mean(0)
        ranks.average_(moments)
        std = (moments[1] - moments[0].square()).clamp_min(0.0).sqrt()
        scaling["mean"].copy_(moments[0])
        scaling["scale"].copy_(1.0 / std.clamp_min(STD_FLOOR))

    def _look(self, observation: Observation) -> dict[str, Tensor]:
        """Return shifted images; with a frozen trunk its output for them, which networks share."""
        encoder = self.net.encoder
        if encoder is None:
            return {}
        shifted = {
            k: random_shift(v.to(self.device), encoder.config.shift_px, self.generator)
            for k, v in self.net.images(observation).items()
        }
        return encoder.look(shifted, self.actor["encoder"])

    def _features(self, observation: Observation) -> Tensor:
        """What the heads see of a batch, with the gradient that trains the encoder: [B, F]."""
        scaled = self.net.scaled(self.net.state(observation), self.actor)
        return self.net.features(scaled, self._look(observation), self.actor.get("encoder"))

    def _tensor(self, column: NDArray) -> Tensor:
        return torch.from_numpy(column).to(self.device)


def _replayed(
    update: Callable[[Sampler], dict[str, Tensor]],
) -> Callable[[Sampler], dict[str, Tensor]]:
    """Return an update whose CUDA graphs may write over what the one before returned."""

    def step(sample: Sampler) -> dict[str, Tensor]:
        torch.compiler.cudagraph_mark_step_begin()
        return {k: v.clone() for k, v in update(sample).items()}

    return step
