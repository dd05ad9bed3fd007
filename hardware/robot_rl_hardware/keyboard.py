"""Which keys of the machine's own keyboards and pedals are down, through evdev (Linux)."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from robot_rl_hardware.gamepad import INPUT, SYSFS, WORD_BITS

KEY_SPACE = 57


def find_keyboards(folder: Path = INPUT, sysfs: Path = SYSFS) -> list[str]:
    """Paths of the readable devices that have a space bar."""
    found = []
    for path in sorted(folder.glob("event*"), key=lambda p: (len(p.name), p.name)):
        try:
            keys = (sysfs / path.name / "device" / "capabilities" / "key").read_text().split()
        except OSError:
            continue
        word, bit = divmod(KEY_SPACE, WORD_BITS)
        has = len(keys) > word and int(keys[-1 - word], 16) >> bit & 1
        if has and os.access(path, os.R_OK):
            found.append(str(path))
    return found


class Keyboards:
    """All keyboards at once; one that is pulled out while it is open has no key down."""

    def __init__(self, paths: list[str], opened: Any = None) -> None:
        self._names = _names()
        made = opened or importlib.import_module("evdev").InputDevice
        self._devices = [made(path) for path in paths]

    def down(self) -> frozenset[str]:
        """Kernel names of the keys that are down, e.g. KEY_SPACE."""
        codes: set[int] = set()
        for device in list(self._devices):
            try:
                codes |= set(device.active_keys())
            except OSError:
                self._devices.remove(device)
        return frozenset(self._names[code] for code in codes if code in self._names)


def _names() -> dict[int, str]:
    from evdev import ecodes

    found = {code: name for name, code in ecodes.ecodes.items() if name.startswith("KEY_")}
    return {code: name for code, name in found.items() if isinstance(code, int)}


def keyboards() -> Keyboards | None:
    """The keyboards of this machine, or None without evdev or without one that may be read."""
    try:
        importlib.import_module("evdev")
    except ModuleNotFoundError:
        return None
    paths = find_keyboards()
    return Keyboards(paths) if paths else None
