"""Robot, camera, clock and gate keep their promises in lockstep and over ROS 2 alike."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("robot_rl_sim")

from robot_rl.geometry import pose
from robot_rl.ports import Camera, Clock, Gate, RobotPort
from robot_rl.robots import Fr3
from robot_rl.run.experiment import Experiment
from robot_rl.safety.local import LocalGate, WatchedClock
from robot_rl.tasks import ReachTask
from robot_rl.types import Command, Driver, Outcome, Verdict
from robot_rl_sim.robot import MujocoRobot
from tests.support.ros import HAS_ROS, NO_ROS, World, wait_for, write_run

TASK = ReachTask(images=("front",), image_size=64)
ROS = pytest.mark.skipif(not HAS_ROS, reason=NO_ROS)


@dataclass
class Ports:
    """What the control loop stands on, of one runtime."""

    robot: RobotPort
    camera: Camera
    clock: Clock
    gate: Gate

    def ask(self, sequence: int, lease: str, up_m: float = 0.01) -> Verdict | None:
        """The verdict on going up from here; None when none comes within a second."""
        tcp = self.robot.read().tcp_in_base
        target = pose(tcp.position_m + up_m * np.eye(3)[2], tcp.quaternion_xyzw)
        command = Command(sequence, self.clock.now_s(), Driver.POLICY, lease, target)
        said = self.gate.request(command, self.robot.read())
        for _ in range(20):
            self.clock.sleep_until_s(self.clock.now_s() + 0.05)
            said = said or self.gate.verdict(sequence)
            if said is not None:
                return said
        return None


def lockstep() -> Iterator[Ports]:
    robot = MujocoRobot(TASK)
    gate = LocalGate(Experiment.compose(["experiment=reach"]).limits, robot)
    camera: Any = robot.camera("front", (64, 64))
    yield Ports(robot, camera, WatchedClock(robot, gate), gate)
    camera.close()


def ros(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ports]:
    from robot_rl.observe.cameras import TopicCameraConfig
    from robot_rl.ros.actor_ports import await_sources
    from robot_rl.ros.cameras import RosCamera
    from robot_rl.ros.graph import SimGraphConfig, sim_graph
    from robot_rl.ros.ports import RosClock, RosGate, RosRobot
    from robot_rl.ros.reader import StateReader
    from robot_rl.ros.runtime import node_shell

    task = {"name": "reach", "images": ["front"], "image_size": 64}
    run = write_run(folder, task=task)
    graph = sim_graph(SimGraphConfig(with_actor=False, unattended=True, camera_hz=20.0), str(run))
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    world = World(graph, run)
    try:
        world.probe.wait_state()
        monkeypatch.setenv("ROS_DOMAIN_ID", str(world.domain_id))
        with node_shell("actor", ["--ros-args", "-p", "use_sim_time:=true"]) as shell:
            clock, gate = RosClock(shell, "actor"), RosGate(shell)
            robot, camera = (
                RosRobot(StateReader(shell, ["target"])),
                RosCamera(shell, "front", TopicCameraConfig(), (64, 64)),
            )
            shell.spin_in_background()
            clock.wait_started(20.0)
            await_sources(shell, [robot], 20.0)
            yield Ports(robot, camera, clock, gate)
    finally:
        world.close()
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture(scope="module")
def monkey() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("lockstep", marks=pytest.mark.gl),
        pytest.param("ros", marks=[pytest.mark.ros, pytest.mark.alone, pytest.mark.gl, ROS]),
    ],
)
def ports(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkey: pytest.MonkeyPatch,
) -> Iterator[Ports]:
    """Of one runtime; the tests below use it one after the other."""
    if request.param == "lockstep":
        yield from lockstep()
    else:
        yield from ros(tmp_path_factory.mktemp("contract"), monkey)


def test_they_are_the_ports(ports: Ports) -> None:
    assert isinstance(ports.robot, RobotPort) and isinstance(ports.camera, Camera)
    assert isinstance(ports.clock, Clock) and isinstance(ports.gate, Gate)


def test_the_clock_sleeps_to_deadlines_and_never_goes_back(ports: Ports) -> None:
    clock, seen = ports.clock, [ports.clock.now_s()]
    for _ in range(5):
        deadline_s = clock.now_s() + 0.1
        clock.sleep_until_s(deadline_s)
        seen.append(clock.now_s())
        assert seen[-1] >= deadline_s - TASK.timestep_s
    before_s = clock.now_s()
    clock.sleep_until_s(before_s - 1.0)  # it has passed: at once
    seen.append(clock.now_s())
    assert seen[-1] - before_s < 0.1
    assert seen == sorted(seen)


def test_the_state_has_the_documented_shapes_and_is_not_of_the_future(ports: Ports) -> None:
    state = ports.robot.read()
    assert state.stamp_s <= ports.clock.now_s() + TASK.timestep_s
    joints = len(Fr3().joint_names)
    sizes = {
        "joint_position_rad": joints, "joint_velocity_rad_s": joints, "tcp_twist_in_base": 6,
        "wrench_in_tcp": 6,
    }  # fmt: skip
    for name, size in sizes.items():
        value = getattr(state, name)
        assert value.shape == (size,) and value.dtype == np.float64 and np.isfinite(value).all()
    assert np.linalg.norm(state.tcp_in_base.quaternion_xyzw) == pytest.approx(1.0)
    assert set(state.objects) == {"target"}


def test_a_picture_is_rgb_stamped_and_replaced_by_a_newer_one(ports: Ports) -> None:
    def read() -> tuple[float, np.ndarray]:
        ports.clock.sleep_until_s(ports.clock.now_s() + 0.2)
        return ports.camera.read()

    (first_s, first), (second_s, second) = read(), read()
    assert ports.camera.name == "front"
    for picture in (first, second):
        assert picture.shape == (64, 64, 3) and picture.dtype == np.uint8 and picture.std() > 5.0
    assert first_s < second_s <= ports.clock.now_s() + TASK.timestep_s


def test_nothing_passes_the_gate_before_it_is_armed(ports: Ports) -> None:
    said = ports.ask(1, "mine")
    assert said is None or said.outcome is Outcome.HOLD
    wait_for(lambda: ports.gate.arm("mine"), 10.0, "the gate grants the lease")
    said = ports.ask(2, "mine")
    assert said is not None and (said.outcome, said.sequence) == (Outcome.PASS, 2)
    assert ports.gate.verdict(2) == said and ports.gate.verdict(99) is None
    said = ports.ask(3, "mine", up_m=5.0)
    assert said is not None and said.outcome is not Outcome.PASS
    assert said.command.tcp_target_in_base.position_m[2] < 1.0  # never what was asked for
    said = ports.ask(4, "theirs")
    assert said is None or said.outcome is Outcome.HOLD
