"""The arm node on its way home, beside a driver and a gate that this test plays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy")

from rclpy.action.server import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

from robot_rl.robots import Fr3
from robot_rl.robots.driver import ArmDriver, Controllers
from robot_rl.ros import arm_node, convert, topics, wire
from robot_rl.ros.endpoints import message_type, offer, publisher
from robot_rl.ros.runtime import Shell, node_shell
from tests.support.gate_alone import peer
from tests.support.ros import missing_vendor_types, new_domain, wait_for

pytestmark = [
    pytest.mark.ros,
    pytest.mark.alone,
    pytest.mark.waits,
    pytest.mark.skipif(bool(missing_vendor_types()), reason=missing_vendor_types() or "-"),
]
CARTESIAN, HOME = "cartesian_controller", "joint_trajectory_controller"
DRIVER = ArmDriver(
    title="a driver",
    wrench="none",
    controllers=Controllers(
        manager="controller_manager", cartesian=CARTESIAN, home=HOME, home_s=20.0
    ),
)
TELL_S = 0.05  # wall; the gate speaks this often


class Driver:
    """Serves the controllers and the way home; tells what a gate would. Spins by itself."""

    def __init__(self, node: Node) -> None:
        self.states = {CARTESIAN: "active", HOME: "inactive"}
        self.goal: Any = None  # under way
        self.ends: list[str] = []  # how each goal has ended
        self.arrives = threading.Event()
        self.asked, self.accepts = threading.Event(), threading.Event()
        self.mode, self.reason, self.waits, self.speaks = "hold", "not armed", "", True
        self._node = node
        self._reports = publisher(node, topics.GATE_STATE)
        group = ReentrantCallbackGroup()
        kind, manager = "controller_manager_msgs/srv", "controller_manager"
        offer(node, f"{kind}/ListControllers", f"{manager}/list_controllers", self._list)
        offer(node, f"{kind}/SwitchController", f"{manager}/switch_controller", self._switch)
        ActionServer(
            node,
            message_type("control_msgs/action/FollowJointTrajectory"),
            f"{HOME}/follow_joint_trajectory",
            self._follow,
            goal_callback=self._accept,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
            callback_group=group,
        )
        self.home = node.create_client(Trigger, topics.ARM_HOME.name, callback_group=group)
        node.create_timer(TELL_S, self._tell, callback_group=group)

    def _tell(self) -> None:
        if self.speaks:
            said = wire.GateReport(self.mode, self.reason, "", time.time(), 0, self.waits)
            self._reports.publish(convert.text_to(wire.encode_report(said)))

    def _list(self, _: Any, response: Any) -> Any:
        state = message_type("controller_manager_msgs/msg/ControllerState")
        response.controller = [state(name=n, state=s) for n, s in self.states.items()]
        return response

    def _switch(self, request: Any, response: Any) -> Any:
        self.states |= dict.fromkeys(request.deactivate_controllers, "inactive")
        self.states |= dict.fromkeys(request.activate_controllers, "active")
        response.ok = True
        return response

    def _accept(self, _: Any) -> GoalResponse:
        self.asked.set()
        return GoalResponse.ACCEPT if self.accepts.wait(5.0) else GoalResponse.REJECT

    def _follow(self, goal: Any) -> Any:
        self.goal = goal
        while not self.arrives.wait(0.01) and not goal.is_cancel_requested:
            if self.states[HOME] != "active":  # as ros2_control does it
                goal.abort()
                break
        else:
            goal.canceled() if goal.is_cancel_requested else goal.succeed()
        self.ends.append(goal.status)
        self.goal = None
        return message_type("control_msgs/action/FollowJointTrajectory").Result()


class Arm:
    """The node, in this thread, and its driver in others."""

    def __init__(self, shell: Shell, driver: Driver) -> None:
        self.shell, self.driver = shell, driver
        self.node = arm_node.ArmNode(shell, Fr3(), DRIVER)

    def run(self, until: Callable[[], Any], within_s: float = 10.0) -> None:
        """Let the node turn until something is true."""
        give_up_s = time.monotonic() + within_s
        while not until():
            assert time.monotonic() < give_up_s, f"{self.node._failed}, {self.driver.states}"
            self.shell.spin(0.01)
            self.node.turn()

    def call_home(self) -> Trigger.Response:
        """A person calls `arm/home`."""
        self.run(self.driver.home.service_is_ready)
        self.run(lambda: self.node._gate.silent_s < 0.5)
        future = self.driver.home.call_async(Trigger.Request())
        self.run(future.done)
        answer = future.result()
        assert answer is not None
        return answer

    def go(self) -> None:
        """Call it, and wait until the arm is on its way."""
        assert self.call_home().success
        self.run(lambda: self.driver.goal is not None)

    def ended(self) -> str:
        """Wait until the job has ended; why it failed."""
        self.run(lambda: self.node._job is None)
        return self.node._failed


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Shell, Driver]]:
    """An arm node's shell, and the driver, which accepts goals."""
    domain_id = new_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_id))
    words = ["--ros-args", "-p", f"run_dir:={tmp_path}"]
    with node_shell("arm", words) as shell, peer(domain_id, "driver") as node:
        driver = Driver(node)
        driver.accepts.set()
        executor = MultiThreadedExecutor(4, context=node.context)
        executor.add_node(node)
        thread = threading.Thread(target=executor.spin)
        thread.start()
        try:
            yield shell, driver
        finally:
            driver.accepts.set()
            driver.arrives.set()
            executor.shutdown(5.0)
            thread.join()


@pytest.fixture
def arm(graph: tuple[Shell, Driver]) -> Arm:
    """An arm at rest, with a gate that holds."""
    return Arm(*graph)


def test_the_arm_goes_home_and_the_controller_of_the_run_takes_over(arm: Arm) -> None:
    arm.driver.reason, arm.driver.waits = "person: hold", "person"
    arm.go()
    assert arm.driver.states == {CARTESIAN: "inactive", HOME: "active"}
    arm.driver.waits = ""  # a person lets it go on
    arm.run(lambda: wire.decode_report(arm.node._gate.value.data).waits == "")
    arm.driver.arrives.set()
    assert arm.ended() == ""
    assert arm.driver.states == {CARTESIAN: "active", HOME: "inactive"}


AGAIN = "; a person pressed 2 times"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("hold", "not armed", ""), ("hold", "person: hold", "person")),
        (("hold", "person: hold", "person"), ("hold", f"person: hold{AGAIN}", "person")),
        (("hold", "person: hold", "person"), ("protective_stop", "person: stop", "person")),
        (("protective_stop", "force: x", ""), ("protective_stop", "force: x", "person")),
        (("hold", "not armed", ""), ("hold", "not armed", "device")),
    ],
)
def test_a_persons_hold_or_stop_ends_the_way_home(
    arm: Arm, before: tuple[str, str, str], after: tuple[str, str, str]
) -> None:
    driver = arm.driver
    driver.mode, driver.reason, driver.waits = before
    arm.go()
    driver.mode, driver.reason, driver.waits = after
    failed = arm.ended()
    assert failed.startswith("home failed: stopped on the way") and after[1] in failed
    assert driver.goal is None and len(driver.ends) == 1
    assert driver.states == {CARTESIAN: "active", HOME: "inactive"}  # the gate holds it


@pytest.mark.parametrize("what", ["the controller is stopped", "the gate dies", "the gate ends"])
def test_a_stopped_controller_is_not_started_again(arm: Arm, what: str) -> None:
    """What the watchdog has stopped, a person starts."""
    driver = arm.driver
    arm.go()
    if what == "the controller is stopped":
        driver.mode, driver.reason = "protective_stop", "controller: stopped"
    elif what == "the gate ends":
        driver.reason = "gate: shutting down"
    else:
        driver.speaks = False
        driver.states = dict.fromkeys(driver.states, "inactive")  # the watchdog was quicker
    assert arm.ended()
    assert driver.goal is None and len(driver.ends) == 1
    assert driver.states == {CARTESIAN: "inactive", HOME: "inactive"}


def test_a_controller_that_was_stopped_as_the_arm_arrived_stays_off(arm: Arm) -> None:
    arm.go()
    arm.driver.speaks = False
    arm.driver.arrives.set()
    assert "controller/resume" in arm.ended()
    assert arm.driver.states == {CARTESIAN: "inactive", HOME: "inactive"}


def test_after_a_stop_of_the_controller_nobody_goes_home_before_it_is_acknowledged(
    arm: Arm,
) -> None:
    arm.driver.mode, arm.driver.reason = "protective_stop", "controller: stopped"
    arm.driver.states[CARTESIAN] = "inactive"
    assert arm.call_home().success
    assert "controller/resume and gate/acknowledge" in arm.ended()
    assert arm.driver.states == {CARTESIAN: "inactive", HOME: "inactive"}


@pytest.mark.parametrize("mode", ["run", "pause"])
def test_nobody_goes_home_while_somebody_may_drive(arm: Arm, mode: str) -> None:
    """In a pause the next command moves the arm."""
    arm.driver.mode, arm.driver.reason = mode, ""
    arm.run(lambda: arm.node._gate.value is not None)
    arm.run(lambda: wire.decode_report(arm.node._gate.value.data).mode == mode)
    refused = arm.call_home()
    assert not refused.success and "while the arm is driven" in refused.message


def test_a_goal_that_is_accepted_late_is_given_up_all_the_same(arm: Arm) -> None:
    arm.driver.accepts.clear()
    assert arm.call_home().success
    arm.run(arm.driver.asked.is_set)
    arm.driver.reason = "person: hold"
    arm.run(lambda: wire.decode_report(arm.node._gate.value.data).reason == "person: hold")
    arm.driver.accepts.set()
    assert "person: hold" in arm.ended()
    wait_for(lambda: arm.driver.ends, 5.0, "the goal has ended")
    assert arm.driver.goal is None


def test_a_process_that_ends_takes_the_arm_to_a_stop(graph: tuple[Shell, Driver]) -> None:
    shell, driver = graph
    done = threading.Event()

    def begun() -> bool:
        future = driver.home.call_async(Trigger.Request())
        wait_for(future.done, 5.0, "arm/home answers")
        answer = future.result()
        return answer is not None and answer.success

    def person() -> None:
        try:
            wait_for(driver.home.service_is_ready, 10.0, "arm/home is served")
            wait_for(begun, 10.0, "the node has heard of the gate")
            wait_for(lambda: driver.goal is not None, 10.0, "the arm is on its way")
            done.set()
        finally:
            shell.stop()

    thread = threading.Thread(target=person)
    thread.start()
    arm_node.run_arm(shell, Fr3(), DRIVER)
    thread.join()
    assert done.is_set() and driver.goal is None and len(driver.ends) == 1
    assert driver.states == {CARTESIAN: "inactive", HOME: "inactive"}
