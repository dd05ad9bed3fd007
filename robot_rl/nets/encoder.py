"""Image encoders: cameras in, one feature vector out, as a pure function of images and parameters.

    uint8 [B, H, W, 3] -> trunk -> spatial learned embeddings -> linear -> LayerNorm -> tanh

The trunks (`nets.trunks`) are small, because on a robot the encoder sees some ten thousand images,
not millions.

Spatial learned embeddings (SERL): each channel is pooled with `embeddings` learned weight maps, so
"where" survives pooling. Augmentation is DrQ's random shift (arXiv 2004.13649), one draw per image.

All parameters of all cameras live in one flat tensor [P], like those of an ensemble: the optimiser,
the slow copy and a checkpoint see one tensor.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call

from robot_rl.errors import CheckpointError
from robot_rl.nets.tensor_file import read_tensors
from robot_rl.nets.trunks import GROUPS, LIBRARIES, TRUNKS, check_size, is_known, make_trunk

SHIFT_PX = 4  # DrQ, at 84 pixels; SERL keeps it at 128


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """How images become features. Used only when the observation has images."""

    cameras: tuple[str, ...] | None = None  # those that are looked at; None: all; (): none
    trunk: str = "cnn"
    channels: tuple[int, ...] = (32, 64, 128)  # of the cnn; resnet10 doubles the first
    embeddings: int = 8  # learned pooling maps per channel
    latent: int = 64  # features per camera; HIL-SERL: 256
    shared: bool = False  # one set of weights for all cameras
    frozen: bool = False  # the trunk is a fixed feature extractor; what comes after it learns
    weights: str = ""  # safetensors file with the trunk's tensors, for all cameras
    weights_sha256: str = ""  # of that file; required with it
    shift_px: int = SHIFT_PX  # 0 = no augmentation

    def __post_init__(self) -> None:
        """Check ranges."""
        if not is_known(self.trunk):
            named = " or ".join(f"{x}/<model>" for x in LIBRARIES)
            raise ValueError(f"trunk must be one of {TRUNKS}, or {named}, got {self.trunk!r}")
        if min(self.embeddings, self.latent, *self.channels, len(self.channels)) < 1:
            raise ValueError("channels, embeddings and latent must be at least 1")
        if self.trunk in ("resnet10", "vit") and any(c % GROUPS for c in self.channels[:1]):
            raise ValueError(f"the first of channels must be divisible by {GROUPS}")
        if bool(self.weights) != bool(self.weights_sha256):
            raise ValueError("weights and weights_sha256 belong together")
        if self.shift_px < 0:
            raise ValueError(f"shift_px must not be negative, got {self.shift_px}")


class Encoder:
    """Encodes the cameras of an observation.

    Args:
        shapes: camera key -> image shape (H, W, C).
        bf16: convolve in bfloat16; sums of LayerNorm and everything outside stay float32.

    Attributes:
        keys: observation entries it reads, in order.
        size: F, length of the feature vector.
        parameters: P, length of the parameter tensor.

    Raises:
        ConfigError: the trunk does not take images of this size, or there is no such trunk.
    """

    def __init__(
        self, config: EncoderConfig, shapes: Mapping[str, tuple[int, ...]], bf16: bool = False
    ) -> None:
        self.config, self.keys, self._bf16 = config, tuple(sorted(shapes)), bf16
        if config.shared and len(set(shapes.values())) > 1:
            raise ValueError(f"cameras of different shape cannot share an encoder: {dict(shapes)}")
        for key in self.keys:
            check_size(config.trunk, key, shapes[key])
        with torch.random.fork_rng(devices=[]):  # building modules must not disturb other draws
            self._net = _Cameras(config, [shapes[k] for k in self.keys], bf16)
        tensors = [*self._net.named_parameters(), *self._net.named_buffers()]
        trunks = {n for n, _ in tensors if ".trunk." in n} if config.frozen else set[str]()
        self._fixed = trunks | {n for n, _ in self._net.named_buffers()}
        self._parts = [(n, p.shape, p.numel()) for n, p in tensors if p.is_floating_point()]
        self.size = config.latent * len(self.keys)
        self.parameters = sum(size for _, _, size in self._parts)

    @property
    def fixed(self) -> Tensor:
        """Which parameters never learn, bool [P]: batch statistics, and those of a frozen trunk."""
        return torch.cat([torch.full((n,), name in self._fixed) for name, _, n in self._parts])

    def init(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters, float32 [P]: He-normal weights, zero biases, unit gains."""
        parts = []
        for name, shape, _ in self._parts:
            value = torch.zeros(shape)
            if name.endswith(("weight", "running_var")) and len(shape) == 1:  # of a norm
                value.fill_(1.0)
            elif len(shape) > 1:
                fan_in = math.prod(shape[1:])
                value.normal_(0.0, math.sqrt(2.0 / fan_in), generator=generator)
            parts.append(value.flatten())
        flat = torch.cat(parts)
        if self.config.weights:
            self._load_trunks(flat)
        return flat

    def _load_trunks(self, flat: Tensor) -> None:
        """Overwrite the trunk of every camera with the tensors of `config.weights`.

        Raises:
            CheckpointError: no such file, another hash, or another trunk.
        """
        path = Path(self.config.weights)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _unreadable(path, error) from error
        got = hashlib.sha256(data).hexdigest()
        if got != self.config.weights_sha256:
            raise CheckpointError(
                "the encoder's weights are not those that were meant",
                expected=f"sha256 {self.config.weights_sha256}",
                got=f"sha256 {got}",
                fix="fetch the file again, or correct algo.encoder.weights_sha256",
            )
        try:
            tensors = read_tensors(data)
        except ValueError as error:
            raise _unreadable(path, error) from error
        for name, view in self._views(flat).items():
            _, _, part, *rest = name.split(".", 3)  # cameras.0.trunk.0.weight
            if part != "trunk":
                continue
            value = tensors.get(key := rest[0].removeprefix("model."))
            if value is None or value.shape != view.shape:
                raise CheckpointError(
                    "the encoder's weights belong to another trunk",
                    expected=f"'{key}' {list(view.shape)} ({self.config.trunk})",
                    got="nothing" if value is None else str(list(value.shape)),
                    fix="choose the trunk and channels that the file was made with",
                )
            view.copy_(value)

    def look(self, images: Mapping[str, Tensor], flat: Tensor) -> dict[str, Tensor]:
        """What need not be computed twice: the trunk's output when it is frozen, else the images.

        `__call__` takes both.
        """
        if not self.config.frozen or next(iter(images.values())).dtype is not torch.uint8:
            return dict(images)
        with torch.no_grad(), self._autocast(flat):
            tokens = functional_call(
                self._net, self._views(flat), ([images[k] for k in self.keys], True)
            )
        return dict(zip(self.keys, tokens, strict=True))

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        views = flat.split_with_sizes([size for _, _, size in self._parts])
        return {
            name: (view.detach() if name in self._fixed else view).view(shape)
            for (name, shape, _), view in zip(self._parts, views, strict=True)
        }

    def _autocast(self, flat: Tensor) -> AbstractContextManager[object]:
        return torch.autocast(flat.device.type, torch.bfloat16) if self._bf16 else nullcontext()

    def __call__(self, images: Mapping[str, Tensor], flat: Tensor) -> Tensor:
        """Features float32 [B, F]; images: camera key -> uint8 [B, H, W, C], or from `look`."""
        with self._autocast(flat):
            features = functional_call(
                self._net, self._views(flat), ([images[k] for k in self.keys],)
            )
        return features.float()


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        "the encoder's weights cannot be read",
        expected=f"a safetensors file at {path}",
        got=str(error),
        fix="check algo.encoder.weights",
    )


def random_shift(image: Tensor, pad_px: int, generator: torch.Generator) -> Tensor:
    """DrQ: move each image by up to `pad_px` pixels either way; edges repeat.

    image: uint8 [B, H, W, C]; returns a new tensor of the same shape. Offsets differ per image.
    """
    if pad_px == 0:
        return image  # also the output of a trunk, which is no image (`Encoder.look`)
    batch, height, width, channels = image.shape
    draw = torch.randint(-pad_px, pad_px + 1, (2, batch, 1), generator=generator)
    draw = draw.to(image.device)
    rows = (torch.arange(height, device=image.device) + draw[0]).clamp_(0, height - 1)
    columns = (torch.arange(width, device=image.device) + draw[1]).clamp_(0, width - 1)
    first = torch.arange(batch, device=image.device)[:, None] * height
    moved = image.reshape(batch * height, width * channels).index_select(
        0, (rows + first).flatten()
    )
    index = columns[:, None, :, None] * channels + torch.arange(channels, device=image.device)
    index = index.reshape(batch, 1, width * channels).expand(-1, height, -1)
    moved = moved.view(batch, height, width * channels).gather(2, index)
    return moved.view(batch, height, width, channels)


class _Cameras(nn.Module):
    """One encoder per camera, or one for all of them."""

    def __init__(
        self, config: EncoderConfig, shapes: Sequence[tuple[int, ...]], bf16: bool
    ) -> None:
        super().__init__()
        own = shapes[:1] if config.shared else shapes
        self.cameras = nn.ModuleList(_Camera(config, shape, bf16) for shape in own)

    def forward(self, images: Sequence[Tensor], tokens: bool = False) -> Tensor | list[Tensor]:
        """Features [B, F] of one image batch per camera; with `tokens` the trunks' outputs."""
        nets: list[_Camera] = [*self.cameras] * (len(images) // len(self.cameras))  # type: ignore
        if tokens:
            return [f.look(x) for f, x in zip(nets, images, strict=True)]
        if len(self.cameras) == len(images):
            return torch.cat([f(x) for f, x in zip(self.cameras, images, strict=True)], -1)
        together = self.cameras[0](torch.cat(list(images)))
        return torch.cat(together.chunk(len(images)), -1)


class _Camera(nn.Module):
    """Trunk, spatial learned embeddings, bottleneck of one camera."""

    def __init__(self, config: EncoderConfig, shape: tuple[int, ...], bf16: bool) -> None:
        super().__init__()
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        height, width, channels = shape
        self.trunk = make_trunk(config.trunk, config.channels, shape)
        with torch.no_grad():
            tokens = self.trunk(torch.zeros(1, channels, height, width)).flatten(2)
        _, depth, places = tokens.shape
        self.maps = nn.Parameter(torch.empty(depth * config.embeddings, places))
        self.linear = nn.Linear(depth * config.embeddings, config.latent)
        self.norm = nn.LayerNorm(config.latent)

    def look(self, image: Tensor) -> Tensor:
        """uint8 [B, H, W, C] -> tokens [B, depth, places]."""
        x = image.permute(0, 3, 1, 2).to(self.dtype)  # NHWC memory is what channels_last means
        x = torch.add(x.new_full((), -1.0), x, alpha=2.0 / 255.0)  # in one pass
        return self.trunk(x).flatten(2)

    def forward(self, image: Tensor) -> Tensor:
        """uint8 [B, H, W, C], or tokens -> [B, latent]."""
        x = self.look(image) if image.dtype is torch.uint8 else image
        x = x.float() if x.dtype is torch.float16 else x  # as kept in the replay
        maps = self.maps.view(x.shape[1], -1, x.shape[2])
        x = x.transpose(0, 1).contiguous()  # else the product copies it in many small pieces
        pooled = torch.bmm(x, maps.transpose(1, 2))  # [depth, B, embeddings]
        pooled = pooled.permute(1, 0, 2).flatten(1) * x.shape[2] ** -0.5
        return torch.tanh(self.norm(self.linear(pooled).float()))
