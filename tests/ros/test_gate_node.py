"""One gate node, beside a driver, a person and a clock that this test plays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")

from std_msgs.msg import Bool

from robot_rl.bench.faults.gate_bench import DOWN, HOME
from robot_rl.geometry import pose
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Newest, publisher
from robot_rl.safety import gate as rules
from robot_rl.safety.states import Mode
from robot_rl.types import Driver
from tests.support.gate_alone import Alone, gate_alone, passed, peer

pytestmark = [pytest.mark.ros, pytest.mark.alone, pytest.mark.waits]


@pytest.fixture(scope="module")
def one() -> Iterator[Alone]:
    """One gate for the whole file."""
    with gate_alone() as found:
        yield found


@pytest.fixture
def gate(one: Alone) -> Alone:
    """A gate that holds; nobody has armed it."""
    one.calm()
    return one


def fresh(one: Alone) -> None:
    """The gate as it is when it starts; quicker than a person's calls."""
    one.set_s = 0.0
    one.tell(topics.CONTROLLER_STOPPED, Bool(data=False))
    one.run(0.05)
    one.gate.gate, one.gate._waits = rules.initial(one.gate.limits), ""


def test_a_stop_of_the_controller_that_was_over_when_the_gate_woke_still_needs_arming(
    gate: Alone,
) -> None:
    """Somebody has resumed it while the gate was frozen: the gate hears of both at once."""
    assert gate.arm() == ""
    assert passed(gate.drive(0.5)) >= 3
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=True))
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=False))
    gate.run(lambda: gate.mode is not Mode.RUN)
    assert gate.mode is Mode.PROTECTIVE_STOP and gate.reason == "controller: stopped"
    assert passed(gate.drive(0.5)) == 0
    assert gate.arm(within_s=0.3).startswith("protective_stop: acknowledge first")


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0])
def test_after_all_clocks_were_set_a_person_takes_over_at_once(gate: Alone, set_s: float) -> None:
    """The jump stops the arm once; then the device is heard, whatever hour it told before."""
    assert gate.arm() == ""
    gate.set_s = set_s
    gate.run(lambda: gate.reason.startswith("clock: jumped"))
    assert gate.call(topics.GATE_ACKNOWLEDGE).success
    gate.run(0.25)
    assert gate.arm() == ""
    gate.driving = True
    gate.run(0.1)
    assert passed(gate.drive(1.0, Driver.CORRECTION)) > 0  # without the device it is refused
    gate.driving = False


STOP, CLEAR, ACKNOWLEDGE = topics.GATE_STOP, topics.GATE_CLEAR, topics.GATE_ACKNOWLEDGE


def test_a_stop_that_a_person_presses_during_another_one_is_not_forgotten(gate: Alone) -> None:
    """The script of an unattended run looks first, and calls later: the person was quicker."""
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=True))
    gate.run(lambda: gate.reason == "controller: stopped")
    assert gate.call(STOP).success
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=False))
    gate.run(0.1)
    refused = gate.call(CLEAR)
    assert not refused.success and "a person lets it go on" in refused.message
    gate.run(0.1)
    assert gate.mode is Mode.PROTECTIVE_STOP and gate.reason == "person: stop"
    assert gate.call(ACKNOWLEDGE).success
    gate.run(0.25)
    assert gate.arm() == ""


def test_a_persons_hold_outlasts_the_stop_that_a_script_clears(gate: Alone) -> None:
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=True))
    gate.run(lambda: gate.reason == "controller: stopped")
    assert gate.call(topics.GATE_HOLD).success
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=False))
    gate.run(0.1)
    assert gate.call(CLEAR).success  # the stop was nobody's
    refused = gate.call(CLEAR)
    assert not refused.success and "waits for person" in refused.message
    gate.run(0.25)
    assert gate.arm(within_s=0.3).startswith("person: a person holds")


ORDER = st.lists(
    st.sampled_from(("person", "stopped", "goes on", "clear", "clock", "hold", "acknowledge")),
    max_size=6,
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(ORDER)
def test_in_every_order_only_a_person_ends_what_a_person_has_stopped(
    one: Alone, order: list[str]
) -> None:
    fresh(one)
    persons = False
    for event in order:
        if event in ("stopped", "goes on"):
            one.tell(topics.CONTROLLER_STOPPED, Bool(data=event == "stopped"))
            one.run(0.02)
        elif event == "clock":
            one.set_s += 100.0
            one.run(0.02)
        elif event == "acknowledge":
            persons = persons and not one.call(ACKNOWLEDGE).success
        else:
            one.call({"person": STOP, "clear": CLEAR, "hold": topics.GATE_HOLD}[event])
            persons = persons or event == "person"
        if persons:
            assert one.mode is Mode.PROTECTIVE_STOP and one.reason == "person: stop", event


ELSEWHERE = pose(HOME + np.array((0.0, 0.3, 0.1)), DOWN)


def said(gate: Alone, until_s: float, where: Newest) -> list[np.ndarray]:
    """Every position that the gate sends within so many seconds."""
    found: list[np.ndarray] = []
    list(where.arrived())
    ends_s = gate.now_s() + until_s
    while gate.now_s() < ends_s:
        gate.turn()
        found += [convert.pose_from(msg).position_m for msg in where.arrived()]
    return found


@pytest.mark.parametrize("driving", [False, True])
def test_the_pose_of_a_second_source_is_never_sent(
    gate: Alone, driving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that is played back, or a second driver: the arm stays where it is."""
    targets = Newest(gate.node, topics.TARGET_POSE, "exchange")
    if driving:
        assert gate.arm() == ""
    with peer(gate.domain_id, "second") as second, monkeypatch.context() as patch:
        rival = publisher(second, topics.CURRENT_POSE)
        speak = gate._speak

        def both() -> None:
            speak()
            rival.publish(convert.pose_to(ELSEWHERE, gate.now_s(), "base"))

        patch.setattr(gate, "_speak", both)
        sent = said(gate, 1.0, targets)
        gate.run(lambda: "current_pose" in gate.gate._rivals)
        sent += said(gate, 0.5, targets)
        assert gate.arm(within_s=0.3).startswith(("publishers: 2", "protective_stop"))
        gate.gate.last_hold()
        sent += said(gate, 0.1, targets)
    assert sent or not driving  # whoever drove is held, where the arm was
    for position_m in sent:
        assert np.linalg.norm(position_m - HOME) < 0.01
    gate.run(lambda: not gate.gate._rivals, 20.0)
    gate.node.destroy_subscription(targets._subscription)


@pytest.mark.parametrize("stopped", [False, True])
def test_an_arm_that_is_not_seen_is_sent_no_old_pose(gate: Alone, stopped: bool) -> None:
    """It may be elsewhere: a controller that is started again must not take it back."""
    targets = Newest(gate.node, topics.TARGET_POSE, "exchange")
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=stopped))
    assert said(gate, 0.3, targets)
    gate.speaks = False
    gate.run(0.2)
    assert not said(gate, 0.3, targets)
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=False))
    assert not said(gate, 0.3, targets)
    gate.speaks = True
    assert said(gate, 0.5, targets)
    gate.node.destroy_subscription(targets._subscription)


def test_a_paused_gate_that_nobody_watches_lets_go_of_the_lease(gate: Alone) -> None:
    """The watchdog's dry run waits until nobody is armed, and arming waits for the watchdog."""
    assert gate.arm() == ""
    gate.run(lambda: gate.gate.gate.mode is Mode.PAUSE)  # the driver is silent
    gate.problem = "the dry run waits for x to stop the controller"
    gate.run(lambda: "dry run" in gate.gate._unwatched())
    assert gate.arm(within_s=0.5).startswith("watchdog: the dry run")
    assert gate.gate.gate.mode is Mode.HOLD
    gate.problem = ""
    gate.run(lambda: not gate.gate._unwatched())
    assert gate.arm() == ""


def told(gate: Alone, reports: Newest) -> wire.GateReport:
    """What the gate tells now."""
    list(reports.arrived())
    gate.run(lambda: list(reports.arrived()))
    return wire.decode_report(reports.value.data)


@pytest.mark.parametrize("service", [topics.GATE_HOLD, topics.GATE_STOP])
def test_a_hold_that_is_pressed_again_is_told_again(gate: Alone, service: topics.Service) -> None:
    """Somebody else may be moving the arm since (`arm/home`): it has to hear of it."""
    reports = Newest(gate.node, topics.GATE_STATE)
    assert gate.call(service).success
    first = told(gate, reports)
    assert first.reason.startswith("person: ") and "pressed" not in first.reason
    assert gate.call(service).success
    assert told(gate, reports).reason == f"{first.reason}; a person pressed 2 times"
    if service is topics.GATE_STOP:  # which this does not end
        assert gate.call(topics.GATE_RESUME).success and gate.call(service).success
        assert told(gate, reports).reason == f"{first.reason}; a person pressed 3 times"
    gate.tell(topics.CONTROLLER_STOPPED, Bool(data=True))
    gate.run(lambda: gate.gate._stands)
    assert "controller: stopped" in told(gate, reports).reason
    gate.node.destroy_subscription(reports._subscription)
