"""Spec: action <-> pose round trip, observation checks, hash and handshake diff."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.errors import SpecError
from robot_rl.geometry import pose
from robot_rl.spec import ActionSpec, BoxActionSpec, Spec, TensorSpec, diff, spec_from_dict

ACTION = ActionSpec(translation_m=0.01, rotation_rad=0.06, gripper=True)
SPEC = Spec(
    task="peg_insert",
    control_hz=10.0,
    observation={
        "state": TensorSpec((3,), "float32"),
        "image/wrist": TensorSpec((8, 8, 3), "uint8"),
    },
    action=ACTION,
    state_layout=(("tcp_in_hole", 3, "m"),),
)


@given(st.integers(0, 2**32 - 1))
def test_action_is_recovered_from_the_target_it_makes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    here = pose(rng.normal(size=3), rng.normal(size=4))
    action = rng.uniform(-1, 1, 7).astype(np.float32)
    action[6] = 1.0
    back = ACTION.action(ACTION.target(action, here), here, gripper=1.0)
    assert back == pytest.approx(action, abs=1e-5)


def test_zero_action_keeps_the_measured_pose() -> None:
    here = pose((0.4, 0.1, 0.2), (0, 1, 0, 0.2))
    target = ACTION.target(np.zeros(7, np.float32), here)
    assert target.position_m == pytest.approx(here.position_m)
    assert target.quaternion_xyzw == pytest.approx(here.quaternion_xyzw)


@pytest.mark.parametrize(("entry", "width"), [(-1.0, 0.0), (1.0, 0.08), (0.4, None), (0.0, None)])
def test_gripper_entry_is_three_valued(entry: float, width: float | None) -> None:
    action = np.array([0, 0, 0, 0, 0, 0, entry], np.float32)
    assert ACTION.gripper_width_m(action) == width


def good() -> dict[str, np.ndarray]:
    return {"state": np.zeros(3, np.float32), "image/wrist": np.zeros((8, 8, 3), np.uint8)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state", np.zeros(4, np.float32)),
        ("state", np.zeros(3, np.float64)),
        ("state", np.array([0, np.nan, 0], np.float32)),
        ("image/wrist", np.zeros((8, 8, 3), np.float32)),
        ("image/front", np.zeros((8, 8, 3), np.uint8)),
    ],
)
def test_a_wrong_observation_is_refused(key: str, value: np.ndarray) -> None:
    SPEC.check(good())
    with pytest.raises(SpecError, match="expected"):
        SPEC.check(good() | {key: value})


def test_spec_survives_the_wire_and_its_hash_sees_every_change() -> None:
    assert spec_from_dict(SPEC.as_dict()) == SPEC
    assert spec_from_dict(SPEC.as_dict()).hash == SPEC.hash
    other = dataclasses.replace(SPEC, action=dataclasses.replace(ACTION, translation_m=0.02))
    assert other.hash != SPEC.hash
    assert diff(SPEC.as_dict(), other.as_dict()) == ["action.translation_m: 0.01 -> 0.02"]


def test_box_actions_span_their_bounds_and_survive_the_wire() -> None:
    box = BoxActionSpec(low=(-2.0, 0.0), high=(2.0, 0.1))
    assert box.size == 2 and not box.gripper
    assert box.gripper_width_m(np.ones(2, np.float32)) is None
    for action, scaled in ((-1.0, box.low), (1.0, box.high), (9.0, box.high), (0.0, (0.0, 0.05))):
        assert tuple(box.scaled(np.full(2, action, np.float32))) == scaled
    spec = dataclasses.replace(SPEC, action=box)
    assert spec_from_dict(spec.as_dict()) == spec
    assert spec.hash != SPEC.hash


def test_the_gripper_of_a_box_is_one_of_three_and_hashes_without_one_stay() -> None:
    box = BoxActionSpec(low=(-2.0, 0.0), high=(2.0, 2.0), gripper=True)
    assert (box.motion, box.size) == (1, 2)
    for entry, value in ((-0.9, 0.0), (0.4, 1.0), (0.6, 2.0)):
        action = np.array((0.5, entry), np.float32)
        assert box.scaled(action).tolist() == [1.0, value]
        assert box.gripper_width_m(action) == (None if value == 1.0 else value)
    assert box.action(np.array((9.0, 1.9))).tolist() == [1.0, 1.0]
    assert box.action(np.array((0.0, 0.8))).tolist() == [0.0, 0.0]
    spec = dataclasses.replace(SPEC, action=box)
    assert spec_from_dict(spec.as_dict()) == spec
    plain = dataclasses.replace(SPEC, action=dataclasses.replace(box, gripper=False))
    assert "gripper" not in plain.as_dict()["action"] and plain.hash != spec.hash


def test_the_hash_of_an_arms_spec_is_what_it_was() -> None:
    assert SPEC.hash == "9d7b652ca0cd67a5"


def test_another_protocol_version_is_refused() -> None:
    with pytest.raises(SpecError, match="protocol version"):
        spec_from_dict(SPEC.as_dict() | {"protocol": 999})
