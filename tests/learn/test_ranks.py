"""Two learner processes with half the batch each do the update of one with the whole batch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.multiprocessing.spawn import spawn

from robot_rl.errors import ConfigError
from robot_rl.learn import ranks
from robot_rl.learn.algos import BcConfig, IqlConfig, Td3Config
from robot_rl.learn.algos.base import AlgorithmConfig
from robot_rl.learn.checkpoint import MANIFEST
from robot_rl.learn.replay import Batch
from robot_rl.spec import ActionSpec, Spec, TensorSpec

SPEC = Spec("fake", 10.0, {"state": TensorSpec((3,), "float32")}, ActionSpec(0.01, 0.1, True))
SMALL = {"hidden": (16,), "batch_size": 16}
CONFIGS: dict[str, AlgorithmConfig] = {  # those whose update draws no random numbers
    "iql": IqlConfig(**SMALL, precision="float32"),
    "td3": Td3Config(**SMALL, precision="float32", target_noise=0.0),
    "bc": BcConfig(**SMALL),
}
UPDATES = 5


class Shares:
    """The same random stream on every rank; each takes its rows of every batch."""

    def __init__(self, rank: int, count: int) -> None:
        self.rng, self.rank, self.count = np.random.default_rng(0), rank, count

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        n = batch_size * self.count
        steps = 2 if batch_size < 1000 and n % 32 == 0 else 1  # an update draws 2 x 16 rows

        def mine(value: np.ndarray) -> np.ndarray:
            blocks = value.reshape(steps, self.count, -1, *value.shape[1:])
            return np.ascontiguousarray(blocks[:, self.rank].reshape(-1, *value.shape[1:]))

        state = self.rng.normal(size=(2, n, 3)).astype(np.float32)
        flat = self.rng.uniform(0, 1, (2, n)).astype(np.float32)
        return Batch(
            observation={"state": mine(state[0])},
            action=mine(self.rng.uniform(-1, 1, (n, 7)).astype(np.float32)),
            reward=mine(flat[0]),
            next_observation={"state": mine(state[1])},
            mask=mine((flat[1] > 0.1).astype(np.float32)),
            human=mine(flat[0] > 0.5),
            toggle=mine((flat[0] > 0.8).astype(np.float32)),
            steps=mine(np.ones(n, np.float32)),
            return_to_go=mine(flat[1]),
            before_takeover=mine((flat[1] > 2.0).astype(np.float32)),
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def learned(name: str) -> dict[str, torch.Tensor]:
    algo = CONFIGS[name].make(SPEC, 0)
    sample = Shares(ranks.rank(), ranks.count())
    for _ in range(UPDATES):
        algo.update(sample)
    return algo.state_dict()


def work(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(port)
    ranks.join()
    assert (ranks.rank(), ranks.count(), ranks.agree(7 + rank)) == (rank, 2, 7)
    with pytest.raises(ConfigError, match="divide"):
        ranks.share(7)
    for name in CONFIGS:
        save_file(learned(name), Path(folder) / f"{name}-{rank}.safetensors")
    ranks.leave()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks")
    spawn(work, (free_port(), str(path)), nprocs=2)
    return path


@pytest.mark.parametrize("name", CONFIGS)
def test_the_update_is_that_of_the_joint_batch(folder: Path, name: str) -> None:
    alone = learned(name)
    both = [load_file(folder / f"{name}-{rank}.safetensors") for rank in (0, 1)]
    for key, value in alone.items():
        if key == "generator":
            continue
        torch.testing.assert_close(both[0][key], both[1][key], rtol=0, atol=0)  # ranks never part
        torch.testing.assert_close(both[0][key], value, rtol=1e-4, atol=1e-5)
    fresh = CONFIGS[name].make(SPEC, 0).state_dict()
    assert not torch.equal(fresh["actor/policy"], alone["actor/policy"])


def test_alone_nothing_changes() -> None:
    tensor = torch.ones(3)
    ranks.join()
    ranks.average_([tensor])
    assert (ranks.rank(), ranks.count(), ranks.agree(3), ranks.share(7)) == (0, 1, 3, 7)
    assert tensor.tolist() == [1.0, 1.0, 1.0]


def test_torchrun_makes_one_learner_of_two_processes(tmp_path: Path) -> None:
    """Both do the pre-training and leave together; one series of checkpoints comes of it."""
    pytest.importorskip("robot_rl_sim", reason="records demonstrations in the simulator")
    run_dir = tmp_path / "run"
    words = ["experiment=reach", "train.demos=2", "algo.hidden=[16]", "algo.batch_size=16"]
    words += ["learner.pretrain_updates=40", "learner.checkpoint_updates=40"]
    words += [f"run_dir={run_dir}", f"link.port={free_port()}", "runtime=lockstep"]
    record = [sys.executable, "-m", "robot_rl.cli.main", "record", *words]
    subprocess.run(record, check=True, timeout=120, capture_output=True)
    (run_dir / "store.sqlite").rename(run_dir / "learner.sqlite")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.Popen(
        [*torchrun, "-m", "robot_rl.run.learner", str(run_dir)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None and newest(run_dir) < 40:
            time.sleep(0.2)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert newest(run_dir) == 40, errors
    numbers = sorted(p.name for p in (run_dir / "checkpoints").iterdir())
    assert numbers == ["000001", "000002"]  # written by one of them; the last on the way out


def newest(run_dir: Path) -> int:
    """Gradient steps in the newest checkpoint; 0 without one."""
    manifests = sorted((run_dir / "checkpoints").glob(f"[0-9]*/{MANIFEST}"))
    return json.loads(manifests[-1].read_text())["facts"]["updates"] if manifests else 0
