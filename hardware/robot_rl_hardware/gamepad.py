"""A gamepad through evdev: what every stick and button says now, whichever pad it is.

The kernel is asked for the state instead of for events: nothing is missed when its queue overflows,
and a pad that was pulled out answers with an error at once. Names are the kernel's
(docs.kernel.org/input/gamepad.html). Pads differ in two things, which `inputs_for` knows: where the
right stick and the triggers are, and what X and Y are called.
"""

from __future__ import annotations

import importlib
import math
import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError, SetupError
from robot_rl.operate.calibration import split_axis
from robot_rl.operate.devices import need_real_time
from robot_rl.operate.handset import HandsetConfig
from robot_rl.operate.held import HeldDevice
from robot_rl.operate.mapping import InputMap, check_map
from robot_rl.ports import InputDevice, Task
from robot_rl_hardware.reader import FoundDevice, held_device, pick

PERIOD_S = 0.01  # a pad is asked this often
BTN_GAMEPAD = 0x130  # every gamepad has this button (BTN_SOUTH), no mouse, touchpad or keyboard has
BUS_BLUETOOTH = 0x05
SONY = 0x054C
WORD_BITS = struct.calcsize("l") * 8  # of the bit fields in sysfs
QUIET_BLUETOOTH_S = 1.0
INPUT = Path("/dev/input")
SYSFS = Path("/sys/class/input")

BUTTONS = {
    "BTN_TR": "drive", "BTN_TL": "slow", "BTN_Y": "success", "BTN_A": "failure", "BTN_X": "redo",
    "BTN_B": "hold", "BTN_SELECT": "rewind", "BTN_THUMBL": "clutch",
}  # fmt: skip
TILT = ("-ABS_HAT0X", "-ABS_HAT0Y")  # the D-pad swings the fingertips to its side


@register("operator", "gamepad")
@dataclass(frozen=True, kw_only=True)
class GamepadConfig:
    """A gamepad on the robot PC, read through evdev (Linux)."""

    device: str = ""  # its path, or part of its name; "" = the only one there is
    axes: tuple[str, ...] = ()  # six of its axes for tx ty tz rx ry rz; () = by kind of pad
    buttons: dict[str, str] = field(default_factory=dict[str, str])  # changes to the default map
    quiet_s: float | None = None  # deflected and unchanged this long = lost; None = 1 on Bluetooth
    handset: HandsetConfig = field(default_factory=HandsetConfig)

    def __post_init__(self) -> None:
        """Check the map, and the range of `quiet_s`."""
        check_map(self.axes, self.buttons)
        if self.quiet_s is not None and not self.quiet_s >= 0.1:
            raise ValueError(f"quiet_s must be at least 0.1, got {self.quiet_s}")

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("gamepad", node)
        return open_gamepad(self, task)


def inputs_for(names: frozenset[str], vendor: int) -> InputMap:
    """Default map of a pad that has the axes and buttons `names`."""
    buttons = dict(BUTTONS)
    if vendor == SONY:  # named by place there (Y is the upper one), by letter on an Xbox pad
        buttons |= {"BTN_X": BUTTONS["BTN_Y"], "BTN_Y": BUTTONS["BTN_X"]}
    if "ABS_RX" in names:  # USB: right stick RX RY, triggers Z RZ
        right, triggers = ("ABS_RX", "ABS_RY"), ("ABS_Z", "ABS_RZ")
    else:  # Bluetooth without a driver of its own: right stick Z RZ, triggers BRAKE GAS
        right, triggers = ("ABS_Z", "ABS_RZ"), ("ABS_BRAKE", "ABS_GAS")
    if not names.issuperset(triggers):
        triggers = ("BTN_TL2", "BTN_TR2")
    buttons |= {triggers[0]: "close", triggers[1]: "open"}
    tilt = TILT if "ABS_HAT0X" in names else ("", "")
    axes = ("-ABS_Y", "ABS_X", right[1], *tilt, right[0])
    return InputMap(axes=axes, buttons={n: w for n, w in buttons.items() if n in names})


def find_gamepads(folder: Path = INPUT, sysfs: Path = SYSFS) -> list[FoundDevice]:
    """The gamepads of this machine, readable or not. Opens none of them."""
    found = []
    for path in sorted(folder.glob("event*"), key=lambda p: (len(p.name), p.name)):
        about = sysfs / path.name / "device"
        try:
            name = (about / "name").read_text().strip()
            keys = (about / "capabilities" / "key").read_text().split()
        except OSError:
            continue
        word, bit = divmod(BTN_GAMEPAD, WORD_BITS)  # hexadecimal words, the last one first
        if len(keys) > word and int(keys[-1 - word], 16) >> bit & 1:
            problem = "" if os.access(path, os.R_OK) else "no read permission"
            found.append(FoundDevice("gamepad", name, str(path), problem))
    return found


class Pad:
    """`Handle` of an open gamepad.

    Args:
        device: `evdev.InputDevice`.
        config: changes to the default map, and `quiet_s`.

    Raises:
        ConfigError: the map names an axis or a button that this pad does not have.
    """

    def __init__(self, device: Any, config: GamepadConfig) -> None:
        ecodes = _evdev().ecodes
        capabilities = device.capabilities(absinfo=False)
        present = {
            kind: {n: c for n, c in ecodes.ecodes.items() if c in codes and n.startswith(prefixes)}
            for kind, prefixes, codes in (
                ("axis", "ABS_", capabilities.get(ecodes.EV_ABS, [])),
                ("button", ("BTN_", "KEY_"), capabilities.get(ecodes.EV_KEY, [])),
            )
        }
        names = frozenset(present["axis"]) | frozenset(present["button"])
        self.name = str(device.name)
        inputs = inputs_for(names, device.info.vendor)
        self.inputs = inputs.changed(config.axes, config.buttons)
        self.inputs.check(names, self.name)
        bluetooth = device.info.bustype == BUS_BLUETOOTH
        self.quiet_s = config.quiet_s or (QUIET_BLUETOOTH_S if bluetooth else math.inf)
        self._device, self._before = device, dict[str, float]()
        used = {split_axis(s)[1] for s in (*self.inputs.axes, *self.inputs.buttons)}
        self._axes = {n: c for n, c in present["axis"].items() if n in used}
        self._buttons = {n: c for n, c in present["button"].items() if n in used}

    def read(self) -> tuple[Mapping[str, float], bool]:
        """See `Handle`."""
        time.sleep(PERIOD_S)
        held = set(self._device.active_keys())
        values = {name: float(code in held) for name, code in self._buttons.items()}
        values |= {name: self._axis(name, code) for name, code in self._axes.items()}
        changed, self._before = values != self._before, values
        return values, changed

    def _axis(self, name: str, code: int) -> float:
        """An axis in [-1, 1]; a trigger rests at -1."""
        info = self._device.absinfo(code)
        if info.max <= info.min:
            raise ConfigError(
                f"axis {name} of '{self.name}' has no range",
                expected="a largest value above the smallest",
                got=f"{info.min} to {info.max}",
                fix="leave it out of operator.axes, or try another driver for this pad",
            )
        return (2.0 * info.value - info.min - info.max) / (info.max - info.min)

    def close(self) -> None:
        """See `Handle`."""
        self._device.close()


def connect(
    config: GamepadConfig,
    find: Callable[[], list[FoundDevice]] = find_gamepads,
    opened: Callable[[str], Any] | None = None,
) -> Pad:
    """Find the pad that `config.device` means and open it.

    Raises:
        SetupError: none, several, no permission, or evdev is not installed.
        ConfigError: the map does not fit this pad.
    """
    pad = pick(find(), config.device, "gamepad", none_found())
    try:
        return Pad((opened or _evdev().InputDevice)(pad.path), config)
    except OSError as error:
        raise SetupError(
            f"the gamepad '{pad.name}' cannot be opened",
            expected=f"to read {pad.path}",
            got=str(error),
            fix="plug it in again; docs/devices.md has the udev rule for permissions",
        ) from error


def open_gamepad(config: GamepadConfig, task: Task) -> HeldDevice:
    """The input device of `operator=gamepad`. Raises like `connect`."""
    return held_device(lambda: connect(config), config.handset, task)


def none_found() -> SetupError:
    """What to say when there is no gamepad."""
    others = len(list(INPUT.glob("event*")))
    return SetupError(
        "no gamepad found",
        expected=f"a device with gamepad buttons in {INPUT}",
        got=f"{others} other input devices" if INPUT.is_dir() else f"no folder {INPUT}",
        fix="plug it in and switch it on; in a container, pass /dev/input through; a browser's"
        " gamepad needs none of this: use the console",
    )


def _evdev() -> Any:
    try:
        return importlib.import_module("evdev")
    except ModuleNotFoundError as error:
        raise SetupError(
            "reading a gamepad needs the package 'evdev' (Linux)",
            expected="import evdev works",
            got=str(error),
            fix="pip install 'robot-rl[hardware]'",
        ) from error
