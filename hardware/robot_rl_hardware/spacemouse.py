"""A 3Dconnexion SpaceMouse through hidapi, without the maker's driver.

The cap's own axes are those of the HID standard: x right, y towards the user, z down, rotations
right-handed about them. While the cap is out the device sends a report every 8 ms (cable) or 16 ms
(radio), and zeros when it comes back; at rest it is silent.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl.config.registry import register
from robot_rl.errors import SetupError
from robot_rl.operate.devices import need_real_time
from robot_rl.operate.handset import HandsetConfig
from robot_rl.operate.held import HeldDevice
from robot_rl.operate.mapping import InputMap, check_map
from robot_rl.ports import InputDevice, Task
from robot_rl_hardware.reader import FoundDevice, held_device, pick

PRODUCTS: Mapping[tuple[int, int], str] = {
    (0x046D, 0xC625): "SpacePilot",
    (0x046D, 0xC626): "SpaceNavigator",
    (0x046D, 0xC627): "SpaceExplorer",
    (0x046D, 0xC628): "SpaceNavigator for Notebooks",
    (0x046D, 0xC629): "SpacePilot Pro",
    (0x046D, 0xC62B): "SpaceMouse Pro",
    (0x256F, 0xC62E): "SpaceMouse Wireless (cable)",
    (0x256F, 0xC62F): "SpaceMouse Wireless (receiver)",
    (0x256F, 0xC631): "SpaceMouse Pro Wireless (cable)",
    (0x256F, 0xC632): "SpaceMouse Pro Wireless (receiver)",
    (0x256F, 0xC633): "SpaceMouse Enterprise",
    (0x256F, 0xC635): "SpaceMouse Compact",
    (0x256F, 0xC638): "SpaceMouse Pro Wireless (Bluetooth)",
    (0x256F, 0xC63A): "SpaceMouse Wireless (Bluetooth)",
    (0x256F, 0xC641): "SpaceMouse Module",
    (0x256F, 0xC652): "3Dconnexion Universal Receiver",
}
"""(vendor, product) -> name. The older ones carry Logitech's vendor id."""

FULL = 350.0  # counts at full deflection
AXES = ("x", "y", "z", "rx", "ry", "rz")
BUTTON_BITS = 32
INPUTS = InputMap(
    axes=("-y", "x", "z", "-ry", "rx", "rz"),  # the cap is the tool, fingers down, seen from behind
    buttons={"button0": "drive", "button1": "grip"},
)
QUIET_S = 0.3  # some twenty reports missed
WAIT_MS = 10
REPORT_BYTES = 64
MULTI_AXIS = (0x01, 0x08)  # HID usage page and usage: generic desktop, multi-axis controller


@register("operator", "spacemouse")
@dataclass(frozen=True, kw_only=True)
class SpaceMouseConfig:
    """A 3Dconnexion SpaceMouse on the robot PC, read through hidapi."""

    device: str = ""  # its path, or part of its name; "" = the only one there is
    axes: tuple[str, ...] = ()  # six of x y z rx ry rz; () = the cap is the tool, fingers down
    buttons: dict[str, str] = field(default_factory=dict[str, str])  # changes to the default map
    handset: HandsetConfig = field(default_factory=lambda: HandsetConfig(dead_zone=0.15))

    def __post_init__(self) -> None:
        """Check the map."""
        check_map(self.axes, self.buttons)

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("spacemouse", node)
        return open_spacemouse(self, task)


@dataclass(frozen=True, slots=True)
class Report:
    """One report: counts (x, y, z), counts (rx, ry, rz), buttons as bits; None = not in it."""

    translation: tuple[int, int, int] | None = None
    rotation: tuple[int, int, int] | None = None
    buttons: int | None = None


def parse(report: bytes) -> Report:
    """One HID report -> what it tells; empty for all other reports (battery, junk).

    Report 1: translation (7 bytes), or translation and rotation (13 bytes, newer models); report 2:
    rotation (7 bytes); report 3: buttons. Counts are signed 16 bit, little endian.
    """
    kind, body = report[:1], report[1:]
    if kind == b"\x01" and len(body) >= 12:
        values = struct.unpack_from("<6h", body)
        return Report(values[:3], values[3:])
    if kind == b"\x01" and len(body) >= 6:
        return Report(translation=struct.unpack_from("<3h", body))
    if kind == b"\x02" and len(body) >= 6:
        return Report(rotation=struct.unpack_from("<3h", body))
    if kind == b"\x03" and body:
        return Report(buttons=int.from_bytes(body[: BUTTON_BITS // 8], "little"))
    return Report()


def find_spacemice() -> list[FoundDevice]:
    """The SpaceMice of this machine, readable or not. Raises `SetupError` without hidapi."""
    found: dict[str, FoundDevice] = {}
    for entry in _hid().enumerate():
        product = (entry["vendor_id"], entry["product_id"])
        usage = (entry.get("usage_page", 0), entry.get("usage", 0))
        known = PRODUCTS.get(product, "")
        if not known and not (product[0] == 0x256F and usage == MULTI_AXIS):
            continue
        if usage[0] and usage != MULTI_AXIS:  # a receiver also poses as keyboard and mouse
            continue
        path = os.fsdecode(entry["path"])
        name = known or str(entry.get("product_string") or "SpaceMouse")
        readable = not path.startswith("/dev/") or os.access(path, os.R_OK)
        found[path] = FoundDevice(
            "spacemouse", name, path, "" if readable else "no read permission"
        )
    return [found[path] for path in sorted(found)]


class SpaceMouse:
    """`Handle` of an open SpaceMouse.

    Args:
        device: `hid.device`, open and non-blocking.

    Raises:
        ConfigError: the map names an axis or a button that no SpaceMouse has.
    """

    quiet_s = QUIET_S

    def __init__(self, device: Any, name: str, config: SpaceMouseConfig) -> None:
        self.name, self._device = name, device
        self.inputs = INPUTS.changed(config.axes, config.buttons)
        self._values = dict.fromkeys((*AXES, *(f"button{i}" for i in range(BUTTON_BITS))), 0.0)
        self.inputs.check(self._values, name)

    def read(self) -> tuple[Mapping[str, float], bool]:
        """See `Handle`."""
        report = self._device.read(REPORT_BYTES, WAIT_MS)
        spoke = bool(report)
        while report:
            self._take(parse(bytes(report)))
            report = self._device.read(REPORT_BYTES)
        return self._values, spoke

    def _take(self, part: Report) -> None:
        for names, counts in ((AXES[:3], part.translation), (AXES[3:], part.rotation)):
            for name, count in zip(names, counts or (), strict=False):
                self._values[name] = max(-1.0, min(count / FULL, 1.0))
        if part.buttons is not None:
            for i in range(BUTTON_BITS):
                self._values[f"button{i}"] = float(part.buttons >> i & 1)

    def close(self) -> None:
        """See `Handle`."""
        self._device.close()


def connect(
    config: SpaceMouseConfig,
    find: Callable[[], list[FoundDevice]] = find_spacemice,
    opened: Callable[[str], Any] | None = None,
) -> SpaceMouse:
    """Find the SpaceMouse that `config.device` means and open it.

    Raises:
        SetupError: none, several, no permission, taken, or hidapi is not installed.
        ConfigError: the map names an axis or a button that no SpaceMouse has.
    """
    mouse = pick(find(), config.device, "spacemouse", none_found())
    try:
        return SpaceMouse((opened or _open)(mouse.path), mouse.name, config)
    except OSError as error:
        raise SetupError(
            f"the {mouse.name} cannot be opened",
            expected=f"to read {mouse.path}",
            got=str(error),
            fix="install the udev rule of docs/devices.md, plug it in again; stop spacenavd",
        ) from error


def open_spacemouse(config: SpaceMouseConfig, task: Task) -> HeldDevice:
    """The input device of `operator=spacemouse`. Raises like `connect`."""
    return held_device(lambda: connect(config), config.handset, task)


def _open(path: str) -> Any:
    device = _hid().device()
    device.open_path(os.fsencode(path))
    device.set_nonblocking(True)
    return device


def none_found() -> SetupError:
    """What to say when there is no SpaceMouse."""
    return SetupError(
        "no SpaceMouse found",
        expected="a 3Dconnexion device on USB or Bluetooth",
        got="none of the known products",
        fix="plug it in and switch it on; lsusb shows it as 256f:... or 046d:c6...",
    )


def _hid() -> Any:
    """The module hidraw if it is there (Linux: no root, Bluetooth too), else hidapi's other one."""
    for name in ("hidraw", "hid"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise SetupError(
        "reading a SpaceMouse needs the package 'hidapi'",
        expected="import hidraw, or import hid",
        got="neither",
        fix="pip install 'robot-rl[hardware]'",
    )
