"""One process at a time records or drives in a run folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError
from robot_rl.run.at_work import alone_in, at_work
from robot_rl.run.experiment import Experiment
from robot_rl.run.record import record
from robot_rl.run.train import train

WORDS = ["experiment=reach", "train.demos=1", "train.max_env_steps=0", "train.video=false"]
WORKS = """
import sys, time
from pathlib import Path
from robot_rl.run.at_work import at_work
with at_work(Path(sys.argv[1]), "train"):
    print("at work", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Experiment.compose([*WORDS, f"run_dir={tmp_path / 'run'}"]).save()


@pytest.fixture
def other(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that trains in the folder."""
    words = [sys.executable, "-c", WORKS, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "at work\n"
        yield process
        process.kill()


def test_who_comes_second_is_refused_and_changes_nothing(
    folder: Path, other: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    run = Experiment.compose([*WORDS, f"run_dir={folder}"])
    longer = Experiment.compose([*WORDS, "train.max_env_steps=100", f"run_dir={folder}"])
    for work in (lambda: train(run), lambda: record(run), lambda: train(longer)):
        with pytest.raises(ConfigError, match="another process works in") as caught:
            work()
        assert f"robot-rl train, process {other.pid}, since" in str(caught.value)
    assert main(["train", *WORDS, "runtime=lockstep", f"run_dir={folder}"]) == 2
    assert "end it with Ctrl-C" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    with at_work(folder, "eval"):  # reads what is there
        pass


@pytest.mark.ros
def test_no_second_graph_is_started(
    folder: Path, other: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *WORDS, f"run_dir={folder}"]) == 2
    assert f"robot-rl train, process {other.pid}" in capsys.readouterr().err
    assert not (folder / "logs").exists()


def test_a_process_that_was_killed_keeps_nobody_out(
    folder: Path, other: subprocess.Popen[str]
) -> None:
    other.kill()
    other.wait()
    with at_work(folder, "train"), alone_in(folder), at_work(folder, "record"):  # one in another
        pass
    with alone_in(folder):
        pass
