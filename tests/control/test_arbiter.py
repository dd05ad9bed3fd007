"""Who drives: hold-to-drive, debounce, ramp, provenance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.control.arbiter import Arbiter, ArbiterConfig, Decision
from robot_rl.control.takeover import TRANSITIONS, Phase, Signal, ramp_weight
from robot_rl.errors import SafetyError
from robot_rl.geometry import pose
from robot_rl.ports import OperatorInput
from robot_rl.types import Driver, RobotState

POLICY = np.full(7, 0.5, np.float32)
HUMAN = np.array((1, -1, 1, -1, 1, -1, 1), np.float32)
STATE = RobotState(
    0.0, np.zeros(7), np.zeros(7), pose((0.5, 0, 0.3)), np.zeros(6), np.zeros(6), 0.0
)


class Bench:
    """An arbiter ticking at 10 Hz."""

    def __init__(self, **config: float) -> None:
        self.arbiter = Arbiter(ArbiterConfig(**config), 7, device="gamepad")  # type: ignore[arg-type]
        self.now_s = 100.0
        self.events: list[tuple[str, str]] = []

    def tick(
        self, driving: bool, driver: Driver = Driver.CORRECTION, age_s: float = 0.0
    ) -> Decision:
        """One tick with a reading of the device that is `age_s` old."""
        given = OperatorInput(driving, HUMAN, driver, stamp_s=self.now_s - age_s)
        decision = self.arbiter.decide(POLICY, given, STATE, self.now_s)
        self.now_s += 0.1
        self.events += decision.events
        return decision

    def names(self) -> list[str]:
        """Event names so far."""
        return [name for name, _ in self.events]


def test_the_policy_drives_while_nobody_holds_the_device() -> None:
    decision = Bench().tick(False)
    assert decision.driver is Driver.POLICY and decision.events == ()
    np.testing.assert_array_equal(decision.action, POLICY)


def test_a_takeover_is_debounced_standing_still_and_ramped_from_zero() -> None:
    bench = Bench(debounce_samples=3, ramp_s=0.15)
    bench.tick(False)
    for _ in range(2):
        waiting = bench.tick(True)
        assert waiting.driver is Driver.POLICY and not waiting.action.any()
    first, second = bench.tick(True), bench.tick(True)
    assert first.driver is second.driver is Driver.CORRECTION
    np.testing.assert_allclose(first.action[:6], HUMAN[:6] * (0.1 / 0.15), rtol=1e-5)
    assert first.action[6] == HUMAN[6]  # the gripper is a choice, not a motion
    np.testing.assert_array_equal(second.action, HUMAN)
    assert (first.weight, second.weight) == (pytest.approx(2 / 3), 1.0)
    assert bench.names() == ["takeover"]


def test_a_bump_of_the_device_changes_nobodys_turn() -> None:
    bench = Bench(debounce_samples=3)
    for driving in (False, True, True, False, True, False):
        assert bench.tick(driving).driver is Driver.POLICY
    assert bench.events == [] and bench.arbiter.phase is Phase.POLICY


def test_letting_go_hands_back_in_the_same_tick_by_default() -> None:
    bench = Bench(debounce_samples=1)
    bench.tick(False), bench.tick(True)
    back = bench.tick(False)
    assert back.driver is Driver.POLICY and back.segment == 2
    name, detail = back.events[0]
    assert name == "release" and detail == "device=gamepad driver=correction reason=let_go"


def test_the_policy_is_ramped_as_well_when_it_is_handed_back_to() -> None:
    bench = Bench(ramp_s=0.25, release_ramp_s=0.25)
    bench.tick(False), bench.tick(True), bench.tick(True)
    back = [bench.tick(False) for _ in range(4)]
    assert [round(d.weight, 3) for d in back] == [0.4, 0.8, 1.0, 1.0]
    np.testing.assert_allclose(back[0].action[:6], 0.4 * POLICY[:6], rtol=1e-6)
    assert back[0].action[6] == POLICY[6]  # a gripper command is a choice, not a motion


def test_a_hold_time_stands_still_before_the_policy_moves_again() -> None:
    bench = Bench(debounce_samples=1, hold_s=0.25)
    bench.tick(True)
    waits = [bench.tick(False) for _ in range(3)]
    assert all(d.driver is Driver.POLICY and not d.action.any() for d in waits)
    assert bench.tick(False).action.any()
    assert bench.names() == ["takeover", "release"]


def test_the_person_may_grip_again_within_the_hold_time() -> None:
    bench = Bench(debounce_samples=1, hold_s=0.5)
    bench.tick(True), bench.tick(False)
    assert bench.tick(True).driver is Driver.CORRECTION
    assert bench.names() == ["takeover", "release", "takeover"]


def test_a_demonstration_drives_from_the_first_tick_in_full() -> None:
    bench = Bench()
    first = bench.tick(True, Driver.DEMO)
    assert first.driver is Driver.DEMO and first.segment == 0
    np.testing.assert_array_equal(first.action, HUMAN)


@pytest.mark.parametrize("driver", [Driver.CORRECTION, Driver.RECOVERY, Driver.DEMO])
def test_the_kind_of_driving_comes_from_the_device(driver: Driver) -> None:
    bench = Bench(debounce_samples=1)
    bench.tick(False)
    assert bench.tick(True, driver).driver is driver
    assert f"driver={driver.value}" in bench.events[0][1]
    assert "reason=pressed tcp_in_base_m=0.5000,0.0000,0.3000" in bench.events[0][1]


def test_changing_from_recovery_to_correction_is_a_new_segment_of_one_takeover() -> None:
    bench = Bench(debounce_samples=1)
    decisions = [bench.tick(True, d) for d in (Driver.RECOVERY, Driver.CORRECTION)]
    assert [d.segment for d in decisions] == [0, 1]
    assert bench.names() == ["takeover"]


@pytest.mark.parametrize("driver", [Driver.POLICY, Driver.RESET])
def test_a_device_cannot_drive_as_something_else(driver: Driver) -> None:
    with pytest.raises(SafetyError, match="only drive as a person"):
        Bench().tick(True, driver)


def test_a_device_that_falls_silent_must_be_let_go_before_it_drives_again() -> None:
    bench = Bench(debounce_samples=1)
    bench.tick(True)
    assert bench.tick(True, age_s=0.3).driver is Driver.POLICY
    assert bench.events[-1][1].endswith("reason=device_silent")
    assert bench.tick(True).driver is Driver.POLICY  # back, never released
    bench.tick(False)
    assert bench.tick(True).driver is Driver.CORRECTION


def test_the_end_of_an_episode_closes_an_open_intervention_once() -> None:
    bench = Bench(debounce_samples=1)
    bench.tick(True)
    ((name, detail),) = bench.arbiter.end_episode()
    assert name == "release" and detail.endswith("reason=episode_end")
    assert bench.arbiter.end_episode() == ()
    bench.arbiter.begin_episode()
    assert bench.tick(False).segment == 0


@pytest.mark.parametrize(
    "wrong",
    [{"debounce_samples": 0}, {"ramp_s": -0.1}, {"hold_s": 99.0}, {"input_timeout_s": 0.0}],
)
def test_config_refuses_nonsense(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ArbiterConfig(**wrong)


def test_the_ramp_rises_from_zero_to_one() -> None:
    weights = [ramp_weight(t, 0.15) for t in (0.0, 0.05, 0.1, 0.15, 9.0)]
    assert weights == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0, 1.0])
    assert ramp_weight(0.0, 0.0) == 1.0


def test_the_person_is_reached_from_the_takeover_phase_only() -> None:
    ways_in = {key for key, after in TRANSITIONS.items() if after is Phase.HUMAN}
    assert ways_in == {(Phase.TAKEOVER, Signal.CONFIRM)}


samples = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from([Driver.CORRECTION, Driver.RECOVERY, Driver.DEMO]),
        st.sampled_from([0.0, 0.0, 0.0, 0.05, 0.5]),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(samples, st.integers(1, 4), st.sampled_from([0.0, 0.15]), st.sampled_from([0.0, 0.35]))
def test_promises_hold_for_any_device(
    readings: list, debounce: int, ramp_s: float, hold_s: float
) -> None:
    """No human step without the device held; takeovers and releases pair up; segments count."""
    bench = Bench(debounce_samples=debounce, ramp_s=ramp_s, hold_s=hold_s)
    last, open_takeovers = None, 0
    for driving, driver, age_s in readings:
        decision = bench.tick(driving, driver, age_s)
        if decision.driver.is_human:
            assert driving and age_s <= 0.1 and decision.driver is driver
        for name, _ in decision.events:
            open_takeovers += 1 if name == "takeover" else -1
            assert open_takeovers in (0, 1)
        assert decision.driver.is_human == (open_takeovers == 1)
        assert np.abs(decision.action).max() <= 1.0 and decision.action.dtype == np.float32
        if last is not None:
            changed = decision.driver is not last.driver
            assert decision.segment == last.segment + changed
        else:
            assert decision.segment == 0
        last = decision
    assert len(bench.arbiter.end_episode()) == open_takeovers


def test_rac_recovers_first_then_corrects_then_the_episode_is_over() -> None:
    bench = Bench(rac=True)
    assert bench.tick(False).over == ""
    assert bench.tick(True).driver is Driver.RECOVERY  # whatever the person drives first
    waiting = [bench.tick(False) for _ in range(20)]
    assert all(not d.action.any() and not d.over for d in waiting)  # the policy does not go on
    assert bench.tick(True).driver is Driver.CORRECTION
    assert bench.tick(False).over == "rac: corrected"
    assert bench.names() == ["takeover", "release"] * 2
    bench.arbiter.begin_episode()
    assert bench.tick(False).over == "" and bench.tick(True).driver is Driver.RECOVERY


def test_rac_takes_the_end_of_rewinding_for_the_end_of_the_recovery() -> None:
    bench = Bench(rac=True)
    drivers = [bench.tick(True, d).driver for d in (Driver.RECOVERY, Driver.CORRECTION)]
    assert drivers == [Driver.RECOVERY, Driver.CORRECTION]
    assert bench.tick(False).over == "rac: corrected" and bench.names() == ["takeover", "release"]


def test_rac_leaves_demonstrations_alone_and_is_off_by_default() -> None:
    demo, free = Bench(rac=True), Bench()
    assert demo.tick(True, Driver.DEMO).driver is Driver.DEMO
    assert demo.tick(False).over == ""
    assert free.tick(True).driver is Driver.CORRECTION and free.tick(False).over == ""
