"""A person's own file is changed whole or not at all, whatever ends the attempt."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robot_rl.run.keep import write
from robot_rl.system import files

PROFILE = "# @package _global_\n# my arm\ndefaults:\n  - ur5e_fzi\n  - _self_\n"
WORDS = ["robot=mine", "task=lift"]
SECTION, VALUES = ("driver", "gripper"), {"closed_joints": 0.77}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "robot" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(PROFILE)
    path.chmod(0o640)
    return path


def keep(path: Path, in_force: Callable[[Any], Any]) -> None:
    write(path, SECTION, VALUES, WORDS, path.parent.parent, in_force=in_force)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "Input/output error")])
def test_what_ends_the_check_leaves_the_file_as_it_was(profile: Path, error: BaseException) -> None:
    def in_force(_experiment: Any) -> Any:
        assert "closed_joints: 0.77" in profile.read_text()
        raise error

    with pytest.raises(type(error)):
        keep(profile, in_force)
    assert profile.read_text() == PROFILE
    keep(profile, lambda experiment: vars(experiment.driver.gripper))
    assert "closed_joints: 0.77" in profile.read_text() and "# my arm" in profile.read_text()
    assert stat.S_IMODE(profile.stat().st_mode) == 0o640


def test_a_full_disk_leaves_the_file_as_it_was(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    def cut(self: Path, data: str, *_: Any, **__: Any) -> int:
        with self.open("w") as file:
            file.write(data[:7])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    monkeypatch.setattr(Path, "write_text", cut)
    with pytest.raises(OSError, match="No space left"):
        keep(profile, lambda experiment: vars(experiment.driver.gripper))
    assert profile.read_text() == PROFILE
