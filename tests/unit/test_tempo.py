"""The simulation hurries as far as everybody keeps up."""

from __future__ import annotations

import pytest

from robot_rl.ros.tempo import AGAIN_S, Tempo


def test_it_goes_as_fast_as_asked_while_nobody_is_late() -> None:
    tempo = Tempo(3.0)
    for i in range(100):
        tempo.hear("run" if i % 2 else "hold", "force: 61 N" if i % 3 else "person: hold", i * 1.0)
        assert tempo.factor(i * 1.0, person=False) == 3.0


def test_who_is_late_slows_it_down_to_real_time_at_most_and_it_tries_again() -> None:
    tempo, seen = Tempo(3.0), []
    for i in range(20):
        tempo.hear("hold", "operator_silent: no heartbeat while driving", 0.1 * i)
        tempo.hear("hold", "operator_silent: no heartbeat while driving", 0.1 * i)  # said again
        seen.append(tempo.factor(0.1 * i, person=False))
        tempo.hear("run", "", 0.1 * i)
    assert seen[:2] == pytest.approx([2.4, 1.92]) and seen[-1] == 1.0
    later = [tempo.factor(2.0 + AGAIN_S * (i + 1), person=False) for i in range(100)]
    assert later == sorted(later) and later[0] == pytest.approx(1.02) and later[-1] == 3.0


def test_a_person_gets_real_time_and_a_slow_simulation_stays_slow() -> None:
    assert Tempo(3.0).factor(0.0, person=True) == 1.0
    slow = Tempo(0.5)
    slow.hear("pause", "command_late: the driver is silent", 0.0)
    assert slow.factor(0.0, person=True) == slow.factor(0.0, person=False) == 0.5
