"""A chunk policy by flow matching: noise, moved along a learned velocity, becomes actions.

Rectified flow (arXiv 2209.03003, 2210.02747) over chunks of actions, as in pi0 (arXiv 2410.24164):
with actions a [h, A], noise w of the same shape and x_t = (1 - t) w + t a,

    training   L = E_{t, w} |v(x_t, t, s) - (a - w)|^2
    sampling   x_0 = w, x_{k+1} = x_k + v(x_k, k / K, s) / K, chunk = clip(x_K, -1, 1)

For a given w the chunk is a deterministic function of s: a head may choose w (DSRL, arXiv
2506.15799). From w = 0 comes a chunk amid what people did, the same one each time: steadier, but
where people did this or that, it is neither, and where it stands still, it stays (docs/bases.md).

With a bottleneck (ZPRL, arXiv 2605.19919) the velocity sees nothing of s but a short code z:

    training   z ~ N(mu(s), sigma(s)),  L + beta KL(N(mu, sigma) | N(0, 1))
    sampling   z = mu(s); a head may shift it

Deviations from pi0: an MLP on a flat chunk instead of a transformer; t uniform; t = 0 is noise
(there t = 1 is); t enters as it is and as two waves. From ZPRL: no reconstruction of the features
from z.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets import heads
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import Spec

TIME_SIZE = 3  # t, sin(pi t), cos(pi t)


@dataclass(frozen=True, slots=True)
class FlowNet(ObservationNet):
    """Shapes; the numbers are in `tensors`, as those of `ObservationNet` and

        {"velocity": float32 [1, P],    # condition, x_t, t -> velocity of the flat chunk
         "bottleneck": float32 [1, P']} # features -> mean and log std of z; only with a bottleneck

    The condition [B, C] is z, or the features where there is no bottleneck. chunk: h; action_size:
    A, the gripper as one more number; steps: K; execute: how many actions of a chunk are carried
    out before the next one is sampled; spread: of w where actions shall be deterministic, 0 to 1.
    """

    velocity: EnsembleMLP
    chunk: int
    action_size: int
    steps: int
    execute: int
    bottleneck: EnsembleMLP | None = None
    spread: float = 1.0

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        hidden: tuple[int, ...],
        *,
        chunk: int,
        steps: int,
        execute: int,
        latent: int = 0,
        encoder: EncoderConfig | None = None,
        spread: float = 1.0,
    ) -> Self:
        """Fit one to a run's observation and action; latent: size of z, 0 = no bottleneck.

        Raises:
            SpecError: the observation holds something no network here reads.
        """
        front, flat = ObservationNet.of(spec, encoder), chunk * spec.action.size
        seen = latent or front.feature_size
        sizes = (seen + flat + TIME_SIZE, *hidden, flat)
        narrow = EnsembleMLP(1, (front.feature_size, *hidden[:1], 2 * latent))
        return cls(
            keys=front.keys,
            encoder=front.encoder,
            state_size=front.state_size,
            velocity=EnsembleMLP(1, sizes),
            chunk=chunk,
            action_size=spec.action.size,
            steps=steps,
            execute=execute,
            bottleneck=narrow if latent else None,
            spread=spread,
        )

    @property
    def noise_shape(self) -> tuple[int, int]:
        """(h, A) of w."""
        return self.chunk, self.action_size

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors."""
        tensors = {"velocity": self.velocity.init(generator)}
        if self.bottleneck is not None:
            tensors["bottleneck"] = self.bottleneck.init(generator, last_scale=0.1)
        return tensors | self.init_observation(generator)

    @property
    def condition_size(self) -> int:
        """Numbers that the velocity sees of an observation, C."""
        return self.bottleneck.sizes[-1] // 2 if self.bottleneck else self.feature_size

    def code(self, features: Tensor, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and log std of z, each [B, C]."""
        assert self.bottleneck is not None
        return heads.split(self.bottleneck(features, tensors["bottleneck"])[0])

    def condition(
        self, observation: Mapping[str, NDArray | Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """What the velocity sees of a batch of observations: [B, C]."""
        features = self.look(observation, tensors)
        return features if self.bottleneck is None else self.code(features, tensors)[0]

    def speed(self, condition: Tensor, x: Tensor, t: Tensor, velocity: Tensor) -> Tensor:
        """v(x_t, t, s): condition [B, C], x [B, h A], t [B] -> [B, h A]."""
        angle = math.pi * t.unsqueeze(-1)
        time = torch.cat((t.unsqueeze(-1), angle.sin(), angle.cos()), -1)
        return self.velocity(torch.cat((condition, x, time), -1), velocity)[0]

    def loss(
        self,
        condition: Tensor,
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
        error = (self.speed(condition, mixed, t, velocity) - (x - w)).square() * there
        return error.sum() / there.sum().clamp_min(1)

    def decode(self, condition: Tensor, noise: Tensor, velocity: Tensor) -> Tensor:
        """The chunk [B, h, A] that noise [B, h, A] becomes (Euler, K steps)."""
        x = noise.flatten(1)
        for k in range(self.steps):
            t = torch.full_like(x[:, 0], k / self.steps)
            x = x + self.speed(condition, x, t, velocity) / self.steps
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
        """Actions [B, execute, A] of the next steps; deterministic: w is drawn `spread` wide."""
        condition = self.condition(observation, tensors)
        noise = torch.randn((len(condition), *self.noise_shape), generator=generator)
        if deterministic:
            noise *= self.spread
        chunk = self.decode(condition, noise.to(condition.device), tensors["velocity"])
        return chunk[:, : self.execute]
