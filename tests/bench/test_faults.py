"""The fault table as a program: verdicts, what is printed and written, what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from robot_rl.bench.faults import docs, page, running, table
from robot_rl.bench.faults.case import (
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
    judge,
    spread,
)
from robot_rl.bench.faults.worlds import WORLDS, Worlds
from robot_rl.cli.faults import EXAMPLES
from robot_rl.cli.main import main
from robot_rl.errors import RobotRLError

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
        (good(n=4), NOT_RUN, "4 samples, of which 5 are needed"),
    ],
)
def test_a_case_is_judged_by_its_figures_and_never_by_itself(
    measured: Measured, verdict: str, reason: str
) -> None:
    found, why = judge(case(least=5 if measured.n != 3 else 1), measured)
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

    lacking, broken, slipped = (run_one(case(m)) for m in (lacks, breaks, slips))
    assert (lacking.verdict, lacking.reason) == (NOT_RUN, "no browser; install one")
    assert (broken.verdict, broken.reason) == (NOT_MET, "the arm moves; 5 mm")
    assert slipped.verdict == NOT_MET and "KeyError" in slipped.reason
    assert table.failed([broken]) and not table.failed([lacking])


def test_samples_fit_the_time_and_are_all_taken_without_a_limit(tmp_path: Path) -> None:
    with Worlds(tmp_path) as worlds:
        none_left = Context(case(least=3), tmp_path, -1.0, worlds)
        assert list(none_left.trials()) == [0, 1, 2]
        assert list(none_left.trials(7)) == [0]
        assert none_left.seconds(600.0, 2.0) == 2.0
        full = Context(case(), tmp_path, FULL_S, worlds)
        assert len(list(full.trials())) == 1000 and full.seconds(600.0, 2.0) == 600.0


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
    text = docs.page(f"head\n{docs.BEGIN}\nold\n{docs.END}\ntail\n", facts)
    assert text.startswith("head\n") and text.endswith("tail\n") and "\nold\n" not in text
    assert "**not met**" in text and "10 of 1,000" in text
    with pytest.raises(ValueError, match="markers"):
        docs.page("no markers", facts)


def test_the_published_page_says_what_the_published_figures_say() -> None:
    text = docs.PAGE.read_text()
    figures = json.loads(docs.FIGURES.read_text())
    assert docs.page(text, figures) == text, "run: python -m robot_rl.bench.faults.docs"


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
