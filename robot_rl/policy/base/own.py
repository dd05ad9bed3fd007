"""The base policies that `robot-rl train algo=bc_flow` and `algo=bc_act` leave in run folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from robot_rl.config.registry import register, resolve
from robot_rl.config.yaml_file import read_yaml
from robot_rl.errors import ConfigError
from robot_rl.nets.flow import FlowNet
from robot_rl.nets.transformer import ActNet
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.policy.runtime import load_policy, tensors_of
from robot_rl.spec import Spec
from robot_rl.types import Observation


class _OwnBase(ABC):
    """`BasePolicy` on a network of ours; each subclass brings its `sample_many`."""

    net: Any  # FlowNet | ActNet

    def reset(self) -> None:  # noqa: B027 - it remembers nothing
        """See `BasePolicy`."""

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """A chunk [H, A]."""
        batch = {k: observation[k][None] for k in self.net.observation_keys}
        return self.sample_many(batch, None if noise is None else noise[None])[0]

    @abstractmethod
    def sample_many(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Chunks [B, H, A] for observations with a leading batch axis, noise [B, H, A]."""


class FlowBase(_OwnBase):
    """A base policy that samples chunks by flow matching (`nets.flow`)."""

    net: FlowNet

    def __init__(
        self, net: FlowNet, tensors: dict[str, torch.Tensor], seed: int, spread: float = 1.0
    ) -> None:
        self.net, self.tensors, self._spread = net, tensors, spread
        self.spec = BaseSpec(net.chunk, net.action_size, net.noise_shape)
        self._generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def sample_many(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `_OwnBase`."""
        condition = self.net.condition(observation, self.tensors)
        if noise is None:
            shape = (len(condition), *self.net.noise_shape)
            w = self._spread * torch.randn(shape, generator=self._generator)
        else:
            w = torch.as_tensor(noise, dtype=torch.float32)
        return self.net.decode(condition, w, self.tensors["velocity"]).numpy()


class ActBase(_OwnBase):
    """A base policy on `nets.transformer`: one chunk for each observation, no noise."""

    net: ActNet

    def __init__(self, net: ActNet, tensors: dict[str, torch.Tensor]) -> None:
        self.net, self.tensors = net, tensors
        self.spec = BaseSpec(net.chunk, net.action_size)

    @torch.no_grad()
    def sample_many(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `_OwnBase`."""
        features = self.net.look(observation, self.tensors)
        return self.net.plan(features, self.tensors["chunk"]).numpy()


@dataclass(frozen=True, kw_only=True)
class _OwnConfig:
    """Which run, and how much of its chunks is used."""

    algo: ClassVar[str]

    run: str = ""  # folder of a run of the algorithm; there is no default
    execute: int = 4  # actions until the base is asked again
    ahead: int = 1  # actions recorded with each frame

    def __post_init__(self) -> None:
        """Check ranges."""
        if not self.ahead >= 1 or not self.execute >= 1:
            raise ValueError("execute and ahead must be at least 1")

    def _load(self, spec: Spec) -> tuple[Any, dict[str, torch.Tensor]]:
        """Network and tensors. Raises as `BaseConfig.open`."""
        net = _algo(Path(self.run), self.algo).make_actor(spec)
        if net.chunk < max(self.execute, self.ahead):
            raise ConfigError(
                "the base's chunks are shorter than what is asked of them",
                expected=f"base.execute and base.ahead of at most {net.chunk}",
                got=f"execute={self.execute}, ahead={self.ahead}",
                fix="ask for less, or train the base with a longer algo.chunk",
            )
        weights = load_policy(Path(self.run), spec)
        return net, tensors_of(weights, net.init(torch.Generator().manual_seed(0)))


@register("base", "flow")
@dataclass(frozen=True, kw_only=True)
class FlowBaseConfig(_OwnConfig):
    """A run of `algo=bc_flow`."""

    algo = "bc_flow"

    noise: float = 1.0  # spread of what a chunk is drawn from, where no head chooses it; 0 = none

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if not 0.0 <= self.noise <= 1.0:
            raise ValueError(f"noise must lie in [0, 1], got {self.noise}")

    def open(self, spec: Spec, seed: int) -> FlowBase:
        """See `BaseConfig`."""
        return FlowBase(*self._load(spec), seed, self.noise)


@register("base", "act")
@dataclass(frozen=True, kw_only=True)
class ActBaseConfig(_OwnConfig):
    """A run of `algo=bc_act`."""

    algo = "bc_act"

    def open(self, spec: Spec, seed: int) -> ActBase:
        """See `BaseConfig`."""
        return ActBase(*self._load(spec))


OWN = {config.algo: config for config in (FlowBaseConfig, ActBaseConfig)}


def base_of_run(run: Path) -> FlowBaseConfig | ActBaseConfig:
    """The config of the base that a run folder holds, for chunks of any length.

    Raises:
        ConfigError: the folder holds no base.
    """
    algo = _config(run)["name"]
    if algo not in OWN:
        raise _not_a_base(run, algo, " or ".join(OWN))
    return OWN[algo](run=str(run), execute=1)


def _algo(run: Path, wanted: str) -> Any:
    """The algorithm of a run, which must be `wanted`."""
    algo = _config(run)
    if algo["name"] != wanted:
        raise _not_a_base(run, algo["name"], wanted)
    return resolve("algo", algo)


def _config(run: Path) -> dict[str, Any]:
    try:
        algo = read_yaml(run / "config.yaml")["algo"]
        algo["name"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigError(
            f"base.run={run} is not a run folder" if run.name else "the base needs base.run",
            expected=f"the folder of a finished run of algo={' or algo='.join(OWN)}",
            got=str(error),
            fix="robot-rl train experiment=... algo=bc_flow makes one",
        ) from error
    return algo


def _not_a_base(run: Path, got: str, wanted: str) -> ConfigError:
    uses = {"bc_flow": "base=flow uses it", "bc_act": "base=act uses it"}
    return ConfigError(
        f"base.run={run} holds no such chunk policy",
        expected=f"algo={wanted}",
        got=f"algo={got}",
        fix=uses.get(got, "train one: robot-rl train experiment=... algo=bc_flow"),
    )
