"""Where the sticks of a device rest: measured once, kept in a small file, read whenever it is used.

The rest position belongs to the piece of hardware, not to an experiment, so it is kept under the
device's name in `~/.config/robot-rl/devices/` and keyed by the device's own axis names: it stays
right when the axis map of the experiment changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from robot_rl.config.yaml_file import UNFIT, read_yaml
from robot_rl.errors import ConfigError
from robot_rl.system.files import user_folder

AXES = ("tx", "ty", "tz", "rx", "ry", "rz")
"""What a hand moves, in the TCP frame: linear, then angular along x, y, z."""

MIN_SAMPLES = 50  # one second at 50 Hz
MAX_NOISE = 0.05  # more is a hand, not a stick at rest
MAX_OFFSET = 0.3  # more is something lying on it, or a trigger taken for a stick
NOISE_FACTOR = 3.0  # the dead zone spans the noise this many times

_ZERO = (0.0,) * len(AXES)


@dataclass(frozen=True, kw_only=True)
class Rest:
    """Rest position of the six axes and their jitter there, both as shares of the full way."""

    centre: tuple[float, ...] = _ZERO
    noise: tuple[float, ...] = _ZERO

    @property
    def dead_zone(self) -> tuple[float, ...]:
        """The narrowest dead zone [6] in which these axes stay by themselves."""
        return tuple(NOISE_FACTOR * n for n in self.noise)


def calibrate(samples: ArrayLike) -> Rest:
    """Rest position from raw readings of a device that nobody touches.

    Args:
        samples: [N, 6] raw axes, N >= `MIN_SAMPLES`, over at least a second.

    Raises:
        ConfigError: too few samples, or an axis moved or rests far out: it says which.
    """
    raw = np.asarray(samples, np.float64)
    if raw.ndim != 2 or raw.shape[0] < MIN_SAMPLES or raw.shape[1] != len(AXES):
        raise ConfigError(
            "too little to calibrate with",
            expected=f"at least {MIN_SAMPLES} readings of {len(AXES)} axes",
            got=f"an array of shape {raw.shape}",
            fix="keep the device switched on and wait",
        )
    centre = np.median(raw, axis=0)
    noise = np.abs(raw - centre).max(axis=0)
    for i, axis in enumerate(AXES):
        if not noise[i] <= MAX_NOISE:
            raise _refused(axis, f"moved by {noise[i]:.2f}", f"at most {MAX_NOISE}")
        if abs(centre[i]) > MAX_OFFSET:
            raise _refused(axis, f"rests at {centre[i]:+.2f}", f"within {MAX_OFFSET} of the centre")
    return Rest(centre=tuple(centre.tolist()), noise=tuple(noise.tolist()))


def _refused(axis: str, got: str, expected: str) -> ConfigError:
    return ConfigError(
        f"cannot calibrate: {axis} {got}",
        expected=f"an axis at rest, {expected} of the full way",
        got=f"{axis} {got}",
        fix="put the device down, take your hands off, repeat; if it stays, check the axis map",
    )


def rest_file(device: str) -> Path:
    """Where the rest position of `device` (its name) is kept."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "device"
    return user_folder() / "devices" / f"{slug}.yaml"


def save_rest(device: str, rest: Rest, axes: Sequence[str]) -> Path:
    """Write `rest`; `axes` are the six entries of the axis map it was measured with."""
    import yaml

    found = {}
    for spec, centre, noise in zip(axes, rest.centre, rest.noise, strict=True):
        sign, name = split_axis(spec)
        if name:
            found[name] = {"centre": round(sign * centre, 5), "noise": round(noise, 5)}
    path = rest_file(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"# Rest position of '{device}', written by: robot-rl devices --calibrate\n"
    path.write_text(head + yaml.safe_dump(found, sort_keys=True))
    return path


def load_rest(device: str, axes: Sequence[str]) -> Rest:
    """The rest position of `device` for this axis map; zeros where nothing was measured.

    Raises:
        ConfigError: the file does not hold a rest position.
    """
    path = rest_file(device)
    if not path.is_file():
        return Rest()
    try:
        found = read_yaml(path)
        pairs = []
        for sign, name in map(split_axis, axes):
            entry = found.get(name, {"centre": 0.0, "noise": 0.0})
            pairs.append((sign * float(entry["centre"]), float(entry["noise"])))
        values = np.array(pairs)
        if not (np.abs(values) <= (MAX_OFFSET, MAX_NOISE)).all():
            raise ValueError("a value is out of range")
    except UNFIT as error:
        raise ConfigError(
            f"{path} does not hold a rest position",
            expected="axis name: {centre: ..., noise: ...}",
            got=f"{type(error).__name__}: {error}",
            fix="delete the file, or run robot-rl devices --calibrate again",
        ) from error
    return Rest(centre=tuple(values[:, 0].tolist()), noise=tuple(values[:, 1].tolist()))


def split_axis(spec: str) -> tuple[float, str]:
    """One entry of an axis map -> (sign, the device's name for it): "-ABS_Y" -> (-1, "ABS_Y")."""
    return (-1.0, spec[1:]) if spec.startswith("-") else (1.0, spec)
