"""`make soak`: an interrupted soak goes on where it was, for this very code only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("robot_rl", "sim", "hardware", "configs", "ros2_ws", "launch")
PYTEST = '#!/bin/bash\necho "ran ${@: -1}" | tee -a ran\n[[ ! -e broken || ${@: -1} != tests/b ]]\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two folders of long tests, whose Python writes down what it is asked."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "soak", tmp_path / ".ci" / "soak")
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    for name in "ab":
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / "test_long.py").write_text("@pytest.mark.slow\n")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTEST)
    python.chmod(0o755)
    (tmp_path / "Makefile").write_text("fuzz:\n\t@echo ran fuzz | tee -a ran\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    who = {f"GIT_{w}_{k}": "a@b" for w in ("AUTHOR", "COMMITTER") for k in ("NAME", "EMAIL")}
    subprocess.run(["git", *words], cwd=folder, check=True, env=os.environ | who)


def commit(folder: Path) -> None:
    git(folder, "add", "pyproject.toml", "constraints.txt", "tests", *FOLDERS)
    git(folder, "commit", "-qm", "one")


def soak(folder: Path, *parts: str) -> tuple[int, list[str], str]:
    """The exit code, which parts ran, and what was printed."""
    (folder / "ran").unlink(missing_ok=True)
    words = [".ci/soak", *parts]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    ran = (folder / "ran").read_text().split("\n") if (folder / "ran").exists() else []
    return done.returncode, [line.rpartition("/")[2] for line in ran if line], done.stderr


def test_what_has_passed_is_not_repeated_and_what_failed_is(project: Path) -> None:
    (project / "broken").touch()
    code, ran, said = soak(project)
    assert (code, ran) == (1, ["a", "b", "ran fuzz"]) and "failed: b" in said
    (project / "broken").unlink()
    assert soak(project)[:2] == (0, ["b"])
    assert soak(project)[:2] == (0, [])


def test_another_code_begins_anew_and_one_that_is_not_committed_keeps_nothing(
    project: Path,
) -> None:
    assert soak(project, "a")[:2] == (0, ["a"])
    (project / "robot_rl" / "file").write_text("changed")
    assert soak(project, "a")[:2] == soak(project, "a")[:2] == (0, ["a"])
    commit(project)
    assert soak(project, "a")[:2] == (0, ["a"])
    assert soak(project, "a")[:2] == (0, [])


def test_a_part_that_does_not_exist_is_named_with_those_that_do(project: Path) -> None:
    code, ran, said = soak(project, "a", "c")
    assert (code, ran) == (2, []) and "expected one of: a b fuzz; got: c" in said
