"""Released time: the clock goes on when all have acted, and without whoever never does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.ros.release import LIMITS_S, Release


def test_the_clock_waits_for_each_until_its_horizon_is_beyond_now() -> None:
    release = Release()
    assert release.waiting(0.0, 0.0) == [] and not release.heard
    release.hear("gate", 0.01)
    assert release.heard
    release.hear("actor", 0.1)
    assert release.waiting(0.0, 0.0) == []
    assert release.waiting(0.02, 0.0) == ["gate"]
    release.hear("gate", 0.03)
    assert release.waiting(0.02, 0.0) == []
    release.hear("gate", 0.11)
    assert release.waiting(0.1, 0.0) == ["actor"]  # it acts at its horizon, not after
    assert release.waiting(0.12, 0.0) == ["gate", "actor"]


def test_who_is_silent_for_too_long_is_given_up_until_it_speaks() -> None:
    release = Release({"gate": 1.0})
    release.hear("gate", 0.01)
    assert release.waiting(0.02, 10.0) == ["gate"]
    assert release.waiting(0.02, 10.9) == ["gate"] and not release.given_up
    assert release.waiting(0.02, 11.1) == [] and release.given_up == ["gate"]
    assert release.waiting(5.0, 16.0) == []
    assert release.hear("gate", 5.01)
    assert not release.given_up
    assert release.waiting(5.02, 16.0) == ["gate"]
    assert release.waiting(5.02, 16.9) == ["gate"]  # a limit of its own, from now on


def test_the_learner_is_not_waited_for_without_the_actor_that_speaks_for_it() -> None:
    release = Release({"actor": 1.0, "learner": 30.0})
    release.hear("actor", 0.1)
    release.hear("learner", 0.1)
    assert release.waiting(0.1, 0.0) == ["actor", "learner"]
    assert release.waiting(0.1, 1.1) == []
    release.hear("actor", 0.2)
    assert release.waiting(0.1, 1.2) == ["learner"]  # it is behind in its updates
    assert release.waiting(0.1, 20.0) == ["learner"]


def test_a_learner_that_is_behind_and_at_work_is_waited_for_as_long_as_it_takes() -> None:
    release = Release({"actor": 1.0, "learner": 30.0})
    release.hear("actor", 1.0)
    release.hear("learner", 0.1)
    for wall_s in range(0, 300, 20):
        release.hear("learner", 0.1)  # "not yet"; told only where it has done updates
        assert release.waiting(0.1, float(wall_s)) == ["learner"] and not release.given_up
    assert release.waiting(0.1, 320.0) == [] and release.given_up == ["learner"]  # silent since 280
    assert release.hear("learner", 1.0) and release.waiting(0.2, 321.0) == []


def test_a_person_in_the_seat_does_not_wait_for_the_learner() -> None:
    release = Release()
    for who in ("operator", "learner"):
        release.hear(who, 0.1)
    assert release.waiting(0.05, 0.0, person=True) == []
    assert release.waiting(0.1, 0.0, person=True) == ["operator"]
    release.hear("operator", 0.2)
    assert release.waiting(0.1, 0.1, person=True) == []
    assert release.waiting(0.1, 0.2) == ["learner"]


def test_waiting_is_put_down_to_the_first_who_has_not_acted() -> None:
    release = Release()
    for who in ("learner", "actor"):
        release.hear(who, 0.1)
    release.waiting(0.1, 0.0)
    release.waiting(0.1, 0.2)
    release.hear("actor", 0.2)
    release.waiting(0.1, 0.3)
    release.waiting(0.1, 0.7)
    release.hear("learner", 0.2)
    release.waiting(0.1, 0.8)
    release.waiting(0.19, 5.0)  # nobody is waited for here
    assert release.waited_s() == pytest.approx(
        {"gate": 0.0, "operator": 0.0, "actor": 0.2, "learner": 0.5}
    )
    assert sum(release.waited_s().values()) == 0.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*LIMITS_S, "stranger", ""]),
            st.floats(allow_nan=True, allow_infinity=True),
            st.floats(0.0, 10.0),
        ),
        max_size=40,
    )
)
def test_no_message_stops_the_clock_for_ever(heard: list[tuple[str, float, float]]) -> None:
    release, wall_s = Release(), 0.0
    for who, until_s, later_s in heard:
        release.hear(who, until_s)
        wall_s += later_s
        release.waiting(1.0, wall_s)
    for _ in range(2):  # the limits of two rounds, whatever was said before
        wall_s += max(LIMITS_S.values()) + 1.0
        release.waiting(1.0, wall_s)
    assert release.waiting(1.0, wall_s) == []
    assert all(math.isfinite(share) for share in release.waited_s().values())
