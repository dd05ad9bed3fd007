"""kill -9 of every process during a run through ROS 2: nobody else falls, training goes on.

One real run (`peg_insert`, released time) in which learner, actor, gate and simulator are killed
in turn, each in the middle of practice. That the arm does not move meanwhile is measured on its
topics in tests/ros/test_processes.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_rl.ros.graph import free_domain
from robot_rl.store.store import Store

pytest.importorskip("rclpy", reason="needs ROS 2 (make setup)")
pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.timeout(400)]  # make soak: 1.5 minutes

VICTIMS = ("learner", "actor", "gate", "sim")
STEPS = 800  # at least eight episodes: a kill after each of the first four


def words(run_dir: Path, port: int) -> list[str]:
    return [
        "experiment=peg_insert",
        "runtime=ros",
        f"ros.domain_id={free_domain()}",
        f"link.port={port}",
        "algo.hidden=[64,64]",
        "algo.batch_size=64",
        "learner.utd=2",
        "train.demos=2",
        f"train.max_env_steps={STEPS}",
        "train.min_env_steps=100000",
        "train.eval_episodes=2",
        "train.stochastic_eval_episodes=1",
        "train.video=false",
        f"run_dir={run_dir}",
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    """Complete lines of a JSONL file that is still growing."""
    if not path.is_file():
        return []
    text = path.read_text()
    return [json.loads(x) for x in text[: text.rfind("\n") + 1].splitlines()]


def practised(run_dir: Path) -> int:
    """Practice episodes logged so far."""
    return sum("episode/success" in x for x in lines(run_dir / "metrics.jsonl"))


def pid_of(module: str, run_dir: Path) -> int | None:
    """Pid of the newest process of this run that runs `module`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (
                    (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                )
            except OSError:
                continue
            if module in command and str(run_dir) in command and "python" in command:
                found.append(int(entry.name))
    return max(found, default=None)


MODULES = {
    "learner": "robot_rl.run.learner",
    "actor": "robot_rl.run.nodes actor",
    "gate": "robot_rl.run.nodes gate",
    "sim": "robot_rl.run.nodes sim",
}


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Run to the end with four kills; what happened, for the tests below."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run_dir = tmp_path_factory.mktemp("kill") / "run"
    log = run_dir.parent / "run.log"
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *words(run_dir, port)]
    killed: dict[str, int] = {}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            wanted, victims = 1, list(VICTIMS)
            deadline_s = time.monotonic() + 300
            while process.poll() is None and time.monotonic() < deadline_s:
                if victims and practised(run_dir) >= wanted:
                    pid = pid_of(MODULES[victims[0]], run_dir)
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)
                        killed[victims.pop(0)] = pid
                        wanted = practised(run_dir) + 1
                time.sleep(0.2)
            code = process.poll()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
    yield {"code": code, "killed": killed, "run_dir": run_dir, "log": log.read_text()}


def test_the_run_ends_well_although_every_process_was_killed(killed_run: dict[str, Any]) -> None:
    assert set(killed_run["killed"]) == set(VICTIMS), killed_run["log"][-3000:]
    assert killed_run["code"] == 0, killed_run["log"][-3000:]
    result = json.loads((killed_run["run_dir"] / "eval.json").read_text())
    assert result["env_steps"] >= STEPS


def test_nobody_but_the_victims_fell(killed_run: dict[str, Any]) -> None:
    deaths = [x for x in killed_run["log"].splitlines() if "ended with code" in x]
    names = sorted(x.split("supervise: ")[1].split(" ended")[0] for x in deaths if "-9" in x)
    assert names == sorted(VICTIMS)
    others = [x for x in deaths if "-9" not in x and "code 0" not in x]
    assert others == []


def test_training_went_on_from_where_it_was(killed_run: dict[str, Any]) -> None:
    run_dir = killed_run["run_dir"]
    with Store(run_dir / "actor.sqlite") as actor, Store(run_dir / "learner.sqlite") as learner:
        mine, theirs = actor.episode_summaries(), learner.episode_summaries()
        assert [e.id.episode for e in mine] == list(range(len(mine)))  # none twice, none left out
        known = {e.id: e.steps for e in theirs}
        assert all(known.get(e.id, e.steps) == e.steps for e in mine[:-1])
        assert actor.pending_count() == 0 or len(theirs) >= len(mine) - 1
        actor.verify()
        learner.verify()
    updates = [x["learner/updates"] for x in lines(run_dir / "learner.jsonl")]
    assert updates and max(updates) > 0
