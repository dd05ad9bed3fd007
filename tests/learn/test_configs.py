"""Variants are deltas, and the benchmark names what it measures."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from robot_rl.bench import learner as bench
from robot_rl.config.registry import resolve
from robot_rl.learn import algos
from robot_rl.learn.replay import Replay

CONFIGS = Path(__file__).parents[2] / "configs" / "algo"


def delta(name: str) -> dict[str, object]:
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_config_resolves(path: Path) -> None:
    config = resolve("algo", yaml.safe_load(path.read_text()))
    assert callable(config.make) and callable(config.make_actor)


def test_rlpd_is_a_short_delta_of_sac() -> None:
    sac, rlpd = delta("sac"), delta("rlpd")
    assert len({k for k in sac.keys() | rlpd.keys() if sac.get(k) != rlpd.get(k)}) <= 6
    assert resolve("algo", sac).demo_fraction == 0.0
    assert (resolve("algo", rlpd).critics, resolve("algo", rlpd).target_subset) == (10, 2)


def test_benchmark_reports_every_case_beside_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WARM_UP", 1)
    monkeypatch.setattr(bench, "CAMERA_EPISODES", 2)
    figures = bench.bench(0.05)
    for name in bench.CASES:
        assert figures[f"{name}/updates_per_s"] > 0.0 < figures[f"{name}/floor_updates_per_s"]
    for name in bench.CAMERA_CASES:
        assert figures[f"{name}/updates_per_s"] > 0.0 < figures[f"{name}/floor_updates_per_s"]
        assert figures[f"{name}/bytes_per_raw_byte"] < 1.1  # each frame once, as uint8


def test_flops_of_the_smallest_case_by_hand() -> None:
    config = algos.HilSerlConfig(hidden=(2,), critics=1, target_subset=1, batch_size=1)
    algo = config.make(bench._spec(), 0)  # 30 states, 6 actions; first = 36*2, rest = 2; 30*2, 2*12
    critic = (2 * 72 + 3 * 2) + (72 + 2) + (60 + 24)
    actor = 2 * (72 + 2) + 2 * 60 + 3 * 24
    assert bench.flops_per_update(algo) == 2 * (critic + actor / 2)
    assert Replay(bench._spec(), 10).bytes_per_step == 120 + 24 + 20 + 5 + 24
