"""Variants are deltas, and the benchmark names what it measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from robot_rl.bench import learner as bench
from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError
from robot_rl.learn import algos
from robot_rl.learn.replay import Replay

CONFIGS = Path(__file__).parents[2] / "configs" / "algo"


def delta(name: str) -> dict[str, object]:
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_config_resolves(path: Path) -> None:
    config = resolve("algo", yaml.safe_load(path.read_text()))
    assert callable(config.make) and callable(config.make_actor)


OLD = {  # every key of a section before version 0.2, at the values that changed nothing
    "activation": "relu", "backup_entropy": False, "bc_weight": 0.0, "bc_decay_updates": 0,
    "standardize": True, "task_reward": True, "takeover_penalty": 0.0, "gripper_penalty": 0.02,
    "gripper_epsilon": 0.0, "gripper_margin": 0.05, "residual": 0.0, "actor_delay_updates": 0,
    "gamma": 0.95,
}  # fmt: skip
CHUNK = {"chunk": 4, "reference_weight": 0.0, "reference_dropout": 0.5, "ramp_updates": 1000}
STEER = CHUNK | {"reach": 1.5, "knots": 2, "hinge_weight": 0.0, "hinge_from": 1.0, "guides": 2}
PICK = CHUNK | {
    "candidates": 8, "climbs": 0, "climb_step": 0.01, "climbers": 2, "edit": 0.0,
    "own_actor": False, "choice_temperature": 0.0, "distill_rate": 0.0,
    "distill_period_updates": 4000,
}  # fmt: skip
BC = {"activation": "relu", "hidden": [8], "loss": "mse", "std": 0.1}


@pytest.mark.parametrize(
    ("name", "old", "kind", "kept"),
    [
        ("hil_serl", OLD, algos.HilSerlConfig, {"gripper_penalty": 0.02}),
        (
            "hil_serl",
            OLD | {"task_reward": False, "takeover_penalty": 0.5},
            algos.RlifConfig,
            {"takeover_penalty": 0.5},
        ),
        ("td3", OLD, algos.Td3Config, {}),
        ("td3", OLD | {"residual": 0.1}, algos.ResFitConfig, {"residual": 0.1}),
        ("noise", OLD | {"knots": 3}, algos.DsrlSacConfig, {"knots": 3}),
        ("chunked", OLD | CHUNK, algos.ChunkedConfig, {"chunk": 4}),
        ("chunked", OLD | CHUNK | {"residual": 0.3}, algos.PolicyDecoratorConfig, {}),
        ("steer", OLD | STEER | {"steer": "noise"}, algos.DsrlConfig, {"knots": 2}),
        ("steer", OLD | STEER | {"steer": "latent"}, algos.ZprlConfig, {"reach": 1.5}),
        ("pick", OLD | PICK, algos.QcConfig, {"candidates": 8}),
        ("pick", OLD | PICK | {"climbs": 3}, algos.PaRlConfig, {"distill_rate": 0.0}),
        ("pick", OLD | PICK | {"edit": 0.1}, algos.ExpoConfig, {"edit": 0.1}),
        ("bc", BC | {"teacher": False}, algos.BcConfig, {"std": 0.1}),
        ("bc", BC | {"teacher": True}, algos.OpdConfig, {"std": 0.1}),
        ("bc_flow", {"activation": "relu", "latent": 4}, algos.BcFlowConfig, {"latent": 4}),
    ],
)
def test_a_section_of_an_older_run_is_read_as_it_was_meant(
    name: str, old: dict[str, object], kind: type, kept: dict[str, object]
) -> None:
    config = resolve("algo", {"name": name, **old})
    assert type(config) is kind
    assert all(getattr(config, key) == value for key, value in kept.items())
    assert getattr(config, "gamma", 0.95) == 0.95


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("hil_serl", "activation", "tanh"),
        ("hil_serl", "residual", 0.1),
        ("qc", "edit", 0.1),
        ("qc", "own_actor", True),
        ("chunked", "reference_weight", 2.0),
        ("dsrl", "hinge_weight", 1.0),
    ],
)
def test_what_is_gone_is_not_quietly_ignored(name: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"algo\.{key} is gone"):
        resolve("algo", {"name": name, key: value})


def test_rlpd_is_a_short_delta_of_sac() -> None:
    sac, rlpd = delta("sac"), delta("rlpd")
    assert len({k for k in sac.keys() | rlpd.keys() if sac.get(k) != rlpd.get(k)}) <= 6
    assert resolve("algo", sac).demo_fraction == 0.0
    assert (resolve("algo", rlpd).critics, resolve("algo", rlpd).target_subset) == (10, 2)


def test_benchmark_reports_every_case_beside_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WARM_UP", 1)
    monkeypatch.setattr(bench, "CAMERA_EPISODES", 2)
    small = {name: replace(config, batch_size=8) for name, config in bench.CASES.items()}
    monkeypatch.setattr(bench, "CASES", small)
    small = {n: (replace(c, batch_size=8), px) for n, (c, px) in bench.CAMERA_CASES.items()}
    monkeypatch.setattr(bench, "CAMERA_CASES", small)
    figures = bench.bench(0.05)
    for name in bench.CASES:
        assert figures[f"{name}/updates_per_s"] > 0.0 < figures[f"{name}/floor_updates_per_s"]
    for name in bench.CAMERA_CASES:
        assert figures[f"{name}/updates_per_s"] > 0.0 < figures[f"{name}/floor_updates_per_s"]
        assert figures[f"{name}/bytes_per_raw_byte"] < 1.1  # each frame once, as uint8


def test_benchmark_of_some_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WARM_UP", 1)
    told = list[tuple[int, int]]()
    figures = bench.bench(0.01, only="critics_10", progress=lambda *x: told.append(x))
    assert {k.split("/")[0] for k in figures if "updates_per_s" in k} == {"critics_10"}
    assert told == [(0, 1), (1, 1)]
    with pytest.raises(ConfigError, match="critics_1"):
        bench.bench(0.01, only="critics_1")
    with pytest.raises(ConfigError, match="peer"):
        bench.bench(0.01, only="critics_2", peer_python="python3")


def test_flops_of_the_smallest_case_by_hand() -> None:
    config = algos.HilSerlConfig(hidden=(2,), critics=1, target_subset=1, batch_size=1)
    spec = bench.made_up_spec()  # 30 states, 6 actions; first = 36*2, rest = 2; 30*2, 2*12
    algo = config.make(spec, 0)
    critic = (2 * 72 + 3 * 2) + (72 + 2) + (60 + 24)
    actor = 2 * (72 + 2) + 2 * 60 + 3 * 24
    assert bench.flops_per_update(algo) == 2 * (critic + actor / 2)
    assert Replay(bench.made_up_spec(), 10).bytes_per_step == 120 + 24 + 20 + 6 + 24
