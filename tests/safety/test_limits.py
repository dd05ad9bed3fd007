"""Limits: physically sensible or refused, hashed, only ever narrowed, of one robot."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import Any

import pytest

from robot_rl.config.registry import build
from robot_rl.errors import ConfigError, SafetyError
from robot_rl.robots import Fr3
from robot_rl.safety.limits import Limits


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_speed_m_s": 0.0},
        {"max_speed_m_s": 25.0},  # mm/s typed as m/s
        {"max_force_n": math.nan},
        {"max_step_rad": math.inf},
        {"max_acceleration_m_s2": -1.0},
        {"command_timeout_periods": 0.9},
        {"operator_timeout_s": 100.0},  # ms typed as s
        {"workspace_min_m": (0.9, -0.4, 0.0)},
        {"gripper_min_m": 0.08},  # as wide as the widest; 0 and 0 is a tool without fingers
        {"gripper_min_m": -0.01},
        {"joint_min_rad": (0.0,) * 6},
        {"joint_margin_rad": 2.0},
        {"joint_margin_rad": -0.1},
        {"collision_margin_m": 5.0},  # mm typed as m
    ],
)
def test_values_that_cannot_be_meant_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        Limits(**wrong)


def test_a_wrong_value_in_yaml_is_a_config_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="max_speed_m_s"):
        build(Limits, {"max_speed_m_s": 25}, "safety")
    with pytest.raises(ConfigError, match=r"did you mean 'max_force_n'"):
        build(Limits, {"max_forse_n": 20.0}, "safety")


def nudge(value: Any, scale: float = 1.001) -> Any:
    """A little different."""
    if isinstance(value, str):
        return value + "2"
    if isinstance(value, tuple):
        return tuple(nudge(v, 0.999) for v in value)
    if isinstance(value, dict):
        return {name: dataclasses.replace(box, yaw_rad=0.1) for name, box in value.items()}
    return value * scale + 1e-5


def test_every_field_changes_the_hash() -> None:
    base = Limits(joint_arm="fr3")
    for field in dataclasses.fields(Limits):
        value = getattr(base, field.name)
        nudged = nudge(value)
        if field.name in ("max_speed_m_s", "max_yaw_rad"):
            nudged = 0.2  # the default is the ceiling, or nearly
        assert dataclasses.replace(base, **{field.name: nudged}).hash != base.hash, field.name
    assert Limits(joint_arm="fr3").hash == base.hash and len(base.hash) == 16


def test_limits_of_tcp_targets_have_the_hash_that_they_had_before_there_were_others() -> None:
    values = dataclasses.asdict(Limits())
    for name in ("joint_arm", "max_joint_speed_rad_s"):
        del values[name]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    assert Limits().hash == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert Limits(max_joint_speed_rad_s=0.5).hash == Limits().hash  # not in use
    assert Limits().of_joints(Fr3()).hash != Limits().hash
    with pytest.raises(ValueError, match="needs the ranges"):
        Limits(joint_arm="fr3", joint_min_rad=(), joint_max_rad=())


def test_narrowing_is_an_intersection() -> None:
    limits = Limits().narrow((0.0, -0.1, 0.02), (0.6, 0.9, 0.2))
    assert limits.workspace_min_m == (0.25, -0.1, 0.02)
    assert limits.workspace_max_m == (0.6, 0.4, 0.2)
    assert limits.hash != Limits().hash


def test_narrowing_never_widens_the_turn() -> None:
    box = ((0.3, -0.1, 0.02), (0.6, 0.1, 0.2))
    narrowed = Limits().narrow(*box, max_tilt_rad=0.2, max_yaw_rad=0.4)
    assert (narrowed.max_tilt_rad, narrowed.max_yaw_rad) == (0.2, 0.4)
    again = narrowed.narrow(*box, max_tilt_rad=1.0, max_yaw_rad=3.0)
    assert (again.max_tilt_rad, again.max_yaw_rad) == (0.2, 0.4)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((1.0, 0.0, 0.1), (1.2, 0.1, 0.2)),
        ((0.4, 0.0, 0.1), (0.4, 0.1, 0.2)),
        ((0.4, 0.0, math.nan), (0.5, 0.1, 0.2)),
        ((0.4, 0.0), (0.5, 0.1, 0.2)),
    ],
)
def test_a_box_outside_the_robots_is_refused(low: tuple, high: tuple) -> None:
    with pytest.raises(SafetyError, match=r"expected"):
        Limits().narrow(low, high)
