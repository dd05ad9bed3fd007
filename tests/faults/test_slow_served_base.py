"""A served base that takes 300 ms, give or take 50, at 20 Hz: 10,000 ticks, none of them late.

The server is a process of its own behind ZeroMQ with CURVE; the actor's side is what the control
loop does each tick. `ROBOT_RL_TICKS=600 pytest -m slow tests/faults/test_slow_served_base.py` for a
short one; `make soak` runs all of it (8.5 minutes).
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from robot_rl.link.auth import load_keys, make_keys
from robot_rl.link.config import LinkConfig
from robot_rl.policy.base.schedule import AsyncSchedule
from robot_rl.policy.base.served import NAMES, PolicyServer, ServedConfig, serve
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.safety.limits import Limits
from robot_rl.spec import BASE_ACTION, ActionSpec, Spec, TensorSpec
from robot_rl.system.clock import WallClock
from robot_rl.types import Observation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TICKS = int(os.environ.get("ROBOT_RL_TICKS", "10000"))
HZ, BLEND = 20.0, 2
LATENCY_S, JITTER_S = 0.300, 0.050
SPEC = Spec("fake", HZ, {"state": TensorSpec((30,), "float32")}, ActionSpec(0.01, 0.1, False))


class Slow:
    """Plans at full speed to one side or the other: no two of its chunks agree."""

    spec = BaseSpec(chunk=32, action_size=6)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def sample_many(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        time.sleep(max(0.0, float(self.rng.normal(LATENCY_S, JITTER_S))))
        return np.full((1, 32, 6), self.rng.choice([-1.0, 1.0]), np.float32)


def run_server(folder: Path, ports: multiprocessing.Queue[int]) -> None:
    """In a process of its own."""
    where = LinkConfig(host="127.0.0.1", port=0)
    with PolicyServer(Slow(), SPEC, load_keys(folder, "policy"), where) as server:
        ports.put(server.port)
        serve(server, threading.Event())


def test_no_tick_is_late_and_no_change_of_plan_is_a_jump(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", NAMES)
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    server = context.Process(target=run_server, args=(tmp_path / "keys", ports), daemon=True)
    server.start()
    config = ServedConfig(folder=str(tmp_path / "keys"), port=ports.get(timeout=60), execute=8)
    schedule = AsyncSchedule(config.open(SPEC, 0), execute=8, ahead=1, blend=BLEND)
    clock, period_s = WallClock(), 1.0 / HZ
    rng, took, woke_late, actions = np.random.default_rng(1), [], [], []
    schedule.begin_episode()
    schedule.annotate({"state": np.zeros(30, np.float32)})  # waits for the first plan
    deadline_s = clock.now_s()
    for tick in range(TICKS):
        began_s = clock.now_s()
        woke_late.append(began_s - deadline_s)
        state = rng.normal(size=30).astype(np.float32)
        seen = schedule.annotate({"state": state})[BASE_ACTION][0]
        assert not schedule.problem, (tick, schedule.problem)
        took.append(clock.now_s() - began_s)
        actions.append(seen)
        deadline_s += period_s
        clock.sleep_until_s(deadline_s)
    schedule.close()
    server.terminate()
    late = int(np.sum(np.add(took, woke_late) > period_s))
    steps_m = np.abs(np.diff(np.stack(actions)[:, :3], axis=0)).max() * SPEC.action.translation_m
    limit_m = Limits().max_speed_m_s * period_s
    print(  # noqa: T201 - the figures for docs/results.md
        f"{TICKS} ticks, {late} late; look p50 {1e3 * np.median(took):.2f} ms, "
        f"p99 {1e3 * np.percentile(took, 99):.2f}, max {1e3 * max(took):.2f}; latency "
        f"{1e3 * schedule.latency_s:.0f} ms; largest step {1e3 * steps_m:.1f} mm of "
        f"{1e3 * limit_m:.0f} mm"
    )
    assert late == 0
    assert steps_m <= 2.0 / (BLEND + 1) * SPEC.action.translation_m + 1e-6 <= limit_m
