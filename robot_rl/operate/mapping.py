"""What each stick and button of a device means: its own names -> axes of the tool, meanings.

Every device names what it has (`ABS_X`, `BTN_TR`; `axis0`, `button5`; `x`, `button0`) and reports
values in [-1, 1] (buttons 0 or 1). A map says which of them move the tool and which mean something.
Default maps move the tool as seen from behind it, fingers down: forward is +tx, right is +ty, down
is +tz.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.operate.calibration import AXES, split_axis
from robot_rl.operate.handset import HELD, DeviceReading

PRESSED = 0.5  # an axis used as a button (a trigger, -1 at rest) is down beyond this


@dataclass(frozen=True, kw_only=True)
class InputMap:
    """Which of a device's names move the tool, and which have a meaning.

    axes: six names of the device, for tx ty tz rx ry rz; "-" in front reverses one, "" leaves it
    still. buttons: name of a button, or of an axis that is pulled like one -> meaning (`HELD`).

    Raises:
        ConfigError: not six axes, or a meaning that does not exist.
    """

    axes: tuple[str, ...]
    buttons: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Refuse what no device could fulfil."""
        check_map(self.axes, self.buttons)

    def changed(self, axes: Sequence[str], buttons: Mapping[str, str]) -> InputMap:
        """This map with all `axes` replaced (if any are given) and some `buttons`; "" removes."""
        merged = {**self.buttons, **buttons}
        kept = {name: word for name, word in merged.items() if word}
        return InputMap(axes=tuple(axes) or self.axes, buttons=kept)

    def check(self, known: Iterable[str], device: str) -> None:
        """Raise `ConfigError` when the device has no such axis or button. `known`: what it has."""
        names = set(known)
        for spec in (*self.axes, *self.buttons):
            name = split_axis(spec)[1]
            if name and name not in names:
                raise ConfigError(
                    f"'{device}' has no '{name}'",
                    expected="axes and buttons of this device (robot-rl devices shows what moves)",
                    got=spec,
                    fix=did_you_mean(name, names),
                )

    def reading(self, values: Mapping[str, float], stamp_s: float) -> DeviceReading:
        """`values` of the device as a reading; names that are absent are at rest."""
        axes = [_value(values, spec) for spec in self.axes]
        held = (w for spec, w in self.buttons.items() if _value(values, spec) > PRESSED)
        return DeviceReading(stamp_s, np.array(axes), frozenset(held))


def check_map(axes: Sequence[str], buttons: Mapping[str, str]) -> None:
    """Raise `ConfigError` when this is no axis map (empty = the device's own) or no button map."""
    if axes and len(axes) != len(AXES):
        raise ConfigError(
            "an axis map names six axes",
            expected=f"one name, or '', for each of {', '.join(AXES)}",
            got=f"{len(axes)}: {list(axes)}",
            fix="e.g. operator.axes=[-ABS_Y,ABS_X,ABS_RY,'','',ABS_RX]",
        )
    for name, word in buttons.items():
        if word and word not in HELD:
            raise ConfigError(
                f"unknown meaning '{word}' of button '{name}'",
                expected="a meaning out of the table in docs/devices.md",
                got=f"{name}: {word}",
                fix=did_you_mean(word, HELD),
            )


def _value(values: Mapping[str, float], spec: str) -> float:
    sign, name = split_axis(spec)
    return sign * values.get(name, 0.0)


JOY_LAYOUTS: Mapping[str, InputMap] = {
    # joy_node and joy_linux with an Xbox pad; left and forward are positive there
    "joy": InputMap(
        axes=("axis1", "-axis0", "-axis4", "axis6", "axis7", "-axis3"),
        buttons={
            "button5": "drive", "button4": "slow", "-axis2": "close", "-axis5": "open",
            "button3": "success", "button0": "failure", "button2": "redo", "button1": "hold",
            "button6": "rewind", "button9": "clutch",
        },
    ),
    # game_controller_node: the same order for every pad it knows; its D-pad is buttons, not axes
    "game_controller": InputMap(
        axes=("axis1", "-axis0", "-axis3", "", "", "-axis2"),
        buttons={
            "button10": "drive", "button9": "slow", "-axis4": "close", "-axis5": "open",
            "button3": "success", "button0": "failure", "button2": "redo", "button1": "hold",
            "button4": "rewind", "button7": "clutch",
        },
    ),
}  # fmt: skip
"""Order of a `sensor_msgs/Joy` by the node that publishes it."""
