"""A world per test module; tests marked `ros` are skipped, with the reason, without rclpy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from robot_rl.ros.graph import SimGraphConfig, sim_graph
from tests.support.ros import HAS_ROS, NO_ROS, World, write_run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `ros` are skipped, with the reason, where there is no rclpy."""
    for item in items:
        if item.get_closest_marker("ros") and not HAS_ROS:
            item.add_marker(pytest.mark.skip(reason=NO_ROS))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder without an operator."""
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def world(run_dir: Path) -> Iterator[World]:
    """Sim, gate, watchdog and operator, at real time; nobody acknowledges by himself."""
    config = SimGraphConfig(real_time_factor=1.0, with_actor=False, unattended=False)
    world = World(sim_graph(config, str(run_dir)), run_dir)
    try:
        world.probe.wait_state()
        yield world
    finally:
        codes = world.close()
        assert not world.probe.failures
        logs = "\n".join(f.read_text() for f in sorted((run_dir / "logs").glob("*.log")))
        assert all(code == 0 for code in codes.values()), f"{codes}\n{logs}"
