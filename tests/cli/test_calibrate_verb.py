"""`robot-rl calibrate`: what is refused before anything is started, with the fix; what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError
from robot_rl.run.keep import as_words, place_of, write

DOUBLE = ["robot=ur5e_fzi", "double=true", "operator=none", "task=reach", "task.images=[wrist]"]


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the verb says when it refuses (exit code 2)."""
    assert main(["calibrate", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("error:") == 1 and "fix:" in said and "expected:" in said
    return said


def test_the_board_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "board.pdf"
    assert main(["calibrate", "board", "--out", str(out), "--board", "4x6,0.03,0.022"]) == 0
    assert out.read_bytes().startswith(b"%PDF") and "100 %" in capsys.readouterr().out
    said = refusal(capsys, "board", "--out", str(tmp_path / "board.jpg"))
    assert "board.pdf" in said


def test_unknown_verbs_and_cameras_are_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'camera'" in refusal(capsys, "camra", *DOUBLE)
    said = refusal(capsys, "camera", "wrst", *DOUBLE, "--yes")
    assert "the task has no camera 'wrst'" in said and "wrist" in said
    assert "task.images=[wrist]" in refusal(capsys, "camera", "wrist", "task=reach")


def test_a_script_may_not_move_a_real_arm(capsys: pytest.CaptureFixture[str]) -> None:
    real = [word for word in DOUBLE if word != "double=true"]
    for verb in (["camera", "wrist", "--auto"], ["gripper"]):
        said = refusal(capsys, *verb, *real, "--yes")
        assert "a real arm moves only when a person says so" in said and "--yes" in said


def test_a_simulated_arm_needs_no_calibration(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "camera", "wrist", "task=reach", "task.images=[wrist]", "runtime=ros")
    assert "there is no arm to calibrate" in said and "double=true" in said


def test_time_comes_after_the_pose(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "time", "wrist", *DOUBLE, "--auto", "--yes")
    assert "nobody has said where camera wrist is" in said and "calibrate camera wrist" in said


def test_an_arm_without_a_gripper(capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no gripper" in refusal(capsys, "gripper", *DOUBLE, "driver.gripper.kind=none")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["camera", "wrist", "--pictures", "3"], "--pictures from 8"),
        (["camera", "wrist", "--board", "5x7"], "this is no board"),
        (["camera", "wrist", "--mount", "head"], "invalid choice"),
        (["time", "wrist", "--seconds", "1"], "--seconds from 5"),
        (["camera", "wrist", "cameras.wrist.pose=[0,0,0]"], "mount and pose belong together"),
        (["camera", "wrist", "cameras.wrist.mount=hand", "cameras.wrist.pose=[0,0,0,0,0,0,2]"],
         "has not length 1"),
        (["camera", "wrist", "cameras.wrist.latency_s=3"], "latency_s must lie in"),
    ],
)  # fmt: skip
def test_bad_words_get_one_error(
    words: list[str], match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert match in refusal(capsys, *words, *DOUBLE)


# --- what was measured is kept --------------------------------------------------------------------


PROFILE = """# @package _global_
# my arm
defaults:
  - ur5e_fzi
  - _self_
driver:
  gripper:
    max_effort: 20.0 # gentle
"""


def test_measured_ends_go_into_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "robot" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(PROFILE)
    words = ["robot=mine", "task=lift", "driver.gripper.closed_joints=0.5"]
    assert place_of(words, tmp_path, ("robot", "experiment")) == path
    section, values = ("driver", "gripper"), {"opened_joints": 0.01, "closed_joints": 0.77}
    write(path, section, values, words, tmp_path, in_force=lambda e: vars(e.driver.gripper))
    text = path.read_text()
    assert "# my arm" in text and "max_effort: 20.0 # gentle" in text
    assert "closed_joints: 0.77" in text
    assert as_words(section, values) == (
        "driver.gripper.opened_joints=0.01 driver.gripper.closed_joints=0.77"
    )


def test_a_file_that_does_not_decide_is_left_as_it_was(tmp_path: Path) -> None:
    for group, text in (("robot", PROFILE), ("experiment", MINE)):
        (tmp_path / group).mkdir()
        (tmp_path / group / "mine.yaml").write_text(text)
    path = tmp_path / "robot" / "mine.yaml"
    words = ["robot=mine", "experiment=mine", "task=lift"]
    with pytest.raises(ConfigError, match=r"does not decide about driver\.gripper"):
        write(path, ("driver", "gripper"), {"closed_joints": 0.77}, words, tmp_path,
              in_force=lambda e: vars(e.driver.gripper))  # fmt: skip
    assert path.read_text() == PROFILE


MINE = """# @package _global_
name: mine
driver:
  gripper:
    closed_joints: 0.7
"""
