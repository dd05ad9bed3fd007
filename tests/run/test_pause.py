"""`robot-rl pause`: a run waits between two episodes, and starting it again ends the pause."""

from __future__ import annotations

import shlex
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from robot_rl.cli.main import main
from robot_rl.config.run_folder import METRICS, PAUSED
from robot_rl.console.telemetry import WAITS, word_of
from robot_rl.run.deploy import DeployPlan, write_plan
from robot_rl.run.experiment import Experiment
from robot_rl.run.pause import end_pause, is_paused, pause
from robot_rl.run.record import record
from tests.support.served import until


def test_a_recording_waits_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run_dir = tmp_path / "run"
    words = ["experiment=reach", "train.demos=20", f"run_dir={run_dir}"]
    experiment = Experiment.compose(words)
    experiment.save()
    pause(run_dir)  # a pause of before: who starts a run wants it to go on
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(record(experiment)))
    thread.start()
    metrics = run_dir / METRICS
    until(lambda: metrics.exists() and metrics.stat().st_size > 0)
    assert main(["pause", str(run_dir)]) == 0
    said = capsys.readouterr().out
    assert "the episode that runs ends first" in said and "--end" in said and is_paused(run_dir)
    until(lambda: "paused: no episode begins" in caplog.text, 60.0)  # the one that runs ends
    before = metrics.stat().st_size
    time.sleep(1.0)
    assert metrics.stat().st_size == before and not done
    assert main(["pause", str(run_dir), "--end"]) == 0
    assert main(["pause", str(run_dir), "--end"]) == 0
    assert capsys.readouterr().out.split("\n")[-3:-1] == ["goes on", "it was not paused"]
    thread.join(120.0)
    assert done and metrics.stat().st_size > before and not (run_dir / PAUSED).exists()
    assert not end_pause(run_dir)


def test_a_pause_where_nobody_works_is_said_and_its_command_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = Experiment.compose(["experiment=reach", f"run_dir={tmp_path}/x=1 ü#"]).save()
    assert main(["pause", str(run_dir)]) == 0
    said = capsys.readouterr().out
    assert "no process is seen" in said and "the episode that runs" not in said
    again = shlex.split(said.partition("go on: robot-rl ")[2])
    assert main(again) == 0 and capsys.readouterr().out == "goes on\n"


def test_a_deployment_does_not_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = Experiment.compose(["experiment=reach", f"run_dir={tmp_path}/deploy"]).save()
    write_plan(run_dir, asdict(DeployPlan(run="run")))
    assert main(["pause", str(run_dir)]) == 2
    assert "Ctrl-C in its terminal ends it" in capsys.readouterr().err
    assert not is_paused(run_dir)


def test_the_page_says_that_the_run_is_paused_but_not_over_a_stop() -> None:
    view = {"gate": {"mode": "hold", "reason": "start"}, "episode": {"active": False}}
    assert word_of(view, paused=True) == ("HOLD", WAITS["run"])
    running = {"gate": {"mode": "run"}, "episode": {"active": True, "purpose": "train"}}
    assert word_of(running, paused=True)[0] == "POLICY"
    to_its_start = {"gate": {"mode": "run"}, "episode": {"active": False}}  # it moves
    assert word_of(to_its_start, paused=True)[0] == "RESETTING"
    asks = view | {"asks": "put the cube back"}
    assert word_of(asks, paused=True) == ("RESET?", "put the cube back")
    stopped = {"gate": {"mode": "protective_stop", "reason": "force: 61 N"}}
    assert word_of(stopped, paused=True)[0] == "PROTECTIVE STOP"
