"""What the terminal tells of a run's processes."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from rich.console import Console

from robot_rl.config.run_folder import METRICS, RUN
from robot_rl.errors import RobotRLError
from robot_rl.report.dashboard import Dashboard
from robot_rl.ros.supervise import Exit
from robot_rl.run import graph
from robot_rl.run.experiment import Experiment
from robot_rl.safety.advice import asked


def test_why_the_arm_stands_still_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(graph.time, "monotonic", lambda: now_s)
    caplog.set_level(logging.WARNING)
    path = graph.log_file(tmp_path, "gate")
    path.parent.mkdir()
    path.write_text("WARNING robot_rl.ros.gate_node: of an earlier run\n")
    stops = graph._Stops(tmp_path, ["gate", "watchdog"])
    line = (
        "WARNING robot_rl.ros.gate_node: protective stop: force: too much. What to do: free it.\n"
    )
    with path.open("a") as log:
        log.write("INFO robot_rl.ros.gate_node: run\n" + line + line + "WARNING robot_rl: torn")
    stops.look()
    told = "gate: protective stop: force: too much. What to do: free it."
    assert caplog.messages == [told]
    now_s += graph.AGAIN_S + 1
    with path.open("a") as log:
        log.write(" no more\n" + line)
    stops.look()
    assert caplog.messages == [told, "gate: torn no more", told]


def test_a_question_that_nobody_answers_reaches_the_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = graph.log_file(tmp_path, "left/actor")
    path.parent.mkdir(parents=True)
    stops = graph._Stops(tmp_path, ["left/actor"])
    question = asked("target in its place\nhands out of the way")
    lines = ("the gate refuses to arm: state: old", question)
    path.write_text("".join(f"WARNING robot_rl.ros.ports: {line}\n" for line in lines))
    stops.look()
    (told,) = caplog.messages
    assert told.startswith("left/actor: waits for a person: target in its place; hands out of")
    assert "actor/ready" in told


def test_no_episode_of_several_arms_is_lost(tmp_path: Path) -> None:
    words = ["experiment=reach", "runtime=lockstep", "actors=left,right", f"run_dir={tmp_path}"]
    experiment = Experiment.compose(words)
    board = Dashboard("reach", Console(file=io.StringIO()))

    class Both(graph.Nobody):
        """Both arms end their episode 3 at once."""

        def __init__(self) -> None:
            self.labels = {"both"}

        def poll(self) -> list[Exit]:
            for arm in experiment.arms:
                arm.run_dir.mkdir(parents=True)
                line = {"env_steps": 10, "episode/index": 3, "episode/success": 1.0}
                (arm.run_dir / METRICS).write_text(json.dumps(line) + "\n")
            return [Exit("both", 0, None, False)]

    graph.run(experiment, (), board.update, Both())
    assert "episodes 2" in board.line()


def test_a_folder_that_was_moved_meanwhile_is_said_to_be_gone(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / RUN).write_text("{}")
    died = Exit("actor", 2, None, fatal=True)
    with pytest.raises(RobotRLError, match="actor process cannot be kept alive"):
        graph._explain(died, run_dir)
    run_dir.rename(tmp_path / "elsewhere")
    with pytest.raises(RobotRLError, match="moved or deleted") as refused:
        graph._explain(died, run_dir)
    assert "new place" in refused.value.fix
