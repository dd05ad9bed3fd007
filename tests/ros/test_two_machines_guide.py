"""docs/two_machines.md, typed as it stands: two folders stand for two machines, each a HOME."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from robot_rl import __version__
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from tests.support.pairs import free_port
from tests.support.ros import new_domain, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone]
REPO = Path(__file__).resolve().parents[2]
GUIDE = (REPO / "docs" / "two_machines.md").read_text()
GPU = "127.0.0.2"  # 10.0.0.9 in the guide


def commands(step: int) -> list[list[str]]:
    """What the guide has its reader type in this step, in words."""
    text = GUIDE[GUIDE.index(f"**{step}. ") :].split("\n\n")[0]
    typed = [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", text)]
    return [shlex.split(line) for line in typed if line.startswith("robot-rl ")]


class Machine:
    """A terminal on one of the machines."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.running = folder, []  # type: Path, list[subprocess.Popen[bytes]]

    def types(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """The reader types this; what it says goes to a file."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        sources = f"{REPO}:{REPO / 'sim'}:{REPO / 'hardware'}"
        env = os.environ | {"HOME": str(self.folder), "PATH": path, "PYTHONPATH": sources}
        with (self.folder / "terminal.txt").open("ab") as terminal:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=env | {"PYTHONUNBUFFERED": "1"},
                stdout=terminal,
                stderr=subprocess.STDOUT,
            )
        self.running.append(process)
        return process

    def says(self, words: str, timeout_s: float = 60.0, times: int = 1) -> str:
        """Wait until this is on the screen; return the last place where it is."""

        def found() -> list[str]:
            return re.findall(words, self.screen())

        wait_for(lambda: len(found()) >= times, timeout_s, lambda: f"{words}:\n{self.screen()}")
        return found()[-1]

    def screen(self) -> str:
        """Everything so far."""
        path = self.folder / "terminal.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
                process.wait(40.0)


def test_the_guide_says_what_this_version_says() -> None:
    (version,) = commands(1)
    said = subprocess.run(
        [sys.executable, "-m", "robot_rl.cli.main", *version[1:]],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(REPO)},
    )  # fmt: skip
    assert said.stdout == f"robot-rl {__version__}\n"


@pytest.mark.slow
def test_the_steps_as_they_are_written(tmp_path: Path) -> None:
    robot, gpu = Machine(tmp_path / "robot"), Machine(tmp_path / "gpu")
    try:
        walk(robot, gpu)
    finally:
        robot.close()
        gpu.close()


def walk(robot: Machine, gpu: Machine) -> None:
    train, line = commands(3)
    domain_id = new_domain()
    own = [f"ros.domain_id={domain_id}", f"link.port={free_port(GPU)}", "train.demos=2"]
    own += ["train.min_env_steps=400", "train.max_env_steps=400", "train.eval_episodes=2"]
    own += ["train.stochastic_eval_episodes=0", "train.video=false", "learner.utd=1"]
    own += ["ros.real_time_factor=1"]
    train = [word.replace("10.0.0.9", GPU) for word in train] + own
    training = robot.types(train)  # step 3
    folder = robot.says(r"run folder +(runs/reach/\S+)")
    assert line[:3] == ["robot-rl", "learner", "--pair"]
    typed = robot.says(r"(robot-rl learner --pair rrl1:\S+)")
    robot.says("not paired, [1-9][0-9]* rows wait here|nobody listens")

    gpu.types(shlex.split(typed))  # step 4
    assert gpu.says(r"paired\. run folder (runs/reach/\S+);") == folder
    key = gpu.says(r"the learner's key is (\S+)")
    robot.says(rf"paired: the learner's key is {key}")

    robot.says(rf"learner at {GPU}:\d+: connected, \d+ rows wait here")  # step 5
    ours, theirs = robot.folder / folder, gpu.folder / folder

    def updates() -> int:
        status = json.loads((ours / "link.json").read_text())
        return status["learner"].get("updates", 0)

    wait_for(lambda: updates() > 20, 90.0, lambda: robot.screen() + gpu.screen())

    gpu.running[-1].send_signal(signal.SIGKILL)  # step 6
    gpu.running[-1].wait()
    robot.says("the robot goes on")
    (again,) = [words for words in commands(6) if words[1] == "learner"]
    gpu.types([folder if word == "RUN" else word for word in again])
    robot.says(rf"learner at {GPU}:\d+: connected", times=2)

    (invite,) = commands(7)  # step 7, in another terminal
    gpu.running[-1].terminate()
    gpu.running[-1].wait(40.0)
    robot.types([folder if word == "RUN" else word for word in invite])
    typed = robot.says(r"(robot-rl learner --pair rrl1:\S+)", times=2)
    gpu.types(shlex.split(typed))
    gpu.says(r"paired\. run folder", times=2)

    wait_for(lambda: training.poll() is not None, 240.0, lambda: robot.screen() + gpu.screen())
    assert training.returncode == 0, robot.screen()
    assert json.loads((ours / "eval.json").read_text())["deterministic"]["episodes"] == 2
    gpu.running[-1].send_signal(signal.SIGINT)
    assert gpu.running[-1].wait(40.0) == 0
    assert list((theirs / "checkpoints").iterdir())
    with Store(ours / "actor.sqlite") as sent, Store(theirs / "learner.sqlite") as got:
        rows, _ = sent.rows_since(0, 10**6, 2**40)
        there, _ = got.rows_since(0, 10**6, 2**40)
        waiting = sent.pending_count()
    assert [flatten(r) for r in rows[: len(there)]] == [flatten(r) for r in there]
    assert len(rows) - len(there) == waiting < 50  # what the end of the run did not wait for
