"""Leader arms through the makers' libraries, against servos on a pseudo terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dynamixel_sdk", reason="pip install 'robot-rl[leader]'")
pytest.importorskip("scservo_sdk", reason="pip install 'robot-rl[leader]'")

from robot_rl.errors import ConfigError, LinkError, RobotRLError, SetupError
from robot_rl.robots import Fr3, Panda, Robot, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.robots.fold import Wishes, fold
from robot_rl.robots.urdf import parse
from robot_rl_hardware import leader_map
from robot_rl_hardware.leader import (
    GELLO_SIGNS,
    SO101,
    GelloConfig,
    LeaderReader,
    SerialLeading,
    So101Config,
    map_name,
)
from robot_rl_hardware.leader_map import LeaderMap, check_signs, second_pose, solve, trigger_ends
from robot_rl_hardware.servos import DYNAMIXEL, FEETECH, TICKS, ServoLine
from tests.support.servos import Bus, DynamixelBus, FeetechBus

IDS = tuple(range(1, 9))
KINDS = {"gello": (DynamixelBus, DYNAMIXEL), "so101": (FeetechBus, FEETECH)}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Calibrations of this test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def bus(kind: str) -> Iterator[Bus]:
    made = KINDS[kind][0](IDS)
    yield made
    made.unplug()


def line(kind: str, bus: Bus, ids: tuple[int, ...] = IDS) -> ServoLine:
    return ServoLine(KINDS[kind][1], bus.path, KINDS[kind][1].baud, ids)


def test_all_servos_are_read_with_one_request(kind: str, bus: Bus) -> None:
    bus.ticks = {n: 100 * n for n in IDS} | {3: -5 if kind == "gello" else 0x8005}
    opened = line(kind, bus)
    bus.asked.clear()
    assert opened.ticks() == {n: 100 * n for n in IDS} | {3: -5}
    assert bus.asked == [0x82]
    opened.close()


def test_a_line_that_is_silent_costs_no_processor_time(kind: str, bus: Bus) -> None:
    opened = line(kind, bus)
    bus.silent = True
    began_s = time.thread_time()
    assert [opened.ticks() for _ in range(5)] == [None] * 5  # about 0.2 s
    assert time.thread_time() - began_s < 0.05
    opened.close()


def test_a_position_that_looks_like_the_head_of_a_packet_is_read() -> None:
    bus = DynamixelBus(IDS)
    opened = line("gello", bus)
    bus.ticks[2] = int.from_bytes(b"\xff\xff\xfd\xff", "little", signed=True)
    assert opened.ticks()[2] == bus.ticks[2]
    opened.close()
    bus.unplug()


def test_nothing_is_ever_written_to_a_servo(kind: str, bus: Bus) -> None:
    opened = line(kind, bus)
    for _ in range(5):
        opened.ticks()
    opened.close()
    assert set(bus.asked) <= {0x01, 0x02, 0x82}


def test_a_damaged_packet_is_left_out_and_the_next_one_counts(kind: str, bus: Bus) -> None:
    opened = line(kind, bus)
    bus.corrupt = 1
    assert opened.ticks() is None
    assert opened.ticks() is not None
    opened.close()


def test_packets_that_are_all_damaged_are_a_lost_line(kind: str, bus: Bus) -> None:
    opened = line(kind, bus)
    bus.corrupt = 10**6
    with pytest.raises(OSError, match="no proper answer"):
        for _ in range(20):
            assert opened.ticks() is None
    opened.close()


def test_a_servo_that_is_missing_is_named(kind: str, bus: Bus) -> None:
    bus.missing = {4, 5}
    with pytest.raises(SetupError, match="no answer from servo 4, 5") as told:
        line(kind, bus)
    assert "from the others" in told.value.got and "cable" in told.value.fix


def test_a_wrong_baud_rate_is_silence_and_the_fix_says_so(kind: str, bus: Bus) -> None:
    bus.silent = True
    with pytest.raises(SetupError, match="no answer") as told:
        line(kind, bus)
    assert told.value.got == "silence" and "operator.baud" in told.value.fix


def test_a_line_that_is_not_there_is_one_error(kind: str) -> None:
    family = KINDS[kind][1]
    with pytest.raises(SetupError, match="cannot be opened") as told:
        ServoLine(family, "/dev/ttyNOTHING", family.baud, IDS)
    assert "dialout" in told.value.fix


def test_a_line_that_is_pulled_out_raises_at_once(kind: str, bus: Bus) -> None:
    opened = line(kind, bus)
    bus.unplug()
    began_s = time.monotonic()
    with pytest.raises(OSError, match=r".+"):
        for _ in range(20):
            opened.ticks()
    assert time.monotonic() - began_s < 1.0


# --- the map -------------------------------------------------------------------------------------


def test_quarter_turns_are_found_from_a_pose_that_is_only_nearly_hit() -> None:
    rng = np.random.default_rng(0)
    signs, known = GelloConfig().known_pose(Fr3())[1], Fr3().home_rad
    for _ in range(200):
        zero = rng.integers(-3, 4, 7) * np.pi / 2
        measured = zero + np.array(signs) * known + rng.uniform(-0.3, 0.3, 7)
        assert solve(measured, known, signs, quarters=True) == pytest.approx(zero)


def test_a_pose_that_is_not_the_pose_is_refused_with_the_joint() -> None:
    measured = np.array(Fr3().home_rad)
    measured[3] += 0.6
    with pytest.raises(ConfigError, match="joint 4 of the leader") as told:
        solve(measured, Fr3().home_rad, (1,) * 7, quarters=True)
    assert "34 degrees" in told.value.got


def test_the_signs_of_gello_are_those_that_its_makers_publish() -> None:
    """README.md of wuphilipp/gello_software, "Joint Signs Reference"."""
    assert GELLO_SIGNS["panda"] == (1, -1, 1, 1, 1, -1, 1)
    assert GELLO_SIGNS["fr3"] == (1, 1, 1, 1, 1, -1, 1)
    assert GELLO_SIGNS["ur5e"] == (1, 1, -1, 1, 1, 1)


@pytest.mark.parametrize("robot", [Fr3(), Panda(), Ur5e()], ids=lambda r: r.name)
def test_a_wrong_sign_that_the_first_pose_cannot_show_is_found_by_the_second(robot: Robot) -> None:
    config, rng = GelloConfig(), np.random.default_rng(0)
    known, signs, _ = config.known_pose(robot)
    aside, _ = config.second_pose(robot)
    n = len(signs)
    zero = rng.integers(-3, 4, n) * np.pi / 2
    unseen = 0
    for joint in range(n):
        built = np.array(signs)
        built[joint] *= -1
        first = zero + built * (known + rng.uniform(-0.1, 0.1, n))
        second = first + built * (aside + rng.uniform(-0.15, 0.15, n))
        unseen += len(solve(first, known, signs, quarters=True)) == n  # no error
        with pytest.raises(ConfigError, match="not those of its servos") as bad:
            check_signs(first, second, signs, aside)
        assert bad.value.summary.endswith(f"joint {joint + 1}")
        assert f"--signs {' '.join(map(str, built))}" in bad.value.fix
        check_signs(first, second, tuple(built), aside)
        turns = 2 * np.pi * rng.integers(-1, 2, n)  # a Feetech begins anew after a turn
        check_signs(first, second + turns, tuple(built), aside)
    assert unseen == n


@pytest.mark.parametrize("turned_rad", [0.02, 1.3])
def test_a_joint_that_was_not_turned_by_a_little_is_refused(turned_rad: float) -> None:
    second = np.full(6, 0.35)
    second[4] = turned_rad
    with pytest.raises(ConfigError, match="joint 5 of the leader was not turned") as told:
        check_signs(np.zeros(6), second, (1,) * 6, np.full(6, 0.35))
    assert f"{np.degrees(turned_rad):.0f} degrees" == told.value.got and told.value.fix


def test_the_second_pose_is_told_by_what_the_tool_does() -> None:
    aside, words = GelloConfig().second_pose(Fr3())
    assert aside == pytest.approx(np.radians(20.0))
    assert words[0] == "the tool goes left"
    assert words[3] == "the tool goes up"
    assert words[6] == "the tool turns clockwise on the spot, seen from above"
    assert So101Config().second_pose(Fr3())[1][0] == "the tool goes right"


def test_a_joint_at_the_end_of_its_range_is_turned_the_other_way() -> None:
    chain, first, *others = Chain(Ur5e()), *Ur5e().home_rad
    assert second_pose(chain, (first, *others))[1][0] == "the tool goes left"
    aside, words = second_pose(chain, (first + 2 * np.pi, *others))  # the same place
    assert aside[0] == pytest.approx(-np.radians(20.0)) and (aside[1:] > 0.0).all()
    assert words[0] == "the tool goes right"


def test_a_trigger_is_read_whatever_turns_its_servo_forgot() -> None:
    found = LeaderMap(zero_rad=(0.0,), signs=(1,), trigger_rad=(6.1, 6.9))
    for turns in (-2, -1, 0, 1):
        for share in (0.0, 0.25, 1.0):
            ticks = {1: 0, 2: round((6.1 + 0.8 * share) / (2 * np.pi) * TICKS) + turns * TICKS}
            assert found.joints(ticks, (1, 2), 0.0).trigger == pytest.approx(share, abs=2e-3)


def test_a_trigger_that_was_not_pulled_is_refused() -> None:
    with pytest.raises(ConfigError, match="hardly moved"):
        trigger_ends(1.0, 1.05)
    assert trigger_ends(1.0, 0.0) == (1.0, 0.0)


def test_a_map_survives_its_file_and_a_spoilt_file_is_refused() -> None:
    found = LeaderMap(zero_rad=(0.5, -1.0), signs=(1, -1), trigger_rad=(0.0, 1.0))
    path = leader_map.save("arm", found)
    assert leader_map.load("arm", 2) == found
    for text in ("zero_rad: [1, 2]", "hello", "zero_rad: [1, x]\nsigns: [1, 1]", "{"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="does not hold the map"):
            leader_map.load("arm", 2)
    leader_map.save("arm", found)
    with pytest.raises(ConfigError, match="does not hold the map"):
        leader_map.load("arm", 3)


def test_a_leader_that_was_never_calibrated_is_one_error(bus: Bus, kind: str) -> None:
    config = config_of(kind, bus)
    with pytest.raises(SetupError, match="has not been calibrated") as told:
        LeaderReader(config, config.joints(Fr3()))
    assert "robot-rl leader" in told.value.fix


# --- the reader ----------------------------------------------------------------------------------


def config_of(kind: str, bus: Bus) -> SerialLeading:
    if kind == "gello":
        return GelloConfig(port=bus.path)
    return So101Config(port=bus.path, ids=IDS[:6])


def calibrated(kind: str, bus: Bus) -> LeaderReader:
    config = config_of(kind, bus)
    n = config.joints(Fr3())
    half = np.pi  # 2048 ticks
    found = LeaderMap(zero_rad=(half,) * n, signs=(1,) * (n - 1) + (-1,), trigger_rad=(half, 4.0))
    leader_map.save(map_name(kind, bus.path), found)
    return LeaderReader(config, n)


def until(condition: Callable[[], Any]) -> Any:
    end_s = time.monotonic() + 5.0
    while time.monotonic() < end_s:
        if found := condition():
            return found
        time.sleep(0.005)
    pytest.fail("not within 5 s")


def test_angles_and_trigger_are_those_of_the_servos(kind: str, bus: Bus) -> None:
    reader = calibrated(kind, bus)
    n = 7 if kind == "gello" else 5
    bus.ticks |= {1: 2048 + 512, n: 2048 + 256, n + 1: round(4.0 / (2 * np.pi) * TICKS)}
    found = until(lambda: (j := reader.read()) and j.trigger == 1.0 and j)
    angles = np.zeros(n)
    angles[0], angles[-1] = np.pi / 4, -np.pi / 8
    assert found.position_rad == pytest.approx(angles, abs=1e-5)
    assert 0.0 <= time.monotonic() - found.stamp_s < 1.0
    reader.close()


def test_a_leader_that_is_pulled_out_is_told_with_the_fix_and_found_again(
    kind: str, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robot_rl_hardware.reader.RETRY_S", 0.05)
    reader = calibrated(kind, bus)
    until(reader.read)
    bus.silent = True

    def refused() -> RobotRLError | None:
        try:
            reader.read()
        except LinkError as error:
            return error
        return None

    error = until(refused)
    assert "is gone" in str(error) and error.expected and error.got and "plug it in" in error.fix
    bus.silent = False
    until(lambda: refused() is None and reader.read())
    reader.close()


def test_the_leader_of_an_so101_points_forward_and_its_first_joint_turns_about_the_vertical() -> (
    None
):
    ahead = SO101.tcp_in_base(np.zeros(5))
    assert ahead.position_m[0] > 0.3 and abs(ahead.position_m[1]) < 0.03
    turned = SO101.tcp_in_base(np.array((0.3, 0.0, 0.0, 0.0, 0.0)))
    assert turned.position_m[2] == pytest.approx(ahead.position_m[2], abs=1e-4)
    assert abs(turned.position_m[1]) > 0.08


def test_the_leader_of_an_so101_moves_as_the_arm_that_is_described() -> None:
    """Two files, written apart from each other: feet and tools differ, motions do not."""
    text = (Path(__file__).parents[1] / "robots" / "urdf" / "so101.urdf").read_text()
    wishes = Wishes(tip="gripper_frame_link")
    arm = Chain(fold(parse(text, "so101"), "so101", wishes)[0])
    rng = np.random.default_rng(0)
    at_zero = [chain.frames(np.zeros(5))[-1] for chain in (SO101, arm)]
    for _ in range(10):
        q = rng.uniform(-1.0, 1.0, 5)
        leader, described = (
            (there[:3, 3] - zero[:3, 3], there[:3, :3] @ zero[:3, :3].T)
            for chain, zero in zip((SO101, arm), at_zero, strict=True)
            for there in (chain.frames(q)[-1],)
        )
        assert leader[0] == pytest.approx(described[0], abs=1.5e-3)
        assert leader[1] == pytest.approx(described[1], abs=1e-3)


def test_ids_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="not the servos"):
        GelloConfig(ids=(1, 2, 3)).line(len(Ur5e().joints))
    with pytest.raises(ConfigError, match="not the servos"):
        GelloConfig(ids=(1, 1, 2, 3, 4, 5)).line(len(Ur5e().joints))
