"""The simulation hurries while the script works alone, and keeps to real time for a person."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

import zmq

from robot_rl.link.panel import STAMP, socket_address
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from tests.support.ros import World, wait_for, write_run

pytestmark = [pytest.mark.ros, pytest.mark.alone]
FASTER = {"released": 0.0, "3 x": 3.0}  # what is asked for -> `ros.real_time_factor`


@pytest.fixture(params=FASTER.values(), ids=FASTER)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    operator = {"name": "console", "with_script": True}
    run = write_run(tmp_path / "run", operator)
    config = SimGraphConfig(with_actor=False, real_time_factor=request.param)
    world = World(sim_graph(config, str(run)), run)
    try:
        world.probe.wait_state()
        yield world
    finally:
        world.close()


def pace(world: World, seat: zmq.Socket[bytes] | None = None, for_s: float = 1.5) -> float:
    """Run seconds per wall second, while somebody has the seat or nobody has."""
    began_s, run_s = time.monotonic(), world.probe.now_s()
    while time.monotonic() - began_s < for_s:
        if seat is not None:
            said = json.dumps({"axes": [0] * 6, "held": []}).encode()
            seat.send_multipart([STAMP.pack(time.monotonic()), said])
        time.sleep(0.02)
    return (world.probe.now_s() - run_s) / (time.monotonic() - began_s)


def settles(world: World, low: float, high: float, seat: zmq.Socket[bytes] | None = None) -> bool:
    """Whether the pace gets between the two: a busy machine notices a person late."""
    return any(low < pace(world, seat) < high for _ in range(8))


def test_the_simulation_keeps_to_real_time_while_a_person_has_the_seat(world: World) -> None:
    assert settles(world, 1.5, 60.0)  # 3, or as fast as the machine can
    seat = zmq.Context.instance().socket(zmq.PUSH)
    seat.setsockopt(zmq.LINGER, 0)
    seat.connect(socket_address(world.run_dir, "control"))
    assert settles(world, 0.5, 1.1, seat)
    seat.close()
    assert settles(world, 1.5, 60.0)


@pytest.mark.parametrize("world", [3.0], indirect=True)
def test_a_stop_is_left_to_who_has_the_seat(world: World) -> None:
    seat = zmq.Context.instance().socket(zmq.PUSH)
    seat.setsockopt(zmq.LINGER, 0)
    seat.connect(socket_address(world.run_dir, "control"))
    probe = world.probe
    assert settles(world, 0.5, 1.1, seat)
    os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)
    wait_for(lambda: pace(world, seat, 0.1) > 0 and probe.stopped(), 20.0, "the controller stops")
    wait_for(
        lambda: pace(world, seat, 0.1) > 0 and world.supervisor.restarts()["gate"] == 1,
        20.0,
        "the gate is started again",
    )
    pace(world, seat, 4.0)  # the script would have resumed and acknowledged by now
    assert probe.stopped() and probe.wait_mode("protective_stop")
    seat.close()  # who has gone presses nothing any more
    wait_for(lambda: not probe.stopped(), 20.0, "the script resumes")
    probe.wait_mode("hold", 20.0)
