"""The rules of a held device: dead zone, hold-to-drive, neutral check, labels, silence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.errors import ConfigError, SpecError
from robot_rl.operate.calibration import AXES, Rest
from robot_rl.operate.handset import HELD, DeviceReading, Handset, HandsetConfig, turned
from robot_rl.types import Driver
from tests.support.handset import CONFIG, PERIOD_S, Hand, motion

shares = st.floats(-1.0, 1.0, allow_nan=False)


def test_a_rested_hand_drives_while_the_button_is_held_and_only_then() -> None:
    hand = Hand().rested()
    assert not hand.feel({"tx": 1.0}).driving
    value = hand.feel({"tx": 1.0, "rz": -1.0}, "drive")
    assert value.driving and value.driver is Driver.CORRECTION and value.stamp_s == hand.now_s
    assert motion(value).tolist() == [1, 0, 0, 0, 0, -1]
    assert value.action.dtype == np.float32 and value.action.shape == (7,)
    assert not hand.feel({"tx": 1.0}).driving


@given(
    axes=st.lists(shares, min_size=6, max_size=6),
    held=st.sets(st.sampled_from(sorted(HELD - {"drive"}))),
)
def test_nothing_drives_without_the_drive_button(axes: list[float], held: set[str]) -> None:
    hand = Hand().rested()
    value = hand.feel(dict(zip(AXES, axes, strict=True)), " ".join(held))
    assert not value.driving and not value.action.any()


@given(drift=st.lists(st.floats(-0.0999, 0.0999), min_size=6, max_size=6))
def test_drift_below_the_dead_zone_never_moves_the_robot(drift: list[float]) -> None:
    hand = Hand()
    axes = dict(zip(AXES, drift, strict=True))
    hand.feel(axes, seconds=0.3)
    assert hand.handset.ready
    value = hand.feel(axes, "drive")
    assert value.driving and not value.action.any()


@given(
    zone=st.floats(0.0, 0.5),
    expo=st.floats(0.0, 1.0),
    centre=st.floats(-0.3, 0.3),
    at=st.floats(-1.0, 1.0),
)
def test_output_is_continuous_monotone_and_reaches_the_end(
    zone: float, expo: float, centre: float, at: float
) -> None:
    config = HandsetConfig(dead_zone=zone, expo=expo)
    rest = Rest(centre=(centre, 0, 0, 0, 0, 0))
    hand = Hand(config, rest=rest)
    hand.feel({"tx": centre}, seconds=0.4)

    def output(tx: float) -> float:
        return float(motion(hand.feel({"tx": tx}, "drive"))[0])

    step = 1e-4
    slope = 3.0 / (1.0 - zone) / (1.0 - abs(centre))  # of the steepest curve, at its end
    assert -1e-6 <= output(min(at + step, 1.0)) - output(at) <= slope * step * 1.01 + 1e-6
    edge = centre + zone * (1.0 - centre)
    assert output(edge) == pytest.approx(0.0, abs=1e-6)
    assert 0.0 <= output(min(edge + step, 1.0)) <= slope * step * 1.01 + 1e-6  # no jump
    assert output(1.0) == pytest.approx(1.0, abs=1e-6)
    assert output(-1.0) == pytest.approx(-1.0, abs=1e-6)


def test_slow_scales_clutch_stops_scale_turns_and_locks() -> None:
    scale = (1.0, -0.5, 0.0, 1.0, 1.0, 1.0)
    hand = Hand(dataclasses.replace(CONFIG, scale=scale)).rested()
    full = {"tx": 1.0, "ty": 1.0, "tz": 1.0}
    assert motion(hand.feel(full, "drive"))[:3].tolist() == [1.0, -0.5, 0.0]
    slow = motion(hand.feel(full, "drive slow"))
    assert slow[:3] == pytest.approx([CONFIG.slow_factor, -0.5 * CONFIG.slow_factor, 0.0])
    clutched = hand.feel(full, "drive clutch close")
    assert clutched.driving and not motion(clutched).any() and clutched.action[6] == -1.0
    assert motion(hand.feel(full, "drive"))[0] == 1.0


def test_a_locked_axis_does_not_keep_the_rest_from_driving() -> None:
    hand = Hand(dataclasses.replace(CONFIG, scale=(1.0, 1.0, 0.0, 1.0, 1.0, 1.0)))
    hand.feel({"tz": 0.5}, seconds=0.3)
    assert hand.handset.ready


def test_gripper_buttons_command_while_they_are_held() -> None:
    hand = Hand().rested()

    def entry(held: str) -> float:
        return float(hand.feel(held=f"drive {held}").action[6])

    assert [entry(h) for h in ("", "close", "", "open", "")] == [0, -1, 0, 1, 0]
    assert [entry(h) for h in ("close", "close open", "open", "")] == [-1, -1, 1, 0]
    assert [entry(h) for h in ("grip", "grip", "", "grip", "", "grip")] == [-1, -1, 0, 1, 0, -1]


def test_one_gripper_button_closes_first_and_does_nothing_unless_driving() -> None:
    hand = Hand().rested()
    assert hand.feel(held="grip").action[6] == 0
    assert hand.feel(held="drive grip").action[6] == 0  # was down before: no press, no command
    hand.feel(held="drive")
    assert hand.feel(held="drive grip").action[6] == -1


def test_a_task_without_gripper_gets_six_entries_and_a_foreign_one_an_error() -> None:
    assert Hand(size=6).rested().feel(held="drive close").action.shape == (6,)
    with pytest.raises(ConfigError, match="cannot drive this task") as caught:
        Handset(CONFIG, 4)
    assert caught.value.expected and caught.value.got and caught.value.fix


# --- neutral check --------------------------------------------------------------------------------


def test_who_was_at_rest_before_an_episode_may_press_at_once() -> None:
    hand = Hand().rested()
    hand.handset.begin_episode(1, "train")
    assert hand.feel({}, "drive", 0.02).driving
    for axes, held in (({"tx": 0.5}, "drive"), ({}, "drive close"), ({}, "close")):
        hand = Hand().rested()
        hand.handset.begin_episode(1, "train")
        hand.feel(axes, held, 0.02)
        assert not hand.feel({}, "drive", 0.1).driving  # only a press alone, straight out of rest
    hand = Hand().rested()
    hand.feel({}, "drive", 0.1)
    hand.handset.begin_episode(2, "train")  # held over the beginning
    assert not hand.feel({}, "drive", 0.5).driving


def test_stuck_keys_and_sticks_off_centre_are_refused_and_named_every_time() -> None:
    rng = np.random.default_rng(0)
    words = sorted(HELD)
    for trial in range(1000):
        hand = Hand()
        if trial % 3 == 1:  # a later episode
            hand.rested().handset.begin_episode(trial, "train")
        elif trial % 3 == 2:  # a device that came back
            hand.rested()
            hand.handset.feed(None, hand.now_s)
        axes, held = dict[str, float](), set[str]()
        if rng.random() < 0.5:
            held = set(rng.choice(words, size=rng.integers(1, 4), replace=False).tolist())
        if not held or rng.random() < 0.5:
            for i in rng.choice(6, size=rng.integers(1, 3), replace=False):
                axes[AXES[i]] = float(rng.choice((-1, 1)) * rng.uniform(0.101, 1.0))
        if trial % 3 == 1 and held == {"drive"} and not axes:
            continue  # that is a press, straight out of rest
        stuck = " ".join(held)
        hand.feel(axes, stuck, 0.4)
        value = hand.feel(axes, f"{stuck} drive", 0.4)
        assert not value.driving and not value.action.any(), trial
        assert not hand.handset.ready
        for name in axes:
            assert f"{name} is at" in hand.handset.problem, (trial, hand.handset.problem)
        for word in held:
            assert f"'{word}' is held" in hand.handset.problem
        hand.rested()
        assert hand.feel(held="drive").driving, trial


def test_neutral_must_last() -> None:
    hand = Hand()
    hand.feel(seconds=0.1)
    assert not hand.handset.ready and hand.handset.problem
    hand.feel({"ty": 0.5})
    hand.feel(seconds=0.16)
    assert not hand.feel(held="drive").driving
    assert not hand.rested().handset.problem


def test_a_device_that_vanishes_while_held_stops_and_must_be_let_go_of() -> None:
    hand = Hand().rested()
    last = hand.feel({"tx": 1.0}, "drive")
    for _ in range(50):  # unplugged
        hand.now_s += PERIOD_S
        value = hand.handset.feed(None, hand.now_s)
        assert not value.driving and not value.action.any() and value.stamp_s == last.stamp_s
    assert "plug it in" in hand.handset.problem
    assert not hand.feel({"tx": 1.0}, "drive", 1.0).driving
    assert "'drive' is held" in hand.handset.problem and "tx is at +1.00" in hand.handset.problem
    assert hand.rested().feel({"tx": 1.0}, "drive").driving


def test_a_page_in_whose_seat_nobody_is_is_no_device_to_plug_in() -> None:
    page, device = Handset(CONFIG, 7, absent="take the seat"), Handset(CONFIG, 7)
    reading = DeviceReading(100.0, np.zeros(6))
    page.feed(None, 100.0)
    device.feed(None, 100.0)
    assert page.problem == "take the seat" and "plug it in" in device.problem
    for silent_s, there in ((0.5, "said nothing"), (30.0, "take the seat")):
        page.feed(reading, 100.0 + silent_s)
        device.feed(reading, 100.0 + silent_s)
        assert there in page.problem and "said nothing" in device.problem


@pytest.mark.parametrize("age_s", [0.11, 5.0, -0.5, float("nan"), float("inf")])
def test_a_reading_that_is_too_old_or_from_the_future_lets_go(age_s: float) -> None:
    hand = Hand().rested()
    assert hand.feel({"tx": 1.0}, "drive").driving
    reading = DeviceReading(hand.now_s, np.zeros(6), frozenset({"drive"}))
    assert hand.handset.feed(reading, hand.now_s + 0.09).driving  # the same one, still fresh
    assert not hand.handset.feed(reading, hand.now_s + age_s).driving
    assert "said nothing" in hand.handset.problem


# --- purposes, labels, latch ----------------------------------------------------------------------


def test_demos_are_demos_and_nobody_drives_in_an_evaluation() -> None:
    hand = Hand()
    hand.handset.begin_episode(0, "demo")
    assert hand.rested().feel(held="drive").driver is Driver.DEMO
    hand.handset.begin_episode(1, "eval")
    value = hand.rested().feel({"tx": 1.0}, "drive")
    assert not value.driving and not value.action.any()
    assert hand.feel(held="redo").abort  # but may end it


def test_hold_lets_go() -> None:
    hand = Hand().rested()
    assert not hand.feel({"tx": 1.0}, "drive hold").driving
    assert hand.handset.held == {"drive", "hold"}


def test_a_tap_on_a_label_is_told_long_enough_for_a_slow_reader() -> None:
    hand = Hand().rested()
    assert hand.feel().success is None
    assert hand.feel(held="success").success is True
    told = [hand.feel().success for _ in range(20)]
    assert told[:9] == [True] * 9 and told[-1] is None
    assert hand.feel(held="failure").success is False
    hand.feel(seconds=0.5)
    assert hand.feel(held="success failure").success is None
    hand.feel(seconds=0.5)
    assert hand.feel(held="redo").abort and hand.feel().abort


def test_a_label_does_not_reach_the_next_episode() -> None:
    hand = Hand().rested()
    hand.feel(held="success")
    hand.handset.begin_episode(1, "train")
    assert hand.feel(held="success").success is None
    assert hand.feel(held="redo").abort is False


def test_without_latch_nothing_stays_on_and_with_it_only_for_a_while() -> None:
    assert not HandsetConfig().latch
    hand = Hand(dataclasses.replace(CONFIG, latch=True, latch_s=2.0)).rested()
    assert not hand.feel({"tx": 1.0}).driving
    hand.feel(held="drive")
    assert hand.feel({"tx": 1.0}, seconds=1.8).driving
    hand.feel(held="drive")  # confirmed
    assert hand.feel({"tx": 1.0}, seconds=1.8).driving
    assert not hand.feel({"tx": 1.0}, seconds=0.4).driving
    hand.feel(held="drive")
    hand.feel(held="hold")
    assert not hand.feel().driving
    hand.feel(held="drive")
    hand.handset.begin_episode(1, "train")
    assert not hand.rested().feel().driving


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "held", "words"),
    [
        ([0.0] * 5, [], "wrong axes"),
        ([0.0] * 5 + [float("nan")], [], "wrong axes"),
        ([[0.0], [0.0, 1.0]], [], "wrong axes"),
        ("sticks", [], "wrong axes"),
        ([0.0] * 6, ["driev"], "did you mean 'drive'"),
        ([0.0] * 6, ["__class__"], "not something a button can mean"),
        ([0.0] * 6, [["drive"]], "wrong axes"),
    ],
)
def test_readings_that_make_no_sense_are_refused(axes: object, held: list, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        DeviceReading(0.0, axes, held)  # type: ignore[arg-type]
    assert caught.value.expected and caught.value.got and caught.value.fix


def test_axes_beyond_the_end_are_clipped() -> None:
    assert np.array(DeviceReading(0.0, [2.0, -2.0, 0, 0, 0, 0]).axes).tolist() == [
        1,
        -1,
        0,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"dead_zone": 0.6},
        {"dead_zone": float("nan")},
        {"expo": -0.1},
        {"slow_factor": 0.0},
        {"input_timeout_s": 0.0},
        {"input_timeout_s": 2.0},
        {"latch_s": 0.0},
        {"scale": (2.0, 1.0, 1.0, 1.0, 1.0, 1.0)},
    ],
)
def test_a_config_that_makes_no_sense_is_refused(bad: dict) -> None:
    with pytest.raises(ValueError):
        HandsetConfig(**bad)


UNIT = (0.01, 0.06, 0.1)  # m, rad and s of a full action


def nudging(*presses: tuple[float, dict[str, float], bool]) -> list[np.ndarray]:
    """Actions [6] for (seconds, axes, drive held), fed at 50 Hz after a rest, in small steps."""
    handset, now_s, made = Handset(HandsetConfig(), 6, unit=UNIT), 10.0, []
    for seconds, axes, drive in ((0.4, {}, False), *presses):
        for _ in range(round(seconds * 50)):
            now_s += 0.02
            held = frozenset({"drive"} if drive else ())
            values = [axes.get(name, 0.0) for name in AXES]
            value = handset.feed(DeviceReading(now_s, values, held, nudge=True), now_s)
            made.append(np.array(value.action))
    return made[20:]


def test_a_press_is_one_small_step_however_long_it_lasts() -> None:
    made = nudging((0.1, {}, True), (1.0, {"tx": 1.0}, True), (0.2, {}, True))
    moved = [a for a in made if a.any()]
    assert len(moved) == 5  # one control period at 50 Hz
    assert all(a.tolist() == pytest.approx([0.05, 0, 0, 0, 0, 0]) for a in moved)  # 0.5 mm
    made = nudging(*[(0.2, {"rz": -1.0}, True), (0.2, {}, True)] * 3)
    turned_ = [a for a in made if a.any()]
    assert len(turned_) == 15
    assert turned_[0][5] == pytest.approx(-0.005 / 0.06)


def test_a_press_that_began_before_the_drive_button_is_a_step_of_its_own() -> None:
    made = nudging((0.1, {}, True), (0.3, {"ty": 1.0}, True), (0.2, {"ty": 1.0}, False))
    assert sum(a.any() for a in made) == 5
    made = nudging(
        (0.1, {}, True), (0.2, {"ty": 1.0}, True), (0.2, {}, False), (0.2, {"ty": 1.0}, True)
    )
    assert sum(a.any() for a in made) == 10


def test_sticks_are_shaped_before_they_are_turned() -> None:
    """A small angle is not swallowed by the dead zone, and no direction is faster."""
    handset, now_s = Handset(HandsetConfig(), 6), 10.0
    for _ in range(20):
        now_s += 0.02
        handset.feed(DeviceReading(now_s, [0.0] * 6), now_s)
    reading = DeviceReading(now_s, [1, 0, 0, 0, 0, 0], frozenset({"drive"}), turn_rad=0.09)
    handset.feed(dataclasses.replace(reading, axes=[0.0] * 6), now_s)
    action = handset.feed(reading, now_s).action
    assert np.allclose(action[:3], (np.cos(0.09), -np.sin(0.09), 0.0))
    both = dataclasses.replace(reading, axes=[1, 1, 0, 0, 0, 0], turn_rad=np.pi / 4)
    assert np.abs(handset.feed(both, now_s).action).max() <= 1.0


@given(axes=st.lists(shares, min_size=6, max_size=6), angle=st.floats(-6.3, 6.3))
def test_turning_keeps_lengths_and_turns_back(axes: list[float], angle: float) -> None:
    moved = turned(axes, angle)
    assert np.hypot(*moved[:2]) == pytest.approx(np.hypot(*axes[:2]), abs=1e-9)
    assert np.allclose(turned(moved, -angle), axes) and moved[2] == axes[2]
