"""The report: statistics against known values, and a page that is complete, safe and forgiving."""

from __future__ import annotations

import json
import math
import re
import shlex
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from robot_rl.control import statistics as stats
from robot_rl.errors import ConfigError
from robot_rl.report import svg
from robot_rl.report.report import render, write_report
from robot_rl.report.rundata import HOME, RunData, read_run
from tests.support.synthetic_run import write_deployment, write_run


def test_wilson_interval_matches_published_values() -> None:
    # Newcombe 1998, table I, method 3 (score without continuity correction)
    assert stats.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert stats.wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert stats.wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert stats.wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_wilson_interval_holds_the_rate_and_stays_a_probability(
    n: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(0, n))
    low, high = stats.wilson(k, n)
    assert 0.0 <= low <= k / n <= high <= 1.0
    assert high > low


def test_wilson_refuses_nonsense_and_knows_nothing_without_episodes() -> None:
    assert stats.wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="got 3 of 2"):
        stats.wilson(3, 2)


def test_seeds_that_differ_say_less_than_their_episodes_pooled() -> None:
    low, high = stats.over_seeds([0, 92, 33], [100] * 3)
    assert low < 0.05 and high > 0.85  # pooled: 0.36 to 0.47
    alike = stats.over_seeds([42, 41, 42], [100] * 3)
    assert stats.wilson(125, 300) == pytest.approx(alike, abs=0.03)
    assert stats.over_seeds([92], [100]) == pytest.approx(stats.wilson(92, 100), abs=0.015)
    assert stats.over_seeds([5, 0], [10, 0]) == stats.over_seeds([5], [10])
    low, high = stats.over_seeds([100] * 3, [100] * 3)
    assert 0.98 < low < 1.0 and high == 1.0
    assert stats.over_seeds([], []) == (0.0, 1.0)
    with pytest.raises(ValueError, match="got"):
        stats.over_seeds([3], [2])


def test_the_interval_over_seeds_holds_the_mean_of_what_a_method_does() -> None:
    rng = np.random.default_rng(0)
    held, pooled = 0, 0
    for _ in range(200):  # a method whose policies succeed in any share of the episodes alike
        wins = rng.binomial(100, rng.uniform(size=5))
        low, high = stats.over_seeds(wins.tolist(), [100] * 5, draws=500)
        held += low <= 0.5 <= high
        low, high = stats.wilson(int(wins.sum()), 500)
        pooled += low <= 0.5 <= high
    assert held > 0.75 * 200 and pooled < 0.4 * 200


def test_rolling_mean_is_the_mean_of_the_last_values() -> None:
    assert stats.rolling_mean([1, 2, 3, 4], 2).tolist() == [1, 1.5, 2.5, 3.5]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
@example(917678.0, 1e-5)
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    ticks = svg.nice_ticks(low, low + span)
    assert len(ticks) <= 6
    slack = 1e-6 * span + 4 * math.ulp(abs(low) + span)  # rounding, of a narrow span far off
    assert all(low - slack <= t <= low + span + slack for t in ticks)


def test_thinning_keeps_the_extremes_of_a_long_curve() -> None:
    y = np.zeros(100_000)
    y[54_321] = 7.0
    x, mean, _low, high = svg.thin(np.arange(100_000.0), y)
    assert x.size == mean.size <= svg.MAX_POINTS
    assert high.max() == 7.0


class _Parser(HTMLParser):
    """Counts tags and collects what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v]


def _parse(page: str) -> _Parser:
    parser = _Parser()
    parser.feed(page)
    parser.close()
    return parser


def test_report_is_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run", video=b"\0video")).read_text()
    parsed = _parse(page)
    assert all(u.startswith("data:") for u in parsed.fetched)
    assert "video" in parsed.tags
    assert "url(" not in page and "@import" not in page
    assert not re.search(r"https?://", page)


def test_headline_shows_the_measured_rate_with_its_interval(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run")).read_text()
    assert '97<small>%</small>' in page  # fmt: skip
    assert "97 of 100 evaluation episodes" in page
    assert "(91.5&ndash;99.0)" in page  # Wilson, 97 of 100


def test_a_data_set_with_inferred_actions_is_named(tmp_path: Path) -> None:
    run, data = write_run(tmp_path / "run"), tmp_path / "a<b"
    data.mkdir()
    said = {"steps": 40, "inferred": 28, "inverse": {"motion": 0.913}}
    (data / "import.json").write_text(json.dumps(said))
    assert "were inferred" not in write_report(run).read_text()
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["train"]["dataset"] = str(data)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    page = write_report(run).read_text()
    assert "Of 40 steps of the data set" in page and "R2 0.91 in held-out episodes" in page
    assert "the actions of 28 were inferred" in page and "a&lt;b" in page
    (data / "import.json").write_text('{"inverse": 3}')
    with pytest.raises(ConfigError, match="no run writes"):
        write_report(run)


def test_every_text_of_a_run_is_escaped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    evil = "<script>alert(1)</script>\"'><img src=x onerror=y>"
    config = run / "config.yaml"
    config.write_text(f"name: {json.dumps(evil)}\ntask: {json.dumps({'name': evil, evil: evil})}\n")
    (run / "run.json").write_text(json.dumps({"command": evil, "versions": {evil: evil}}))
    row = {"env_steps": 1, "time_s": 1, f"custom/{evil}": 1.0}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    part = {"successes": evil, "episodes": evil}
    other = {"deterministic": part, "weights_version": evil, "seed": evil, "evaluated_in": evil}
    evaluation = json.loads((run / "eval.json").read_text()) | {"evaluations": [other, other]}
    arms = {"arms": {"left": {"deterministic": part}}, "evaluated_in": evil}
    (run / "arms" / "left").mkdir(parents=True)
    (run / "arms" / "left" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    deployed = write_deployment(run / "deploy", "+-x")
    deployed |= dict.fromkeys(("unlabelled", "episodes", "interventions"), evil)
    deployed["failed"] = [dict.fromkeys(("episode", "at", "reason", "steps"), evil)]
    (run / "deploy" / "deploy.json").write_text(json.dumps(deployed | {"stops": {evil: evil}}))
    unknown = {"success_known": False, "episodes": evil, "return_mean": 1.0, "return_std": 1.0}
    for shown in (evaluation | arms, {"deterministic": unknown}):
        (run / "eval.json").write_text(json.dumps(shown))
        page = write_report(run).read_text()
        assert "<script>alert" not in page
        assert "<img" not in page
        assert _parse(page).tags.count("script") == 1
        assert page.count("&lt;script&gt;alert") > 10


def test_a_killed_run_still_gets_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", episodes=5)
    (run / "eval.json").unlink()
    (run / "run.json").write_text('{"created": "20')  # torn by the kill
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"time_s": 12, "env_st')
    page = write_report(run).read_text()
    assert "not evaluated" in page
    assert not list(run.glob("*.new"))


def test_an_empty_folder_gets_a_report_too(tmp_path: Path) -> None:
    assert "not evaluated" in render(read_run(tmp_path))


def test_metrics_nobody_announced_get_a_panel(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", episodes=3)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"time_s": 1, "env_steps": 5, "reward/novelty": 0.5, "critic/loss": NaN}\n')
    assert "reward/novelty" in write_report(run).read_text()


def test_a_long_run_stays_a_small_page(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run", episodes=3000))
    assert page.stat().st_size < 2_500_000


def test_intervention_timeline_has_one_bar_per_episode(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", episodes=17))
    assert isinstance(run, RunData)
    page = render(run)
    assert len(re.findall(r'<g class="(?:won|lost)">', page)) == 17


def _diagnosed(run: Path, *lines: dict[str, object]) -> str:
    """The page of a run whose learner wrote these findings."""
    healthy = {"diagnostics/labels": 0.0, "diagnostics/buffer": 0.0}
    rows = [{"time_s": i, "env_steps": 100 * i, **healthy, **x} for i, x in enumerate(lines)]
    run.mkdir(exist_ok=True)
    (run / "learner.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return write_report(run).read_text()


def _finding(name: str, level: int, what: str, fix: str = "look") -> dict[str, object]:
    key = f"diagnostics/{name}"
    return {key: float(level), f"{key}/what": what, f"{key}/fix": fix}


def test_a_healthy_run_says_that_nothing_was_found(tmp_path: Path) -> None:
    page = _diagnosed(tmp_path / "run", {}, {})
    assert "Why is it not learning?" in page
    assert "None of the known causes was found." in page
    assert '<svg class="timeline"' not in page
    assert "diagnostics/" not in page  # no chart of zeros


def test_findings_at_the_end_stand_with_their_fix_and_earlier_ones_on_the_timeline(
    tmp_path: Path,
) -> None:
    labels = _finding("labels", 2, "no reward anywhere", "check the predicate")
    buffer = _finding("buffer", 1, "no step arrives")
    page = _diagnosed(tmp_path / "run", {}, buffer, buffer, {}, labels, labels)
    assert "<b>problem: no reward anywhere</b><span>Fix: check the predicate</span>" in page
    assert "warning: no step arrives, 100 to 300 steps" in page
    assert "problem: no reward anywhere, 400 to 500 steps" in page
    assert "<b>warning" not in page  # it is over


def test_a_trouble_that_is_over_is_still_told(tmp_path: Path) -> None:
    page = _diagnosed(tmp_path / "run", _finding("labels", 1, "no reward yet"), {})
    assert "None of the known causes was found at the end of the run" in page
    assert page.count("no reward yet") == 1  # the tooltip of its bar


def test_a_run_without_diagnostics_has_no_such_section(tmp_path: Path) -> None:
    assert "Why is it not learning" not in write_report(write_run(tmp_path / "run")).read_text()


def test_the_text_of_a_finding_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=y>"
    rows = (_finding(evil, 2, evil, evil), {**_finding("labels", 1, evil, evil)})
    page = _diagnosed(tmp_path / "run", *rows)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert _parse(page).tags.count("script") == 1


def eval_lines(state: str, outcomes: str) -> list[str]:
    """Metric lines of evaluation episodes: + success, - failure, x aborted."""
    return [
        json.dumps(
            {
                "time_s": 1e6 + i,
                "env_steps": 50_000,
                "state": state,
                "eval_episode/number": i + 1.0,
                "eval_episode/success": float(o == "+"),
                "eval_episode/aborted": float(o == "x"),
                "eval_episode/duration_s": 2.0,
            }
        )
        for i, o in enumerate(outcomes)
    ]


def test_the_figure_grows_while_the_evaluation_goes_on(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run / "eval.json").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write(
            "\n".join(eval_lines("exam", "-" * 9) + eval_lines("evaluation", "+++-x")) + "\n"
        )
    page = write_report(run, again_s=10.0).read_text()
    assert "3 of 4 evaluation episodes succeed" in page and "2.0 s per cycle" in page
    assert '<meta http-equiv="refresh" content="10">' in page and "still going on" in page
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n".join(eval_lines("evaluation with noise", "++-")) + "\n")
    evaluation = read_run(run).evaluation
    assert (evaluation["stochastic"]["successes"], evaluation["stochastic"]["episodes"]) == (2, 3)
    assert "refresh" not in write_report(run).read_text()


def test_of_several_attempts_at_an_evaluation_only_the_newest_counts(tmp_path: Path) -> None:
    lines = eval_lines("evaluation", "----") + eval_lines("evaluation with noise", "--")
    again = [*lines, *eval_lines("evaluation", "+++")]
    (tmp_path / "metrics.jsonl").write_text("\n".join(again) + "\n")
    evaluation = read_run(tmp_path).evaluation
    assert evaluation["deterministic"]["episodes"] == evaluation["deterministic"]["successes"] == 3
    assert "stochastic" not in evaluation  # that of the older policy
    for arm, said in {"left": lines, "right": again}.items():
        folder = tmp_path / "arms" / arm
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("\n".join(said) + "\n")
    (tmp_path / "metrics.jsonl").unlink()
    evaluation = read_run(tmp_path).evaluation
    found = {kind: evaluation[kind]["episodes"] for kind in ("deterministic", "stochastic")}
    assert found == {"deterministic": 7, "stochastic": 2}  # 4 and 2 of the left one, 3 of the right


def test_an_evaluation_in_another_scene_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    evaluation = json.loads((run / "eval.json").read_text())
    part = {"successes": 5, "episodes": 9}
    facts = {"weights_version": 7, "seed": None, "evaluated_in": "physx task.randomize=all"}
    evaluation["evaluations"] = [{**evaluation, **facts}, {"deterministic": part, **facts}]
    (run / "eval.json").write_text(json.dumps(evaluation | {"evaluated_in": "simulation"}))
    page = write_report(run).read_text()
    assert "measured elsewhere: simulation</span></p>" in page
    assert "5 of 9 (weights 7, measured elsewhere: physx task.randomize=all)" in page
    for place in HOME:
        (run / "eval.json").write_text(json.dumps(evaluation | {"evaluated_in": place}))
        assert "elsewhere: simulation" not in write_report(run).read_text()


def practice(run: Path, *, until: int = 1156, aborted: bool = False) -> None:
    """Add metric lines of practice: an episode of 50 steps every 5 s."""
    steps = range(50, until, 50)
    rows = [
        {
            "time_s": steps / 10,
            "env_steps": steps,
            "episode/success": 1.0,
            "episode/length": 50,
            "episode/aborted": float(aborted),
        }
        for steps in (*steps, until)
    ]
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def test_success_that_was_measured_before_newer_practice_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path, episodes=0)
    evaluation = json.loads((run / "eval.json").read_text()) | {"train_s": 459}
    (run / "eval.json").write_text(json.dumps(evaluation | {"env_steps": 700}))
    practice(run, until=700)
    page = write_report(run).read_text()
    assert "7.7 minutes and 700 steps of practice" in page and "practised since" not in page
    practice(run)
    page = write_report(run, again_s=10.0).read_text()
    assert "measured after 700 steps; the policy has practised since" in page
    assert "1,156 steps of practice" not in page
    assert "7.7 minutes and 1,400 steps" in page  # the lines up to there, twice


def test_a_night_between_two_starts_is_no_time_at_work(tmp_path: Path) -> None:
    run = write_run(tmp_path, episodes=0)
    practice(run)
    late = [json.loads(x) for x in (run / "metrics.jsonl").read_text().split("\n") if x]
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(x | {"time_s": x["time_s"] + 3e4}) + "\n" for x in late)
    assert "<b>3.7 min</b><span>time at work" in write_report(run).read_text()


def test_a_short_stop_is_no_time_at_work_either(tmp_path: Path) -> None:
    """It is known from the first line of the process that goes on, or from its file."""
    run = write_run(tmp_path, episodes=0)
    practice(run)
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().split("\n") if x]
    until_s = max(x["time_s"] for x in lines)
    late = [x | {"time_s": x["time_s"] - lines[0]["time_s"] + until_s + 500.0} for x in lines]
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(x) + "\n" for x in late)
    page = write_report(run).read_text()
    assert "<b>3.7 min</b>" not in page  # nothing tells that it had been stopped
    alone = 2 * (until_s - lines[0]["time_s"]) / 60
    (run / "train.process.json").write_text(json.dumps({"began_s": until_s + 490.0}))
    assert f"<b>{alone:.1f} min</b><span>time at work" in write_report(run).read_text()
    (run / "train.process.json").unlink()
    late[0]["began_s"] = until_s + 490.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in [*lines, *late]))
    page = write_report(run).read_text()
    assert f"<b>{alone:.1f} min</b><span>time at work" in page and "began_s" not in page


def test_commands_to_repeat_a_run_quote_its_folder(tmp_path: Path) -> None:
    run = write_run(tmp_path / "my runs" / "reach; x" / "one's")
    found = re.search(r'<pre id="commands">(.*?)</pre>', write_report(run).read_text(), re.DOTALL)
    assert found is not None
    commands = [shlex.split(line) for line in unescape(found[1]).splitlines()[-2:]]
    folder = "my runs/reach; x/one's"
    assert commands == [["robot-rl", verb, folder] for verb in ("eval", "report")]
    deployed = write_run(tmp_path / "at work")
    write_deployment(deployed, "+-")
    look = shlex.join(["robot-rl", "review", str(deployed)])
    assert f"<code>{escape(look)}</code>" in write_report(deployed).read_text()


def test_aborted_episodes_are_drawn_and_neither_succeed_nor_fail(tmp_path: Path) -> None:
    run = write_run(tmp_path, episodes=0)
    practice(run, until=500)
    assert "aborted, which" not in write_report(run).read_text()
    practice(run, until=500, aborted=True)
    data = read_run(run)
    assert len(data.episodes()) == 20 and data.total("episode/length") == 1000
    success = data.series("episode/success")
    assert success is not None and success.value.tolist() == [1.0] * 10
    page = render(data)
    assert page.count('<g class="aborted">') == 10 and "episode 11: aborted" in page
    assert "aborted, which counts neither way" in page
    nothing = write_run(tmp_path / "nothing", episodes=0)
    practice(nothing, until=500, aborted=True)
    assert write_report(nothing).read_text().count('<g class="aborted">') == 10


def test_a_run_that_goes_on_says_that_its_success_is_measured_later(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run / "eval.json").unlink()
    assert "not evaluated yet" in write_report(run, again_s=10.0).read_text()
    assert "Run <code>robot-rl eval</code>" in write_report(run).read_text()


def test_the_first_success_is_shown_until_there_is_a_video(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run / "first_success.png").write_bytes(b"a picture")
    assert 'src="data:image/png;base64,YSBwaWN0dXJl"' in render(read_run(run))
    (run / "eval.mp4").write_bytes(b"a film")
    assert "image/png" not in render(read_run(run))
