"""A study: what runs, in which order, and what happens when one run fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from robot_rl.errors import ConfigError
from robot_rl.run import study as module
from robot_rl.run.experiment import Experiment
from robot_rl.run.study import VARIANTS, command, draw, study, with_predecessors

RESULT = {
    "deterministic": {"successes": 9, "episodes": 10, "cycle_time_s_mean": 2.0},
    "stochastic": {"success": 0.5},
    "env_steps": 100,
    "human_steps": 7,
    "train_s": 60.0,
}


def fake(monkeypatch: pytest.MonkeyPatch, failing: str = "") -> None:
    """Runs that end at once; the one called `failing` with an error."""

    def quick(name: str, task: str, seed: int, *, folder: Path, **_: object) -> list[str]:
        run = folder / f"{name}-s{seed}"
        code = (
            "import pathlib, sys\n"
            f"run = pathlib.Path({str(run)!r})\n"
            f"before = {str(folder / VARIANTS[name].before)!r} + '-s{seed}'\n"
            f"assert not {VARIANTS[name].before!r} or pathlib.Path(before, 'eval.json').is_file()\n"
            f"sys.exit(3) if {name == failing} else run.mkdir()\n"
            f"(run / 'eval.json').write_text({json.dumps(RESULT)!r})"
        )
        return [sys.executable, "-c", code]

    monkeypatch.setattr(module, "command", quick)


def test_a_run_starts_when_the_one_it_continues_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch)
    said: list[str] = []
    figures = study(
        "lift",
        names=["calql_wsrl", "full"],
        seeds=2,
        folder=tmp_path / "lift",
        jobs=3,
        dataset="runs/data",
        progress=said.append,
    )
    assert list(figures) == ["calql", "calql_wsrl", "full"]
    assert all(row["seeds"] == 2 and row["successes"] == [9, 9] for row in figures.values())
    assert said.index("started calql_wsrl-s0") > next(
        i for i, line in enumerate(said) if line.startswith("calql-s0: exit 0")
    )
    said.clear()
    study("lift", names=["full"], seeds=2, folder=tmp_path / "lift", progress=said.append)
    assert said == []  # nothing is run twice
    assert "<svg" in draw("lift", ["full"], 2, tmp_path / "lift")


def test_what_follows_a_failed_run_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch, failing="iql")
    said: list[str] = []
    figures = study(
        "lift",
        names=["iql_wsrl", "full"],
        seeds=1,
        folder=tmp_path,
        dataset="x",
        progress=said.append,
    )
    assert figures["full"]["seeds"] == 1 and figures["iql_wsrl"]["seeds"] == 0
    assert any("iql-s0: exit 3" in line for line in said)
    assert said[-1] == "left out, their predecessor failed: iql_wsrl-s0"


def test_recorded_data_is_asked_for_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recorded data"):
        study("lift", names=["full", "iql_wsrl"], seeds=1, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_every_variant_is_a_command_that_train_accepts(tmp_path: Path) -> None:
    from robot_rl.run.experiment import Experiment

    for name in VARIANTS:
        words = command(name, "peg_insert", 1, folder=tmp_path, extra=(), dataset="runs/data")
        assert words[4] == "train" and f"run_dir={tmp_path}/{name}-s1" in words
        longer = command(
            name,
            "peg_insert",
            1,
            folder=tmp_path,
            extra=["train.max_env_steps=77", "learner.pretrain_updates=88"],
            dataset="runs/data",
        )
        experiment = Experiment.compose(longer[5:])
        if "base=flow" not in longer:
            experiment.check()
        without = "train.max_env_steps=0" in VARIANTS[name].overrides  # it would be another variant
        assert experiment.train.max_env_steps == (0 if without else 77)
        untrained = "learner.pretrain_updates=0" in VARIANTS[name].overrides
        assert experiment.learner.pretrain_updates == (0 if untrained else 88)
    assert with_predecessors(["iql_wsrl", "iql"]) == ["iql", "iql_wsrl"]


def test_a_finished_run_of_other_settings_is_not_passed_off_as_this_study(tmp_path: Path) -> None:
    words = command("full", "reach", 0, folder=tmp_path, extra=["algo.gamma=0.9"])[5:]
    run = Experiment.compose(words).save()
    (run / "eval.json").write_text(json.dumps(RESULT))
    figures = study("reach", names=["full"], seeds=1, folder=tmp_path, extra=["algo.gamma=0.9"])
    assert figures["full"]["successes"] == [9]
    with pytest.raises(ConfigError, match="made with other settings"):
        study("reach", names=["full"], seeds=1, folder=tmp_path, extra=["algo.gamma=0.5"])
