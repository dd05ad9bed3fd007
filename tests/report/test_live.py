"""What a run shows while it goes on: the report grows, and the first success is drawn once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import robot_rl.run.train
from robot_rl.cli.train import train_with_dashboard
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.geometry import pose
from robot_rl.report import live
from robot_rl.report.report import write_report
from robot_rl.report.rundata import FIRST_SUCCESS
from robot_rl.run.experiment import Experiment
from robot_rl.store.scenes import SCENES, SceneLog
from robot_rl.types import EpisodeId, Frame, RobotState
from tests.support.synthetic_run import write_run

STEPS = 12


def state(depth_m: float) -> RobotState:
    return RobotState(
        0.0, np.zeros(7), np.zeros(7), pose((0.5, 0.0, depth_m)), np.zeros(6), np.zeros(6), 0.01,
        {"hole": pose((0.5, 0.0, 0.0))},
    )  # fmt: skip


class Mirror:
    """Grey as deep as the tool."""

    def picture(self, state: RobotState) -> Any:
        grey = round(state.tcp_in_base.position_m[2] * 100)
        return np.full((live.HEIGHT, live.WIDTH, 3), (grey, 0, 0), np.uint8)

    def close(self) -> None: ...


def live_report(run_dir: Path, mirror: Any = None) -> live.Live:
    return live.Live(write_run(run_dir), mirror or (lambda *_: Mirror()))


def episode(index: int, success: float, human: float, prefix: str = "") -> dict[str, float]:
    values = {"index": index, "length": STEPS, "success": success, "intervention_rate": human}
    return {f"{prefix}episode/{key}": float(value) for key, value in values.items()}


def record(run_dir: Path, index: int) -> None:
    log = SceneLog(run_dir / SCENES)
    for number in range(STEPS + 1):
        frame = Frame(EpisodeId("run", "actor-0", index), number, 0, {})
        log.saw(frame, state(0.01 * number))
    log.flush()


@pytest.mark.parametrize("prefix", ["", "eval_"])
def test_the_first_success_without_help_is_drawn_when_its_scenes_are_there(
    prefix: str, tmp_path: Path
) -> None:
    shown = live_report(tmp_path)
    picture = tmp_path / FIRST_SUCCESS
    shown.update(episode(0, 0.0, 0.0, prefix))
    shown.update(episode(1, 1.0, 0.2, prefix))  # with help
    shown.update(episode(2, 1.0, 0.0, prefix))
    assert not picture.exists()  # its figures came before its scenes
    record(tmp_path, 2)
    shown.update({})
    strip = cv2.imread(str(picture))
    assert strip is not None and strip.shape == (live.HEIGHT, live.PICTURES * live.WIDTH, 3)
    reds = strip[0, live.WIDTH // 2 :: live.WIDTH, 2].tolist()
    assert reds == sorted(reds) and reds[0] == 0 and reds[-1] == STEPS  # from start to end
    assert "data:image/png" in (tmp_path / "report.html").read_text()
    before = picture.stat().st_mtime_ns
    shown.update(episode(3, 1.0, 0.0, prefix))
    assert picture.stat().st_mtime_ns == before


def test_without_opengl_the_run_goes_on_without_a_picture(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Any:
        raise SetupError("no OpenGL", expected="EGL", got="none", fix="install it")

    shown = live_report(tmp_path, broken)
    record(tmp_path, 0)
    for index in range(2):
        shown.update(episode(index, 1.0, 0.0))
    assert caplog.text.count("no picture of the first success") == 1
    assert not (tmp_path / FIRST_SUCCESS).exists()


def test_the_report_is_written_again_now_and_then_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = live_report(tmp_path)
    report = tmp_path / "report.html"
    shown.update({})
    assert not report.exists()
    shown._pause_s = 0.0
    monkeypatch.setattr(live, "write_report", lambda *_, **__: pytest.fail("in this process"))
    give_up_s = time.monotonic() + 60.0
    while not report.exists() and time.monotonic() < give_up_s:
        shown.update({})
        time.sleep(0.01)
    assert "still going on" in report.read_text()


def test_the_last_report_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    shown = live_report(tmp_path)
    shown._pause_s = 0.0
    shown.update({})
    writer = shown._writer
    assert writer is not None
    report = shown.write()
    assert writer.poll() is not None  # it has ended, one way or the other
    assert report is not None and "still going on" not in report.read_text()


def test_a_run_goes_on_without_its_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device")

    shown = live_report(tmp_path)
    shown._pause_s = 0.0
    monkeypatch.setattr(live.subprocess, "Popen", full)
    shown.update({})
    assert "the report was not written: [Errno 28]" in caplog.text
    (tmp_path / "config.yaml").write_text("[no, keys]")
    caplog.clear()
    record(tmp_path, 0)
    shown.update(episode(0, 1.0, 0.0))
    assert "holds something that no run writes" in caplog.text
    assert f"{tmp_path / FIRST_SUCCESS}\n" in caplog.text  # and not in a report
    assert shown.write() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RobotRLError("the learner died")])
@pytest.mark.parametrize("figures", [True, False])
def test_a_run_that_is_stopped_or_fails_leaves_its_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, figures: bool
) -> None:
    page = write_report(write_run(tmp_path), again_s=10.0)

    def train(_experiment: Experiment, watch: Any) -> dict[str, Any]:
        if figures:
            watch(episode(0, 0.0, 0.0))
        raise error

    monkeypatch.setattr(robot_rl.run.train, "train", train)
    with pytest.raises(type(error)):
        train_with_dashboard(Experiment.compose(["experiment=reach", f"run_dir={tmp_path}"]))
    going_on = "still going on" in page.read_text(), "refresh" in page.read_text()
    assert going_on == ((False,) * 2 if figures else (True,) * 2)  # else it is another process's


def test_a_report_that_takes_long_is_written_less_often(tmp_path: Path) -> None:
    shown = live_report(tmp_path)
    shown._pause_s = 0.0
    shown.update({})
    assert shown._writer is not None
    shown._writer.wait(60.0)
    shown._asked_s -= 3.0  # as if it had taken that much longer
    shown.update({})
    assert shown._writer is None and shown._pause_s >= 3.0 / live.SHARE
