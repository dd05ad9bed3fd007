"""A chunk policy by flow matching: noise, moved along a learned velocity, becomes actions.

Rectified flow (arXiv 2209.03003, 2210.02747) over chunks of actions, as in pi0 (arXiv 2410.24164):
with actions a [h, A], noise w of the same shape and x_t = (1 - t) w + t a,

    training   L = E_{t, w} |v(x_t, t, s) - (a - w)|^2
    sampling   x_0 = w, x_{k+1} = x_k + v(x_k, k / K, s) / K, chunk = clip(x_K, -1, 1)

For a given w it is a deterministic function of s: a head may choose w (DSRL, arXiv 2506.15799).

Deviations from pi0: an MLP on a flat chunk instead of a transformer; t uniform; t = 0 is noise
(there t = 1 is); t enters as it is and as two waves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import Spec

TIME_SIZE = 3  # t, sin(pi t), cos(pi t)


@dataclass(frozen=True, slots=True)
class FlowNet(ObservationNet):
    """Shapes; the numbers are in `tensors`, as those of `ObservationNet` and

        {"velocity": float32 [1, P]}  # features, x_t, t -> velocity of the flat chunk

    chunk: h; action_size: A, the gripper as one more number; steps: K; execute: how many actions of
    a chunk are carried out before the next one is sampled.
    """

    velocity: EnsembleMLP
    chunk: int
    action_size: int
    steps: int
    execute: int

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        hidden: tuple[int, ...],
        *,
        chunk: int,
        steps: int,
        execute: int,
        activation: str = "relu",
        encoder: EncoderConfig | None = None,
    ) -> Self:
        """Fit one to a run's observation and action.

        Raises:
            SpecError: the observation holds something no network here reads.
        """
        front, flat = ObservationNet.of(spec, encoder), chunk * spec.action.size
        sizes = (front.feature_size + flat + TIME_SIZE, *hidden, flat)
        return cls(
            keys=front.keys,
            encoder=front.encoder,
            state_size=front.state_size,
            velocity=EnsembleMLP(1, sizes, activation),
            chunk=chunk,
            action_size=spec.action.size,
            steps=steps,
            execute=execute,
        )

    @property
    def noise_shape(self) -> tuple[int, int]:
        """(h, A) of w."""
        return self.chunk, self.action_size

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors."""
        velocity = self.velocity.init(generator)
        return {"velocity": velocity} | self.init_observation(generator)

    def speed(self, features: Tensor, x: Tensor, t: Tensor, velocity: Tensor) -> Tensor:
        """v(x_t, t, s): features [B, F], x [B, h A], t [B] -> [B, h A]."""
        angle = math.pi * t.unsqueeze(-1)
        time = torch.cat((t.unsqueeze(-1), angle.sin(), angle.cos()), -1)
        return self.velocity(torch.cat((features, x, time), -1), velocity)[0]

    def loss(
        self,
        features: Tensor,
        velocity: Tensor,
        *,
        chunk: Tensor,
        valid: Tensor,
        noise: Tensor,
        t: Tensor,
    ) -> Tensor:
        """Mean squared error of the velocity over valid actions.

        chunk [B, h, A], valid bool [B, h], noise [B, h, A], t [B] in [0, 1].
        """
        x, there = chunk.flatten(1), valid.unsqueeze(-1).expand_as(chunk).flatten(1)
        w = noise.flatten(1)
        mixed = w + t.unsqueeze(-1) * (x - w)
        error = (self.speed(features, mixed, t, velocity) - (x - w)).square() * there
        return error.sum() / there.sum().clamp_min(1)

    def decode(self, features: Tensor, noise: Tensor, velocity: Tensor) -> Tensor:
        """The chunk [B, h, A] that noise [B, h, A] becomes (Euler, K steps)."""
        x = noise.flatten(1)
        for k in range(self.steps):
            t = torch.full_like(x[:, 0], k / self.steps)
            x = x + self.speed(features, x, t, velocity) / self.steps
        return x.view(-1, self.chunk, self.action_size).clamp(-1.0, 1.0)

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
        """Actions [B, execute, A] of the next steps, from fresh noise, deterministic or not.

        There is no mean of a flow: what imitation learned is the whole distribution.
        """
        features = self.look(observation, tensors)
        noise = torch.randn((len(features), *self.noise_shape), generator=generator)
        chunk = self.decode(features, noise.to(features.device), tensors["velocity"])
        return chunk[:, : self.execute]
