"""`ros=real` against a double: the simulated arm in a driver's dress, in system time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.cli.main import main
from robot_rl.robots import Ur5e
from robot_rl.ros import topics
from robot_rl.ros.graph import RealGraphConfig, real_graph
from robot_rl.store.store import Store
from robot_rl.store.summary import EpisodeRecord
from tests.support.rehearsal import Teacher
from tests.support.ros import World, new_domain, wait_for, write_run

pytestmark = [pytest.mark.ros, pytest.mark.alone]

REQUESTER = Path(__file__).with_name("requester.py")
STILL_M = 0.001
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
    assert sorted(probe.newest(topics.JOINT_STATES).name)[:1] == ["elbow_joint"]
    served = {name for name, _ in probe.node.get_service_names_and_types()}
    assert not {f"/{service.name}" for service in topics.SIMULATION} & served  # time is not ours


def test_the_stop_chain_was_tried_before_anything_could_arm(world: World) -> None:
    log = (world.run_dir / "logs" / "watchdog.log").read_text()
    assert "dry run: the controller was stopped and started" in log
    driver = (world.run_dir / "logs" / "sim.log").read_text()
    assert driver.index("controller stopped") < driver.index("controller resumed")


def test_kill_9_of_the_gate_stops_the_drivers_controller(world: World) -> None:
    probe = world.probe
    env = os.environ | {"ROS_DOMAIN_ID": str(world.domain_id), "OMP_NUM_THREADS": "1"}
    own = ["--params-file", str(world.run_dir / "ros" / "gate.yaml")]
    requester = subprocess.Popen([sys.executable, str(REQUESTER), "orphan", "0", *own], env=env)
    try:
        x_m = probe.tcp().position_m[0]

        def driven() -> bool:
            moved_m = abs(probe.tcp().position_m[0] - x_m)
            return probe.tend() and probe.wait_mode("run", 40.0) is not None and moved_m > 0.005

        wait_for(driven, 40.0, lambda: f"the arm moves; gate: {probe.report()}")
        os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)
        wait_for(probe.stopped, 15.0, "the watchdog tells that the controller is stopped")
    finally:
        requester.kill()
        requester.wait()
    report = probe.wait_mode("protective_stop", 40.0)
    assert report.reason == "controller: stopped"
    where_m = probe.tcp().position_m
    # the watchdog starts the controller, once it has heard the new gate's heartbeat
    resumed = lambda: probe.call(topics.CONTROLLER_RESUME).success  # noqa: E731
    wait_for(resumed, 10.0, "the watchdog starts the controller")
    wait_for(lambda: not probe.stopped(), 20.0, "the controller goes on")
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

        def refused_for_its_state() -> bool:
            probe.tend()
            answer = probe.arm("lost", timeout_s=1.0)
            assert not answer.granted
            return answer.reason.startswith("state:")

        wait_for(refused_for_its_state, 30.0, "the gate refuses for the state")

        def told() -> bool:
            said = str(probe.diagnostics("/gate").get("last_error"))
            return "in another frame" in said and "base_link" in said

        wait_for(told, 15.0, "the gate says why")


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
        said = probe.report()
        assert said is not None and said.refusal == f"watchdog: {problem}"  # the page shows it
        for name in ("watchdog", "gate"):  # and the terminal, once it has lasted
            log = tmp_path / "run" / "logs" / f"{name}.log"

            def warned(log: Path = log) -> bool:
                probe.arm("unwatched", timeout_s=0.2)
                text = log.read_text()
                return f"watchdog: {problem}. What to do: nobody could stop" in text

            wait_for(warned, 15.0, f"{name} says what to do")


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


def record_two(run: Path, teacher: Teacher, words: list[str]) -> list[EpisodeRecord]:
    """Record two demonstrations through the graph of a UR5e with a double."""
    words = [*words, "runtime=ros", "ros=real", "ros.double=true", "robot=ur5e", "operator=twist"]
    words += [f"ros.domain_id={teacher.domain_id}", f"run_dir={run}", "--demos", "2"]
    tool = Path(sys.executable).with_name("robot-rl")
    recording = subprocess.Popen([str(tool), "record", *words])
    try:
        give_up_s = time.monotonic() + 100.0
        while recording.poll() is None and time.monotonic() < give_up_s:
            teacher.turn()
            time.sleep(0.02)
        assert recording.poll() == 0
    finally:
        recording.terminate()
        recording.wait(30.0)
        teacher.probe.close()
    with Store(run / "actor.sqlite") as store:
        episodes = [e for e in store.episode_summaries() if e.success]
        assert len(episodes) == 2
        for episode in episodes:
            assert episode.purpose == "demo" and episode.human_steps > episode.steps / 2
            frames = store.frames(episode.id)
            assert abs(frames[0].stamp_ns * 1e-9 - time.time()) < 300.0  # system time
    return episodes


@pytest.mark.slow  # `test_rehearsed_training` records on a double, too
def test_a_person_records_demonstrations_on_the_double(tmp_path: Path) -> None:
    record_two(tmp_path / "run", Teacher(new_domain()), ["experiment=reach"])


@pytest.mark.slow
def test_a_task_without_code_and_without_objects_judged_by_another_program(tmp_path: Path) -> None:
    """As `robot-rl task new` wrote it; the arm goes from start to start without being asked."""
    box = ["--box", "0.35 -0.15 0.05; 0.65 0.15 0.35", "--translation-m", "0.025"]
    judge = ["--judge", "topic", "--goal", "0.5 0.05 0.1", "--clear-z-m", "0.25"]
    words = ["task", "new", "free", "--starts", "0.5 -0.05 0.2", "--yes", *box, *judge]
    configs = ["--config-dir", str(tmp_path)]
    assert main([*words, "--operator", "twist", *configs]) == 0
    teacher = Teacher(new_domain(), np.array((0.5, 0.05, 0.1)))
    remap = "ros.remaps={task/success: my/checker}"
    record_two(tmp_path / "run", teacher, ["experiment=free", remap, *configs])
    assert teacher.asked == {"hands out of the way"}
