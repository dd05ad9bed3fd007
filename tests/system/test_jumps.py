"""A clock that is set is noticed; a process that slept, or two clocks that drift, is not one."""

from __future__ import annotations

import pytest

from robot_rl.system.jumps import Jumps


class Clocks:
    """A clock that people set, and one that nobody sets; each reading takes `takes_s`."""

    def __init__(self) -> None:
        self.steady, self.ahead, self.takes_s = 100.0, 1e9, 0.0

    def read(self) -> float:
        """The clock that people set."""
        self.steady += self.takes_s
        return self.steady + self.ahead

    def read_steady(self) -> float:
        """The other one."""
        self.steady += self.takes_s
        return self.steady


@pytest.mark.parametrize("set_s", [-3600.0, -0.5, 0.5, 3600.0])
def test_a_clock_that_was_set_is_told_once_and_by_how_much(set_s: float) -> None:
    clocks = Clocks()
    jumps = Jumps(clocks.read, clocks.read_steady)
    assert jumps.look()[1] == 0.0
    clocks.steady += 0.02
    clocks.ahead += set_s
    assert jumps.look()[1] == pytest.approx(set_s, abs=1e-6)
    clocks.steady += 0.02
    assert jumps.look() == (pytest.approx(clocks.steady + clocks.ahead), 0.0)


@pytest.mark.parametrize("slept_s", [0.001, 0.3, 5.0, 3600.0])
def test_whoever_slept_sees_no_jump(slept_s: float) -> None:
    clocks = Clocks()
    jumps = Jumps(clocks.read, clocks.read_steady)
    jumps.look()
    clocks.steady += slept_s
    assert jumps.look()[1] == 0.0


def test_a_clock_that_is_corrected_slowly_has_not_jumped() -> None:
    clocks = Clocks()
    jumps = Jumps(clocks.read, clocks.read_steady)
    for _ in range(1000):
        clocks.steady += 0.02
        clocks.ahead += 0.02 * 500e-6  # the fastest that NTP slews
        assert jumps.look()[1] == 0.0


def test_whoever_loses_the_processor_between_the_two_readings_sees_no_jump() -> None:
    clocks = Clocks()
    jumps = Jumps(clocks.read, clocks.read_steady)
    jumps.look()
    clocks.takes_s = 0.4
    assert jumps.look()[1] == 0.0
    clocks.takes_s = 0.0
    assert jumps.look()[1] == 0.0


def test_a_simulated_clock_neither_goes_back_nor_leaps() -> None:
    now_s = [0.0]
    jumps = Jumps(lambda: now_s[0], None)
    assert jumps.look() == (0.0, 0.0)
    now_s[0] = 500.0  # the first clock that is heard
    assert jumps.look()[1] == 0.0
    now_s[0] = 500.5
    assert jumps.look()[1] == 0.0
    now_s[0] = 499.0
    assert jumps.look()[1] == -1.5
    now_s[0] = 502.0
    assert jumps.look()[1] == 3.0
