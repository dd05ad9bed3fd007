"""A mirror beside a double, as beside an arm: it stands, or it moves, as the arm does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.errors import ConfigError
from robot_rl.ros import topics
from robot_rl.ros.graph import RealGraphConfig, real_graph
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of
from tests.support.isaac import use_stand_in
from tests.support.ros import World, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone]


def started(folder: Path, *words: str) -> World:
    """The graph of a double with a mirror; no actor: the test drives."""
    more = ["runtime=ros", "ros=real", "double=true", "operator=none", "ros.with_actor=false"]
    experiment = Experiment.compose(["experiment=reach", *more, f"run_dir={folder}", *words])
    experiment.save()
    return World(graph_of(experiment), folder)


def drive(world: World, lease: str, steps: int) -> None:
    """Sway for so many commands."""
    probe = world.probe
    wait_for(lambda: probe.tend() and probe.arm(lease).granted, 40.0, "it arms")
    for sequence in range(1, steps + 1):
        probe.send(probe.command(lease, sequence, 0.012 * float(np.sign(np.sin(sequence / 4)))))
        time.sleep(0.1)
    probe.wait_mode("pause")


def stretches(folder: Path) -> list[dict[str, Any]]:
    """What the mirror has written."""
    path = folder / "mirror.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("robot", ["fr3", "ur5e_forward"])
def test_a_mirror_with_the_same_physics_follows_the_same_commands(
    tmp_path: Path, robot: str
) -> None:
    world = started(tmp_path, f"robot={robot}", "ros.mirror=dynamic")
    try:
        world.probe.wait_state(simulated=False)
        log = tmp_path / "logs" / "mirror.log"
        wait_for(lambda: log.is_file() and "/mirror up" in log.read_text(), 20.0, "it is up")
        drive(world, "mover", 30)
        wait_for(lambda: stretches(tmp_path), 10.0, "a stretch is written")
    finally:
        world.close()
    (one,) = stretches(tmp_path)
    assert one["seconds"] > 1.5
    assert len(one["joint_rmse_rad"]) == len(Experiment.load(tmp_path).robot.joint_names)
    assert one["tcp_rmse_m"] < 0.003 and one["tcp_max_m"] < 0.012, one  # it moves 12 mm a command
    assert "TCP by" in log.read_text()


@pytest.mark.slow
def test_what_pulls_at_the_arm_and_not_at_the_mirror_is_in_the_figures(tmp_path: Path) -> None:
    pulled = """ros.nodes={sim: {fault: '{"push_n": [0, 10, 0]}'}}"""
    world = started(tmp_path, "robot=fr3", "ros.mirror=dynamic", pulled)
    try:
        world.probe.wait_state(simulated=False)
        drive(world, "mover", 30)
        wait_for(lambda: stretches(tmp_path), 10.0, "a stretch is written")
    finally:
        world.close()
    assert 0.005 < stretches(tmp_path)[0]["tcp_rmse_m"] < 0.05  # 10 N on 1000 N/m


@pytest.mark.gl
def test_a_shadow_in_isaac_sim_stands_where_the_arm_does_and_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stand_in(monkeypatch, "experiment=reach robot=ur5e")
    more = ["nodes.mirror.engine=isaac", "nodes.mirror.camera_hz=10"]
    words = ["robot=ur5e", "ros.mirror=shadow", *(f"ros.{word}" for word in more)]
    world = started(tmp_path, *words)
    pictures: list[Any] = []
    try:
        probe = world.probe
        probe.wait_state(simulated=False)
        from robot_rl.ros.endpoints import subscribe

        subscribe(probe.node, topics.MIRROR_IMAGE.named(camera="video"), pictures.append)
        wait_for(lambda: len(pictures) > 2, 30.0, "pictures come")
        before = np.frombuffer(pictures[-1].data, np.uint8).copy()
        drive(world, "mover", 10)
        count = len(pictures)
        wait_for(lambda: len(pictures) > count + 1, 10.0, "and go on coming")
        after = np.frombuffer(pictures[-1].data, np.uint8)
    finally:
        world.close()
    assert (pictures[-1].height, pictures[-1].width) == (480, 640)
    assert before.std() > 10.0 and np.abs(after.astype(int) - before).max() > 30
    assert not stretches(tmp_path)


def test_a_mirror_is_for_an_arm_and_is_not_needed_by_anybody() -> None:
    nodes = {spec.name: spec for spec in real_graph(RealGraphConfig(mirror="shadow"), "/tmp/run")}
    assert not nodes["mirror"].critical and nodes["mirror"].nice > 0
    with pytest.raises(ValueError, match="did you mean 'dynamic'"):
        RealGraphConfig(mirror="dynamics")
    with pytest.raises(ConfigError, match=r"ros\.mirror"):
        Experiment.compose(["experiment=reach", "runtime=ros", "ros.mirror=shadow"]).check()
