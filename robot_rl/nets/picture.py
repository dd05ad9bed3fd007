"""A network that says in numbers what the pictures of a moment show: is it done, how far is it.

images -> encoder (`nets.encoder`) -> features -> MLP -> outputs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet, image_shapes
from robot_rl.spec import Spec


class PictureNet:
    """The network of a reward model, as pure functions of pictures and tensors.

    Args:
        spec: of the observation; only its images are looked at.
        hidden: sizes of the MLP behind the encoder.
        outputs: how many numbers it answers.
        keys: which of the images, None = all.
        moments: of how many moments it sees the features at a time, e.g. 2 for a pair.
    """

    def __init__(
        self,
        spec: Spec,
        encoder: EncoderConfig,
        hidden: tuple[int, ...],
        *,
        outputs: int = 1,
        keys: tuple[str, ...] | None = None,
        moments: int = 1,
    ) -> None:
        shapes = image_shapes(spec)
        self.shapes = {k: shapes[k] for k in keys or shapes}
        self.encoder_config, self.hidden = encoder, hidden
        images = {k: spec.observation[k] for k in self.shapes}
        self.net = ObservationNet.of(replace(spec, observation=images), encoder)
        self.head = EnsembleMLP(1, (moments * self.net.feature_size, *hidden, outputs))
        self.keys = self.net.observation_keys

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors: "encoder" and "head"."""
        tensors = self.net.init_observation(generator)
        return {"encoder": tensors["encoder"], "head": self.head.init(generator)}

    def look(self, images: Mapping[str, NDArray | Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        """Features [B, F]; images: camera key -> uint8 [B, H, W, C]."""
        assert self.net.encoder is not None
        seen = {k: torch.as_tensor(images[k]) for k in self.keys}
        return self.net.encoder(seen, tensors["encoder"])

    def answer(self, features: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Outputs [B, outputs] for features [B, moments F]."""
        return self.head(features, tensors["head"])[0]

    def __call__(
        self, images: Mapping[str, NDArray | Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Outputs [B, outputs] for one moment each."""
        return self.answer(self.look(images, tensors), tensors)
