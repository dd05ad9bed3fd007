"""Did it succeed? One logit from the pictures of a moment.

images -> encoder (`nets.encoder`) -> MLP -> logit;  success score p = sigmoid(logit)
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


class SuccessNet:
    """The network of a success classifier, as a pure function of pictures and tensors.

    Args:
        spec: of the observation; only its images are looked at.
        hidden: sizes of the MLP behind the encoder.
        keys: which of the images, None = all.
    """

    def __init__(
        self,
        spec: Spec,
        encoder: EncoderConfig,
        hidden: tuple[int, ...],
        keys: tuple[str, ...] | None = None,
    ) -> None:
        shapes = image_shapes(spec)
        self.shapes = {k: shapes[k] for k in keys or shapes}
        self.encoder_config, self.hidden = encoder, hidden
        images = {k: spec.observation[k] for k in self.shapes}
        self.net = ObservationNet.of(replace(spec, observation=images), encoder)
        self.head = EnsembleMLP(1, (self.net.feature_size, *hidden, 1))
        self.keys = self.net.observation_keys

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors: "encoder" and "head"."""
        tensors = self.net.init_observation(generator)
        return {"encoder": tensors["encoder"], "head": self.head.init(generator)}

    def __call__(
        self, images: Mapping[str, NDArray | Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Logits [B]; images: camera key -> uint8 [B, H, W, C]."""
        assert self.net.encoder is not None
        seen = {k: torch.as_tensor(images[k]) for k in self.keys}
        features = self.net.encoder(seen, tensors["encoder"])
        return self.head(features, tensors["head"])[0, :, 0]
