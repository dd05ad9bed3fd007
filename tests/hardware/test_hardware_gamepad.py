"""The gamepad: kinds of pads, unplugging, permissions; on a virtual device where there is uinput.

The capabilities are those that real pads report (evtest): a Logitech F710 (driver xpad), an Xbox
pad on Bluetooth without a driver of its own, a DualSense.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

evdev = pytest.importorskip("evdev", reason="evdev is not installed: Linux only")

from evdev import AbsInfo, ecodes  # noqa: E402

from robot_rl.errors import ConfigError, SetupError  # noqa: E402
from robot_rl.operate.handset import DeviceReading, Handset  # noqa: E402
from robot_rl.operate.held import HeldDevice  # noqa: E402
from robot_rl_hardware import gamepad, reader  # noqa: E402
from robot_rl_hardware.gamepad import GamepadConfig  # noqa: E402
from robot_rl_hardware.reader import FoundDevice, Reader  # noqa: E402
from tests.support.pads import BYTE, F710, FACE, HAT, STICK16, TRIGGER, FakePad  # noqa: E402

FACE += ["BTN_START", "BTN_MODE", "BTN_THUMBL", "BTN_THUMBR"]
HATS = {"ABS_HAT0X": HAT, "ABS_HAT0Y": HAT}
F710 |= {"ABS_RZ": BYTE} | HATS
XBOX_BLUETOOTH = {"ABS_X": STICK16, "ABS_Y": STICK16, "ABS_Z": STICK16, "ABS_RZ": STICK16}
XBOX_BLUETOOTH |= {"ABS_GAS": TRIGGER, "ABS_BRAKE": TRIGGER} | HATS
DUALSENSE = {f"ABS_{n}": BYTE for n in ("X", "Y", "Z", "RX", "RY", "RZ")} | HATS


def felt(pad: gamepad.Pad) -> tuple[dict[str, float], frozenset[str]]:
    """What is out, and what is held."""
    reading = pad.inputs.reading(pad.read()[0], 0.0)
    names = ("tx", "ty", "tz", "rx", "ry", "rz")
    axes = zip(names, np.array(reading.axes).tolist(), strict=True)
    return {n: round(v, 2) for n, v in axes if abs(v) > 0.01}, reading.held


@pytest.mark.parametrize("axes", [F710, XBOX_BLUETOOTH, DUALSENSE])
def test_sticks_move_the_tool_as_seen_from_behind(axes: dict[str, tuple[int, int]]) -> None:
    fake = FakePad(axes)
    pad = gamepad.Pad(fake, GamepadConfig())
    assert felt(pad) == ({}, frozenset())
    right_x, right_y = ("ABS_RX", "ABS_RY") if "ABS_RX" in axes else ("ABS_Z", "ABS_RZ")
    for stick, share, tool in (
        ("ABS_Y", -1.0, {"tx": 1.0}),  # forward
        ("ABS_X", 1.0, {"ty": 1.0}),  # right
        (right_y, 1.0, {"tz": 1.0}),  # pulled: down
        (right_x, -1.0, {"rz": -1.0}),
        ("ABS_HAT0X", -1.0, {"rx": 1.0}),
        ("ABS_HAT0Y", -1.0, {"ry": 1.0}),
    ):
        fake.put(stick, share)
        assert felt(pad)[0] == tool, stick
        fake.put(stick, 0.0)


@pytest.mark.parametrize(
    ("axes", "vendor", "triggers", "upper", "left"),
    [
        (F710, 0x046D, ("ABS_Z", "ABS_RZ"), "BTN_WEST", "BTN_NORTH"),  # xpad: X is "north"
        (XBOX_BLUETOOTH, 0x045E, ("ABS_BRAKE", "ABS_GAS"), "BTN_WEST", "BTN_NORTH"),
        (DUALSENSE, 0x054C, ("ABS_Z", "ABS_RZ"), "BTN_NORTH", "BTN_WEST"),
    ],
)
def test_buttons_mean_the_same_on_every_pad(
    axes: dict, vendor: int, triggers: tuple[str, str], upper: str, left: str
) -> None:
    fake = FakePad(axes, vendor=vendor)
    pad = gamepad.Pad(fake, GamepadConfig())
    meanings = {"BTN_TR": "drive", "BTN_TL": "slow", "BTN_SOUTH": "failure", "BTN_EAST": "hold"}
    meanings |= {"BTN_SELECT": "rewind", "BTN_THUMBL": "clutch"}
    for button, word in (meanings | {upper: "success", left: "redo"}).items():
        fake.held = {button}
        assert felt(pad) == ({}, {word}), button
    fake.held = set()
    for trigger, word in zip(triggers, ("close", "open"), strict=True):
        fake.put(trigger, 1.0)
        assert felt(pad) == ({}, {word})
        fake.put(trigger, -1.0)


def test_an_old_pad_without_analogue_triggers_uses_its_buttons() -> None:
    names = frozenset({"ABS_X", "ABS_Y", "ABS_RX", "ABS_RY", "BTN_TR", "BTN_TL2", "BTN_TR2"})
    inputs = gamepad.inputs_for(names, 0)
    assert inputs.buttons == {"BTN_TR": "drive", "BTN_TL2": "close", "BTN_TR2": "open"}
    assert inputs.axes == ("-ABS_Y", "ABS_X", "ABS_RY", "", "", "ABS_RX")


def test_a_map_that_this_pad_cannot_fulfil_names_what_it_has() -> None:
    config = GamepadConfig(axes=("-ABS_Y", "ABS_X", "ABS_RX", "", "", "ABS_THROTTLE"))
    with pytest.raises(ConfigError, match="'F710' has no 'ABS_THROTTLE'") as caught:
        gamepad.Pad(FakePad(F710, "F710"), config)
    assert "ABS_RZ" in caught.value.fix and caught.value.expected
    mine = gamepad.Pad(FakePad(F710), GamepadConfig(buttons={"BTN_THUMBR": "drive", "BTN_TR": ""}))
    assert mine.inputs.buttons["BTN_THUMBR"] == "drive" and "BTN_TR" not in mine.inputs.buttons


def test_an_axis_without_a_range_is_an_error_not_a_division() -> None:
    pad = gamepad.Pad(FakePad(F710 | {"ABS_RX": (5, 5)}), GamepadConfig())
    with pytest.raises(ConfigError, match="ABS_RX"):
        pad.read()


def test_only_radio_pads_count_as_lost_when_they_say_nothing() -> None:
    assert gamepad.Pad(FakePad(F710), GamepadConfig()).quiet_s == float("inf")
    assert gamepad.Pad(FakePad(F710, bus=5), GamepadConfig()).quiet_s == 1.0
    assert gamepad.Pad(FakePad(F710), GamepadConfig(quiet_s=0.5)).quiet_s == 0.5


# --- which pad -----------------------------------------------------------------------------------


def write_sysfs(
    root: Path, names: dict[str, str], word_bits: int = gamepad.WORD_BITS
) -> list[FoundDevice]:
    """Input devices as the kernel shows them: {"event0": name}; gamepads have "Pad" in theirs."""
    for event, name in names.items():
        about = root / "sys" / event / "device"
        (about / "capabilities").mkdir(parents=True)
        (about / "name").write_text(name + "\n")
        key = gamepad.BTN_GAMEPAD if "Pad" in name else 30
        words = ["0"] * (key // word_bits + 1)
        words[0] = f"{1 << key % word_bits:x}"
        (about / "capabilities" / "key").write_text(" ".join(words) + "\n")
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev" / event).touch()
    return gamepad.find_gamepads(root / "dev", root / "sys")


def test_gamepads_are_told_from_other_devices_without_opening_any(tmp_path: Path) -> None:
    names = {"event2": "A Keyboard", "event10": "Pad B", "event9": "Pad A"}
    found = write_sysfs(tmp_path, names)
    assert [(f.name, f.problem) for f in found] == [("Pad A", ""), ("Pad B", "")]
    assert gamepad.find_gamepads(tmp_path / "nothing", tmp_path / "sys") == []


def found(*names: str, problem: str = "") -> Callable[[], list[FoundDevice]]:
    return lambda: [FoundDevice("gamepad", n, f"/dev/{n}", problem) for n in names]


@pytest.mark.parametrize(
    ("device", "finder", "words"),
    [
        ("", found(), "no gamepad found"),
        ("", found("red", "blue"), "which gamepad"),
        ("green", found("red", "blue"), "which gamepad"),
        ("red", found("red", problem="no read permission"), "may not be read"),
    ],
)
def test_a_pad_that_cannot_be_had_is_an_error_with_a_way_out(
    device: str, finder: Callable[[], list[FoundDevice]], words: str
) -> None:
    with pytest.raises(SetupError, match=words) as caught:
        gamepad.connect(GamepadConfig(device=device), finder, lambda _: FakePad(F710))
    assert caught.value.expected and caught.value.got and caught.value.fix
    if "permission" in str(caught.value):
        assert "usermod -aG input" in caught.value.fix


def test_a_pad_that_fails_to_open_is_an_error_with_a_way_out() -> None:
    def refuse(path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    with pytest.raises(SetupError, match="cannot be opened") as caught:
        gamepad.connect(GamepadConfig(), found("red"), refuse)
    assert "Permission denied" in caught.value.got


def test_part_of_a_name_or_the_path_picks_one_and_the_whole_name_wins() -> None:
    for device, name in (("ed", "Red"), ("/dev/Blue", "Blue"), ("Blue", "Blue")):
        pad = gamepad.connect(
            GamepadConfig(device=device),
            found("Red", "Blue", "Blue 2"),
            lambda path: FakePad(F710, path.removeprefix("/dev/")),
        )
        assert pad.name == name


# --- in the thread -------------------------------------------------------------------------------


class Port:
    """A place where a pad is plugged in and out."""

    def __init__(self, config: GamepadConfig, bus: int = 3) -> None:
        self.pad, self.plugged, self._bus = FakePad(F710, bus=bus), True, bus
        self.reader = Reader(lambda: gamepad.connect(config, self._find, lambda _: self.pad))

    def _find(self) -> list[FoundDevice]:
        return [FoundDevice("gamepad", "Pad", "/dev/input/event7")] if self.plugged else []

    def pull(self) -> None:
        self.plugged, self.pad.gone = False, True

    def plug(self) -> None:
        self.pad, self.plugged = FakePad(F710, bus=self._bus), True


def wait_for(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError("waited too long")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    monkeypatch.setattr(reader, "RETRY_S", 0.2)
    port = Port(GamepadConfig())
    yield port
    port.reader.close()


def age_s(reading: DeviceReading | None) -> float:
    return float("inf") if reading is None else time.monotonic() - reading.stamp_s


def test_pulled_out_while_held_it_stops_and_must_be_neutral_when_it_comes_back(port: Port) -> None:
    from tests.support.states import state_at

    def poll() -> Any:
        return device.poll(state_at(time.monotonic()))

    device = HeldDevice(Handset(GamepadConfig().handset, 7), port.reader, "pad")
    wait_for(lambda: poll() and device.handset.ready)
    port.pad.held = {"BTN_TR"}
    port.pad.put("ABS_X", 1.0)
    wait_for(lambda: poll().driving and poll().action[1] > 0.9)
    first = port.pad
    port.pull()
    wait_for(lambda: not poll().driving)
    stamps = set()
    for _ in range(20):
        value = poll()
        stamps.add(value.stamp_s)
        assert not value.driving and not value.action.any()
        time.sleep(0.005)
    assert len(stamps) == 1 and first.closed
    port.plug()
    port.pad.held = {"BTN_TR"}
    wait_for(lambda: poll() and "'drive' is held" in device.handset.problem)
    assert not poll().driving
    port.pad.held = set()
    wait_for(lambda: poll() and device.handset.ready)
    port.pad.held = {"BTN_TR"}
    wait_for(lambda: poll().driving)


def test_a_pad_at_rest_is_alive_and_reading_never_waits(port: Port) -> None:
    wait_for(port.reader.read)
    ages, took = [], []
    for _ in range(40):
        began_s = time.perf_counter()
        ages.append(age_s(port.reader.read()))
        took.append(time.perf_counter() - began_s)
        time.sleep(0.01)
    assert np.median(ages) < 0.2  # the rest is how busy this machine is
    assert np.median(took) < 0.001


def test_a_radio_that_is_lost_with_the_stick_out_is_noticed() -> None:
    port = Port(GamepadConfig(quiet_s=0.2), bus=5)
    try:
        time.sleep(0.5)
        wait_for(lambda: age_s(port.reader.read()) < 0.15)  # silent at rest: nothing is wrong
        port.pad.put("ABS_X", 0.9)  # the last thing that was heard
        wait_for(lambda: age_s(port.reader.read()) > 0.3)
        port.pad.put("ABS_X", 0.8)
        wait_for(lambda: age_s(port.reader.read()) < 0.1)
    finally:
        port.reader.close()


def test_a_reader_that_is_closed_leaves_no_thread(port: Port) -> None:
    port.reader.close()
    assert not any(t.name == "read Pad" and t.is_alive() for t in threading.enumerate())
    assert port.pad.closed and port.reader.read() is None


NO_UINPUT = not os.access("/dev/uinput", os.W_OK)


@pytest.mark.skipif(NO_UINPUT, reason="no write access to /dev/uinput: no virtual gamepad here")
def test_a_virtual_gamepad_is_found_read_and_lost() -> None:
    axes = [
        (ecodes.ecodes[n], AbsInfo((low + high) // 2, low, high, 0, 0, 0))
        for n, (low, high) in F710.items()
    ]
    keys = [ecodes.ecodes[b] for b in FACE]
    virtual = evdev.UInput({ecodes.EV_KEY: keys, ecodes.EV_ABS: axes}, name="robot-rl test pad")
    config = GamepadConfig(device="robot-rl test pad")
    wait_for(lambda: any(f.name == config.device for f in gamepad.find_gamepads()))
    source = Reader(lambda: gamepad.connect(config))
    try:
        virtual.write(ecodes.EV_ABS, ecodes.ABS_Y, -32768)
        virtual.write(ecodes.EV_KEY, ecodes.BTN_TR, 1)
        virtual.syn()
        reading = wait_for(lambda: (r := source.read()) and r.held == {"drive"} and r)
        assert np.array(reading.axes)[0] == pytest.approx(1.0, abs=0.01)
        virtual.close()
        wait_for(lambda: source.read() is None)
    finally:
        source.close()
