"""The console's keys as a device: what a page may say, and two operators in one."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.errors import ConfigError, LinkError, RobotRLError
from robot_rl.geometry import pose
from robot_rl.link.panel import STAMP, ControlSender, decode, socket_address
from robot_rl.operate.devices import Here, make_operator
from robot_rl.operate.following import Following
from robot_rl.operate.handset import HELD, DeviceReading, Handset, HandsetConfig
from robot_rl.operate.held import HeldDevice
from robot_rl.operate.remote import TAKE_SEAT, ConsoleConfig, ConsoleSource, Either, parse
from robot_rl.ports import OperatorInput
from robot_rl.types import RobotState
from tests.support.fakes import TASK, FakeOperator

GOOD = {"axes": [0.5, 0, 0, 0, 0, -1], "held": ["drive", "slow"]}


def test_a_message_of_the_page_is_a_reading() -> None:
    reading = parse(json.dumps(GOOD).encode(), 3.0)
    assert reading.stamp_s == 3.0 and reading.held == {"drive", "slow"}
    assert np.allclose(np.asarray(reading.axes), GOOD["axes"])


@pytest.mark.parametrize(
    "bad",
    [
        b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"axes": [0,0,0,0,0,0]}',
        b'{"axes": [0,0,0], "held": []}', b'{"axes": [0,0,0,0,0,NaN], "held": []}',
        b'{"axes": [0,0,0,0,0,0], "held": ["fly"]}', b'{"axes": [0,0,0,0,0,0], "held": "drive"}',
        b'{"axes": [0,0,0,0,0,0], "held": [["drive"]]}', b'{"axes": "000000", "held": []}',
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_reason(bad: bytes) -> None:
    with pytest.raises(RobotRLError, match="expected"):
        parse(bad, 0.0)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_decoders(data: bytes) -> None:
    for work in (lambda: parse(data, 0.0), lambda: decode(data, 100)):
        with contextlib.suppress(RobotRLError):
            work()


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=6, max_size=6), st.lists(st.sampled_from(sorted(HELD)))
)
def test_whatever_a_page_says_stays_within_the_sticks(axes: list[float], held: list[str]) -> None:
    reading = parse(json.dumps({"axes": axes, "held": held}).encode(), 0.0)
    assert (np.abs(np.asarray(reading.axes)) <= 1.0).all()


def test_the_newest_message_counts_and_an_old_one_grows_old(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/c"
    source = ConsoleSource(address)
    sender = zmq.Context.instance().socket(zmq.PUSH)
    sender.connect(address)
    try:
        assert source.read(None) is None and source.wait(0.01) is False
        for x in (0.1, 0.2, 0.3):
            said = json.dumps({"axes": [x, 0, 0, 0, 0, 0], "held": []}).encode()
            sender.send_multipart([STAMP.pack(time.monotonic()), said])
        assert source.wait(2.0)
        while (reading := source.read(None)) is None or np.asarray(reading.axes)[0] < 0.3:
            source.wait(0.1)
        assert source.read(None) is reading  # nothing new: the same reading, the same stamp
        sender.send_multipart(
            [b"", b"x" * 5000]
        )  # beyond what is accepted: the line is dropped, nothing is read
        assert source.wait(0.2) is False
    finally:
        sender.close(0)
        source.close()


def test_what_waited_while_the_node_stalled_keeps_its_time(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full line keeps the oldest messages and drops the newest: an arm must not follow those."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("x")))  # sockets: short
    source = ConsoleSource(socket_address(tmp_path, "control"))
    page = ControlSender(tmp_path)
    try:
        until = time.monotonic() + 5.0
        while not source.wait(0.05) and time.monotonic() < until:
            page.send(json.dumps(GOOD))
        sent_s = time.monotonic()
        time.sleep(0.3)  # the operator's node stalls
        reading = source.read(None)
        assert reading is not None and reading.stamp_s <= sent_s
    finally:
        page.close()
        source.close()


@pytest.mark.parametrize("stamp", [b"", b"1234567", STAMP.pack(1e18), STAMP.pack(float("nan"))])
def test_a_message_without_an_honest_stamp_is_refused(tmp_path: Path, stamp: bytes) -> None:
    address = f"ipc://{tmp_path}/c"
    source, sender = ConsoleSource(address), zmq.Context.instance().socket(zmq.PUSH)
    sender.connect(address)
    try:
        sender.send_multipart([stamp, json.dumps(GOOD).encode()])
        assert source.wait(2.0)
        with pytest.raises(LinkError, match="malformed"):
            source.read(None)
    finally:
        sender.close(0)
        source.close()


class Hand:
    """A source that says what it is told, at a time it is told."""

    def __init__(self) -> None:
        self.reading: DeviceReading | None = None

    def read(self, state: RobotState | None) -> DeviceReading | None:
        return self.reading


def test_two_operators_the_person_goes_first_and_their_silence_is_not_hidden() -> None:
    now_s = 0.0
    source, script = Hand(), FakeOperator(lambda _: True, np.full(6, 0.1, np.float32))
    handset = Handset(HandsetConfig(neutral_s=0.0), TASK.spec.action.size)
    both = Either(HeldDevice(handset, source, "test", now_s=lambda: now_s), script)
    both.begin_episode(0, "train")
    state = state_at(0.0)

    def poll(*held: str, heard: bool = True) -> OperatorInput:
        nonlocal now_s, state
        now_s += 0.02
        state = state_at(now_s)
        if heard:
            source.reading = DeviceReading(
                now_s, [0.0, 1, 0, 0, 0, 0] if held else [0] * 6, frozenset(held)
            )
        return both.poll(state)

    assert poll(heard=False).action[0] == pytest.approx(0.1)  # nobody is there: the script drives
    assert poll().driving is False  # somebody has the seat: the script stops
    assert poll("drive").action[1] == pytest.approx(1.0)  # the person takes over
    stamps = [poll("drive", heard=False) for _ in range(12)]
    assert stamps[-1].driving is False and stamps[-1].stamp_s < now_s - 0.15  # seen as silence
    assert poll(heard=False).driving is False
    assert poll().driving is False  # heard again, let go, and still in the seat
    now_s += 1.1  # the seat was left
    assert poll(heard=False).action[0] == pytest.approx(0.1)


def test_in_practice_the_script_stops_only_while_the_person_drives() -> None:
    now_s = 0.0
    source, script = Hand(), FakeOperator(lambda _: True, np.full(6, 0.1, np.float32))
    handset = Handset(HandsetConfig(neutral_s=0.0), TASK.spec.action.size)
    person = HeldDevice(handset, source, "test", now_s=lambda: now_s)
    both = Either(person, script, goes_on=True)
    both.begin_episode(0, "demo")

    def poll(*held: str, heard: bool = True) -> OperatorInput:
        nonlocal now_s
        now_s += 0.02
        if heard:
            axes = [0.0, 1, 0, 0, 0, 0] if held else [0] * 6
            source.reading = DeviceReading(now_s, axes, frozenset(held))
        return both.poll(state_at(now_s))

    assert poll().action[0] == pytest.approx(0.1) and not both.present  # somebody has the seat
    assert poll("drive").action[1] == pytest.approx(1.0) and both.present
    assert poll().action[0] == pytest.approx(0.1) and not both.present  # let go: it goes on
    assert poll("drive").action[1] == pytest.approx(1.0)
    stamps = [poll("drive", heard=False) for _ in range(12)]
    assert not stamps[-1].driving and both.present  # silence while held is no letting go
    with pytest.raises(ValueError, match="needs with_script"):
        ConsoleConfig(script_goes_on=True)


def state_at(stamp_s: float) -> RobotState:
    """A robot at rest."""
    zero = np.zeros(6)
    return RobotState(stamp_s, np.zeros(7), np.zeros(7), pose((0.5, 0, 0.2)), zero, zero, 0.0)


def test_while_nobody_is_at_the_page_the_seat_is_what_a_person_reads_about(tmp_path: Path) -> None:
    person = make_operator(ConsoleConfig(), TASK, Here(tmp_path))
    assert isinstance(person, HeldDevice)
    person.poll(state_at(0.0))
    assert person.problem == TAKE_SEAT
    assert isinstance(person.source, Following) and isinstance(person.source.source, ConsoleSource)
    person.source.source.close()


def test_lockstep_has_no_page() -> None:
    with pytest.raises(ConfigError, match="needs real time"):
        make_operator(ConsoleConfig(), TASK)


def test_the_socket_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    address = socket_address(tmp_path / "run", "view")
    assert address.startswith(f"ipc://{tmp_path}/robot-rl-") and address.endswith("-view")
    assert address == socket_address(tmp_path / "run", "view")
    assert address != socket_address(tmp_path / "other", "view")
    folder = next(tmp_path.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(RobotRLError, match="not private"):
        socket_address(tmp_path / "run", "view")
