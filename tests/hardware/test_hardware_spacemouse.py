"""The SpaceMouse: reports as devices send them, byte by byte, and a handle that replays them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robot_rl.errors import ConfigError, SetupError
from robot_rl_hardware import spacemouse
from robot_rl_hardware.reader import FoundDevice, Reader
from robot_rl_hardware.spacemouse import Report, SpaceMouseConfig, parse

# seen on the wire: a SpaceMouse Compact that is pushed down and turned, a SpaceNavigator's buttons
RECORDED = [
    ("02 20 00 00 00 17 00", Report(rotation=(32, 0, 23))),
    ("01 12 00 00 00 f8 00", Report(translation=(18, 0, 248))),
    ("01 12 00 00 00 12 01", Report(translation=(18, 0, 274))),
    ("01 0d 00 00 00 25 01", Report(translation=(13, 0, 293))),
    ("02 00 00 e2 ff 00 00", Report(rotation=(0, -30, 0))),
    ("01 00 00 00 00 00 00", Report(translation=(0, 0, 0))),
    ("03 01 00", Report(buttons=1)),
    ("03 02 00", Report(buttons=2)),
    ("03 03 00", Report(buttons=3)),
    ("03 00 00", Report(buttons=0)),
]
# put together from the description of the newer report
MADE = [
    (
        "01 5e 01 a2 fe 00 00 ff ff 01 00 00 80",
        Report(translation=(350, -350, 0), rotation=(-1, 1, -32768)),
    ),
    ("03 00 10 00 80", Report(buttons=(1 << 12) | (1 << 31))),
    ("17 64", Report()),  # battery
    ("01 5e 01", Report()),  # cut short
    ("02", Report()),
    ("03", Report()),
    ("", Report()),
]


@pytest.mark.parametrize(("report", "told"), RECORDED + MADE)
def test_reports_are_read_byte_by_byte(report: str, told: Report) -> None:
    assert parse(bytes.fromhex(report)) == told


def test_no_bytes_can_break_the_parser() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        part = parse(rng.bytes(int(rng.integers(0, 20))))
        for counts in (part.translation, part.rotation):
            assert counts is None or all(-32768 <= c <= 32767 for c in counts)
        assert part.buttons is None or 0 <= part.buttons < 1 << 32


class FakeHid:
    """A `hid.device` that replays reports."""

    def __init__(self) -> None:
        self.reports: list[bytes] = []
        self.gone = self.closed = False
        self.lock = threading.Lock()

    def say(self, *reports: str) -> None:
        with self.lock:
            self.reports += [bytes.fromhex(r) for r in reports]

    def read(self, size: int, timeout_ms: int = 0) -> list[int]:
        if self.gone:
            raise OSError("read error")
        with self.lock:
            report = self.reports.pop(0) if self.reports else b""
        if not report:
            time.sleep(timeout_ms * 1e-3)
        return list(report[:size])

    def close(self) -> None:
        self.closed = True


def mouse(config: SpaceMouseConfig | None = None) -> tuple[FakeHid, spacemouse.SpaceMouse]:
    fake = FakeHid()
    return fake, spacemouse.SpaceMouse(fake, "SpaceMouse Compact", config or SpaceMouseConfig())


def felt(fake: FakeHid, device: spacemouse.SpaceMouse, *reports: str) -> tuple[list, frozenset]:
    fake.say(*reports)
    reading = device.inputs.reading(device.read()[0], 0.0)
    return np.array(reading.axes).round(3).tolist(), reading.held


def test_the_cap_is_the_tool_seen_from_behind() -> None:
    fake, device = mouse()
    right, back, down = "01 5e 01 00 00 00 00", "01 00 00 5e 01 00 00", "01 00 00 00 00 5e 01"
    assert felt(fake, device, right) == ([0, 1, 0, 0, 0, 0], frozenset())
    assert felt(fake, device, back) == ([-1, 0, 0, 0, 0, 0], frozenset())
    assert felt(fake, device, down) == ([0, 0, 1, 0, 0, 0], frozenset())
    zero, turn = "01 00 00 00 00 00 00", "02 00 00 00 00 af 00"
    assert felt(fake, device, zero, turn) == ([0, 0, 0, 0, 0, 0.5], frozenset())
    tilt = "02 5e 01 a2 fe 00 00"  # about x and backwards about y of the cap
    assert felt(fake, device, tilt) == ([0, 0, 0, 1, 1, 0], frozenset())


def test_translation_and_rotation_are_kept_apart_and_beyond_full_is_full() -> None:
    fake, device = mouse()
    felt(fake, device, "01 00 00 a2 fe 00 00")
    assert felt(fake, device, "02 00 00 00 00 ff 7f")[0] == [1, 0, 0, 0, 0, 1]
    assert felt(fake, device, "01 00 00 00 00 00 00 00 00 00 00 00 00")[0] == [0] * 6


def test_two_buttons_drive_and_grip() -> None:
    fake, device = mouse()
    assert felt(fake, device, "03 01 00")[1] == {"drive"}
    assert felt(fake, device, "03 03 00")[1] == {"drive", "grip"}
    assert felt(fake, device, "03 00 00")[1] == frozenset()


def test_a_bigger_model_can_use_all_its_buttons() -> None:
    config = SpaceMouseConfig(buttons={"button12": "success", "button1": ""})
    fake, device = mouse(config)
    assert felt(fake, device, "03 02 10 00 00")[1] == {"success"}
    with pytest.raises(ConfigError, match="has no 'button32'"):
        mouse(SpaceMouseConfig(buttons={"button32": "success"}))


# --- which one -----------------------------------------------------------------------------------


class FakeModule:
    """`hidraw`: a receiver that also poses as a keyboard, another maker's mouse, a new product."""

    @staticmethod
    def enumerate() -> list[dict[str, Any]]:
        def entry(path: str, ids: tuple[int, int], usage: tuple[int, int]) -> dict[str, Any]:
            return {
                "path": path.encode(), "vendor_id": ids[0], "product_id": ids[1],
                "usage_page": usage[0], "usage": usage[1], "product_string": "SpaceMouse X",
            }  # fmt: skip

        return [
            entry("1-1:1.0", (0x256F, 0xC652), (1, 8)),
            entry("1-1:1.1", (0x256F, 0xC652), (1, 6)),
            entry("1-2:1.0", (0x046D, 0xC077), (1, 2)),
            entry("1-3:1.0", (0x256F, 0xC7FF), (1, 8)),
            entry("1-4:1.0", (0x046D, 0xC626), (0, 0)),  # a backend that knows no usage
            entry("/dev/not-there", (0x256F, 0xC635), (1, 8)),
        ]


def test_spacemice_are_told_from_what_else_is_plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spacemouse, "_hid", FakeModule)
    listed = {f.name: f.problem for f in spacemouse.find_spacemice()}
    assert listed == {
        "3Dconnexion Universal Receiver": "",
        "SpaceMouse X": "",
        "SpaceNavigator": "",
        "SpaceMouse Compact": "no read permission",
    }


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ([], "no SpaceMouse found"),
        (
            [FoundDevice("spacemouse", "A", "1"), FoundDevice("spacemouse", "B", "2")],
            "which spacemouse",
        ),
        ([FoundDevice("spacemouse", "A", "1", "no read permission")], "may not be read"),
        ([FoundDevice("spacemouse", "A", "taken")], "cannot be opened"),
    ],
)
def test_one_that_cannot_be_had_is_an_error_with_a_way_out(listed: list, words: str) -> None:
    def opened(path: str) -> Any:
        raise OSError("open failed")

    with pytest.raises(SetupError, match=words) as caught:
        spacemouse.connect(SpaceMouseConfig(), lambda: listed, opened)
    assert caught.value.expected and caught.value.got and caught.value.fix


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(spacemouse.importlib, "import_module", nothing)
    with pytest.raises(SetupError, match="hidapi") as caught:
        spacemouse.find_spacemice()
    assert "robot-rl[hardware]" in caught.value.fix


# --- in the thread -------------------------------------------------------------------------------


def wait_for(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError("waited too long")


def test_a_radio_that_is_lost_with_the_cap_out_is_noticed_and_a_pulled_cable_at_once() -> None:
    fake, device = mouse()
    source = Reader(lambda: device)

    def age_s() -> float:
        reading = source.read()
        return float("inf") if reading is None else time.monotonic() - reading.stamp_s

    try:
        time.sleep(0.5)
        wait_for(lambda: age_s() < 0.1)  # silent at rest: alive
        fake.say("01 5e 01 00 00 00 00")
        wait_for(lambda: age_s() > spacemouse.QUIET_S)  # out, and no more reports
        fake.say("01 00 00 00 00 00 00")
        wait_for(lambda: age_s() < 0.1)
        fake.gone = True
        wait_for(lambda: source.read() is None and fake.closed)
    finally:
        source.close()
