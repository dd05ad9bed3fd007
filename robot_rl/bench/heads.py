"""`robot-rl bench heads`: what a head costs per decision, beside the base that it runs or corrects.

One observation at a time on one core, as on the robot. For a head that runs the base, the time of
the base is measured in every call and taken off; the time of more than one sample is added again,
because it is the head's (the difference of the medians). Weights are random: they cost the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

import robot_rl.learn.algos  # noqa: F401 - registers the configs
from robot_rl.config.compose import config_dir
from robot_rl.config.registry import resolve
from robot_rl.learn.algos.on_flow import OnFlowConfig
from robot_rl.nets.flow import FlowNet
from robot_rl.policy.base.own import FlowBase
from robot_rl.spec import BASE_ACTION, ActionSpec, Spec, TensorSpec
from robot_rl.types import Observation

HEADS = ("resfit", "policy_decorator", "dsrl", "zprl", "qc", "expo", "pa_rl")
STATE = TensorSpec((30,), "float32")
AHEAD = 4  # how many of the base's actions are recorded
WARM_UP = 20


def bench(seconds: float) -> dict[str, float]:
    """Measure all heads for `seconds` in all; returns figure -> milliseconds.

    <head>/decision_ms_p99, and overhead_ms_p50, _p99: without one sample of the base.
    """
    torch.set_num_threads(1)
    plain = Spec("bench", 10.0, {"state": STATE}, ActionSpec(0.01, 0.1, gripper=True))
    seen = {
        "state": np.zeros((1, 30), np.float32),
        BASE_ACTION: np.zeros((1, AHEAD, 7), np.float32),
    }
    generator = torch.Generator().manual_seed(0)
    flow = _config("bc_flow").make_actor(plain)
    base = FlowBase(flow, flow.init(generator), 0)
    each_s = seconds / (len(HEADS) + 1)
    one, _ = _times_ms(lambda: base.sample_many({"state": seen["state"]}), each_s)
    figures = {"base/sample_ms_p50": float(np.percentile(one, 50))}
    for name in HEADS:
        config, spec = _config(name), plain.with_base(AHEAD)
        runs_base = isinstance(config, OnFlowConfig)
        if runs_base:
            config, spec = config.running(base), plain
        net = config.make_actor(spec)
        tensors = net.init(generator)
        if "share" in tensors:
            tensors["share"].fill_(1.0)
        took, in_base = _times_ms(_decide(net, seen, tensors, generator), each_s)
        free = took - in_base
        if runs_base:
            free += max(float(np.median(in_base)) - figures["base/sample_ms_p50"], 0.0)
        figures[f"{name}/decision_ms_p99"] = float(np.percentile(took, 99))
        figures[f"{name}/overhead_ms_p50"] = float(np.percentile(free, 50))
        figures[f"{name}/overhead_ms_p99"] = float(np.percentile(free, 99))
    return figures


def _config(name: str) -> Any:
    return resolve("algo", yaml.safe_load((config_dir() / "algo" / f"{name}.yaml").read_text()))


def _decide(
    net: Any, seen: Observation, tensors: dict[str, torch.Tensor], generator: torch.Generator
) -> Callable[[], object]:
    return lambda: net.act(seen, tensors, deterministic=False, generator=generator)


def _times_ms(
    call: Callable[[], object], seconds: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How long single calls take, and how much of this time a flow policy in them takes."""
    took: list[tuple[float, float]] = []
    with _stopwatch() as in_base:
        for _ in range(WARM_UP):
            call()
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s or len(took) < WARM_UP:
            in_base[0], began_s = 0.0, time.perf_counter()
            call()
            took.append((time.perf_counter() - began_s, in_base[0]))
    total, base = 1e3 * np.array(took).T
    return total, base


@contextmanager
def _stopwatch() -> Iterator[list[float]]:
    """Measure the [seconds] that `FlowNet` spends on conditions and samples in this context."""
    spent = [0.0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                spent[0] += time.perf_counter() - began_s

        return call

    kept = FlowNet.condition, FlowNet.decode
    FlowNet.condition, FlowNet.decode = map(timed, kept)
    try:
        yield spent
    finally:
        FlowNet.condition, FlowNet.decode = kept
