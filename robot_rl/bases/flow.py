"""The base policy that `robot-rl train algo=bc_flow` leaves in its run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from robot_rl.act.policy import load_policy, tensors_of
from robot_rl.bases.spec import BaseSpec
from robot_rl.config import register, resolve
from robot_rl.errors import ConfigError
from robot_rl.nets.flow import FlowNet
from robot_rl.spec import Spec
from robot_rl.types import Observation


class FlowBase:
    """`BasePolicy` on `nets.flow`."""

    def __init__(self, net: FlowNet, tensors: dict[str, torch.Tensor], seed: int) -> None:
        self.net, self.tensors = net, tensors
        self.spec = BaseSpec(net.chunk, net.action_size, net.noise_shape)
        self._generator = torch.Generator().manual_seed(seed)

    def reset(self) -> None:
        """It remembers nothing."""

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """A chunk [H, A]."""
        batch = {k: observation[k][None] for k in self.net.observation_keys}
        return self.sample_many(batch, None if noise is None else noise[None])[0]

    @torch.no_grad()
    def sample_many(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Chunks [B, H, A] for observations with a leading batch axis, noise [B, H, A]."""
        condition = self.net.condition(observation, self.tensors)
        if noise is None:
            shape = (len(condition), *self.net.noise_shape)
            w = torch.randn(shape, generator=self._generator)
        else:
            w = torch.as_tensor(noise, dtype=torch.float32)
        return self.net.decode(condition, w, self.tensors["velocity"]).numpy()


@register("base", "flow")
@dataclass(frozen=True, kw_only=True)
class FlowBaseConfig:
    """Which run, and how much of its chunks is used."""

    run: str = ""  # folder of a run of algo=bc_flow; there is no default
    execute: int = 4  # actions until it is asked again
    ahead: int = 1  # actions recorded with each frame

    def __post_init__(self) -> None:
        """Check ranges."""
        if not self.ahead >= 1 or not self.execute >= 1:
            raise ValueError("execute and ahead must be at least 1")

    def open(self, spec: Spec, seed: int) -> FlowBase:
        """See `BaseConfig`."""
        algo = _algo(Path(self.run))
        net = algo.make_actor(spec)
        if net.chunk < max(self.execute, self.ahead):
            raise ConfigError(
                "the base's chunks are shorter than what is asked of them",
                expected=f"base.execute and base.ahead of at most {net.chunk}",
                got=f"execute={self.execute}, ahead={self.ahead}",
                fix="ask for less, or train the base with a longer algo.chunk",
            )
        weights = load_policy(Path(self.run), spec)
        like = net.init(torch.Generator().manual_seed(0))
        return FlowBase(net, tensors_of(weights, like), seed)


def _algo(run: Path) -> Any:
    """The algorithm of a run, which must be `bc_flow`."""
    import robot_rl.learn.algos  # noqa: F401 - registers it

    try:
        algo = yaml.safe_load((run / "config.yaml").read_text())["algo"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigError(
            f"base.run={run} is not a run folder" if run.name else "base=flow needs base.run",
            expected="the folder of a finished run of algo=bc_flow",
            got=str(error),
            fix="robot-rl train experiment=... algo=bc_flow makes one",
        ) from error
    if algo.get("name") != "bc_flow":
        raise ConfigError(
            f"base.run={run} holds no chunk policy",
            expected="algo=bc_flow",
            got=f"algo={algo.get('name')}",
            fix="train one: robot-rl train experiment=... algo=bc_flow",
        )
    return resolve("algo", algo)
