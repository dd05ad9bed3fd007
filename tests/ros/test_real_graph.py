"""`ros=real` against a double: the simulated arm in a driver's dress, in system time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import TwistStamped
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from std_msgs.msg import Bool

from robot_rl.errors import LinkError
from robot_rl.link.panel import Panel, socket_address
from robot_rl.robots import Ur5e
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Caller, subscribe
from robot_rl.ros.graph import RealGraphConfig, real_graph
from robot_rl.store.store import Store
from robot_rl.types import Ending
from tests.support.probe import Probe
from tests.support.ros import World, new_domain, wait_for, write_run

pytestmark = pytest.mark.ros

REQUESTER = Path(__file__).with_name("requester.py")
STILL_M = 0.001
TARGET = topics.OBJECT.named(object="target")
UR5E = {"robot": {"name": "ur5e"}, "ros": {"name": "real", "double": True}}


@contextmanager
def double(
    run: Path, nodes: dict[str, Any] | None = None, *, task: dict[str, Any] | None = None
) -> Iterator[World]:
    """The graph of a UR5e with a double; with an actor and cameras where a `task` is given."""
    write_run(run, **UR5E, **({"task": task} if task else {}))
    config = RealGraphConfig(double=True, with_actor=task is not None, nodes=nodes or {})
    found = World(real_graph(config, str(run), Ur5e(), cameras=task is not None), run)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Double, gate, watchdog and operator of a UR5e; no actor."""
    with double(tmp_path_factory.mktemp("real")) as found:
        found.probe.wait_state(simulated=False)
        wait_for(lambda: not found.probe.problem(), 20.0, found.probe.problem)
        yield found


def test_the_double_speaks_as_the_driver_does(world: World) -> None:
    """System time, its own names for topics and services, no /clock."""
    probe = world.probe
    assert probe.newest(topics.CLOCK) is None
    pose = probe.newest(topics.CURRENT_POSE)
    assert abs(pose.header.stamp.sec - time.time()) < 5.0
    assert pose.header.frame_id == "base_link"
    wrench = probe.node.count_publishers("force_torque_sensor_broadcaster/wrench")
    assert (wrench, probe.node.count_publishers("wrench")) == (1, 0)
    assert sorted(probe.newest(topics.JOINT_STATES).name)[:1] == ["elbow_joint"]


def test_the_stop_chain_was_tried_before_anything_could_arm(world: World) -> None:
    log = (world.run_dir / "logs" / "watchdog.log").read_text()
    assert "dry run: the controller was stopped and started" in log
    driver = (world.run_dir / "logs" / "sim.log").read_text()
    assert driver.index("controller stopped") < driver.index("controller resumed")


def test_kill_9_of_the_gate_stops_the_drivers_controller(world: World) -> None:
    probe = world.probe
    env = os.environ | {"ROS_DOMAIN_ID": str(world.domain_id), "OMP_NUM_THREADS": "1"}
    own = ["--params-file", str(world.run_dir / "ros" / "gate.yaml")]
    own += [word for ours, theirs in Ur5e.topics.items() for word in ("-r", f"{ours}:={theirs}")]
    requester = subprocess.Popen([sys.executable, str(REQUESTER), "orphan", "0", *own], env=env)
    try:
        probe.wait_mode("run", 15.0)
        x_m = probe.tcp().position_m[0]
        wait_for(lambda: abs(probe.tcp().position_m[0] - x_m) > 0.005, 10.0, "the arm moves")
        os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)
        wait_for(probe.stopped, 15.0, "the watchdog tells that the controller is stopped")
    finally:
        requester.kill()
        requester.wait()
    report = probe.wait_mode("protective_stop", 15.0)
    assert report.reason == "controller: stopped"
    where_m = probe.tcp().position_m
    assert probe.call(topics.CONTROLLER_RESUME).success  # the watchdog starts the controller
    wait_for(lambda: not probe.stopped(), 5.0, "the controller goes on")
    time.sleep(0.5)
    assert np.linalg.norm(probe.tcp().position_m - where_m) < STILL_M
    probe.wait_mode("protective_stop")

    def arms() -> bool:
        probe.settle()  # acknowledges; a machine that is busy may stop the arm once more
        return probe.arm("after", timeout_s=1.0).granted

    wait_for(arms, 20.0, lambda: f"it arms; gate: {probe.report()}")
    assert probe.call(topics.GATE_HOLD).success
    assert probe.call(topics.GATE_RESUME).success


def test_poses_in_another_frame_move_nothing(tmp_path: Path) -> None:
    """UR's `base` is half a turn from `base_link`, in which the limits are."""
    nodes = {"sim": {"base_frame": "base"}}
    with double(tmp_path / "run", nodes) as world:
        probe = world.probe
        wait_for(lambda: probe.newest(topics.GATE_STATE), 30.0, "the gate is up")
        wait_for(lambda: probe.newest(topics.CURRENT_POSE), 30.0, "the driver is up")
        wait_for(lambda: not probe.problem(), 20.0, probe.problem)
        answer = probe.arm("lost", timeout_s=2.0)
        assert not answer.granted and answer.reason.startswith("state:")
        said = wait_for(
            lambda: probe.diagnostics("/gate").get("last_error"), 5.0, "the gate says why"
        )
        assert "in another frame" in said and "base_link" in said


def test_nobody_who_could_stop_the_controller_nothing_arms(tmp_path: Path) -> None:
    nodes = {"watchdog": {"stop_service": "nobody/serves"}}
    with double(tmp_path / "run", nodes) as world:
        probe = world.probe
        probe.wait_state(simulated=False)
        problem = "nobody serves nobody/serves, so nobody can stop the arm"
        assert probe.problem() == problem

        def refused() -> bool:
            answer = probe.arm("unwatched", timeout_s=1.0)
            assert not answer.granted
            return answer.reason == f"watchdog: {problem}"

        wait_for(refused, 20.0, "it says why")


def test_a_camera_that_was_never_there_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    """Before a person prepares anything, and not again and again."""
    task = {"name": "reach", "images": ["wrist"], "image_size": 64}
    run = tmp_path / "run"
    nodes = {"sim": {"camera_hz": 0.0}, "actor": {"start_s": 3.0}}
    with double(run, nodes, task=task) as world:
        wait_for(lambda: world.exits, 60.0, "the actor gives up")
        (end,) = world.exits
        assert (end.name, end.code, end.restart_in_s, end.fatal) == ("actor", 2, None, True)
        log = (run / "logs" / "actor.log").read_text()
        assert "no image from camera 'wrist'" in log
        assert not world.probe.moves()


def test_an_arm_without_fingers_has_a_state(tmp_path: Path) -> None:
    none = {"finger_joint_names": []}
    nodes = dict.fromkeys(("sim", "gate", "operator"), none)
    with double(tmp_path / "run", nodes) as world:
        probe = world.probe
        probe.wait_state(simulated=False)
        assert len(probe.newest(topics.JOINT_STATES).name) == 6
        wait_for(lambda: not probe.problem(), 20.0, probe.problem)
        wait_for(lambda: probe.arm("bare", timeout_s=1.0).granted, 20.0, "it arms")


class Teacher:
    """A person beside the double: prepares the scene, steers to the target with a twist device.

    A process of its own to the graph: reads the double's truth, reaches the arm only through the
    topics of a teleoperation device.
    """

    def __init__(self, domain_id: int) -> None:
        self.probe = Probe(domain_id)
        node = self.probe.node
        self._twist = node.create_publisher(TwistStamped, "teleop/twist", 1)
        self._enable = node.create_publisher(Bool, "teleop/enable", 1)
        self._newest: dict[str, Any] = {}
        for topic in (topics.ACTOR_ASKS, topics.OPERATOR_EPISODE, TARGET):
            subscribe(node, topic, partial(self._newest.__setitem__, topic.name))
        self._callers = {s: Caller(node, s.name, 1.0) for s in topics.SERVICES}
        self._answer_s = 0.0
        self._begun_s = time.monotonic()

    @property
    def driven_s(self) -> float:
        """How long this episode has lasted."""
        return time.monotonic() - self._begun_s

    def turn(self) -> None:
        """Look, answer, steer; call it 50 times a second."""
        asks, call = (
            self._newest.get(t.name) for t in (topics.ACTOR_ASKS, topics.OPERATOR_EPISODE)
        )
        wall_s = time.monotonic()
        if wall_s > self._answer_s:
            self._answer_s = wall_s + 0.5
            self._look_after(asks is not None and bool(asks.data))
        begun = call is not None and wire.decode_episode(call.data).active
        self._begun_s = self._begun_s if begun else wall_s
        active = wall_s > self._begun_s + 0.3  # at rest first: a device that is held does not drive
        self._enable.publish(Bool(data=active))
        message = TwistStamped()
        message.header.frame_id = "base"
        if active and TARGET.name in self._newest:
            target = convert.pose_from(self._newest[TARGET.name]).position_m
            way_m = target - self.probe.tcp().position_m
            speed = np.clip(3.0 * way_m, -0.2, 0.2)
            linear = message.twist.linear
            linear.x, linear.y, linear.z = speed.tolist()
        self._twist.publish(message)

    def _look_after(self, asked: bool) -> None:
        """What a person does at a robot that waits: resume, acknowledge, prepare."""
        report = self.probe.report()
        if self.probe.stopped():
            self._callers[topics.CONTROLLER_RESUME].poll()
        elif report is not None and report.mode == "protective_stop":
            self._callers[topics.GATE_ACKNOWLEDGE].poll()
        elif report is not None and report.waits:
            self._callers[topics.GATE_RESUME].poll()
        if asked:
            self._callers[topics.ACTOR_READY].poll()


@contextmanager
def recording(run: Path, *words: str) -> Iterator[tuple[Teacher, subprocess.Popen[bytes]]]:
    """`robot-rl record` on a double of a UR5e, and a person beside it."""
    domain_id = new_domain()
    given = ["experiment=reach", "runtime=ros", "ros=real", "ros.double=true", "robot=ur5e"]
    given += ["operator=twist", f"ros.domain_id={domain_id}", f"run_dir={run}", *words]
    tool = Path(sys.executable).with_name("robot-rl")
    teacher = Teacher(domain_id)
    process = subprocess.Popen([str(tool), "record", *given])
    try:
        yield teacher, process
    finally:
        process.terminate()
        process.wait(30.0)
        teacher.probe.close()


def until_recorded(
    teacher: Teacher, process: subprocess.Popen[bytes], meanwhile: Callable[[], object] = bool
) -> None:
    """Drive until the demonstrations are there."""
    give_up_s = time.monotonic() + 100.0
    while process.poll() is None and time.monotonic() < give_up_s:
        teacher.turn()
        meanwhile()
        time.sleep(0.02)
    assert process.poll() == 0


def test_a_person_records_demonstrations_on_the_double(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with recording(run, "--demos", "2") as (teacher, process):
        until_recorded(teacher, process)
    with Store(run / "actor.sqlite") as store:
        episodes = [e for e in store.episode_summaries() if e.success]
        assert len(episodes) == 2
        for episode in episodes:
            assert episode.purpose == "demo" and episode.human_steps > episode.steps / 2
            frames = store.frames(episode.id)
            assert abs(frames[0].stamp_ns * 1e-9 - time.time()) < 300.0  # system time


class Freeze:
    """Freezes the double's cameras for 0.3 s, once, in the middle of an episode."""

    LASTS_S = 0.3

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher
        self._client = teacher.probe.node.create_client(SetParameters, "sim/set_parameters")
        self._until_s: float | None = None

    def turn(self) -> None:
        """Call it often."""
        now_s = time.monotonic()
        if self._until_s is None and self._teacher.driven_s > 0.5:
            self._until_s = now_s + self.LASTS_S
            self._say('{"camera": {"freeze": true}}')
        elif self._until_s is not None and now_s > self._until_s:
            self._until_s = float("inf")
            self._say("")

    def _say(self, fault: str) -> None:
        parameter = Parameter("fault", value=fault).to_parameter_msg()
        self._client.call_async(SetParameters.Request(parameters=[parameter]))


@pytest.mark.gl
def test_cameras_are_cropped_and_a_short_freeze_teaches_nothing(tmp_path: Path) -> None:
    """One camera raw, one as JPEG under a name of its own; both at their own size."""
    run = tmp_path / "run"
    words = ["task.images=[wrist,front]", "task.image_size=[48,64]", "ros.with_view=true"]
    words += ["cameras.wrist.crop=[100,20,160,200]", "cameras.front.topic=/top/rgb/compressed"]
    words += [f"cameras.{c}.{k}" for c in ("wrist", "front") for k in ("width=320", "height=240")]
    with recording(run, *words, "--demos", "1") as (teacher, process), ThreadPoolExecutor() as pool:
        looked = pool.submit(lambda: asyncio.run(on_the_page(run, ("wrist", "front"))))
        until_recorded(teacher, process, Freeze(teacher).turn)
    pages = looked.result()
    assert [(page["height"], page["width"]) for page in pages] == [(48, 64)] * 2
    with Store(run / "actor.sqlite") as store:
        stale, *_, done = store.episode_summaries()
        assert (stale.ending, stale.success) == (Ending.STALE, None) and done.success
        last = store.steps(stale.id)[-1]
        assert last.ending is Ending.STALE and last.success is None
        frame = store.frames(done.id)[-1]
        for camera in ("wrist", "front"):
            picture = frame.observation[f"image/{camera}"]
            assert picture.shape == (48, 64, 3) and picture.std() > 5.0
    cameras = json.loads((run / "cameras.json").read_text())
    wrist, front = cameras["wrist"], cameras["front"]
    assert (wrist["source_width"], wrist["source_height"]) == (320, 240)
    assert wrist["part"] == [100, 60, 160, 120] and front["part"] == [0, 0, 320, 240]
    assert wrist["k"][0][0] == pytest.approx(wrist["source_k"][0][0] * 64 / 160)
    assert front["k"][0][0] == pytest.approx(front["source_k"][0][0] / 5)
    assert front["topic"] == "/top/rgb/compressed"
    figures = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert figures[-1]["camera/wrist/age_p99_ms"] < 500.0
    assert figures[-1]["camera/wrist/unread"] == 0.0 and "camera/skew_ms" in figures[-1]


async def on_the_page(run: Path, cameras: Sequence[str]) -> list[Any]:
    """What the console is told of the first pictures."""
    panel = Panel(socket_address(run, "view"))
    found: list[Any] = []
    try:
        while len(found) < len(cameras):
            with suppress(LinkError):
                found.append((await panel.ask("picture", camera=cameras[len(found)]))[0])
            await asyncio.sleep(0.05)
    finally:
        await panel.close()
    return found
