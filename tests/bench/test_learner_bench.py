"""`bench learner`: like is compared with like, and a device that is not there is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from robot_rl.bench import learner
from robot_rl.errors import ConfigError, SetupError


def test_float32_is_compared_with_float32(tmp_path: Path) -> None:
    """LeRobot computes in float32; ours in bfloat16 has figures of its own."""
    said = {name: {"updates_per_s": 10.0} for name in learner.COMPARED}
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
    python.chmod(0o755)
    cases = {**learner.CASES, **{k: config for k, (config, _) in learner.CAMERA_CASES.items()}}
    exact = [f"{name}_float32" for name in learner.COMPARED]
    assert all(cases[name].precision == "float32" for name in exact)
    ours = {f"{name}/updates_per_s": 20.0 for name in exact}
    ours |= {f"{name}/updates_per_s": 50.0 for name in learner.COMPARED}
    figures = learner.peer(str(python), ours, 1.0)
    times = {k: v for k, v in figures.items() if k.startswith("times_lerobot/")}
    assert times == {
        **{f"times_lerobot/{name}/updates_per_s": 2.0 for name in exact},
        **{f"times_lerobot/{name}/updates_per_s": 5.0 for name in learner.COMPARED},
    }


def test_a_peer_on_the_cpu_is_not_compared_with_a_gpu() -> None:
    with pytest.raises(ConfigError, match="on the CPU"):
        learner.bench(0.01, device="cuda", peer_python="python3")


def test_a_gpu_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SetupError, match="torch sees none"):
        learner.bench(0.01, device="cuda", only="critics_2")
