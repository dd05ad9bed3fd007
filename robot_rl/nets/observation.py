"""What a network sees of a frame: its float vectors, standardised, and its encoded images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.errors import SpecError, did_you_mean
from robot_rl.nets.encoder import Encoder, EncoderConfig
from robot_rl.spec import IMAGE, PRIVILEGED, Spec
from robot_rl.types import Observation

SCALED_LIMIT = 10.0  # standard deviations; beyond, the input says "far away" and nothing more


def state_keys(spec: Spec) -> tuple[str, ...]:
    """Names of the float vectors that make up the network input, in a fixed order.

    What is privileged is not among them: a policy never sees it.

    Raises:
        SpecError: there is neither a float vector nor an image, or something else.
    """
    kinds = {
        k: v.dtype if len(v.shape) != 3 else "image"
        for k, v in spec.observation.items()
        if not k.startswith(PRIVILEGED)
    }
    wrong = {k: v for k, v in kinds.items() if v not in ("float32", "image")}
    if wrong or not kinds:
        raise SpecError(
            "the observation holds something no network here reads",
            expected="float32 vectors, and uint8 images [H, W, C]",
            got=str({k: spec.observation[k] for k in wrong}) if wrong else "(nothing)",
            fix="convert it in the task's observe()",
        )
    return tuple(k for k in sorted(kinds) if kinds[k] == "float32")


def image_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Camera key -> (H, W, C) of the images in the observation.

    Raises:
        SpecError: an image is not uint8.
    """
    images = {k: v for k, v in sorted(spec.observation.items()) if len(v.shape) == 3}
    for key, value in images.items():
        if value.dtype != "uint8":
            raise SpecError(
                f"image '{key}' is not uint8",
                expected="uint8 [H, W, C], as cameras deliver it",
                got=f"{value.dtype} {list(value.shape)}",
                fix="leave images as they are; they are scaled on the way into the network",
            )
    return {k: v.shape for k, v in images.items()}


def _looked_at(spec: Spec, encoder: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """`image_shapes` of those cameras that the encoder looks at."""
    shapes = image_shapes(spec)
    if encoder.cameras is None:
        return shapes
    for name in encoder.cameras:
        if IMAGE + name not in shapes:
            raise SpecError(
                f"encoder.cameras names '{name}', which this run does not have",
                expected=", ".join(spec.cameras) or "(no camera: leave encoder.cameras out)",
                got=", ".join(encoder.cameras),
                fix=did_you_mean(name, spec.cameras),
            )
    if not encoder.cameras and not state_keys(spec):
        raise SpecError(
            "encoder.cameras=[] leaves nothing to see",
            expected="a state beside the images, or a camera",
            got=", ".join(spec.observation),
            fix="name a camera of " + ", ".join(spec.cameras),
        )
    return {IMAGE + name: shapes[IMAGE + name] for name in encoder.cameras}


@dataclass(frozen=True, slots=True)
class ObservationNet:
    """The front of every network. Features [B, F] are the scaled state, then the encoded images.

    keys: float entries of the observation that are concatenated to the state; encoder: of the
    images, None without cameras; state_size: S.
    """

    keys: tuple[str, ...]
    encoder: Encoder | None
    state_size: int

    @classmethod
    def of(
        cls, spec: Spec, encoder: EncoderConfig | None = None, bf16: bool = False
    ) -> ObservationNet:
        """Fit one to a run's observation.

        Raises:
            SpecError: the observation holds something no network here reads, or lacks what
                `encoder.cameras` names.
        """
        encoder = encoder or EncoderConfig()
        keys, shapes = state_keys(spec), _looked_at(spec, encoder)
        eyes = Encoder(encoder, shapes, bf16) if shapes else None
        return cls(keys, eyes, sum(int(np.prod(spec.observation[k].shape)) for k in keys))

    @classmethod
    def privileged(cls, spec: Spec) -> ObservationNet:
        """Of what critics see beside a policy's features; of size 0 where that is nothing."""
        keys = spec.privileged
        return cls(keys, None, sum(int(np.prod(spec.observation[k].shape)) for k in keys))

    @property
    def feature_size(self) -> int:
        """Numbers in a feature vector, F."""
        return self.state_size + (self.encoder.size if self.encoder else 0)

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """Every entry of the observation that is looked at."""
        return self.keys + (self.encoder.keys if self.encoder else ())

    @property
    def fixed(self) -> dict[str, Tensor]:
        """Masks of what never learns, by the name of the tensor."""
        return {"encoder": self.encoder.fixed} if self.encoder else {}

    def init_observation(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors: "encoder" with cameras, "mean" and "scale" (no scaling yet)."""
        tensors = {"encoder": self.encoder.init(generator)} if self.encoder else {}
        tensors["mean"] = torch.zeros(self.state_size)
        tensors["scale"] = torch.ones(self.state_size)
        return tensors

    def state(self, observation: Mapping[str, NDArray | Tensor]) -> Tensor:
        """Concatenate the float entries of a batch: each [B, ...] -> [B, S]."""
        parts = [torch.as_tensor(observation[k]).flatten(1) for k in self.keys]
        if not parts:
            return torch.zeros(len(next(iter(observation.values()))), 0)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def images(self, observation: Mapping[str, NDArray | Tensor]) -> dict[str, Tensor]:
        """The images of a batch: camera key -> uint8 [B, H, W, C]."""
        keys = self.encoder.keys if self.encoder else ()
        return {k: torch.as_tensor(observation[k]) for k in keys}

    def digest(self, tensors: Mapping[str, Tensor]) -> Callable[[Observation], Observation] | None:
        """Return a function that replaces a frame's images by a frozen trunk's output, float16.

        None without cameras, and where images are needed: the trunk learns, or they are shifted.
        """
        encoder = self.encoder
        if encoder is None or not encoder.config.frozen or encoder.config.shift_px:
            return None

        def look(observation: Observation) -> Observation:
            device = tensors["encoder"].device
            images = {k: torch.as_tensor(observation[k])[None].to(device) for k in encoder.keys}
            tokens = encoder.look(images, tensors["encoder"])
            return observation | {k: v[0].half().cpu().numpy() for k, v in tokens.items()}

        return look

    def features(
        self, scaled: Tensor, images: Mapping[str, Tensor], encoder: Tensor | None
    ) -> Tensor:
        """What the heads see: scaled state [B, S] and encoded images -> [B, F]."""
        if self.encoder is None or encoder is None:
            return scaled
        return torch.cat((scaled, self.encoder(images, encoder)), -1)

    def scaled(self, state: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """States as the networks see them, standardised and clipped: [B, S] -> [B, S]."""
        scaled = (state.to(tensors["mean"].device) - tensors["mean"]).mul_(tensors["scale"])
        return scaled.clamp_(-SCALED_LIMIT, SCALED_LIMIT)

    def look(
        self, observation: Mapping[str, NDArray | Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Features [B, F] of a batch of observations."""
        scaled = self.scaled(self.state(observation), tensors)
        images = {k: v.to(scaled.device) for k, v in self.images(observation).items()}
        return self.features(scaled, images, tensors.get("encoder"))
