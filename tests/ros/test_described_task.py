"""What a described task needs of the graph: no tracked objects, a judge's word, taught poses."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from geometry_msgs.msg import PoseStamped
from std_msgs.msg import Bool

from robot_rl.errors import RobotRLError, SetupError
from robot_rl.geometry import pose
from robot_rl.robots import Fr3, Ur5e
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import publisher
from robot_rl.ros.ports import RosJudge, RosRobot
from robot_rl.ros.reader import tracked_objects
from robot_rl.ros.runtime import node_shell
from robot_rl.ros.teach import taught_poses
from robot_rl.run.experiment import Experiment
from robot_rl.tasks import ReachTask
from tests.support.probe import Probe
from tests.support.ros import new_domain, wait_for
from tests.support.states import state_at

pytestmark = pytest.mark.ros
AT = pose((0.5, 0.1, 0.2), (1.0, 0.0, 0.0, 0.0))


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
    domain = new_domain()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
    found = Probe(domain)
    found.domain_id = domain  # type: ignore[attr-defined]
    yield found
    found.close()
    for number, handler in handlers.items():  # `node_shell` has its own
        signal.signal(number, handler)


def test_a_real_arm_needs_no_objects_for_it_and_a_simulated_one_has_them(probe: Probe) -> None:
    task = Experiment.compose(["experiment=taught_insert"]).task
    with node_shell("actor") as shell:
        assert tracked_objects(shell, task) == ()
        assert tracked_objects(shell, ReachTask()) == ("target",)
    with node_shell("actor", ["--ros-args", "-p", "use_sim_time:=true"]) as shell:
        assert tracked_objects(shell, task) == ("hole",)


def test_the_word_of_another_program_is_part_of_the_state_while_it_is_fresh(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robot_rl.ros.ports.JUDGE_S", 0.5)
    reader: Any = type("Reader", (), {"read": lambda _: state_at(1.0)})()
    with node_shell("actor") as shell:
        robot = RosRobot(reader, RosJudge(shell))
        with pytest.raises(RobotRLError, match="nobody says") as error:
            robot.read()
        assert "task/success" in str(error.value) and error.value.got == "nothing"
        words = publisher(probe.node, topics.TASK_SUCCESS)

        def told(word: bool) -> bool:
            words.publish(Bool(data=word))
            try:
                return robot.read().told_success is word
            except RobotRLError:
                return False

        wait_for(lambda: told(False), 15.0, "no success")
        wait_for(lambda: told(True), 15.0, "success")
        time.sleep(0.6)
        with pytest.raises(RobotRLError, match="silence"):
            robot.read()
        assert RosRobot(reader).read().told_success is None


class Arm:
    """Publishes a pose 100 times a second."""

    def __init__(self, probe: Probe, topic: str, frame: str) -> None:
        self.moves_m = 0.0
        self._frame, self._count = frame, 0
        self._topic = probe.node.create_publisher(PoseStamped, topic, 1)
        probe.node.create_timer(0.01, self._say)

    def _say(self) -> None:
        self._count += 1
        at = AT.position_m + self.moves_m * (self._count % 10) * np.eye(3)[0]
        self._topic.publish(convert.pose_to(pose(at, AT.quaternion_xyzw), time.time(), self._frame))


def test_the_pose_of_an_arm_that_stands_still_is_read(probe: Probe) -> None:
    arm = Arm(probe, "my_arm/pose", "base_link")
    with taught_poses(Ur5e(), probe.domain_id, topic="my_arm/pose") as read:  # type: ignore[attr-defined]
        assert read().position_m == pytest.approx(AT.position_m)
        arm.moves_m = 0.002
        time.sleep(0.1)
        with pytest.raises(SetupError, match="the arm is moving"):
            read()


def test_an_arm_that_is_silent_or_elsewhere_teaches_nothing(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robot_rl.ros.teach.FIRST_S", 1.0)
    with taught_poses(Fr3(), probe.domain_id) as read:  # type: ignore[attr-defined]
        with pytest.raises(SetupError, match="does not say where it is"):
            read()
        Arm(probe, "current_pose", "world")
        monkeypatch.setattr("robot_rl.ros.teach.FIRST_S", 10.0)
        with pytest.raises(SetupError, match="another frame"):
            read()
