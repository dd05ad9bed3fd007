"""Cameras of an experiment, looked at without a page: whole, seen, saved; crops kept in YAML."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")

import cv2

from robot_rl.errors import ConfigError, SetupError
from robot_rl.observe import cameras as lenses
from robot_rl.observe.cameras import Calibration, CameraConfig, TopicCameraConfig
from robot_rl.observe.watching import Blind, Sight
from robot_rl.run import cameras
from robot_rl.run.camera_crop import CropKeeper, place_of
from robot_rl.run.cameras import Eyes, open_eyes, save_pictures
from robot_rl.run.experiment import Experiment
from tests.support.films import HEIGHT, SIZE, WIDTH, ramp, write_film

K = np.array(((100.0, 0.0, 79.5), (0.0, 100.0, 59.5), (0.0, 0.0, 1.0)))
MINE = """# @package _global_
# my own
defaults:
  - lift_pixels
  - _self_
name: mine # of the task
cameras:
  wrist: { topic: /hand/image } # as the driver calls it
"""


class Still:
    """A camera that has sent one picture."""

    def __init__(self, rgb: np.ndarray, calibration: Calibration | None = None) -> None:
        self._sight = Sight("a picture", 10, rgb, time.monotonic(), 0.0, 30.0, 1, calibration)

    def sight(self) -> Sight:
        return self._sight


def eyes(config: CameraConfig | None = None, size: tuple[int, int] = (32, 32)) -> Eyes:
    given = TopicCameraConfig(**SIZE) if config is None else config
    return Eyes({"wrist": given}, {"wrist": size}, {"wrist": Still(ramp(), Calibration(K))})


def decoded(png: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


def test_what_is_seen_is_what_a_run_sees_pixel_by_pixel() -> None:
    config = TopicCameraConfig(crop=(20, 10, 80, 60), **SIZE)
    head, whole, seen = eyes(config).look("wrist", {})
    assert whole[:2] == b"\xff\xd8"
    assert np.array_equal(decoded(seen), config.view((32, 32)).of(ramp()))
    assert head["part"] == (30, 10, 60, 60) and head["crop"] == (20, 10, 80, 60)
    assert (head["width"], head["height"], head["lost"]) == (WIDTH, HEIGHT, 1)
    assert head["k"][0][0] == pytest.approx(100.0 * 32 / 60) and head["warning"] == ""


def test_a_drawn_crop_is_used_in_place_of_the_configured_one() -> None:
    looked = eyes(TopicCameraConfig(crop=(0, 0, 40, 40), **SIZE))
    head, _, seen = looked.look("wrist", {"crop": [100, 60, 60, 60]})
    assert head["part"] == (100, 60, 60, 60)
    assert np.array_equal(decoded(seen), looked.view(
        "wrist", {"crop": [100, 60, 60, 60]}, (HEIGHT, WIDTH)).of(ramp()))  # fmt: skip
    head, *_ = looked.look("wrist", {"crop": None})
    assert head["part"] == (20, 0, 120, 120)


def test_pictures_that_the_page_has_are_not_sent_again_unless_the_crop_is_another() -> None:
    looked = eyes()
    _, whole, seen = looked.look("wrist", {"after": 10, "same": True})
    assert (whole, seen) == (b"", b"")
    _, whole, seen = looked.look("wrist", {"after": 10, "same": False, "crop": [0, 0, 50, 50]})
    assert whole == b"" and seen


@pytest.mark.parametrize(
    ("crop", "words"),
    [
        ([100, 0, 100, 50], "leaves the picture"),
        ([-1, 0, 10, 10], "leaves the picture"),
        ([0, 0, 0, 10], "leaves the picture"),
        ([0, 0, 1.5, 10], "this is no crop"),
        ([0, 0, True, 10], "this is no crop"),
        ("all", "this is no crop"),
        ([1, 2, 3], "this is no crop"),
    ],
)
def test_a_crop_that_cannot_be_is_told_in_place_of_the_seen_picture(crop: Any, words: str) -> None:
    head, whole, seen = eyes().look("wrist", {"crop": crop})
    assert whole and not seen
    problem = head["crop_problem"]
    assert words in problem["summary"] and problem["expected"] and problem["got"] and problem["fix"]


def test_a_crop_that_was_drawn_in_pictures_of_another_size_is_told() -> None:
    head, whole, seen = eyes(TopicCameraConfig(crop=(0, 0, 40, 40))).look("wrist", {})
    assert whole and not seen
    assert "drawn in pictures of another size" in head["crop_problem"]["summary"]
    assert "robot-rl camera roi" in head["crop_problem"]["fix"]


def test_a_crop_with_fewer_pixels_than_the_network_sees_is_warned_of() -> None:
    head, _, seen = eyes(size=(64, 64)).look("wrist", {"crop": [0, 0, 40, 30]})
    assert "only 30 x 30 pixels are seen" in head["warning"] and "64 x 64" in head["warning"]
    assert decoded(seen).shape == (64, 64, 3)


def test_a_camera_that_sends_nothing_has_a_reason_instead_of_pictures() -> None:
    error = SetupError("it is off", expected="on", got="off", fix="switch it on")
    blind = Eyes({"wrist": TopicCameraConfig()}, {"wrist": (8, 8)}, {"wrist": Blind(error)})
    head, whole, seen = blind.look("wrist", {})
    assert not whole and not seen and head["problem"]["fix"] == "switch it on"
    with pytest.raises(ConfigError, match="no camera 'wirst'") as unknown:
        blind.look("wirst", {})
    assert "did you mean 'wrist'" in unknown.value.fix


# --- opened ---------------------------------------------------------------------------------------


def experiment(film: Path, *words: str) -> Experiment:
    given = ["experiment=lift_pixels", "task.images=[wrist]", "cameras.wrist.name=uvc"]
    given += [f"cameras.wrist.{k}={v}" for k, v in {"device": film, **SIZE}.items()]
    return Experiment.compose([*given, *words])


@pytest.fixture
def _no_ros(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "rclpy", missing)
    monkeypatch.setitem(sys.modules, "rclpy.node", missing)
    monkeypatch.delitem(sys.modules, "robot_rl.ros.camera_watch", raising=False)


@pytest.mark.usefixtures("_no_ros")
def test_a_device_is_opened_and_saved_without_ros(tmp_path: Path) -> None:
    told: list[str] = []
    words = "cameras.wrist.crop=[20,10,80,60]"
    with open_eyes(experiment(write_film(tmp_path / "film.avi", 5.0), words)) as opened:
        assert save_pictures(opened, tmp_path / "out", told.append)
    whole = cv2.imread(str(tmp_path / "out" / "wrist_whole.png"))
    seen = cv2.imread(str(tmp_path / "out" / "wrist_seen.png"))
    assert whole.shape == (HEIGHT, WIDTH, 3) and seen.shape == (64, 64, 3)
    assert np.abs(whole[..., ::-1].astype(int) - ramp()).mean() < 6.0  # a film is JPEG
    assert "160 x 120 from film.avi; the network sees 60 x 60 of it from (30, 10)" in told[0]
    assert "scaled up" in told[1]


@pytest.mark.usefixtures("_no_ros")
def test_topics_without_ros_are_one_error_and_beside_a_device_a_reason(tmp_path: Path) -> None:
    with (
        pytest.raises(SetupError, match="topics of cameras need ROS 2"),
        open_eyes(Experiment.compose(["experiment=lift_pixels"])),
    ):
        pass
    both = experiment(write_film(tmp_path / "film.avi", 5.0), "task.images=[wrist,front]")
    with open_eyes(both) as opened:
        head, *_ = opened.look("front", {})
    assert "need ROS 2" in head["problem"]["summary"] and "robot-rl[ros]" in head["problem"]["fix"]


@pytest.mark.usefixtures("_no_ros")
def test_a_camera_that_sends_nothing_is_told_when_pictures_are_saved(tmp_path: Path) -> None:
    told: list[str] = []
    none = experiment(tmp_path / "no-such-camera")
    with open_eyes(none) as opened:
        assert not save_pictures(opened, tmp_path / "out", told.append, first_s=0.5)
    assert told[0].startswith("wrist: ") and "fix:" in told[0]


def test_a_task_without_cameras_and_a_machine_without_opencv_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="the task has no cameras") as none:
        cameras.cameras_of(Experiment.compose(["experiment=lift"]))
    assert "task.images=[wrist]" in none.value.fix
    missing: Any = None
    monkeypatch.setitem(sys.modules, "cv2", missing)
    with (
        pytest.raises(SetupError, match="opencv-python-headless"),
        open_eyes(Experiment.compose(["experiment=lift_pixels"])),
    ):
        pass


# --- kept -----------------------------------------------------------------------------------------


@pytest.fixture
def config_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "my_configs"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "mine.yaml").write_text(MINE)
    yield folder


def test_a_crop_is_written_into_the_experiment_and_nothing_else_changes(config_dir: Path) -> None:
    looked, path = eyes(), config_dir / "experiment" / "mine.yaml"
    words = ["experiment=mine", "cameras.wrist.crop=[0,0,9,9]"]  # would hide what the file says
    kept = CropKeeper(looked, words, config_dir).keep("wrist", [10, 20, 100, 90])
    assert kept.path == path and kept.warning == ""
    assert kept.words == (
        "'cameras.wrist.crop=[10,20,100,90]' cameras.wrist.width=160 cameras.wrist.height=120"
    )
    assert path.read_text() == MINE.replace(
        "/hand/image }", "/hand/image, crop: [10, 20, 100, 90], width: 160, height: 120 }"
    )
    wrist = Experiment.compose(["experiment=mine"], config_dir).cameras["wrist"]
    assert wrist == TopicCameraConfig(topic="/hand/image", crop=(10, 20, 100, 90), **SIZE)
    said = [word.strip("'") for word in kept.words.split()]
    again = Experiment.compose(["experiment=lift_pixels", *said]).cameras["wrist"]
    assert again == TopicCameraConfig(crop=(10, 20, 100, 90), **SIZE)
    assert looked.about()[0]["crop"] == (
        10,
        20,
        100,
        90,
    )  # a page that is loaded again begins there
    kept = CropKeeper(looked, ["experiment=mine"], config_dir).keep("wrist", None)
    assert "cameras.wrist.crop=null" in kept.words and "crop: null" in path.read_text()


def test_the_place_is_the_last_composed_file_of_the_person(config_dir: Path) -> None:
    (config_dir / "robot").mkdir()
    arm = config_dir / "robot" / "arm.yaml"
    arm.write_text("# @package _global_\ndefaults: [ur5e]\n")
    (config_dir / "robot" / "bare.yaml").write_text("name: ur5e\n")  # speaks for its section only
    mine = config_dir / "experiment" / "mine.yaml"
    assert place_of(["robot=arm", "experiment=mine"], config_dir) == mine
    assert place_of(["robot=arm", "task=lift"], config_dir) == arm
    assert place_of(["experiment=lift_pixels", "robot=arm"], config_dir) == arm
    assert place_of(["robot=bare"], config_dir) is None
    assert place_of(["experiment=lift_pixels"], config_dir) is None
    assert place_of(["experiment=mine"], None) is None


def test_without_a_file_the_words_are_all_there_is() -> None:
    kept = CropKeeper(eyes(size=(128, 128)), ["experiment=lift_pixels"], None).keep(
        "wrist", [0, 0, 50, 50]
    )
    assert kept.path is None and "cameras.wrist.crop=[0,0,50,50]" in kept.words
    assert "scaled up" in kept.warning


def test_a_file_that_does_not_decide_is_left_as_it_was(config_dir: Path) -> None:
    (config_dir / "robot").mkdir()
    arm, text = config_dir / "robot" / "arm.yaml", "# @package _global_\ndefaults: [ur5e]\n"
    arm.write_text(text)
    (config_dir / "experiment" / "other.yaml").write_text(
        MINE.replace("{ topic", "{ crop: [0, 0, 5, 5], width: 160, height: 120, topic")
    )
    keeper = CropKeeper(eyes(), ["robot=arm", "experiment=other"], config_dir)
    keeper.path = arm
    with pytest.raises(ConfigError, match=r"arm.yaml does not decide about cameras.wrist"):
        keeper.keep("wrist", [1, 2, 30, 40])
    assert arm.read_text() == text


def test_what_cannot_be_kept_is_refused_and_the_file_stays(config_dir: Path) -> None:
    path = config_dir / "experiment" / "mine.yaml"
    keeper = CropKeeper(eyes(), ["experiment=mine"], config_dir)
    for crop, words in (([0, 0, 999, 9], "leaves the picture"), ([1], "no crop")):
        with pytest.raises(ConfigError, match=words):
            keeper.keep("wrist", crop)
    with pytest.raises(ConfigError, match="no camera 'front'"):
        keeper.keep("front", None)
    blind = Eyes({"wrist": TopicCameraConfig()}, {"wrist": (8, 8)},
                 {"wrist": Blind(SetupError("it is off"))})  # fmt: skip
    with pytest.raises(ConfigError, match="camera wrist has sent no picture"):
        CropKeeper(blind, ["experiment=mine"], config_dir).keep("wrist", None)
    assert path.read_text() == MINE


# --- in which pictures the intrinsics were found --------------------------------------------------

LENS = (600.0, 601.0, 319.5, 239.5)


def lens(**fields: Any) -> TopicCameraConfig:
    return TopicCameraConfig(k=LENS, k_size=(640, 480), **fields)


def test_intrinsics_of_another_size_are_not_used_and_once_the_fix_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lenses._warn_of_other_size.cache_clear()  # another test may have heard of this lens
    found = lens(width=1280, height=960)
    for _ in range(3):
        assert found.calibration is None and found.calibration_at(960, 1280) is None
    (warning,) = caplog.messages
    assert "640 x 480" in warning and "1280 x 960" in warning
    assert "robot-rl calibrate camera" in warning
    there = found.calibration_at(480, 640)  # a topic may send other pictures than `width` says
    assert there is not None and there.k[1, 1] == 601.0
    assert found.fovy_rad == lens().fovy_rad  # the lens is the same


def test_older_files_have_the_size_of_their_intrinsics_in_width_and_height() -> None:
    older = TopicCameraConfig(k=LENS, width=320, height=240)
    assert older.calibration_at(240, 320) is not None
    assert older.calibration_at(480, 640) is None


@pytest.mark.parametrize("k_size", [(640,), (640, 480, 3), (0, 480)])
def test_a_size_that_is_none_is_refused(k_size: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="k_size is width, height"):
        TopicCameraConfig(k=LENS, k_size=k_size)


def test_a_crop_in_larger_pictures_does_not_make_the_intrinsics_theirs(config_dir: Path) -> None:
    path = config_dir / "experiment" / "mine.yaml"
    older = "{ topic: /hand/image, k: [600, 601, 319.5, 239.5], width: 640, height: 480 }"
    path.write_text(MINE.replace("{ topic: /hand/image }", older))
    before = Experiment.compose(["experiment=mine"], config_dir).cameras["wrist"]
    assert before.calibration is not None
    looked = eyes(before)
    kept = CropKeeper(looked, ["experiment=mine"], config_dir).keep("wrist", [0, 0, 64, 64])
    wrist = Experiment.compose(["experiment=mine"], config_dir).cameras["wrist"]
    assert (wrist.width, wrist.height, wrist.k_size) == (WIDTH, HEIGHT, (640, 480))
    assert wrist == looked.configs["wrist"] and "cameras.wrist.k_size=[640,480]" in kept.words
    assert wrist.calibration is None and wrist.calibration_at(480, 640) is not None
