"""`robot-rl camera`: the list with what to write, pictures without a page, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("fastapi", reason="the console extra is not installed")

from robot_rl.cli import camera
from robot_rl.cli.main import main
from robot_rl.errors import SetupError
from robot_rl.ros.graph import free_domain
from robot_rl.run.experiment import Experiment
from robot_rl_hardware import realsense, uvc
from robot_rl_hardware.reader import FoundDevice
from tests.support.films import SIZE, write_film

BY_ID = "/dev/v4l/by-id/usb-046d_C920-video-index0"


@pytest.fixture(autouse=True)
def _plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A RealSense, and a UVC camera without permission; no ROS 2."""
    d435 = FoundDevice("realsense", "Intel RealSense D435", "0123456789")
    c920 = FoundDevice("uvc", "C920", BY_ID, "no read permission")
    monkeypatch.setattr(realsense, "find_realsense", lambda: [d435])
    monkeypatch.setattr(uvc, "find_uvc", lambda: [c920])
    monkeypatch.delenv("ROS_DOMAIN_ID", raising=False)
    engine = camera.engine

    def without_ros(target: str) -> Any:
        if target.startswith("robot_rl.ros"):
            raise SetupError("this verb needs the package 'rclpy'", fix="source ROS 2")
        return engine(target)

    monkeypatch.setattr(camera, "engine", without_ros)


def test_devices_are_listed_with_what_to_write_and_what_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    figures = tmp_path / "cameras.json"
    assert main(["camera", "list", "--json", str(figures)]) == 0
    text = capsys.readouterr().out
    assert "Intel RealSense D435 (serial 0123456789)" in text
    assert "cameras.NAME.name=realsense 'cameras.NAME.serial=\"0123456789\"'" in text
    assert f"cameras.NAME.name=uvc cameras.NAME.device={BY_ID}" in text
    assert "no read permission" in text and "sudo usermod -aG video $USER" in text
    assert "topics are not listed: this verb needs the package 'rclpy'" in text
    said = json.loads(figures.read_text())
    assert [d["kind"] for d in said["devices"]] == ["realsense", "uvc"] and said["topics"] == []


def test_what_the_list_says_can_be_written_as_it_is() -> None:
    use = camera.words_for({"name": "realsense", "serial": "0123456789"}).replace("NAME", "wrist")
    words = [word.strip("'") for word in use.split()]
    found = Experiment.compose(["experiment=lift_pixels", *words]).cameras["wrist"]
    assert isinstance(found, realsense.RealSenseConfig) and found.serial == "0123456789"
    path = camera.words_for({"device": BY_ID}).replace("NAME", "wrist")
    wrist = Experiment.compose(["experiment=lift_pixels", "cameras.wrist.name=uvc", path]).cameras
    assert wrist["wrist"] == uvc.UvcConfig(device=BY_ID)
    assert camera.words_for({"device": "a b"}) == "'cameras.NAME.device=\"a b\"'"


def test_a_machine_without_cameras_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(realsense, "find_realsense", list)
    monkeypatch.setattr(uvc, "find_uvc", list)
    assert main(["camera", "list"]) == 1
    text = capsys.readouterr().out
    assert "no RealSense camera found" in text and "no UVC camera found" in text
    assert text.count("fix:") == 3  # and how to get ROS


def test_the_domain_is_the_given_one_then_the_shells_then_a_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Experiment.compose([])
    assert camera._domain([], run) == 42
    monkeypatch.setenv("ROS_DOMAIN_ID", "5")
    assert camera._domain([], run) == 5
    given = ["ros.domain_id=7"]
    assert camera._domain(given, Experiment.compose(given)) == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["camera", "shwo"], "did you mean 'show'"),
        (["camera", "show", "experiment=lift"], "the task has no cameras"),
        (["camera", "show", "experiment=lift_pixels", "cameras.wirst.topic=/a"], "'wrist'"),
        (["camera", "show", "no/such/run"], "no run in 'no/such/run'"),
        (["camera", "show", "experiment=lift_pixels", "cameras.wrist.crop=[600,0,99,9]"],
         "leaves the picture"),
        (["camera", "roi", "wirst", "experiment=lift_pixels"], "did you mean 'wrist'"),
        (["camera", "roi", "wrist", "runs/mine/1"], "a run keeps the crops"),
        (["camera", "roi"], "NAME"),
        (["camera", "show", "experiment=lift_pixels", "--host", "192.168.0.1"],
         "this machine only"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_error_with_its_fix(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("expected:") == error.count("got:") == error.count("fix:") == 1


def test_pictures_are_saved_without_a_page_also_those_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    film, out = write_film(tmp_path / "film.avi", 20.0), tmp_path / "out"
    words = ["experiment=lift_pixels", "task.images=[wrist]", "cameras.wrist.name=uvc"]
    words += [f"cameras.wrist.{k}={v}" for k, v in {"device": film, **SIZE}.items()]
    words += [f"ros.domain_id={free_domain()}"]  # in which no graph has such a camera
    assert main(["camera", "show", *words, "--save", str(out)]) == 0
    assert {p.name for p in out.iterdir()} == {"wrist_whole.png", "wrist_seen.png"}
    assert "the network sees 120 x 120 of it from (20, 0), at 64 x 64" in capsys.readouterr().out
    run = Experiment.compose([*words, f"run_dir={tmp_path / 'run'}"]).save()
    assert main(["camera", "show", str(run), "--save", str(tmp_path / "again")]) == 0
    film.unlink()
    assert main(["camera", "show", *words, "--config"]) == 0
    assert "device:" in capsys.readouterr().out
