"""Bad input ends with one readable error, a non-zero exit, and nothing lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robot_rl.control.loop import Policy
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import LEASE, make_rig
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, EpisodeStart, Outcome

QUICK = ["experiment=reach", "runtime=lockstep", "train.demos=1", "train.max_env_steps=10"]


def robot_rl(*words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and everything printed."""
    done = subprocess.run(
        [sys.executable, "-m", "robot_rl.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | (env or {}),
    )
    return done.returncode, done.stdout + done.stderr


def is_one_clear_error(text: str, *words: str) -> bool:
    """expected / got / fix once, no traceback, and the words that name the cause."""
    shape = all(text.count(part) == 1 for part in ("  expected:", "  got:", "  fix:"))
    return shape and "Traceback" not in text and all(w in text for w in words)


def test_unknown_key_names_the_right_one(tmp_path: Path) -> None:
    code, text = robot_rl("train", *QUICK, "algo.gama=0.9", f"run_dir={tmp_path / 'r'}")
    assert code == 2 and is_one_clear_error(text, "algo.gama", "did you mean 'gamma'")
    assert not (tmp_path / "r").exists()


def test_missing_ros(tmp_path: Path) -> None:
    (tmp_path / "rclpy.py").write_text("raise ImportError('No module named rclpy')")
    code, text = robot_rl(
        "train",
        "experiment=reach",
        "runtime=ros",
        f"run_dir={tmp_path / 'r'}",
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert code == 2 and is_one_clear_error(text, "rclpy", "make setup")


def test_missing_gl(tmp_path: Path) -> None:
    code, text = robot_rl(
        "train",
        *QUICK,
        "task.images=[front]",
        f"run_dir={tmp_path / 'r'}",
        env={"MUJOCO_GL": "glfw", "DISPLAY": "", "WAYLAND_DISPLAY": ""},
    )
    assert code == 2 and is_one_clear_error(text, "OpenGL", "apt-get install")


def test_full_disk_refuses_to_start_and_keeps_what_is_there(tmp_path: Path) -> None:
    run_dir = tmp_path / "r"
    full = {"ROBOT_RL_DISK_RESERVE_BYTES": str(10**18)}
    quick = [*QUICK, "train.video=false", "train.eval_episodes=1", f"run_dir={run_dir}"]
    code, _ = robot_rl("record", *quick)
    assert code == 0
    with Store(run_dir / "store.sqlite") as store:
        before = store.last_seq()
    code, text = robot_rl("train", *quick, env=full)
    assert code == 2 and is_one_clear_error(text, "disk")
    with Store(run_dir / "store.sqlite") as store:
        store.verify()
        assert store.last_seq() == before


def test_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        experiment = Experiment.compose(
            ["experiment=reach", f"link.port={port}", f"run_dir={tmp_path / 'r'}"]
        )
        experiment.save()
        code, text = robot_rl("learner", str(tmp_path / "r"))
    assert code == 2 and is_one_clear_error(text, str(port))


def test_nan_action_never_reaches_the_robot(tmp_path: Path) -> None:
    class Broken(Policy):
        version = 0

        def act(self, observation: object, deterministic: bool) -> np.ndarray:
            return np.full(6, np.nan, np.float32)

    experiment = Experiment.compose(["experiment=peg_insert", "operator=none"])
    task = experiment.task
    with Store(tmp_path / "s.sqlite", spec=task.spec, reserve_bytes=0) as store:
        bench = make_rig(experiment, Broken(), record=store.append)
        sent = []
        apply = bench.robot.apply
        bench.robot.apply = lambda command: (sent.append(command), apply(command))
        start = EpisodeStart(EpisodeId("r", "a", 0), "train", task.name, task.spec.hash, "", 0, 0)
        bench.reset(task.sample_reset(np.random.default_rng(0)), start)
        before = bench.robot.read().tcp_in_base.position_m
        summary = bench.loop.run_episode(start)
        after = bench.robot.read().tcp_in_base.position_m
        steps = store.steps(start.id)
    assert summary.ending is Ending.ABORTED
    assert all(s.outcome is Outcome.HOLD and np.isfinite(s.action).all() for s in steps)
    assert all(np.isfinite(c.tcp_target_in_base.position_m).all() for c in sent)
    assert after == pytest.approx(before, abs=1e-3)
    assert bench.loop.lease == LEASE
