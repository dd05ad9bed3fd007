"""Progress, how far the task is: a number in [0, 1] for each frame, from pictures alone.

    value      phi_t = E[gamma^(steps to success)] of a histogram over [0, 1], or with gamma = 1 one
               minus the share of the longest way that is left    (GR-RL's Q as progress, RECAP)
    pair       c = share of what is left that happened between frames t - gap and t, in [-1, 1];
               phi_t = phi_{t - gap} moved by it                                      (VLAC)

Progress never ends an episode and is no reward: it is a potential (`reward.assembly`), written
beside the steps by `reward.scorer`, one label per frame, of kind `progress`. A frame's progress
depends on no later frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.picture import PictureNet
from robot_rl.nets.values import HlGauss
from robot_rl.reward.assembly import after_change
from robot_rl.reward.model import ScoreModel
from robot_rl.spec import Spec
from robot_rl.store.labels import PROGRESS

WAYS = ("value", "pair")


class ProgressNet(PictureNet):
    """The network of each way."""

    def __init__(
        self,
        spec: Spec,
        encoder: EncoderConfig,
        hidden: tuple[int, ...],
        keys: tuple[str, ...] | None = None,
        *,
        way: str,
        bins: int,
        gap: int,
    ) -> None:
        outputs = 1 if way == "pair" else bins
        moments = 2 if way == "pair" else 1
        super().__init__(spec, encoder, hidden, outputs=outputs, keys=keys, moments=moments)
        self.way, self.gap = way, gap
        self.histogram = HlGauss(0.0, 1.0, bins) if bins else None

    def judge(self, features: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """phi [B] in [0, 1] of features [B, F]; not for `pair`."""
        assert self.histogram is not None
        return self.histogram.value(self.answer(features, tensors)).clamp(0.0, 1.0)

    def change(self, before: Tensor, now: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """c [B] in [-1, 1] between features [B, F] and [B, F]."""
        return torch.tanh(self.answer(torch.cat((before, now), -1), tensors)[:, 0])


@dataclass(frozen=True)
class ProgressModel(ScoreModel):
    """A trained progress model.

    way: see the module; bins: of `value`'s histogram; gap: frames between the two of a pair.
    """

    kind = "progress"
    title = "progress model"
    net_type, net_fields = ProgressNet, ("way", "bins", "gap")
    label = PROGRESS

    way: str = "value"
    bins: int = 0
    gap: int = 0

    @classmethod
    def own_fields(cls, facts: Mapping[str, Any]) -> dict[str, Any]:
        """See `ScoreModel`."""
        if facts["way"] not in WAYS:
            raise ValueError(f"way {facts['way']!r}")
        return super().own_fields(facts)

    @property
    def needs_past(self) -> bool:
        """Whether a frame's progress depends on the frames before it."""
        return self.way == "pair"

    @torch.no_grad()
    def curve(self, images: Mapping[str, NDArray], past: Past | None = None) -> NDArray[np.float64]:
        """phi [T] of the next T frames of an episode, images: camera key -> uint8 [T, H, W, C].

        past: of the same episode, carried from call to call; None = these are its first frames.
        """
        past = Past() if past is None else past
        assert isinstance(self.net, ProgressNet)
        features = self.net.look(images, self.tensors)
        if not self.needs_past:
            return self.net.judge(features, self.tensors).double().numpy()
        out = np.empty(len(features))
        for t, now in enumerate(features):
            before, phi = past.back(self.gap)
            if before is not None:
                change = self.net.change(before[None], now[None], self.tensors)
                phi = after_change(phi, float(change))
            past.add(now, phi, self.gap)
            out[t] = phi
        return out


@dataclass(slots=True)
class Past:
    """What `pair` needs to know of the frames before: features and phi of the last ones."""

    features: list[Tensor] = field(default_factory=list)
    phi: list[float] = field(default_factory=list)

    def back(self, gap: int) -> tuple[Tensor | None, float]:
        """Features and phi of `gap` frames ago, or of the first frame; (None, 0) before any."""
        at = max(len(self.phi) - gap, 0)
        return (self.features[at], self.phi[at]) if self.phi else (None, 0.0)

    def add(self, features: Tensor, phi: float, gap: int) -> None:
        """Remember the newest frame."""
        self.features.append(features)
        self.phi.append(phi)
        del self.features[: -gap or None], self.phi[: -gap or None]
