"""Of several stops, the strongest waits: what a person has stopped, no script lets go on."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.bench.faults.gate_bench import GateBench
from robot_rl.safety import gate as rules
from robot_rl.safety.states import Mode

PERSON, SCRIPT = "a person acknowledges", "a script acknowledges"
STOP = "a person presses STOP"
OTHERS = (
    "the controller is stopped",
    "the clock jumps",
    "there is a second publisher",
    "the state is lost",
    "hard contact",
    "somebody holds",
    "somebody arms",
    "a command",
    "the device is held",
    "the device is let go",
    "time passes",
)


class Model(GateBench):
    """The gate, and what must be true of it: whether a person's stop stands."""

    WORD: ClassVar[dict[str, str]] = {"the clock jumps": "clock: jumped by 3600.00 s"}

    def __init__(self) -> None:
        super().__init__()
        self.persons = False

    def do(self, event: str) -> None:
        """One event; what it may and may not change is checked here."""
        before = self.gate
        self.wait(0.02)
        if event == STOP:
            self.gate, self.persons = rules.stop(before, "person: stop"), True
        elif event in (PERSON, SCRIPT):
            by_person = event == PERSON
            self.gate, refusal = rules.acknowledge(before, by_person=by_person)
            if self.persons and not by_person:
                assert refusal and self.gate == before
            self.persons = self.persons and bool(refusal)
        elif event == "the controller is stopped":
            self.gate = rules.stand(self.limits, before, self.state, self.now_s)
        elif event in ("the clock jumps", "there is a second publisher"):
            self.gate = rules.stop(before, self.WORD.get(event, "publishers: 2 on target_pose"))
        elif event == "the state is lost":
            self.gate, _ = rules.tick(self.limits, before, None, self.now_s)
        elif event == "hard contact":
            self.tick(replace(self.state, wrench_in_tcp=self.state.wrench_in_tcp + 80.0))
        elif event == "somebody holds":
            self.gate = rules.hold(before, "person: hold")
        elif event == "somebody arms":
            self.arm()
        elif event == "a command":
            self.judge()
        elif event in ("the device is held", "the device is let go"):
            self.heartbeat(driving=event.endswith("held"))
        else:
            self.tick()


@settings(max_examples=400)
@given(st.lists(st.sampled_from((STOP, PERSON, SCRIPT, *OTHERS)), max_size=25))
def test_in_every_order_what_a_person_has_stopped_waits_for_a_person(events: list[str]) -> None:
    model = Model()
    for event in events:
        model.do(event)
        if model.persons:
            assert model.gate.mode is Mode.PROTECTIVE_STOP, event
            assert model.gate.reason == "person: stop", event


def test_a_stop_that_a_person_presses_during_another_one_is_not_forgotten() -> None:
    bench = GateBench()
    bench.gate = rules.stand(bench.limits, bench.gate, bench.state, bench.now_s)
    bench.gate = rules.stop(bench.gate, "person: stop")
    bench.gate, refusal = rules.acknowledge(bench.gate, by_person=False)
    assert refusal == "person: stop: a person stopped it, a person lets it go on"
    assert bench.gate.mode is Mode.PROTECTIVE_STOP
    bench.gate, refusal = rules.acknowledge(bench.gate)
    assert refusal == "" and bench.gate.mode is Mode.HOLD
    assert bench.gate.reason == "acknowledged (person: stop)"


def test_a_script_may_acknowledge_what_no_person_has_stopped() -> None:
    bench = GateBench()
    bench.gate = rules.stop(bench.gate, "clock: jumped by 2.00 s")
    bench.gate, refusal = rules.acknowledge(bench.gate, by_person=False)
    assert refusal == "" and bench.gate.mode is Mode.HOLD
