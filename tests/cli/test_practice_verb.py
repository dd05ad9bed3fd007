"""`robot-rl practice`: what it starts, and that it starts nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from robot_rl.cli.main import main
from robot_rl.run.experiment import Experiment


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """The experiments that would have been recorded."""
    found: list[Experiment] = []

    def record(experiment: Experiment, watch: Any) -> dict[str, Any]:
        found.append(experiment)
        return {}

    monkeypatch.setattr("robot_rl.run.record.record", record)
    return found


def test_a_simulated_run_in_real_time_whose_script_goes_on(
    started: list[Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["practice", "seed=3"]) == 0
    (experiment,) = started
    assert experiment.is_simulated and experiment.runtime == "ros" and experiment.seed == 3
    assert experiment.task.name == "reach" and experiment.run_dir.parent == Path("runs/practice")
    assert experiment.operator.with_script and experiment.operator.script_goes_on
    assert experiment.ros.real_time_factor == 1.0  # type: ignore[union-attr]
    assert f"{experiment.run_dir} may be deleted" in " ".join(capsys.readouterr().out.split())


def test_another_task_keeps_its_own_settings(started: list[Experiment]) -> None:
    assert main(["practice", "experiment=lift", "run_dir=elsewhere"]) == 0
    (experiment,) = started
    assert experiment.task.name == "lift" and experiment.run_dir == Path("elsewhere")
    task: Any = experiment.task
    own: Any = Experiment.compose(["experiment=lift"]).task
    assert task.translation_m == own.translation_m


@pytest.mark.parametrize(
    "words",
    [
        ["ros=real"],
        ["ros=real", "ros.double=true"],
        ["robot=ur5e_fzi"],
        ["robot=fr3_crisp"],
        ["runtime=lockstep"],
        ["operator=gamepad"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("more", [[], ["--config"]], ids=["", "config"])
def test_anything_but_practice_is_refused(
    words: list[str],
    more: list[str],
    started: list[Experiment],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["practice", *words, *more]) == 2
    said = capsys.readouterr().err
    assert started == []
    for part in ("expected:", "got:", "fix:"):
        assert part in said


def test_config_prints_and_starts_nothing(
    started: list[Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["practice", "--config"]) == 0
    assert started == []
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["name"] == "practice" and shown["operator"]["script_goes_on"] is True
