"""No evaluation takes the place of a larger one, and none is lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.cli.eval import FIRST_SEED
from robot_rl.cli.main import main
from robot_rl.control.session import EVAL_SEED
from robot_rl.report.page import headline
from robot_rl.report.rundata import read_run
from robot_rl.run.evaluations import read_eval, with_evaluation, write_eval
from robot_rl.run.train import finish
from tests.support.session import TRAIN, make_session


def one(episodes: int, weights: int = 7, seed: int = 1_000_000, **more: Any) -> dict[str, Any]:
    part = {"successes": episodes, "episodes": episodes, "cycle_time_s_mean": None}
    facts = {"seed": seed, "weights_version": weights, "evaluated_in": "lockstep"}
    return {"deterministic": part, "stochastic": part} | facts | more


def test_two_episodes_do_not_replace_a_hundred(tmp_path: Path) -> None:
    write_eval(tmp_path, one(100, train_s=60.0))
    shown = write_eval(tmp_path, one(2, seed=2_000_000))
    assert shown == read_eval(tmp_path)
    assert shown["deterministic"]["episodes"] == 100 and shown["seed"] == 1_000_000
    assert [e["seed"] for e in shown["evaluations"]] == [1_000_000, 2_000_000]
    assert shown["train_s"] == 60.0  # what is true of the run stays
    assert write_eval(tmp_path, one(100, seed=3_000_000))["seed"] == 3_000_000  # equals: the newest
    page = headline(read_run(tmp_path))
    assert "100 of 100 evaluation episodes" in page and "2 of 2 (weights 7" in page


@pytest.mark.parametrize("held", [0, 2, 4])
def test_of_an_evaluation_that_is_stopped_nothing_is_written(held: int, tmp_path: Path) -> None:
    train = dataclasses.replace(TRAIN, eval_episodes=3, stochastic_eval_episodes=2)
    session, starts, _ = make_session(train=train)
    session.stopping = lambda: "asked to stop" if len(starts) >= held else ""
    assert finish(session, tmp_path, runtime="ros") == {}
    assert read_eval(tmp_path) == {} and len(starts) == held
    session.stopping = lambda: ""  # started again
    result = finish(session, tmp_path, runtime="ros")
    assert result == read_eval(tmp_path) and len(result["evaluations"]) == 1
    assert [result[part]["successes"] for part in ("deterministic", "stochastic")] == [3, 2]


def test_figures_of_the_simulation_do_not_replace_those_of_the_arm(tmp_path: Path) -> None:
    write_eval(tmp_path, one(50, evaluated_in="ros"))
    shown = write_eval(tmp_path, one(100, evaluated_in="simulation"))
    assert shown["deterministic"]["episodes"] == 50 and shown["evaluated_in"] == "ros"


def test_a_policy_that_has_learned_more_is_judged_by_its_own_evaluations(tmp_path: Path) -> None:
    write_eval(tmp_path, one(100, env_steps=700, train_s=60.0))
    shown = write_eval(tmp_path, one(2, weights=8))
    assert shown["deterministic"]["episodes"] == 2 and len(shown["evaluations"]) == 2
    assert not {"env_steps", "train_s"} & shown.keys()  # these were of the older policy


def test_the_file_of_an_older_version_counts_as_one_evaluation(tmp_path: Path) -> None:
    old = {k: v for k, v in one(50).items() if k not in ("seed", "evaluated_in")}
    (tmp_path / "eval.json").write_text(json.dumps(old))
    shown = write_eval(tmp_path, one(2))
    assert shown["deterministic"]["episodes"] == 50 and len(shown["evaluations"]) == 2
    assert "50 of 50 evaluation episodes" in headline(read_run(tmp_path))


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3)), min_size=1, max_size=12))
def test_the_largest_of_the_newest_policy_is_shown(sizes: list[tuple[int, int]]) -> None:
    content: dict[str, Any] = {}
    for episodes, weights in sizes:
        content = with_evaluation(content, one(episodes, weights), "")
    newest = sizes[-1][1]
    assert content["deterministic"]["episodes"] == max(n for n, w in sizes if w == newest)
    assert len(content["evaluations"]) == len(sizes)


def test_starts_of_practice_are_no_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(tmp_path), "--seed", "5"]) != 0
    assert "--seed must be at least 1000000" in capsys.readouterr().err
    assert FIRST_SEED == EVAL_SEED
