"""Gamepads that are not there."""

from __future__ import annotations

from types import SimpleNamespace

from evdev import AbsInfo, ecodes

FACE = ["BTN_SOUTH", "BTN_EAST", "BTN_NORTH", "BTN_WEST", "BTN_TL", "BTN_TR", "BTN_SELECT"]


STICK, STICK16, BYTE = (-32768, 32767), (0, 65535), (0, 255)


HAT, TRIGGER = (-1, 1), (0, 1023)


F710 = {"ABS_X": STICK, "ABS_Y": STICK, "ABS_Z": BYTE, "ABS_RX": STICK, "ABS_RY": STICK}


class FakePad:
    """An `evdev.InputDevice` without a kernel."""

    def __init__(
        self,
        axes: dict[str, tuple[int, int]],
        name: str = "Pad",
        vendor: int = 0x046D,
        bus: int = 3,
    ) -> None:
        self.name, self.info = name, SimpleNamespace(vendor=vendor, bustype=bus)
        self.ranges = {ecodes.ecodes[n]: span for n, span in axes.items()}
        self.values = {c: (low + high) // 2 for c, (low, high) in self.ranges.items()}
        for trigger in ("ABS_Z", "ABS_RZ", "ABS_GAS", "ABS_BRAKE"):
            if axes.get(trigger) in (BYTE, TRIGGER):
                self.values[ecodes.ecodes[trigger]] = 0
        self.held: set[str] = set()
        self.gone = self.closed = False

    def capabilities(self, absinfo: bool) -> dict[int, list[int]]:
        keys = [ecodes.ecodes[b] for b in FACE]
        return {ecodes.EV_KEY: keys, ecodes.EV_ABS: list(self.ranges)}

    def absinfo(self, code: int) -> AbsInfo:
        if self.gone:
            raise OSError(19, "No such device")
        low, high = self.ranges[code]
        return AbsInfo(self.values[code], low, high, 0, 0, 0)

    def active_keys(self) -> list[int]:
        if self.gone:
            raise OSError(19, "No such device")
        return [ecodes.ecodes[b] for b in self.held]

    def put(self, axis: str, share: float) -> None:
        code = ecodes.ecodes[axis]
        low, high = self.ranges[code]
        self.values[code] = round((low + high + share * (high - low)) / 2)

    def close(self) -> None:
        self.closed = True
