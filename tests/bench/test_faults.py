"""The fault table as a program: verdicts, what is printed and written, what is refused."""

from __future__ import annotations

import json
import math
import re
import signal
import sys
from pathlib import Path

import pytest

from robot_rl.bench.faults import docs, gate, page, rewards, running, table
from robot_rl.bench.faults.case import (
    AGAIN,
    FULL_S,
    MET,
    NOT_MET,
    NOT_RUN,
    Case,
    Context,
    Figure,
    Limit,
    Measured,
    NotHereError,
    Result,
    judge,
    spread,
)
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.bench.faults.worlds import WORLDS, Worlds
from robot_rl.cli.faults import EXAMPLES
from robot_rl.cli.main import main
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.link.auth import LinkSetupError

LIMITS = (Limit("time to hold, p99", "ms", at_most=120.0), Limit("seen", "", at_least=1.0))


def case(measure: object = None, **changes: object) -> Case:
    given = {
        "number": 99,
        "name": "made_up",
        "title": "made up <b>",
        "injection": "nothing",
        "promise": "all is well",
        "limits": LIMITS,
        "fails_if": "it fails",
        "full": 1000,
        "measure": measure or (lambda context: good()),
    }
    return Case(**given | changes)  # type: ignore[arg-type]


def good(ms: float = 100.0, n: int = 10) -> Measured:
    return Measured.of(spread("time to hold", [ms] * n, "ms"), Figure("seen", n, ""), n=n)


@pytest.mark.parametrize(
    ("measured", "verdict", "reason"),
    [
        (good(), MET, ""),
        (good(121.0), NOT_MET, "time to hold, p99: at most 120 ms, got 121"),
        (good(math.nan), NOT_MET, "got not a number"),
        (Measured.of(Figure("seen", 3, ""), n=3), NOT_MET, "time to hold, p99: at most 120 ms, "),
        (good(n=4), NOT_MET, "too few samples: 4, of which 5 are needed"),
        (Measured.of(Figure("seen", 0, ""), n=0), NOT_MET, "seen: at least 1, got 0; too few"),
    ],
)
def test_a_case_is_judged_by_its_figures_and_never_by_itself(
    measured: Measured, verdict: str, reason: str
) -> None:
    found, why = judge(case(least=1 if measured.n == 3 else 5), measured)
    assert found == verdict
    assert reason in why


def test_a_limit_is_an_upper_or_a_lower_one() -> None:
    with pytest.raises(ValueError, match="at_most or at_least"):
        Limit("x", "s")
    with pytest.raises(ValueError, match="at_most or at_least"):
        Limit("x", "s", at_most=1.0, at_least=0.0)
    assert not Limit("x", "s", at_most=1.0).keeps(math.nan)


def run_one(one: Case, seconds: float = 1.0) -> table.Result:
    (result,) = running.run([one], seconds)
    return result


def test_what_a_case_raises_is_told_and_ends_nothing() -> None:
    def lacks(_: Context) -> Measured:
        raise NotHereError("no browser", fix="install one")

    def breaks(_: Context) -> Measured:
        raise RobotRLError("the arm moves", got="5 mm")

    def slips(_: Context) -> Measured:
        raise KeyError("a defect of the case")

    def lacks_a_package(_: Context) -> Measured:
        raise SetupError("ROS 2 (rclpy) is not installed", fix="run make setup")

    def refuses(_: Context) -> Measured:
        raise LinkSetupError("the link is refused", got="another key")

    lacking, broken, slipped = (run_one(case(m)) for m in (lacks, breaks, slips))
    assert (lacking.verdict, lacking.reason) == (NOT_RUN, "no browser; install one")
    assert (broken.verdict, broken.reason) == (NOT_MET, "the arm moves; 5 mm")
    assert slipped.verdict == NOT_MET and "KeyError" in slipped.reason
    assert table.failed([broken]) and not table.failed([lacking])
    assert run_one(case(lacks_a_package)).verdict == NOT_RUN
    assert run_one(case(refuses)).verdict == NOT_MET


@pytest.mark.parametrize("name", ["console_killed", "page_silent", "two_browsers"])
def test_a_case_that_needs_the_console_is_not_run_without_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    (chosen,) = table.chosen([name])
    result = run_one(chosen)
    assert (result.verdict, "fastapi is not installed" in result.reason) == (NOT_RUN, True)


def test_samples_fit_the_time_and_are_all_taken_without_a_limit(tmp_path: Path) -> None:
    with Worlds(tmp_path) as worlds:
        none_left = Context(case(least=3), tmp_path, -1.0, worlds)
        assert list(none_left.trials()) == [0, 1, 2]
        assert list(none_left.trials(7)) == [0]
        assert none_left.seconds(600.0, 2.0) == 2.0
        full = Context(case(), tmp_path, FULL_S, worlds)
        assert len(list(full.trials())) == 1000 and full.seconds(600.0, 2.0) == 600.0


def test_a_disturbed_trial_is_made_again_but_not_for_ever() -> None:
    def disturbs(often: int) -> Case:
        def measure(context: Context) -> Measured:
            seen, took_ms = [], []
            for trial in context.trials():
                seen.append(trial)
                took_ms.append(context.timed(math.nan if len(seen) <= often else 100.0))
            n = sum(not math.isnan(ms) for ms in took_ms)
            return good(n=n) if n else Measured.of(Figure("seen", len(seen), ""), n=0)

        return case(measure, full=2)

    twice, always = run_one(disturbs(2)), run_one(disturbs(1000))
    assert (twice.verdict, twice.measured.n) == (MET, 2)
    assert "2 disturbed trials were made again" in twice.measured.note
    assert always.verdict == NOT_MET
    assert always.measured.figures == (Figure("seen", 2 + AGAIN, ""),)


def test_a_case_injects_the_same_alone_and_in_the_table(tmp_path: Path) -> None:
    with Worlds(tmp_path) as worlds:
        draws = [Context(case(number=n), tmp_path, 1.0, worlds).rng.random() for n in (3, 3, 4)]
    assert draws[0] == draws[1] != draws[2]


def test_every_case_of_the_table_says_what_it_promises_and_what_would_fail_it() -> None:
    known = table.cases()
    assert [c.number for c in known] == list(range(1, 35))
    assert len({c.name for c in known}) == len(known)
    for c in known:
        assert c.name.isidentifier() and c.limits and c.full >= c.least >= 1
        assert c.world in ("", *WORLDS)
        assert all((c.title, c.injection, c.promise, c.fails_if))


def test_a_case_that_injects_in_turn_takes_each_at_least_once() -> None:
    least = {c.name: c.least for c in table.cases()}
    assert least["clock_jumps"] == len(gate.STEPS_S) == 4
    assert least["service_fails"] == len(rewards.FAILURES) == 5
    assert least["mismatch"] == least["wrong_key"] == 4
    assert least["frozen"] == least["force"] == least["nan_loss"] == 2


def test_a_result_comes_back_from_the_process_beside_as_it_was() -> None:
    one = case(lambda context: Measured.of(Figure("seen", math.nan, "ms"), n=3, note="few"))
    result = run_one(one)
    found = running.read(running.write(result), {99: one})
    assert found is not None and found.measured.n == 3 and found.measured.note == "few"
    assert math.isnan(found.measured.figures[0].value)
    assert (found.verdict, found.reason) == (result.verdict, result.reason)
    for text in ("", "{}", "[]", "Traceback", '{"number": 98}'):
        assert running.read(text, {99: one}) is None


def test_cases_without_a_graph_run_beside_and_one_that_is_lost_is_not_met() -> None:
    stuck = next(c for c in table.cases() if c.name == "stuck")
    seen: list[str] = []
    with running.Lane((stuck,), 1.0, lambda result: seen.append(result.case.name)) as lane:
        pass
    assert seen == ["stuck"] and [r.verdict for r in lane.results] == [MET]
    with running.Lane((case(),), 1.0, lambda result: None) as lane:  # a number that is not there
        pass
    (lost,) = lane.results
    assert lost.verdict == NOT_MET and "ended with code" in lost.reason


def test_a_table_that_is_interrupted_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    long = next(c for c in table.cases() if c.name == "hostile")  # ten million samples
    with (
        pytest.raises(KeyboardInterrupt),
        running.Lane((long,), 1e9, lambda result: None) as lane,
    ):
        wait_for(lambda: list(tmp_path.glob("robot-rl-faults-*/case-15")), 60.0, "it has begun")
        raise KeyboardInterrupt
    assert lane._process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("robot-rl-faults-*"))


def test_table_page_and_document_show_the_same(tmp_path: Path) -> None:
    results = [run_one(case()), run_one(case(lambda context: good(200.0), number=98))]
    facts = table.facts(results, 60.0)
    assert json.loads(json.dumps(facts, allow_nan=False))["faults"] == {
        MET: 1, NOT_MET: 1, NOT_RUN: 0}  # fmt: skip
    lines = "\n".join(table.text(results))
    assert "NOT MET" in lines and "1 met, 1 not met of 2 cases" in lines
    html = page.write_page(tmp_path / "faults.html", facts).read_text()
    assert "made up &lt;b&gt;" in html and "time to hold, p99 200 ms" in html
    assert "1 of 2 promises kept" in html and "http" not in html.split("<body>")[1]
    facts = docs.joined([facts, table.facts([run_one(case(number=97))], 60.0)])
    assert [c["number"] for c in facts["cases"]] == [97, 98, 99] and facts["faults"][MET] == 2
    again = docs.joined([facts, table.facts([run_one(case(number=96))], 60.0)])
    assert [c["number"] for c in again["cases"]] == [96, 97, 98, 99]
    assert again["commands"] == [*facts["commands"], facts["command"]]
    text = docs.page(f"head\n{docs.BEGIN}\nold\n{docs.END}\ntail\n", facts)
    assert text.startswith("head\n") and text.endswith("tail\n") and "\nold\n" not in text
    assert "**not met**" in text and "10 of 1,000" in text
    with pytest.raises(ValueError, match="markers"):
        docs.page("no markers", facts)


def test_the_published_page_says_what_the_published_figures_say() -> None:
    text = docs.PAGE.read_text()
    figures = json.loads(docs.FIGURES.read_text())
    assert docs.page(text, figures) == text, "run: python -m robot_rl.bench.faults.docs"


def test_the_published_figures_are_those_of_the_cases_as_they_are() -> None:
    published = json.loads(docs.FIGURES.read_text())["cases"]
    words = ("number", "name", "title", "injection", "promise", "fails_if", "limits", "full")
    nothing = (table.facts_of(Result(case=c, verdict=MET, measured=good())) for c in table.cases())
    assert [[c[w] for w in words] for c in published] == [[c[w] for w in words] for c in nothing]
    for c in published:
        known = {figure["name"] for figure in c["figures"]}
        assert {limit.partition(":")[0] for limit in c["limits"]} <= known, c["number"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--case", "gate_kild"], "did you mean 'gate_killed'"),
        (["--case", "35"], "a number from 1 to 34"),
        (["--case", "4", "--seconds", "0"], "--seconds 1 or more"),
        (["--case", "4", "--seconds", "nan"], "--seconds 1 or more"),
        (["--full", "--seconds", "9"], "leave one out"),
        (["--cas", "4"], "did you mean '--case'"),
        (["--case", "21", "--out", "FILE"], "a folder"),
    ],
)
def test_what_it_does_not_understand_is_one_error_with_a_fix(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["faults", *(str(file) if w == "FILE" else w for w in words)]) == 2
    told = capsys.readouterr().err
    assert said in told and "fix:" in told


def test_a_case_by_number_and_name_is_run_once_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--case", "7", "--case", "stuck", "--seconds", "1", "--out", str(tmp_path / "out")]
    assert main(["faults", *words]) == 0
    told = capsys.readouterr().out
    assert "[ 1/1]  7" in told and "1 met of 1 cases" in told
    (found,) = json.loads((tmp_path / "out" / "faults.json").read_text())["cases"]
    assert found["verdict"] == MET and found["n"] >= 100
    assert (tmp_path / "out" / "faults.html").is_file()


def test_what_has_ended_is_on_the_disk_when_a_long_table_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(context: Context) -> Measured:
        raise KeyboardInterrupt

    two = (case(lambda context: good(1.0)), case(interrupted, number=100, name="other"))
    monkeypatch.setattr(table, "cases", lambda: two)
    assert main(["faults", "--full", "--out", str(tmp_path)]) == 130
    (found,) = json.loads((tmp_path / "faults.json").read_text())["cases"]
    assert found["number"] == two[0].number and found["verdict"] == MET


def test_a_promise_that_is_not_kept_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "cases", lambda: (case(lambda context: good(500.0)),))
    assert main(["faults", "--seconds", "1", "--out", str(tmp_path)]) == 1


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 34


@pytest.mark.parametrize("text", [EXAMPLES, docs.PAGE.read_text()], ids=["help", "page"])
def test_the_cases_that_are_named_as_examples_exist(text: str) -> None:
    words = re.findall(r"--case (\w+)", text)
    assert words and table.chosen(words)  # a word that names no case would raise
