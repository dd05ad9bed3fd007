"""Cloning through the graph: all demonstrations are learned from, and the clone has all updates."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from robot_rl.run.experiment import Experiment
from robot_rl.run.train import train
from tests.support.ros import new_domain

pytestmark = pytest.mark.ros
DEMOS, UPDATES = 3, 400


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_what_is_cloned_over_ros_is_what_lockstep_would_clone(tmp_path: Path) -> None:
    """It used to spend its updates on the first demonstration, and to be judged before the last."""
    words = [
        "experiment=reach",
        "runtime=ros",
        "algo=bc",
        "algo.hidden=[16]",
        "algo.batch_size=16",
        f"learner.pretrain_updates={UPDATES}",
        "learner.log_updates=100",
        f"train.demos={DEMOS}",
        "train.max_env_steps=0",
        "train.eval_episodes=1",
        "train.stochastic_eval_episodes=0",
        "train.video=false",
        f"link.port={free_port()}",
        f"ros.domain_id={new_domain()}",
        f"run_dir={tmp_path / 'run'}",
    ]
    result = train(Experiment.compose(words))
    lines = (tmp_path / "run" / "learner.jsonl").read_text().splitlines()
    figures = [line for line in map(json.loads, lines) if line.get("learner/updates", 0) > 0]
    counts = {line["replay/demo"] for line in figures}
    assert len(counts) == 1  # nothing came in after the first update
    manifest = sorted((tmp_path / "run" / "checkpoints").glob("[0-9]*/manifest.json"))[-1]
    facts = json.loads(manifest.read_text())["facts"]
    assert (facts["updates"], facts["version"]) == (UPDATES, result["weights_version"])
