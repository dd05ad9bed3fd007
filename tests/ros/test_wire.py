"""The JSON on gate topics: round trips, and nothing malformed gets through. No ROS needed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.errors import LinkError
from robot_rl.geometry import pose
from robot_rl.ports import ResetPlan
from robot_rl.ros import wire
from robot_rl.ros.readiness import Item
from robot_rl.types import Command, Driver, Outcome, Verdict

COMMAND = Command(7, 12.5, Driver.CORRECTION, "lease-a", pose((0.5, -0.1, 0.2), (1, 0, 0, 0)), 0.04)
DECODERS = (
    wire.decode_request,
    wire.decode_answer,
    wire.decode_report,
    wire.decode_pace,
    wire.decode_readiness,
    wire.decode_episode,
    wire.decode_plan,
)


def same_command(a: Command, b: Command) -> bool:
    head = (a.sequence, a.stamp_s, a.driver, a.lease, a.gripper_width_m)
    joints = [None if c.joint_target_rad is None else c.joint_target_rad.tolist() for c in (a, b)]
    same = joints[0] == joints[1]
    return (
        same
        and head == (b.sequence, b.stamp_s, b.driver, b.lease, b.gripper_width_m)
        and bool(
            np.array_equal(a.tcp_target_in_base.position_m, b.tcp_target_in_base.position_m)
            and np.allclose(
                a.tcp_target_in_base.quaternion_xyzw,
                b.tcp_target_in_base.quaternion_xyzw,
                atol=1e-15,
            )
        )
    )


def test_everything_survives_the_wire() -> None:
    got = wire.decode_request(wire.encode_request(COMMAND))
    assert isinstance(got, Command) and same_command(got, COMMAND)
    arm = wire.ArmRequest("x", 1.0)
    assert wire.decode_request(wire.encode_request(arm)) == arm
    verdict = Verdict(7, Outcome.CLIPPED, "step", COMMAND, 12.6)
    back = wire.decode_answer(wire.encode_answer(verdict))
    assert isinstance(back, Verdict) and same_command(back.command, COMMAND)
    assert (back.outcome, back.reason) == (Outcome.CLIPPED, "step")
    answer = wire.ArmAnswer("x", False, "state: stale")
    assert wire.decode_answer(wire.encode_answer(answer)) == answer
    report = wire.GateReport("run", "", "x", 3.0, 2, waits="person", blind="b", refusal="r")
    assert wire.decode_report(wire.encode_report(report)) == report
    items = (Item("a", "fail", "b", "c", "d"), Item("e", "accepted", "f"))
    ready = wire.ReadinessReport(items, ("e",))
    assert wire.decode_readiness(wire.encode_readiness(ready)) == ready
    pace = wire.ClockPace(2.5, {"gate": 0.0, "learner": 0.5}, "actor")
    assert wire.decode_pace(wire.encode_pace(pace)) == pace
    call = wire.EpisodeCall(5, 9, "demo", True)
    assert wire.decode_episode(wire.encode_episode(call)) == call


def test_joint_targets_survive_the_wire_and_commands_of_the_tcp_look_as_before() -> None:
    turned = replace(COMMAND, joint_target_rad=np.array((0.1, -0.2, 1e-17, 3.0, 0.0)))
    got = wire.decode_request(wire.encode_request(turned))
    assert isinstance(got, Command) and same_command(got, turned)
    verdict = wire.decode_answer(wire.encode_answer(Verdict(7, Outcome.PASS, "", turned, 1.0)))
    assert isinstance(verdict, Verdict) and same_command(verdict.command, turned)
    assert "joint" not in wire.encode_request(COMMAND)
    with pytest.raises(ValueError, match="JSON compliant"):
        wire.encode_request(replace(COMMAND, joint_target_rad=np.array((0.0, math.nan))))


@pytest.mark.parametrize(
    "joints", [[], [0.0] * 17, "1,2", [1.0, "2"], [None], {"a": 1.0}, 1.0, None, [1e400]]
)
def test_joints_that_are_none_are_refused_with_one_error(joints: object) -> None:
    text = wire.encode_request(replace(COMMAND, joint_target_rad=np.array((0.5, 0.25))))
    with pytest.raises(LinkError) as error:
        wire.decode_request(text.replace("[0.5,0.25]", json.dumps(joints)))
    assert "malformed" in error.value.summary and error.value.fix


def test_a_reset_plan_survives_the_wire_and_a_seed_stands_for_one() -> None:
    plan = ResetPlan(pose((0.5, 0, 0.2)), {"hole": pose((0.4, 0, 0))}, 0.01, pose((0, 0, 0.04)))
    back = wire.decode_plan(wire.encode_plan(plan))
    assert isinstance(back, ResetPlan) and back.held_in_tcp is not None
    assert np.array_equal(back.objects["hole"].position_m, plan.objects["hole"].position_m)
    assert wire.decode_plan('{"seed": 3}') == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_not_finite_never_goes_out(bad: float) -> None:
    command = Command(1, bad, Driver.POLICY, "x", COMMAND.tcp_target_in_base)
    with pytest.raises(ValueError, match="JSON compliant"):
        wire.encode_request(command)


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": -1}, {"sequence": 1.5}, {"sequence": True}, {"sequence": 2**60},
        {"stamp_s": "now"}, {"stamp_s": None}, {"driver": "ghost"}, {"driver": ["policy"]},
        {"lease": 5}, {"lease": "x" * 65}, {"gripper_width_m": "open"},
        {"tcp_target_in_base": [0, 0, 0, 0, 0, 0]}, {"tcp_target_in_base": [0] * 7},
        {"tcp_target_in_base": [0, 0, 0, 0, 0, 0, "1"]}, {"tcp_target_in_base": None},
        {"tcp_target_in_base": [10**400, 0, 0, 0, 0, 0, 1]}, {"extra": 1},
    ],
)  # fmt: skip
def test_one_wrong_field_refuses_the_command(change: dict[str, object]) -> None:
    data = json.loads(wire.encode_request(COMMAND))
    data["command"] |= change
    with pytest.raises(LinkError, match="malformed"):
        wire.decode_request(json.dumps(data))


@pytest.mark.parametrize(
    "waited", [None, [], 0.5, {"ghost": 0.5}, {"gate": "much"}, {"gate": True}, {"gate": 10**400}]
)
def test_a_pace_that_waits_for_a_stranger_is_refused(waited: object) -> None:
    data = {"factor": 1.0, "waited": waited, "given_up": ""}
    with pytest.raises(LinkError, match="malformed"):
        wire.decode_pace(json.dumps(data))


def test_size_is_capped_before_anything_is_parsed() -> None:
    with pytest.raises(LinkError, match=str(wire.MAX_BYTES)):
        wire.decode_request(" " * (wire.MAX_BYTES + 1))


def test_a_long_list_is_cut_and_still_understood() -> None:
    """Every item as long as it may be, in characters that JSON writes with six."""
    items = tuple(
        Item(f"{i}\u1234" * 200, "fail", "\u1234" * 999, "\u1234" * 999) for i in range(99)
    )
    got = wire.decode_readiness(wire.encode_readiness(wire.ReadinessReport(items, ())))
    assert len(got.items) == wire.MAX_ITEMS and len(got.items[0].text) == wire.MAX_TEXT


@pytest.mark.parametrize(
    "change",
    [
        {"items": {}}, {"accept": "all"}, {"accept": [3]}, {"items": [3]}, {"items": [{}]},
        {"items": [{"name": "a", "status": "fine", "text": "", "fix": "", "never": ""}]},
        {"items": [{"name": "a", "status": "ok", "text": 1, "fix": "", "never": ""}]},
        {"accept": ["a"] * 65}, {"more": 1},
    ],
)  # fmt: skip
def test_an_odd_readiness_list_is_refused(change: dict[str, object]) -> None:
    data = json.loads(wire.encode_readiness(wire.ReadinessReport((), ()))) | change
    with pytest.raises(LinkError, match="malformed"):
        wire.decode_readiness(json.dumps(data))


@pytest.mark.parametrize("text", ['{"kind":"move","command":{"stamp_s":NaN}}', "[" * 8000, "3"])
@pytest.mark.parametrize("decode", DECODERS)
def test_odd_json_is_refused_in_our_own_words(decode: object, text: str) -> None:
    with pytest.raises(LinkError, match="malformed"):
        decode(text)  # type: ignore[operator]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(st.one_of(st.text(max_size=200), json_values.map(json.dumps)))
def test_no_text_raises_anything_but_link_error(text: str) -> None:
    for decode in DECODERS:
        try:
            decode(text)
        except LinkError:
            continue


@given(st.sampled_from(sorted(wire._COMMAND_KEYS)), json_values)
def test_no_field_value_raises_anything_but_link_error(key: str, value: object) -> None:
    data = json.loads(wire.encode_request(COMMAND))
    data["command"][key] = value
    try:
        command = wire.decode_request(json.dumps(data))
    except LinkError:
        return
    assert isinstance(command, Command) and math.isfinite(command.stamp_s)
    assert np.isfinite(command.tcp_target_in_base.position_m).all()
