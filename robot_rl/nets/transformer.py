"""Action chunking with transformers (ACT, arXiv 2304.13705): a chunk in one pass, a CVAE.

With features s of the observation and actions a [h, A] that a person drove in a row,

    training   z ~ q(z | s, a) = N(mu, sigma): a transformer over the tokens (class, s, a_1 .. a_h)
               L = mean |a - pi(s, z)| + beta KL(q | N(0, 1))
    driving    z = 0: a transformer decoder, one query per action, over the tokens (z, s)

z takes up what the state does not explain, the style of this demonstration, so that the decoder
need not average over styles. For a state there is one chunk: no noise, nothing to sample from.

Deviations: what cameras see enters as one token, the encoder's features, not as a token per cell
of a feature map; learned positions; no dropout (its draws would not come from the generator);
chunks are carried out in part and asked for again, not averaged over time (temporal ensembling).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from robot_rl.nets import heads
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import Spec

WIDER = 4  # the feed-forward part of a layer, times the width


class _Posterior(nn.Module):
    """q(z | s, a): mean and log std of z, [B, 2 Z]."""

    def __init__(
        self, sizes: tuple[int, int, int], chunk: int, width: int, heads_: int, layers: int
    ) -> None:
        super().__init__()
        features, actions, z = sizes
        self.see, self.did = nn.Linear(features, width), nn.Linear(actions, width)
        self.summary = nn.Linear(width, 2 * z)
        self.first = nn.Parameter(torch.zeros(1, 1, width))  # the class token
        self.place = nn.Parameter(torch.zeros(1, chunk + 2, width))
        layer = nn.TransformerEncoderLayer(width, heads_, WIDER * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, features: Tensor, chunk: Tensor, valid: Tensor) -> Tensor:
        first = self.first.expand(len(chunk), -1, -1)
        tokens = torch.cat((first, self.see(features)[:, None], self.did(chunk)), 1) + self.place
        there = torch.cat((torch.ones_like(valid[:, :1]).expand(-1, 2), valid), 1)
        return self.summary(self.layers(tokens, src_key_padding_mask=~there)[:, 0])


class _Decoder(nn.Module):
    """pi(s, z): the chunk [B, h, A]."""

    def __init__(
        self, sizes: tuple[int, int, int], chunk: int, width: int, heads_: int, layers: int
    ) -> None:
        super().__init__()
        features, actions, z = sizes
        self.see, self.style = nn.Linear(features, width), nn.Linear(z, width)
        self.say = nn.Linear(width, actions)
        self.query = nn.Parameter(torch.zeros(1, chunk, width))
        layer = nn.TransformerDecoderLayer(width, heads_, WIDER * width, 0.0, batch_first=True)
        self.layers = nn.TransformerDecoder(layer, layers)

    def forward(self, features: Tensor, z: Tensor) -> Tensor:
        memory = torch.stack((self.style(z), self.see(features)), 1)
        return self.say(self.layers(self.query.expand(len(z), -1, -1), memory))


@dataclass(frozen=True, slots=True)
class ActNet(ObservationNet):
    """Shapes; the numbers are in `tensors`, as those of `ObservationNet` and

        {"chunk": float32 [P]}  # of `decoder`

    decoder, posterior: structure only; chunk: h; action_size: A, the gripper as one more number;
    execute: how many actions of a chunk are carried out before the next is asked for; latent: Z.
    """

    decoder: nn.Module
    posterior: nn.Module
    chunk: int
    action_size: int
    execute: int
    latent: int

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        *,
        chunk: int,
        execute: int,
        width: int,
        attention_heads: int,
        layers: int,
        latent: int,
        encoder: EncoderConfig | None = None,
    ) -> Self:
        """Fit one to a run's observation and action.

        Raises:
            SpecError: the observation holds something no network here reads.
        """
        front = ObservationNet.of(spec, encoder)
        sizes = (front.feature_size, spec.action.size, latent)
        with torch.random.fork_rng(devices=[]):  # building modules must not disturb other draws
            decoder = _Decoder(sizes, chunk, width, attention_heads, layers)
            posterior = _Posterior(sizes, chunk, width, attention_heads, layers)
        return cls(
            keys=front.keys,
            encoder=front.encoder,
            state_size=front.state_size,
            decoder=decoder,
            posterior=posterior,
            chunk=chunk,
            action_size=spec.action.size,
            execute=execute,
            latent=latent,
        )

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors of what drives."""
        return {"chunk": _fresh(self.decoder, generator)} | self.init_observation(generator)

    def init_posterior(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters of q, float32 [P'], which only learning needs."""
        return _fresh(self.posterior, generator)

    def style(
        self, features: Tensor, posterior: Tensor, chunk: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and log std of z, each [B, Z]: features [B, F], chunk [B, h, A], valid [B, h]."""
        return heads.split(_run(self.posterior, posterior, features, chunk, valid))

    def decode(self, features: Tensor, z: Tensor, flat: Tensor) -> Tensor:
        """The chunk [B, h, A] of a style z [B, Z]; not clipped."""
        return _run(self.decoder, flat, features, z)

    def plan(self, features: Tensor, flat: Tensor) -> Tensor:
        """The chunk [B, h, A] that drives: z = 0, actions in [-1, 1]."""
        z = torch.zeros(len(features), self.latent, device=features.device)
        return self.decode(features, z, flat).clamp(-1.0, 1.0)

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
        """Actions [B, execute, A] of the next steps; there is nothing to draw."""
        return self.plan(self.look(observation, tensors), tensors["chunk"])[:, : self.execute]


def _fresh(module: nn.Module, generator: torch.Generator) -> Tensor:
    """Flat numbers: Glorot-uniform weights as DETR's and ACT's, zero biases, unit gains."""
    parts = []
    for name, parameter in module.named_parameters():
        value = torch.zeros(parameter.shape)
        if parameter.dim() == 2:
            nn.init.xavier_uniform_(value, generator=generator)
        elif parameter.dim() > 2:  # class token, places, queries
            value.normal_(0.0, 0.02, generator=generator)
        elif name.endswith("weight"):  # of a norm
            value.fill_(1.0)
        parts.append(value.flatten())
    return torch.cat(parts)


def _run(module: nn.Module, flat: Tensor, *inputs: Tensor) -> Tensor:
    """Run a module with these numbers instead of its own."""
    named = list(module.named_parameters())
    values = flat.split_with_sizes([p.numel() for _, p in named])
    views = {n: v.view(p.shape) for (n, p), v in zip(named, values, strict=True)}
    return functional_call(module, views, inputs)
