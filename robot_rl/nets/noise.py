"""An actor that chooses the noise from which a base samples a chunk, wherever that base runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.errors import ConfigError
from robot_rl.nets.actor import ActorNet, Executed
from robot_rl.nets.chunk import spread
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import BASE_ACTION, BASE_AGE, BASE_NOISE, Spec


@dataclass(frozen=True, kw_only=True)
class NoiseNet(ActorNet):
    """Decides noise when the base is asked (`decide`); in between, the base's plan drives (`act`).

    `ActorNet`'s tensors, and "share": 0 before any update, when the base draws its own noise. A
    decision [knots A] is noise in units of `reach`, at `knots` moments of the chunk.
    """

    knots: int
    reach: float

    @classmethod
    def of_base(
        cls,
        spec: Spec,
        hidden: tuple[int, ...],
        *,
        bf16: bool,
        encoder: EncoderConfig,
        knots: int,
        reach: float,
    ) -> Self:
        """Fit one to the spec of a run.

        Raises:
            ConfigError: the run has no base whose noise is chosen.
        """
        if BASE_NOISE not in spec.observation:
            raise ConfigError(
                "a noise head needs a base policy",
                expected="base=flow, or base=served: a base that takes noise",
                got="none",
                fix="base=flow base.run=RUN (a run of algo=bc_flow)",
            )
        front = ObservationNet.of(spec.without_base(), encoder, bf16)
        sizes = (front.feature_size, *hidden, 2 * knots * spec.action.size)
        return cls(
            keys=front.keys,
            encoder=front.encoder,
            state_size=front.state_size,
            policy=EnsembleMLP(1, sizes, bf16),
            gripper=None,
            knots=knots,
            reach=reach,
        )

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """What the network looks at, and the base's plan, its noise and its age."""
        return (*self.look_keys, BASE_ACTION, BASE_NOISE, BASE_AGE)

    @property
    def look_keys(self) -> tuple[str, ...]:
        """What the network looks at."""
        return super().observation_keys

    def init(
        self, generator: torch.Generator, std: float = 1.0, last_scale: float = 0.01
    ) -> dict[str, Tensor]:
        """Fresh tensors as `ActorNet.init` makes them, and the share."""
        return super().init(generator, std, last_scale) | {"share": torch.zeros(())}

    def executed(self, batch: Executed) -> NDArray[np.float32]:
        """The decision [B, knots A] that each row begins with."""
        return batch.observation[BASE_NOISE]

    @torch.no_grad()
    def decide(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor | None:
        """A decision [B, knots A] for a batch of observations; None: the base draws its own noise.

        Before any update, practice draws decisions blindly, so that there is something to learn
        from.
        """
        count = len(next(iter(observation.values())))
        if float(tensors["share"]) <= 0.0:
            blind = torch.randn(count, self.decision_size, generator=generator) / self.reach
            return None if deterministic else blind.clamp(-1.0, 1.0)
        return self.decision(
            self.look(observation, tensors),
            tensors["policy"],
            deterministic=deterministic,
            generator=generator,
        )

    def noise(self, decision: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The base's noise [B, h, A] of a decision.

        Raises:
            ConfigError: the base's noise is not one number per action entry and moment.
        """
        size = self.decision_size // self.knots
        if len(shape) != 2 or shape[1] != size:
            raise ConfigError(
                "this base's noise cannot be chosen",
                expected=f"noise [h, {size}], as its chunks",
                got=str(list(shape)) if shape else "a base that takes none",
                fix="correct its actions instead: algo=resfit",
            )
        spreaded = spread(decision, self.knots, shape[0], size)
        return self.reach * spreaded.view(-1, *shape)

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
        """Actions [B, A]: what the base planned for this tick."""
        return torch.as_tensor(observation[BASE_ACTION])[:, 0].to(tensors["mean"].device)
