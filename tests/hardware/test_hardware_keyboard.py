"""Keyboards and pedals through evdev, behind files and devices that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("evdev", reason="pip install 'robot-rl[hardware]'")

import evdev

from robot_rl_hardware.gamepad import WORD_BITS
from robot_rl_hardware.keyboard import Keyboards, find_keyboards


def device(folder: Path, name: str, code: int) -> None:
    keys = folder / "sys" / name / "device" / "capabilities" / "key"
    keys.parent.mkdir(parents=True)
    word, bit = divmod(code, WORD_BITS)
    keys.write_text(" ".join([f"{1 << bit:x}", *["0"] * word]))
    (folder / "dev").mkdir(exist_ok=True)
    (folder / "dev" / name).touch()


def test_devices_with_a_space_bar_are_keyboards(tmp_path: Path) -> None:
    device(tmp_path, "event0", evdev.ecodes.KEY_SPACE)
    device(tmp_path, "event1", evdev.ecodes.BTN_SOUTH)
    found = find_keyboards(tmp_path / "dev", tmp_path / "sys")
    assert found == [str(tmp_path / "dev" / "event0")]


class FakeKeyboard:
    def __init__(self, keys: list[int], gone: bool = False) -> None:
        self._keys, self._gone = keys, gone

    def active_keys(self) -> list[int]:
        if self._gone:
            raise OSError(19, "No such device")
        return self._keys


def test_keys_of_all_keyboards_count_and_one_that_is_pulled_out_has_none() -> None:
    made = {
        "a": FakeKeyboard([evdev.ecodes.KEY_SPACE]),
        "b": FakeKeyboard([evdev.ecodes.KEY_W]),
        "c": FakeKeyboard([evdev.ecodes.KEY_A], gone=True),
    }
    found = Keyboards(list(made), opened=made.__getitem__)
    assert found.down() == {"KEY_SPACE", "KEY_W"}
    assert found.down() == {"KEY_SPACE", "KEY_W"}
