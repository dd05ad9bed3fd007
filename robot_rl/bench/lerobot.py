"""LeRobot's learner on our shapes: run by *its* Python, as a file, from `robot-rl bench learner`.

    python lerobot.py '[{"name": "critics_2", "critics": 2, "batch": 256, ...}]'

Imports nothing of ours. Prints one JSON object: case -> figures named as in
`robot_rl.bench.learner`. All settings except the sizes are LeRobot's own defaults: replay with its
own image shift, critics and actor of 256 x 256, two critic steps per actor step, encoder as it
comes (random, frozen).
"""
# pyright: reportMissingImports=false

import json
import statistics
import sys
import time

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.gaussian_actor.configuration_gaussian_actor import GaussianActorConfig
from lerobot.policies.gaussian_actor.modeling_gaussian_actor import GaussianActorPolicy
from lerobot.rl.algorithms.sac import SACAlgorithm, SACAlgorithmConfig
from lerobot.rl.buffer import ReplayBuffer
from torch.utils.flop_counter import FlopCounterMode

STATE, IMAGE, ACTION = "observation.state", "observation.images.", "action"
WARM_UP = 2


def measure(case: dict) -> dict:
    """Gradient (critic) steps per second, sampling time, bytes per step, encoder arithmetic."""
    torch.manual_seed(0)
    keys = [f"{IMAGE}{i}" for i in range(case["cameras"])]
    shape = (3, case["pixels"], case["pixels"])
    features = {STATE: PolicyFeature(type=FeatureType.STATE, shape=(case["state"],))}
    features |= {k: PolicyFeature(type=FeatureType.VISUAL, shape=shape) for k in keys}
    config = GaussianActorConfig(
        input_features=features,
        output_features={ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(case["action"],))},
    )
    policy = GaussianActorPolicy(config=config)
    policy.train()
    settings = SACAlgorithmConfig.from_policy_config(config)
    settings.num_critics, settings.utd_ratio = case["critics"], case["ratio"]
    algorithm = SACAlgorithm(policy=policy, config=settings)
    algorithm.make_optimizers_and_scheduler()

    def observation() -> dict:
        return {STATE: torch.randn(1, case["state"])} | {k: torch.rand(1, *shape) for k in keys}

    replay = ReplayBuffer(case["steps"], "cpu", [STATE, *keys], optimize_memory=True)
    for index in range(case["steps"]):
        done = index % 50 == 49
        action = torch.rand(1, case["action"]) * 2 - 1
        replay.add(observation(), action, float(done), observation(), done, False)

    def batches():
        while True:
            yield replay.sample(case["batch"])

    stream = batches()
    update = median_s(lambda: algorithm.update(stream), case["seconds"])
    draw = median_s(lambda: replay.sample(case["batch"]), min(case["seconds"], 2.0))
    stored = sum(v[0].numel() * v.element_size() for v in replay.states.values())
    figures = {
        "updates_per_s": case["ratio"] / update,
        "sample_ms": 1e3 * draw,
        "bytes_per_step": float(stored + 4 * case["action"] + 6),
    }
    if keys:
        one = observation()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            policy.encoder_critic(one)
        figures["encoder_mflops_per_step"] = counter.get_total_flops() / 1e6
    return figures


def median_s(work, seconds: float) -> float:
    """Median time of one call."""
    for _ in range(WARM_UP):
        work()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    cases = json.loads(sys.argv[1])
    torch.set_num_threads(cases[0]["threads"])
    sys.stdout.write(json.dumps({case["name"]: measure(case) for case in cases}) + "\n")
