"""Frames: round trips that an adjoint, a sign or an order mistake would break."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.geometry import (
    compose,
    inverse,
    pose,
    quat_from_rotvec,
    quat_multiply,
    quat_to_matrix,
    quat_to_rotvec,
    relative,
    rotate,
    rotate_inverse,
    rotation_error,
    step_towards,
)
from robot_rl.types import Pose

seeds = st.integers(0, 2**32 - 1)


def random_pose(rng: np.random.Generator) -> Pose:
    return pose(rng.normal(size=3), rng.normal(size=4))


@given(seeds)
def test_rotvec_round_trip_takes_the_short_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3)
    rotvec = axis / np.linalg.norm(axis) * rng.uniform(0, np.pi - 1e-6)
    assert quat_to_rotvec(quat_from_rotvec(rotvec)) == pytest.approx(rotvec, abs=1e-9)
    assert quat_to_rotvec(-quat_from_rotvec(rotvec)) == pytest.approx(rotvec, abs=1e-9)


@given(seeds)
def test_quaternion_product_is_matrix_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_pose(rng).quaternion_xyzw, random_pose(rng).quaternion_xyzw
    expected = quat_to_matrix(a) @ quat_to_matrix(b)
    assert quat_to_matrix(quat_multiply(a, b)) == pytest.approx(expected, abs=1e-12)
    v = rng.normal(size=3)
    assert rotate_inverse(a, rotate(a, v)) == pytest.approx(v, abs=1e-12)


@given(seeds)
def test_compose_inverse_relative_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a_in_c, b_in_c = random_pose(rng), random_pose(rng)
    back = compose(b_in_c, relative(a_in_c, b_in_c))
    assert back.position_m == pytest.approx(a_in_c.position_m, abs=1e-9)
    assert np.linalg.norm(rotation_error(back, a_in_c)) < 1e-9
    identity = compose(a_in_c, inverse(a_in_c))
    assert identity.position_m == pytest.approx(np.zeros(3), abs=1e-9)


@given(seeds, st.floats(1e-4, 0.1), st.floats(1e-3, 0.5))
def test_step_towards_never_oversteps_and_arrives(seed: int, max_m: float, max_rad: float) -> None:
    rng = np.random.default_rng(seed)
    here, goal = random_pose(rng), random_pose(rng)
    stepped = step_towards(here, goal, max_m, max_rad)
    assert np.linalg.norm(stepped.position_m - here.position_m) <= max_m + 1e-12
    assert np.linalg.norm(rotation_error(stepped, here)) <= max_rad + 1e-9
    arrived = step_towards(here, goal, 1e3, 10.0)
    assert arrived.position_m == pytest.approx(goal.position_m)
    assert np.linalg.norm(rotation_error(arrived, goal)) < 1e-6


def test_a_pure_rotation_of_the_tool_does_not_leak_into_translation() -> None:
    tool = pose((0.5, 0.0, 0.3), quat_from_rotvec((np.pi, 0.0, 0.0)))
    turned = compose(tool, pose((0, 0, 0), quat_from_rotvec((0, 0, 0.1))))
    assert turned.position_m == pytest.approx(tool.position_m, abs=1e-15)
