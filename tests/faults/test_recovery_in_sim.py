"""RaC on the simulated arm: back the way it came, then forward, then the episode is over."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.control.loop import Policy
from robot_rl.run.experiment import Experiment
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Outcome, Row, Step

pytest.importorskip("robot_rl_sim", reason="the sim extra is not installed")


class Astray(Policy):
    """A policy that walks off in one direction."""

    version = 0

    def __init__(self, action: np.ndarray) -> None:
        self._action = action.astype(np.float32)

    def act(self, observation: Any, deterministic: bool) -> np.ndarray:
        return self._action


@pytest.mark.parametrize(
    "way", [(1, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0.3), (0.5, -0.5, -0.5, 0, 0, 0)]
)
def test_the_arm_returns_along_its_path_and_the_correction_ends_the_episode(
    tmp_path: Path, way: tuple[float, ...]
) -> None:
    from robot_rl.run.lockstep import make_rig

    experiment = Experiment.compose([
        "experiment=reach", "arbiter.rac=true", f"run_dir={tmp_path}",
        "operator.stuck_s=1.0", "operator.recover_s=2.5", "operator.drive_s=0.3",
    ])  # fmt: skip
    task = experiment.task
    rows: list[Row] = []
    policy = Astray(0.5 * np.resize(np.array((*way, 0.0)), task.spec.action.size))
    tcp_m: list[np.ndarray] = []

    def look(_: Step) -> None:
        tcp_m.append(bench.robot.read().tcp_in_base.position_m)

    bench: Any = make_rig(experiment, policy, record=rows.extend, on_step=look)
    plan = task.sample_reset(np.random.default_rng(3))
    start = EpisodeStart(
        EpisodeId("run", "actor-0", 0), "train", task.name, task.spec.hash, "", 3, 0
    )
    bench.reset(plan, start)
    tcp_m.append(bench.robot.read().tcp_in_base.position_m)
    summary = bench.loop.run_episode(start)
    steps = [row for row in rows if isinstance(row, Step)]
    where_m = np.stack(tcp_m)
    recovery = [s.step for s in steps if s.driver is Driver.RECOVERY]
    correction = [s.step for s in steps if s.driver is Driver.CORRECTION]
    begin, end = recovery[0], recovery[-1] + 1
    assert recovery == list(range(begin, end)) and correction[0] == end
    went_m = np.concatenate([np.linspace(a, b, 10) for a, b in pairwise(where_m[: begin + 1])])
    back_m = where_m[begin : end + 1]
    off_m = np.linalg.norm(back_m[:, None] - went_m[None], axis=-1).min(1)
    assert np.linalg.norm(where_m[begin] - where_m[0]) > 0.02  # it had gone astray
    assert off_m.max() < 0.005 and np.linalg.norm(where_m[end] - where_m[0]) < 0.002
    speed = np.linalg.norm(np.diff(back_m, axis=0), axis=-1)
    assert speed.max() < 0.6 * task.spec.pose_action.translation_m * 2**0.5
    assert all(steps[i].outcome is not Outcome.HOLD for i in recovery)
    assert summary.ending is Ending.TERMINATED or (
        summary.ending is Ending.TRUNCATED and summary.reason == "rac: corrected"
    )
