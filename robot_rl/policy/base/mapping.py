"""Between our observations and actions and those that a foreign policy was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.api_key import without_old_keys
from robot_rl.config.registry import UPGRADES
from robot_rl.errors import ConfigError, LinkError, RobotRLError, SpecError, did_you_mean
from robot_rl.spec import IMAGE, Spec
from robot_rl.types import Observation

NUMBERS = "fiub"  # numpy kinds of the arrays that cross a wire
LARGEST = float(np.finfo(np.float32).max)
LONGEST_TYPE = 16  # characters; "<f4", or "float32"
PROMPT = "prompt"  # the source of an input that is the instruction


@dataclass(frozen=True, kw_only=True)
class SlowConfig:
    """How the chunks of a base policy are used, if it is too slow to be asked within a tick."""

    execute: int = 8  # ticks until a newer chunk is asked for
    ahead: int = 1  # actions recorded with each frame
    blend: int = 0  # ticks over which a new chunk replaces the old one; 0 = at once

    def __post_init__(self) -> None:
        """Check ranges."""
        if min(self.execute, self.ahead) < 1 or self.blend < 0:
            raise ValueError("execute and ahead must be at least 1, blend 0 or more")


@dataclass(frozen=True, kw_only=True)
class RemoteConfig(SlowConfig):
    """Where to find a base policy that runs in another process."""

    host: str = "127.0.0.1"
    port: int = 0  # 0 = the protocol's own
    timeout_s: float = 5.0  # of one answer; a VLA needs 0.1 to 0.4

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if not 0 <= self.port <= 65535 or self.timeout_s <= 0.0:
            raise ValueError("port must lie in 0..65535, timeout_s be positive")


@dataclass(frozen=True, kw_only=True)
class ForeignConfig(SlowConfig):
    """How our observations and actions map to those of a policy that somebody else trained.

    inputs: their key -> ours: an observation entry ("image/wrist", "state"), a named part of the
    state ("state.tcp", see `Spec.state_layout`), or "prompt".
    """

    chunk: int = 0  # actions in an answer; 0 = as the server says, where it does
    prompt: str = ""  # the instruction
    inputs: dict[str, str] = field(default_factory=dict)
    image_size: int = 0  # pictures are scaled and padded to a square of this side; 0 = as they are
    columns: tuple[int, ...] = ()  # columns of their action, in the order of ours; () = all
    low: tuple[float, ...] = ()  # their value at our -1, for each number of the action;
    high: tuple[float, ...] = ()  # the same at our +1; both () = theirs are in [-1, 1] already

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if min(self.chunk, self.image_size) < 0:
            raise ValueError("chunk and image_size must be 0 or more")
        if len(self.low) != len(self.high) or any(
            a == b for a, b in zip(self.low, self.high, strict=False)
        ):
            raise ValueError("low and high must be as long, and differ number by number")


@dataclass(frozen=True, kw_only=True)
class ForeignServerConfig(RemoteConfig, ForeignConfig):
    """Keys of a policy that somebody else has trained, behind its own server."""


def _upgraded(section: Mapping[str, Any]) -> Mapping[str, Any]:
    return without_old_keys(section, "base", "api_key", "api_token")


UPGRADES["base"] = _upgraded


class RefusedError(LinkError):
    """The server understands us, and says what is wrong with the question (or with itself)."""


@contextmanager
def answer_of(server: str) -> Iterator[None]:
    """Whatever a server's answer makes go wrong inside is a `LinkError`, however odd it is."""
    try:
        yield
    except RobotRLError:
        raise
    except Exception as error:  # OverflowError, SyntaxError, MemoryError, RecursionError ...
        raise LinkError(
            f"{server} gave an answer that cannot be used",
            expected="numbers, as its protocol says",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="check that base.host and base.port are those of the server that you mean",
        ) from error


class Inputs:
    """Our observation -> their entries.

    Raises:
        ConfigError: an input names something that the observation does not have.
    """

    def __init__(self, config: ForeignConfig, spec: Spec) -> None:
        self._config = config
        self._parts = {f"state.{name}": at for name, at in spec.state_slices.items()}
        known = [*spec.observation, *self._parts, PROMPT]
        for theirs, ours in config.inputs.items():
            if ours not in known:
                raise ConfigError(
                    f"base.inputs: '{theirs}' comes from something that is not observed",
                    expected="one of " + ", ".join(known),
                    got=ours,
                    fix=did_you_mean(ours, known),
                )

    def __call__(self, observation: Observation) -> dict[str, Any]:
        """float32 vectors, uint8 pictures [H, W, 3], and the instruction."""
        return {
            theirs: self._entry(ours, observation) for theirs, ours in self._config.inputs.items()
        }

    def _entry(self, ours: str, observation: Observation) -> Any:
        if ours == PROMPT:
            return self._config.prompt
        if ours in self._parts:
            return observation["state"][self._parts[ours]]
        value = observation[ours]
        if ours.startswith(IMAGE) and self._config.image_size:
            return padded(value, self._config.image_size)
        return value


class Actions:
    """Their chunk [H, D] -> ours [H, A]."""

    def __init__(self, config: ForeignConfig, action_size: int) -> None:
        self._config, self.action_size = config, action_size
        for name in ("columns", "low"):
            size = len(getattr(config, name))
            if size not in (0, action_size):
                raise ConfigError(
                    f"base.{name} has another length than our action",
                    expected=f"{action_size} numbers, or none",
                    got=str(size),
                    fix="name a source (and bounds) for each number of the action",
                )

    def __call__(self, chunk: Any) -> NDArray[np.float32]:
        """Our chunk; its values are in [-1, 1] where theirs are within `low` and `high`.

        Raises:
            SpecError: not numbers [H, D] with enough columns, or not finite.
        """
        try:
            theirs = np.asarray(chunk, np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise _bad("numbers [H, D]", repr(chunk)[:80]) from error
        columns = self._config.columns or tuple(range(theirs.shape[-1] if theirs.ndim else 0))
        if theirs.ndim != 2 or len(columns) != self.action_size:
            raise _bad(f"[H, {self.action_size}], or base.columns", str(list(theirs.shape)))
        if (
            not len(theirs)
            or not -theirs.shape[1] <= min(columns) <= max(columns) < theirs.shape[1]
        ):
            raise _bad(f"columns {list(columns)}", str(list(theirs.shape)))
        ours = theirs[:, list(columns)]
        if self._config.low:
            low, high = np.array(self._config.low), np.array(self._config.high)
            ours = 2.0 * (ours - low) / (high - low) - 1.0
        if not (np.abs(ours) < LARGEST).all():
            raise _bad("finite numbers", "NaN, infinity or a number beyond float32")
        return ours.astype(np.float32)


def padded(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Scale until the longer side fits, pad with black: [H, W, 3] -> [size, size, 3].

    openpi calls this resize_with_pad.
    """
    import cv2

    height, width = image.shape[:2]
    if height == width == size:
        return image
    scale = size / max(height, width)
    h, w = max(1, round(height * scale)), max(1, round(width * scale))
    found = np.zeros((size, size, image.shape[2]), np.uint8)
    top, left = (size - h) // 2, (size - w) // 2
    found[top : top + h, left : left + w] = cv2.resize(image, (w, h), interpolation=cv2.INTER_AREA)
    return found


def numbers(data: bytes, dtype: Any, shape: Any) -> NDArray:
    """An array as it came over a wire; raises ValueError or TypeError unless plain numbers."""
    sizes = [int(n) for n in shape]
    if any(n < 0 for n in sizes):
        raise ValueError("a negative size")
    return np.frombuffer(data, plain(dtype)).reshape(sizes)


def plain(dtype: Any) -> np.dtype[Any]:
    """A type of plain numbers by its name; raises ValueError or TypeError for any other."""
    if not isinstance(dtype, str) or len(dtype) > LONGEST_TYPE:
        raise ValueError("no name of a type")
    kind = np.dtype(dtype)
    if kind.kind not in NUMBERS or kind.shape:
        raise ValueError(f"an array of {kind}")
    return kind


def check_numbers(array: NDArray) -> None:
    """Raise TypeError unless an array holds plain numbers."""
    if array.dtype.kind not in NUMBERS:
        raise TypeError(f"cannot send an array of {array.dtype}")


def _bad(expected: str, got: str) -> SpecError:
    return SpecError(
        "the base policy's answer is not an action chunk of ours",
        expected=expected,
        got=got,
        fix="check base.columns, base.low, base.high against what the server was trained on",
    )
