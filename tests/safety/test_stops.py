"""Whoever stops the robot: a person's stop is a person's, in whatever order things happen."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.bench.faults.gate_bench import GateBench, robot_state
from robot_rl.safety import gate as rules
from robot_rl.safety.states import Mode

EVENTS = (
    "person stops", "machine stops", "person acknowledges", "script acknowledges", "hold", "arm",
    "command", "tick", "stale", "controller stands", "device", "device let go",
)  # fmt: skip


def happen(bench: GateBench, event: str) -> bool:
    """Let something happen; returns whether an acknowledgement went through."""
    bench.wait(0.02)
    refusal = "not asked"
    if event == "person stops":
        bench.gate = rules.stop(bench.gate, "person: stop")
    elif event == "machine stops":
        bench.gate = rules.stop(bench.gate, "force: hard contact")
    elif event.endswith("acknowledges"):
        by_person = event.startswith("person")
        bench.gate, refusal = rules.acknowledge(bench.gate, by_person=by_person)
    elif event == "hold":
        bench.gate = rules.hold(bench.gate, "person: hold")
    elif event == "arm":
        bench.arm()
    elif event == "command":
        bench.judge()
    elif event == "tick":
        bench.tick()
    elif event == "stale":
        bench.tick(robot_state(bench.now_s - 10.0))
    elif event == "controller stands":
        bench.gate = rules.stand(bench.limits, bench.gate, bench.state, bench.now_s)
    else:
        bench.heartbeat(driving=event == "device")
    return refusal == ""


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
@settings(max_examples=400)
def test_what_a_person_stopped_only_a_person_lets_go_on(events: list[str]) -> None:
    bench, persons = GateBench(), False
    for event in events:
        went_through = happen(bench, event)
        persons |= event == "person stops"
        if event == "person acknowledges" and went_through:
            persons = False
        if persons:
            assert bench.gate.mode is Mode.PROTECTIVE_STOP, event
            assert bench.gate.reason.startswith("person"), event


@pytest.mark.parametrize("first", ["machine stops", "stale", "controller stands"])
def test_a_stop_that_is_pressed_during_another_one_is_not_forgotten(first: str) -> None:
    bench = GateBench()
    happen(bench, first)
    assert not bench.gate.reason.startswith("person")
    happen(bench, "person stops")
    assert not happen(bench, "script acknowledges")
    assert bench.gate.mode is Mode.PROTECTIVE_STOP
    assert happen(bench, "person acknowledges")
    assert bench.gate.mode is Mode.HOLD


def test_a_script_may_undo_what_no_person_did() -> None:
    bench = GateBench()
    happen(bench, "machine stops")
    assert happen(bench, "script acknowledges")
    assert bench.gate.mode is Mode.HOLD


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0])
def test_a_heartbeat_from_another_time_does_not_count_as_a_fresh_one(set_s: float) -> None:
    bench = GateBench()
    bench.heartbeat(driving=True)
    bench.wait(set_s)  # the clock was set, and the device fell silent
    bench.tick()
    assert bench.gate.mode is not Mode.RUN
    assert bench.gate.engagement is rules.Engagement.SILENT
