"""The console's benchmarks run and their figures hang together; `robot-rl bench console` times."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from robot_rl.bench.console import PARTS, TARGETS, bench
from robot_rl.bench.console.browser import need_browser, quantiles, until
from robot_rl.bench.console.drive import UNHEARD, answer, held_at_s, outcomes
from robot_rl.bench.console.graph import Graph, Moment, graph
from robot_rl.bench.console.page import first_after_ms, fps
from robot_rl.cli.main import main
from robot_rl.config.run_folder import METRICS
from robot_rl.errors import SetupError


@pytest.mark.slow
def test_the_parts_without_ros_report_figures_that_hang_together() -> None:
    try:
        need_browser()
    except SetupError as error:
        pytest.skip(error.summary)
    figures = bench(3.0, only="server,video,memory,review", hours=0.01, episodes=6)
    growth = {"memory/growth_megabytes", "memory/nodes_growth"}  # may be less than nothing
    figures.pop("control/key_to_robot_ms_p99")  # of a dozen presses: one that came too late is inf
    assert all(math.isfinite(value) for value in figures.values()), figures
    assert all(value > 0 for name, value in figures.items() if name not in growth), figures
    for name in (
        "server/round_trip_ms",
        "video/lag_ms",
        "control/round_trip_ms",
    ):
        assert figures[f"{name}_p50"] <= figures[f"{name}_p99"]
    assert {f"video/{name}_fps" for name in ("wrist", "front", "video")} <= set(figures)
    assert figures["memory/messages"] == 360
    parts_with_ros = ("key/", "hand/", "takeover/", "kill/")
    assert {name for name in TARGETS if not name.startswith(parts_with_ros)} <= set(figures)


@pytest.mark.alone
def test_the_gate_with_a_stopwatch_lives_and_tells_who_drives() -> None:
    """Its reader of the operator's device once met a reader of another topic, and died."""
    pytest.importorskip("rclpy", reason="the ros extra is not installed")
    with graph() as running:
        until(lambda: running.newest("mode") is not None, "the gate judges", 60.0)
        until(lambda: running.newest("driving") is False, "it hears of the device", 60.0)
        time.sleep(1.0)
        assert running.moments()  # raises when a process has died meanwhile


def test_every_figure_stands_beside_its_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"kill/trials": 3.0, "kill/hold_ms_max": 119.0, "kill/over_120_ms": 1.0}
    found["video/lag_ms_p95"] = math.nan
    asked: dict[str, object] = {}

    def measure(seconds: float, **options: object) -> dict[str, float]:
        asked.update(options)
        return found

    monkeypatch.setattr("robot_rl.cli.bench.BENCHES", {"console": measure})
    path = tmp_path / "b.json"
    words = ["bench", "console", "--only", "kill", "--trials", "3", "--json", str(path)]
    assert main(words) == 0
    assert asked["only"] == "kill" and asked["trials"] == 3 and asked["presses"] == 500
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["kill/hold_ms_max"].endswith("120  ok")
    assert lines["kill/over_120_ms"].endswith("MISSED")
    assert lines["video/lag_ms_p95"].endswith("MISSED")
    assert "at most" not in lines["kill/trials"]
    targets = json.loads(path.read_text())["targets"]
    assert targets["kill/over_120_ms"] == {"at_most": 0.0, "met": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "vidoe"], "did you mean 'video'"),
        (["--trials", "0"], "--trials leaves nothing to measure"),
        (["--episodes", "1"], "more than 1"),
    ],
)
def test_wrong_options_are_explained(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "console", *words]) == 2
    assert message in capsys.readouterr().err


def test_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    assert ",".join(PARTS) in capsys.readouterr().out


def command(at_s: float, driver: str) -> Moment:
    return Moment(at_s, "command", driver)


def test_what_followed_a_press() -> None:
    moments = [
        command(0.95, "policy"),
        command(1.05, "policy"),
        Moment(1.06, "driving", True, sent_s=1.01, inbox_s=1.02),
        command(1.15, "correction"),
    ]
    found = answer(moments, 1.0, within_s=0.3)
    assert found is not None
    assert found.commands == 1
    assert (found.inbox_s, found.gate_s) == pytest.approx((0.02, 0.06))
    assert (found.muted_s, found.hands_s) == pytest.approx((0.05, 0.15))
    assert answer(moments[:3], 1.0, within_s=0.3) is None  # nobody changed hands
    assert answer(moments, 1.07, within_s=0.3) is None  # heard before the press: another one


def taken_over(at_s: float) -> list[Moment]:
    """What the gate writes down of a press 60 ms earlier."""
    return [
        Moment(at_s, "driving", True, sent_s=at_s - 0.05, inbox_s=at_s - 0.04),
        command(at_s + 0.1, "correction"),
    ]


def test_a_press_that_is_not_heard_is_infinitely_late() -> None:
    """Without it the slowest are left out, and the 99th percentile is of those that were fast."""
    moments = [command(k / 10, "policy") for k in range(20)] + taken_over(2.06)
    found = outcomes(moments, [1.0, 2.0], [], presses=3)
    assert [x is UNHEARD for x in found] == [True, False, True]  # the third was never noted
    late_ms = quantiles("to_gate_ms", [x.gate_s * 1e3 for x in found], 50, 99)
    assert late_ms == {"to_gate_ms_p50": math.inf, "to_gate_ms_p99": math.inf}
    assert {"key/unheard", "hand/unheard"} <= set(TARGETS)


@pytest.mark.parametrize(("end_s", "counted"), [(0.9, 0), (1.2, 0), (-0.1, 1), (1.4, 1)])
def test_a_press_at_the_end_of_an_episode_does_not_count(end_s: float, counted: int) -> None:
    assert len(outcomes([], [1.0], [end_s], presses=1)) == counted


def test_an_episode_that_is_aborted_has_not_ended_by_itself(tmp_path: Path) -> None:
    """The gate holds when the page falls silent: that is what is looked for, and no excuse."""
    now_s = time.time()
    lines = [{"time_s": now_s - 9.0, "episode/aborted": 1.0}]
    lines += [{"time_s": now_s - 5.0, "episode/aborted": 0.0}, {"time_s": now_s, "eval": 1.0}]
    (tmp_path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    world = Graph(None, tmp_path, 10.0)  # type: ignore[arg-type]
    assert world.ends_s() == [pytest.approx(time.monotonic() - 5.0, abs=0.5)]


def test_what_never_comes_is_told() -> None:
    assert first_after_ms([1.0, 2.0], [1.01]) == [pytest.approx(10.0), math.inf]
    assert fps(["front", "wrist"], {"wrist": [1, 2, 3]}, 2.0) == {
        "video/front_fps": 0.0,
        "video/wrist_fps": 1.5,
    }
    assert quantiles("x", [1.0, 2.0, 3.0], 50) == {"x_p50": 2.0}
    assert math.isnan(quantiles("x", [], 50)["x_p50"])


def test_a_hold_counts_from_where_the_gate_left_run_for_good() -> None:
    late = Moment(1.03, "mode", "pause", "command_late: the driver is silent")
    again = Moment(1.05, "mode", "run")
    still = Moment(1.08, "mode", "pause", "command_late: the driver is silent")
    silent = Moment(1.11, "mode", "pause", "operator_silent: no heartbeat while driving")
    assert held_at_s([late, again, silent], 1.0) == 1.11
    assert held_at_s([late, again, still, silent], 1.0) == 1.08
    assert held_at_s([late, again, still], 1.0) is None
    assert held_at_s([silent], 1.2) is None
