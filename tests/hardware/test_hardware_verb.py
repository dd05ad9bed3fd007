"""`robot-rl devices`: the list, the live picture, calibration into a file that later runs read."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("evdev", reason="evdev is not installed: Linux only")

from robot_rl.cli import devices
from robot_rl.errors import ConfigError
from robot_rl.operate.calibration import load_rest, rest_file
from robot_rl.operate.handset import DeviceReading, Handset, HandsetConfig
from robot_rl_hardware import gamepad, spacemouse
from robot_rl_hardware.gamepad import GamepadConfig
from robot_rl_hardware.reader import FoundDevice
from tests.support.pads import F710, FakePad


@pytest.fixture
def pad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePad:
    """A pad with a worn stick and a SpaceMouse without permission; a home of our own."""
    fake = FakePad(F710, "Worn Pad")
    fake.put("ABS_X", 0.2)
    found = [FoundDevice("gamepad", "Worn Pad", "/dev/input/event7")]
    mice = [FoundDevice("spacemouse", "SpaceMouse Compact", "/dev/hidraw3", "no read permission")]
    connect = gamepad.connect
    monkeypatch.setattr(gamepad, "find_gamepads", lambda: found)
    monkeypatch.setattr(spacemouse, "find_spacemice", lambda: mice)
    monkeypatch.setattr(
        gamepad, "connect", lambda config: connect(config, lambda: found, lambda _: fake)
    )
    monkeypatch.setattr(devices, "CALIBRATION_S", 1.6)
    monkeypatch.setenv("HOME", str(tmp_path))
    return fake


def test_devices_are_listed_with_what_is_wrong_with_them(
    pad: FakePad, capsys: pytest.CaptureFixture[str]
) -> None:
    assert devices.run([]) == 0
    text = capsys.readouterr().out
    assert "Worn Pad (/dev/input/event7)" in text
    assert "SpaceMouse Compact (/dev/hidraw3: no read permission)" in text
    assert "docs/devices.md" in text


def test_a_machine_without_devices_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gamepad, "find_gamepads", list)
    monkeypatch.setattr(spacemouse, "find_spacemice", list)
    assert devices.run([]) == 1
    text = capsys.readouterr().out
    assert "no gamepad found" in text and "no SpaceMouse found" in text and text.count("fix:") == 2


def test_calibration_is_written_and_used_by_later_runs(
    pad: FakePad, capsys: pytest.CaptureFixture[str]
) -> None:
    assert devices.run(["--calibrate", "worn"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"ty +rests at \+0\.200", text) and str(rest_file("Worn Pad")) in text
    inputs = gamepad.Pad(pad, GamepadConfig()).inputs
    rest = load_rest("Worn Pad", inputs.axes)
    assert rest.centre[1] == pytest.approx(0.2, abs=0.01)
    hand = Handset(HandsetConfig(neutral_s=0.0), 7, rest)
    reading = inputs.reading(gamepad.Pad(pad, GamepadConfig()).read()[0], 1.0)
    hand.feed(reading, 1.0)
    assert hand.ready
    assert pad.closed


def test_a_stick_that_is_held_is_not_taken_for_its_rest(pad: FakePad) -> None:
    pad.put("ABS_RY", 0.8)
    with pytest.raises(ConfigError, match="tz rests at"):
        devices.run(["--calibrate", "gamepad"])
    assert not rest_file("Worn Pad").exists()


@pytest.mark.parametrize("word", ["wron pad", "spacemouse", "a"])
def test_a_device_that_is_not_meant_clearly_is_not_calibrated(pad: FakePad, word: str) -> None:
    with pytest.raises(ConfigError, match="cannot calibrate") as caught:
        devices.run(["--calibrate", word])
    assert caught.value.expected and caught.value.got and caught.value.fix


def test_watching_shows_bars_for_a_while(pad: FakePad, capsys: pytest.CaptureFixture[str]) -> None:
    began_s = time.monotonic()
    assert devices.run(["--watch", "0.5"]) == 0
    assert 0.5 <= time.monotonic() - began_s < 5.0
    text = capsys.readouterr().out
    assert "Worn Pad" in text and "ty [" in text and pad.closed


def test_the_picture_says_what_keeps_a_device_from_driving() -> None:
    hand = Handset(HandsetConfig(), 7)
    reading = DeviceReading(
        time.monotonic(), np.array([0.0, -1.0, 0, 0, 0, 0]), frozenset({"drive"})
    )
    text = devices.picture("pad", reading, hand)
    assert "ty [###########" in text.replace("|", "#") and "held: drive" in text
    assert "'drive' is held" in text
    assert devices.picture("pad", None, hand) == "pad: gone"
    assert devices.bar(0.0) == "[          |          ]"
    assert devices.bar(1.0) == "[          |##########]"
