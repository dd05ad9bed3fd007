"""What the fault table injects does what it says: clocks that jump, actors that are poisoned."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robot_rl.bench.faults import machine, poisoned, stepped
from robot_rl.bench.faults.machine import Watch
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from tests.support.ros import HAS_ROS, NO_ROS

CLOCK = """
import time
from robot_rl.bench.faults import stepped
from robot_rl.run import nodes

def say(args):
    for _ in range(2):
        print(time.time(), time.monotonic(), flush=True)
        input()
    return 0

nodes.main = say
stepped.main([])
"""
NAN = """
import numpy as np, time, torch
from robot_rl.nets import actor
from robot_rl.bench.faults import poisoned
from robot_rl.run import nodes

actor.ActorNet.act = lambda self, *given, **named: torch.ones(1, 3)

def act(args):
    for _ in range(3):
        began = time.monotonic()
        said = actor.ActorNet.act(None)
        print(bool(torch.isfinite(said).all()), time.monotonic() - began, flush=True)
        input()
    return 0

nodes.main = act
poisoned.main([])
"""


def program(text: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | env,
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.skipif(not HAS_ROS, reason=NO_ROS)
def test_a_stepped_clock_jumps_in_another_process_and_the_monotonic_one_goes_on(
    tmp_path: Path,
) -> None:
    clock = stepped.Clock(tmp_path / "clock")
    with program(CLOCK, **{stepped.VARIABLE: str(clock.path)}) as process:
        before = [float(word) for word in said(process)]
        assert before[0] == pytest.approx(time.time(), abs=5.0)
        clock.step(3600.0)
        go_on(process)
        after = [float(word) for word in said(process)]
        go_on(process)
    assert after[0] - before[0] == pytest.approx(3600.0, abs=5.0)
    assert after[1] - before[1] < 5.0
    assert clock.now_s() == pytest.approx(time.time() + 3600.0, abs=1.0)


@pytest.mark.skipif(not HAS_ROS, reason=NO_ROS)
def test_a_poisoned_actor_proposes_nan_or_is_late_as_long_as_the_file_is_there(
    tmp_path: Path,
) -> None:
    with program(NAN, **{poisoned.VARIABLE: str(tmp_path)}) as process:
        assert said(process)[0] == "True"
        (tmp_path / poisoned.NAN).touch()
        go_on(process)
        assert said(process)[0] == "False"
        (tmp_path / poisoned.NAN).unlink()
        (tmp_path / poisoned.PAUSE).touch()
        go_on(process)
        finite, took_s = said(process)
        go_on(process)
    assert finite == "True" and float(took_s) >= poisoned.PAUSE_S
    assert not (tmp_path / poisoned.PAUSE).exists()  # once


def test_only_the_nodes_that_are_meant_get_another_module(tmp_path: Path) -> None:
    graph = sim_graph(SimGraphConfig(), str(tmp_path))
    clocked = stepped.Clock(tmp_path / "clock").on(graph)
    assert {spec.module for spec in clocked} == {stepped.__name__}
    assert all(stepped.VARIABLE in spec.env for spec in clocked)
    changed = [spec.kind for spec in poisoned.on(graph, tmp_path) if spec not in graph]
    assert changed == ["actor"]


def test_processor_time_of_our_own_processes_is_counted_as_ours_also_after_their_end() -> None:
    before, began = machine.family_ticks(os.getpid()), Watch()
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    used_s = (machine.family_ticks(os.getpid()) - before) / machine.TICKS_HZ
    assert 0.4 < used_s < 5.0
    assert 0.0 <= began.others() <= 1.0
