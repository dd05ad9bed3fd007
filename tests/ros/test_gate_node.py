"""One gate node, beside a driver, a person and a clock that this test plays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("rclpy")

from std_msgs.msg import Bool

from robot_rl.ros import topics
from robot_rl.safety.states import Mode
from tests.support.gate_alone import Alone, gate_alone, passed

pytestmark = [pytest.mark.ros, pytest.mark.alone]


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
