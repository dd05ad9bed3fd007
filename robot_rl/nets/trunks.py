"""Trunks: images in [-1, 1] to a feature map; our own small ones, and any of torchvision or timm.

    cnn       three strided convolutions (8/4, 3/2, 3/2): a quarter of the arithmetic of SERL's
              small encoder at 64 x 64, because the first stride is wide
    resnet10  ResNet-10 with GroupNorm, as SERL and HIL-SERL (they load ImageNet weights into it)
    vit       one transformer block over 8 x 8 convolutional tokens (ResFiT, arXiv 2509.19301)

or an architecture of a library by name, "torchvision/resnet18", "timm/convnext_atto": its feature
map, with the batch statistics of its weights file. Nothing is fetched; see docs/algorithms.md.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.errors import ConfigError, SetupError

TRUNKS = ("cnn", "resnet10", "vit")
SMALLEST = {"cnn": 4, "vit": 12}  # px per side: less does not fill the kernels
LIBRARIES = ("torchvision", "timm")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of [0, 1]
GROUPS = 4  # of the GroupNorm, as SERL


def check_size(trunk: str, key: str, shape: tuple[int, ...]) -> None:
    """Raise `ConfigError` if images [H, W, C] of an entry are smaller than a trunk's kernels."""
    least = SMALLEST.get(trunk, 1)
    if min(shape[:2]) < least:
        raise ConfigError(
            f"'{key}' is too small for the trunk '{trunk}'",
            expected=f"at least {least} x {least} pixels",
            got=f"{shape[0]} x {shape[1]}",
            fix="a larger picture (task.image_size; of an environment "
            "gymnasium.wrappers.ResizeObservation), or algo.encoder.trunk=resnet10",
        )


def is_known(trunk: str) -> bool:
    """Whether `make_trunk` may know the name; a library's model names are checked only there."""
    return trunk in TRUNKS or trunk.split("/", maxsplit=1)[0] in LIBRARIES


def make_trunk(trunk: str, channels: tuple[int, ...], shape: tuple[int, ...]) -> nn.Module:
    """A module from float [B, C, H, W] in [-1, 1] to [B, depth, h, w].

    channels: widths of our own trunks; shape: (H, W, C) of the images.

    Raises:
        SetupError: the library is not installed.
        ConfigError: it has no such model, or the model does not take these images.
    """
    own = _OWN.get(trunk)
    return own(channels, shape[2]) if own else _Library(trunk, shape)


class _Cnn(nn.Sequential):
    def __init__(self, channels: tuple[int, ...], depth: int) -> None:
        layers: list[nn.Module] = [nn.Conv2d(depth, channels[0], 8, 4, 2), nn.ReLU()]
        for before, after in itertools.pairwise(channels):
            layers += [nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()]
        super().__init__(*layers)


class _Residual(nn.Module):
    """Basic block with GroupNorm; halves the picture unless it is the first."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.GroupNorm(GROUPS, after), nn.GroupNorm(GROUPS, after)
        same = before == after and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm_one(self.one(x)))
        return torch.relu(self.norm_two(self.two(y)) + self.skip(x))


class _ResNet10(nn.Sequential):
    def __init__(self, channels: tuple[int, ...], depth: int) -> None:
        width = channels[0]
        super().__init__(
            nn.Conv2d(depth, width, 7, 2, 3, bias=False),
            nn.GroupNorm(GROUPS, width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            _Residual(width, width, 1),
            _Residual(width, 2 * width, 2),
            _Residual(2 * width, 4 * width, 2),
            _Residual(4 * width, 8 * width, 2),
        )


class _Vit(nn.Module):
    """Convolutional stem (8/4, 3/2), one pre-norm transformer block; tokens keep their places."""

    def __init__(self, channels: tuple[int, ...], depth: int) -> None:
        super().__init__()
        width = channels[-1]
        self.stem = nn.Sequential(
            nn.Conv2d(depth, channels[0], 8, 4, 2), nn.ReLU(), nn.Conv2d(channels[0], width, 3, 2)
        )
        self.block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        places = _places(x.shape[2], x.shape[3], x.shape[1]).to(x)
        tokens = self.block(x.flatten(2).transpose(1, 2) + places)
        return tokens.transpose(1, 2).unflatten(2, x.shape[2:])


class _Library(nn.Module):
    """The last feature map of a torchvision or timm model; its batch statistics stay as they are.

    Raises:
        SetupError: the library is not installed.
        ConfigError: it has no such model, or the model does not take these images.
    """

    def __init__(self, trunk: str, shape: tuple[int, ...]) -> None:
        super().__init__()
        library, _, name = trunk.partition("/")
        try:
            importlib.import_module(library)
        except (ImportError, RuntimeError) as error:  # RuntimeError: made for another torch
            raise SetupError(
                f"{library} cannot be imported",
                expected=f"{library}, for algo.encoder.trunk={trunk}",
                got=str(error),
                fix=f"pip install 'robot-rl[vision]', torchvision for torch {torch.__version__}",
            ) from error
        try:
            self.model, self._look = _FROM[library](name, shape)
        except (ValueError, RuntimeError, TypeError) as error:
            raise ConfigError(
                f"{library} cannot make '{name}'",
                expected=f"a model of {library} with a feature map",
                got=str(error),
                fix=f"choose one of {library}.list_models()",
            ) from error
        self.train()
        try:
            with torch.no_grad():
                self(torch.zeros(1, shape[2], *shape[:2]))
        except (AssertionError, RuntimeError) as error:
            raise ConfigError(
                f"'{trunk}' does not look at images like these",
                expected="the size that it was made for, three channels",
                got=f"{list(shape)}: {error}",
                fix="change task.image_size, or choose a trunk without positions, e.g. a ResNet",
            ) from error

    def train(self, mode: bool = True) -> _Library:
        """Stay in evaluation mode: no dropout, and no batch statistics of some thousand images."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] in [-1, 1] -> [B, depth, h, w]."""
        mean, std = (x.new_tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        return self._look(self.model, (0.5 * x + 0.5 - mean) / std)


def _from_torchvision(name: str, _: tuple[int, ...]) -> tuple[nn.Module, Callable[..., Tensor]]:
    from torchvision import models
    from torchvision.models.feature_extraction import create_feature_extractor

    model = models.get_model(name, weights=None).eval()
    parts = dict(model.named_children())
    last = "features" if "features" in parts else "layer4" if "layer4" in parts else ""
    if not last:
        raise ValueError(f"no feature map found among {list(parts)}")
    return create_feature_extractor(model, {last: "map"}), lambda net, x: net(x)["map"]


def _from_timm(name: str, shape: tuple[int, ...]) -> tuple[nn.Module, Callable[..., Tensor]]:
    import timm

    size: dict[str, Any] = {"img_size": shape[:2]} if "vit" in name or "swin" in name else {}
    model = timm.create_model(name, pretrained=False, num_classes=0, **size)
    how = {"indices": 1, "intermediates_only": True}
    return model, lambda net, x: net.forward_intermediates(x, **how)[-1]


_FROM = {"torchvision": _from_torchvision, "timm": _from_timm}


def _places(height: int, width: int, size: int) -> Tensor:
    """Sine and cosine of row and column, [H * W, size]: where each token stands."""
    rates = torch.exp(torch.arange(size // 4) * (-math.log(100.0) / max(size // 4, 1)))
    rows = torch.arange(height)[:, None] * rates
    columns = torch.arange(width)[:, None] * rates
    row = torch.cat((rows.sin(), rows.cos()), -1)[:, None].expand(-1, width, -1)
    column = torch.cat((columns.sin(), columns.cos()), -1)[None].expand(height, -1, -1)
    return torch.cat((row, column), -1).flatten(0, 1)


_OWN = {"cnn": _Cnn, "resnet10": _ResNet10, "vit": _Vit}
