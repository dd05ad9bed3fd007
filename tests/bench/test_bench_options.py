"""Options of `robot-rl bench`: what would measure nothing is refused before that."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from robot_rl.cli import bench
from robot_rl.cli.main import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("store --steps 5", "--steps leaves nothing to measure"),
        ("gate --seconds 0", "more than 0"),
        ("gate --seconds nan", "--seconds leaves nothing to measure"),
        ("gate --seconds inf", "--seconds leaves nothing to measure"),
        ("learner --seconds 0", "--seconds leaves nothing to measure"),
        ("learner --threads 0", "--threads leaves nothing to measure"),
        ("learner --device gpu", "invalid choice: 'gpu'"),
        ("reward --frames -1", "--frames leaves nothing to measure"),
        ("styles --seeds 0", "--seeds leaves nothing to measure"),
        ("inverse --seeds 0", "--seeds leaves nothing to measure"),
        ("person --seeds 0", "--seeds leaves nothing to measure"),
        ("person --demos 0", "--demos leaves nothing to measure"),
        ("person --minutes 0", "--minutes leaves nothing to measure"),
        ("console --hours 0", "--hours leaves nothing to measure"),
        ("gate --only ur5e", "it is an option of bench console, ik, arms"),
        ("store --seconds 3", "--steps"),
        ("learner --trials 3", "bench learner has no option --trials"),
        ("exam --compile", "none"),
    ],
)
def test_what_measures_nothing_is_refused(
    words: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measure(_seconds: float, **_options: Any) -> dict[str, float]:
        raise AssertionError("it is measured")

    monkeypatch.setattr(bench, "BENCHES", dict.fromkeys(bench.BENCHES, measure))
    assert main(["bench", *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_each_benchmark_gets_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, dict[str, Any]] = {}

    def measuring(name: str) -> Any:
        def measure(seconds: float, **options: Any) -> dict[str, float]:
            asked[name] = {"seconds": seconds, **options}
            return {}

        return measure

    monkeypatch.setattr(bench, "BENCHES", {name: measuring(name) for name in bench.BENCHES})
    for words in ("ik --only alone", "gate", "person --minutes 2", "reward --frames 0"):
        assert bench.run(words.split()) == 0
    assert asked["reward"] == {"seconds": 5, "frames": 0}
    assert asked["ik"] == {"seconds": 5, "only": "alone"} and asked["gate"] == {"seconds": 5}
    assert asked["person"]["minutes"] == 2.0 and asked["person"]["seeds"] == 3


def test_what_is_no_number_is_null_in_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures = {"a": math.nan, "b": [math.inf, 1.0], "c": {"d": -math.inf}, "e": 2, "f": "ok"}
    monkeypatch.setattr(bench, "BENCHES", {"link": lambda _seconds: figures})
    path = tmp_path / "b.json"
    assert main(["bench", "link", "--json", str(path)]) == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    written = json.loads(path.read_text(), parse_constant=refuse)["figures"]
    assert written == {"a": None, "b": [None, 1.0], "c": {"d": None}, "e": 2, "f": "ok"}
