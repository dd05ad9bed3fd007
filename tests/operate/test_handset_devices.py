"""Around the handset: calibration files, maps of axes and buttons, a source as `InputDevice`."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.operate.calibration import (
    AXES,
    MAX_NOISE,
    Rest,
    calibrate,
    load_rest,
    rest_file,
    save_rest,
)
from robot_rl.operate.devices import make_operator
from robot_rl.operate.handset import DeviceReading, Handset
from robot_rl.operate.held import HeldDevice
from robot_rl.operate.mapping import JOY_LAYOUTS, InputMap
from robot_rl.operate.scripted import NoOperator
from robot_rl.ports import InputDevice, OperatorInput, Task
from robot_rl.run.experiment import Experiment
from robot_rl.types import RobotState
from tests.support.handset import CONFIG, PERIOD_S, Hand, motion
from tests.support.states import state_at

# --- calibration ----------------------------------------------------------------------------------


def test_calibration_finds_the_centre_and_widens_the_dead_zone() -> None:
    rng = np.random.default_rng(0)
    centre = np.array([0.2, -0.1, 0.0, 0.0, 0.05, 0.0])
    samples = centre + rng.uniform(-0.045, 0.045, (200, 6)) * (1, 0, 0, 0, 0, 0)
    rest = calibrate(samples)
    assert rest.centre == pytest.approx(centre, abs=0.02)
    assert 0.1 < rest.dead_zone[0] <= 3 * MAX_NOISE and rest.dead_zone[1] == 0.0
    hand = Hand(rest=rest)
    for row in samples:
        hand.feel(dict(zip(AXES, row, strict=True)))
    assert hand.handset.ready  # a worn pad is usable after calibration
    resting = dict(zip(AXES, centre, strict=True))
    assert not hand.feel(resting, "drive").action.any()
    assert motion(hand.feel(resting | {"tx": 1.0}, "drive"))[0] == 1.0
    assert motion(hand.feel(resting | {"tx": -1.0}, "drive"))[0] == -1.0
    fresh = Hand()
    fresh.feel(resting, seconds=0.4)
    assert "tx is at +0.20" in fresh.handset.problem  # and unusable before


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros((10, 6)), "too little"),
        (np.zeros((100, 5)), "too little"),
        (np.outer(np.linspace(0, 0.5, 100), [0, 1, 0, 0, 0, 0]), "ty moved"),
        (np.ones((100, 6)) * [0, 0, 0, 0.9, 0, 0], "rx rests at"),
        (np.ones((100, 6)) * [0, 0, np.nan, 0, 0, 0], "tz moved"),
    ],
)
def test_calibration_refuses_a_stick_that_is_touched(samples: NDArray, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        calibrate(samples)
    assert caught.value.expected and caught.value.got and caught.value.fix


def test_rest_positions_follow_the_axis_through_another_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    axes = ("-ABS_Y", "ABS_X", "ABS_RY", "", "", "ABS_RX")
    rest = Rest(centre=(0.1, 0.2, 0.0, 0.0, 0.0, -0.05), noise=(0.01, 0.02, 0, 0, 0, 0))
    assert load_rest("Some Pad", axes) == Rest()
    path = save_rest("Some Pad", rest, axes)
    assert path == rest_file("Some Pad") and path.is_relative_to(tmp_path)
    assert load_rest("Some Pad", axes) == rest
    turned = load_rest("Some Pad", ("ABS_X", "ABS_Y", "ABS_Z", "", "", ""))
    assert turned.centre[:3] == (0.2, -0.1, 0.0) and turned.noise[:3] == (0.02, 0.01, 0.0)


@pytest.mark.parametrize("text", ["", "[1, 2]", "ABS_Y: 3", "ABS_Y: {centre: 0.9, noise: 0}", "{"])
def test_a_broken_rest_file_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = rest_file("pad")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"pad\.yaml"):
        load_rest("pad", ("ABS_Y", "", "", "", "", ""))


# --- maps -----------------------------------------------------------------------------------------


def test_a_map_turns_names_into_axes_and_meanings() -> None:
    inputs = InputMap(
        axes=("-y", "x", "", "", "", "t"), buttons={"b0": "drive", "t": "close", "-u": "open"}
    )
    reading = inputs.reading({"x": 0.25, "y": 0.5, "t": 0.75, "b0": 1.0, "u": -1.0}, 3.0)
    assert np.array(reading.axes).tolist() == [-0.5, 0.25, 0, 0, 0, 0.75]
    assert reading.held == {"drive", "close", "open"} and reading.stamp_s == 3.0


def test_a_map_can_be_changed_in_part() -> None:
    joy = JOY_LAYOUTS["joy"]
    mine = joy.changed((), {"button5": "", "button4": "drive"})
    assert mine.axes == joy.axes and "button5" not in mine.buttons
    assert mine.buttons["button4"] == "drive"


def test_a_wrong_map_is_refused_with_the_right_name() -> None:
    with pytest.raises(ConfigError, match="six axes"):
        InputMap(axes=("x",))
    with pytest.raises(ConfigError, match="did you mean 'drive'"):
        InputMap(axes=("",) * 6, buttons={"b0": "driv"})
    with pytest.raises(ConfigError, match="did you mean 'ABS_RX'") as caught:
        InputMap(axes=("ABS_RXX", "", "", "", "", "")).check(["ABS_RX", "ABS_Y"], "My Pad")
    assert "My Pad" in str(caught.value) and caught.value.expected and caught.value.got


def test_every_shipped_layout_can_drive_and_stop() -> None:
    for inputs in JOY_LAYOUTS.values():
        assert {"drive", "slow", "close", "open", "success", "failure", "redo", "hold"} <= set(
            inputs.buttons.values()
        )


# --- as an input device ---------------------------------------------------------------------------


class FakeSource:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.reading: DeviceReading | None = None
        self.error: RobotRLError | None = None

    def read(self, state: RobotState | None) -> DeviceReading | None:
        if self.error:
            raise self.error
        return self.reading


class Bench:
    """A `HeldDevice` on a run clock that is 1000 s away from the device's."""

    def __init__(self) -> None:
        self.source, self.now_s = FakeSource(), 5.0
        self.device = HeldDevice(Handset(CONFIG, 7), self.source, "fake", lambda: self.now_s)

    def turn(self, axes: NDArray, held: str = "", heard: bool = True) -> OperatorInput:
        self.now_s += PERIOD_S
        if heard:
            self.source.reading = DeviceReading(self.now_s - 0.005, axes, frozenset(held.split()))
        return self.device.poll(state_at(self.now_s + 1000.0))

    def rested(self) -> Bench:
        for _ in range(20):
            self.turn(np.zeros(6))
        return self


def test_stamps_are_on_the_clock_of_the_run_and_stop_with_the_device() -> None:
    bench = Bench().rested()
    value = bench.turn(np.zeros(6), "drive")
    assert value.driving and value.stamp_s == pytest.approx(bench.now_s + 1000.0 - 0.005)
    stamps = [bench.turn(np.zeros(6), heard=False).stamp_s for _ in range(50)]
    assert set(stamps) == {value.stamp_s}
    assert not bench.device.handset.ready


def test_a_newer_reading_has_a_newer_stamp_even_when_the_robot_stands_still_in_time() -> None:
    bench = Bench().rested()
    frozen = state_at(1005.0)
    bench.source.reading = DeviceReading(bench.now_s, np.zeros(6))
    first = bench.device.poll(frozen).stamp_s
    bench.source.reading = DeviceReading(bench.now_s + 0.01, np.zeros(6))
    bench.now_s += 0.02
    assert bench.device.poll(frozen).stamp_s > first


def test_what_makes_no_sense_lets_go_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench().rested()
    assert bench.turn(np.zeros(6), "drive").driving
    bench.source.error = ConfigError("the map is wrong", expected="a", got="b", fix="c")
    with caplog.at_level(logging.INFO):
        values = [bench.turn(np.zeros(6), "drive") for _ in range(30)]
        assert not any(v.driving for v in values)
        assert "the map is wrong" in bench.device.handset.problem
        assert sum("the map is wrong" in r.message for r in caplog.records) == 1
        bench.source.error = None
        bench.rested()
    assert "ready to drive" in caplog.text


def test_a_seat_that_stays_empty_for_a_day_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench().rested()
    with caplog.at_level(logging.INFO):
        for _ in range(24 * 360):
            bench.now_s += 10.0
            bench.device.poll(state_at(bench.now_s))
        told = sum("does not drive" in r.message for r in caplog.records)
        assert 100 < told < 160  # every ten minutes, and a little more often at first
        bench.rested()
        bench.turn(np.zeros(6), heard=False)
        caplog.clear()
        for _ in range(10):
            bench.now_s += 1.0
            bench.device.poll(state_at(bench.now_s))
    assert sum("does not drive" in r.message for r in caplog.records) == 2  # soon again, and in 5 s


@pytest.mark.parametrize("name", ["gamepad", "spacemouse", "joy", "twist"])
def test_a_person_cannot_drive_in_lockstep(name: str) -> None:
    experiment = Experiment.compose([f"operator={name}"])
    with pytest.raises(ConfigError, match="needs real time") as caught:
        make_operator(experiment.operator, experiment.task)
    assert "runtime=ros" in str(caught.value)


def test_a_config_that_opens_nothing_is_refused_and_one_of_yours_is_opened() -> None:
    task = Experiment.compose([]).task
    with pytest.raises(ConfigError, match="opens no device"):
        make_operator(object(), task)

    class Mine:
        def open(self, task: Task, node: object) -> InputDevice:
            return NoOperator(task)

    assert isinstance(make_operator(Mine(), task), NoOperator)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["operator=gamepad", "operator.axes=[ABS_X]"], "six axes"),
        (["operator=gamepad", "+operator.buttons.BTN_TR=driv"], "did you mean 'drive'"),
        (["operator=gamepad", "operator.quiet_s=0"], "quiet_s must be at least"),
        (["operator=joy", "operator.layout=game_contrller"], "did you mean 'game_controller'"),
        (["operator=twist", "operator.handset.dead_zne=0"], "did you mean 'dead_zone'"),
    ],
)
def test_a_wrong_config_names_the_right_one(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Experiment.compose(words).section("operator")
    assert message in str(caught.value)
