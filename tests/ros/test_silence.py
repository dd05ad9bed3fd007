"""How the watchdog measures the gate's silence, also when the watchdog itself was asleep."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tests.support.ros import new_domain

watchdog_node = pytest.importorskip("robot_rl.ros.watchdog_node")
pytestmark = pytest.mark.ros


def silence():
    """A gate that may be silent for 0.2 s, heard at 10.0 s."""
    found = watchdog_node.Silence(0.2, wall_s=0.0, grace_s=20.0)
    found.heard(10.0)
    assert found.too_long_s(10.0) == 0.0
    return found


def test_a_watchdog_that_is_awake_reports_a_silence_at_once() -> None:
    found = silence()
    looks_s = [10.0 + 0.01 * i for i in range(1, 30)]
    assert [found.too_long_s(t) > 0 for t in looks_s] == [t - 10.0 > 0.2 for t in looks_s]


def test_a_watchdog_that_slept_hears_first_what_the_gate_said_meanwhile() -> None:
    found = silence()
    assert found.too_long_s(12.2) == 0.0
    found.heard(12.21)
    assert found.too_long_s(12.22) == 0.0
    assert found.too_long_s(12.30) == 0.0
    assert found.too_long_s(12.39) == 0.0
    assert found.too_long_s(12.42) > 0.2  # a silence that it witnessed


def test_a_gate_that_died_meanwhile_is_found_0_1_s_after_waking() -> None:
    found = silence()
    looks_s = [12.2 + 0.01 * i for i in range(20)]
    assert [found.too_long_s(t) > 0 for t in looks_s] == [t - 12.2 > 0.1 for t in looks_s]


def test_a_watchdog_that_is_always_starved_stops_the_controller_at_its_second_look() -> None:
    found = silence()
    found_silent = [found.too_long_s(10.0 + t) > 0 for t in (0.5, 1.0, 1.5)]
    assert found_silent == [False, True, True]


def test_a_known_silence_stays_one_when_the_watchdog_sleeps() -> None:
    found = silence()
    for i in range(30):
        last = found.too_long_s(10.0 + 0.01 * i)
    assert last > 0.2
    assert found.too_long_s(12.0) > 0.2


def test_the_gate_has_its_grace_to_come_up() -> None:
    found = watchdog_node.Silence(0.2, wall_s=0.0, grace_s=20.0)
    assert found.too_long_s(19.99) == 0.0
    assert found.too_long_s(20.05) > 0


def test_a_controller_that_may_have_been_stopped_is_told_as_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gate comes back before the answer to the stop: the call may have been carried out."""
    from robot_rl.ros.runtime import node_shell

    monkeypatch.setenv("ROS_DOMAIN_ID", str(new_domain()))
    words = ["--ros-args", "-p", "grace_s:=0.0", "-p", "silence_s:=0.05", "-p"]
    with node_shell("watchdog", [*words, "tells_stopped:=true"]) as shell:
        watchdog, told = watchdog_node.Watchdog(shell), []
        unanswered = SimpleNamespace(poll=lambda: None, forget=lambda: None, is_served=True)
        monkeypatch.setattr(watchdog, "_stop", unanswered)
        monkeypatch.setattr(watchdog, "_stands", told.append)
        watchdog._silences["gate"].heard(time.monotonic())
        watchdog.tick()
        for _ in range(20):
            time.sleep(0.01)
            watchdog.tick()
        assert watchdog.tripped and told == [True]
        watchdog._silences["gate"].heard(time.monotonic())
        watchdog.tick()
        assert not watchdog.tripped and told == [True]


@pytest.mark.parametrize("mode", ["hold", "run", "pause", "protective_stop", "", "a new mode"])
def test_the_dry_run_stops_no_controller_while_somebody_may_drive(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A watchdog that is started again in the middle of a run; the gate pauses for an instant."""
    from robot_rl.ros import convert, wire
    from robot_rl.ros.runtime import node_shell

    monkeypatch.setenv("ROS_DOMAIN_ID", str(new_domain()))
    words = ["--ros-args", "-p", "dry_run:=true", "-p", "start_service:=start"]
    with node_shell("watchdog", words) as shell:
        watchdog, asked = watchdog_node.Watchdog(shell), []
        report = wire.encode_report(wire.GateReport(mode, "x", "actor", 0.0, 0, ""))
        said = convert.text_to(report) if mode else None  # nobody has told yet
        monkeypatch.setattr(watchdog, "_gate", SimpleNamespace(read=lambda: said))
        done = SimpleNamespace(success=True)
        for name in ("stop", "start"):
            caller = SimpleNamespace(
                poll=lambda n=name: asked.append(n) or done, is_served=True, name=name
            )
            monkeypatch.setattr(watchdog, f"_{name}", caller)
        for _ in range(4):
            watchdog.tick()
        halted = mode in ("hold", "protective_stop")
        assert asked == (["stop", "start"] if halted else [])
