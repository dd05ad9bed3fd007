"""One goal per change of the gripper's command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from robot_rl.errors import LinkError
from robot_rl.robots.driver import GripperDriver
from tests.support.ros import missing_vendor_types, new_domain, wait_for

grippers = pytest.importorskip("robot_rl.ros.grippers")
pytestmark = pytest.mark.ros
STROKE_M = 0.08


class Hand:
    """A gripper that answers when the test says so."""

    def __init__(self) -> None:
        self.goals: list[tuple[float, bool]] = []
        self.answer: bool | LinkError | None = None
        self.gone = ""
        self.cancelled = 0

    def begin(self, width_m: float, closing: bool) -> None:
        self.goals.append((width_m, closing))
        self.answer = None

    def poll(self) -> bool | None:
        if isinstance(self.answer, LinkError):
            raise self.answer
        return self.answer

    def missing(self) -> str:
        return self.gone

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def hand() -> Hand:
    return Hand()


class Wall:
    """Time that passes when the test says so."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def commands(hand: Hand, wall: Wall):
    return grippers.GripperCommands(hand, STROKE_M, wall)


def after_the_fault(commands: Any, wall: Wall) -> None:
    """What was wrong is over, and was told for long enough."""
    assert commands.problem
    wall.now_s += grippers.TOLD_S - 0.01
    commands.tick()
    assert commands.problem, "the gate and a person have to hear of it"
    wall.now_s += 0.02
    commands.tick()
    assert not commands.problem


def test_the_same_command_at_every_step_is_one_goal(hand: Hand, commands) -> None:
    for _ in range(100):
        commands.ask(0.08)
        commands.tick()
    assert hand.goals == [(0.08, False)] and commands.goals == 1


def test_nothing_is_sent_before_somebody_commands(hand: Hand, commands) -> None:
    commands.tick()
    assert hand.goals == []


def test_a_change_is_a_goal_and_tells_whether_the_fingers_close(hand: Hand, commands) -> None:
    for width_m in (0.08, 0.08, 0.0, 0.0005, 0.08):
        commands.ask(width_m)
        commands.tick()
        hand.answer = False
        commands.tick()
    assert hand.goals == [(0.08, False), (0.0, True), (0.08, False)]
    assert hand.cancelled == 0


def test_a_change_during_a_goal_gives_it_up_and_keeps_the_newest(hand: Hand, commands) -> None:
    for width_m in (0.08, 0.0):
        commands.ask(width_m)
        commands.tick()
    assert hand.goals == [(0.08, False), (0.0, True)] and hand.cancelled == 1


def test_something_between_the_fingers_is_held(hand: Hand, commands) -> None:
    commands.ask(0.0)
    commands.tick()
    hand.answer = True
    commands.tick()
    assert commands.holding and not commands.problem
    commands.ask(0.08)
    commands.tick()
    assert not commands.holding


def test_a_lost_server_is_a_problem_and_the_command_from_before_is_forgotten(
    hand: Hand, commands, wall: Wall
) -> None:
    """A person has cleared a jam with their fingers and started the driver again."""
    commands.ask(0.0)
    commands.tick()
    hand.gone = "gripper/move"
    for _ in range(3):
        wall.now_s += 2.0 * grippers.TOLD_S
        commands.ask(0.0)  # passed before the gate heard of it
        commands.tick()
    assert commands.problem == "gripper: nobody serves gripper/move"
    hand.gone = ""
    after_the_fault(commands, wall)
    for _ in range(100):
        commands.tick()
    assert len(hand.goals) == 1, "nobody has acknowledged anything"
    commands.ask(0.0)  # the next command that the gate passes, although it is the same
    commands.tick()
    assert hand.goals == [(0.0, True), (0.0, True)]


def test_a_goal_that_fails_is_told_and_only_a_later_command_tries_again(
    hand: Hand, commands, wall: Wall
) -> None:
    commands.ask(0.0)
    commands.tick()
    hand.answer = LinkError("the action was refused")
    for _ in range(100):
        commands.tick()
        commands.ask(0.0)  # under way when the gate stopped
    assert "refused" in commands.problem and len(hand.goals) == 1
    after_the_fault(commands, wall)
    commands.tick()
    assert len(hand.goals) == 1
    commands.ask(0.0)
    commands.tick()
    assert hand.goals == [(0.0, True), (0.0, True)] and not commands.problem


def test_a_goal_that_was_to_open_is_no_grasp_when_it_is_tried_again(
    hand: Hand, commands, wall: Wall
) -> None:
    for width_m in (0.0, 0.08):
        commands.ask(width_m)
        commands.tick()
        hand.answer = False
        commands.tick()
    hand.gone = "gripper/move"
    commands.tick()
    hand.gone = ""
    after_the_fault(commands, wall)
    commands.ask(0.08)
    commands.tick()
    assert hand.goals == [(0.0, True), (0.08, False), (0.08, False)]


class Controller:
    """What a GripperActionController answers, from a node of its own."""

    def __init__(self, node: Any) -> None:
        from rclpy.action.server import ActionServer

        from robot_rl.ros.vendor import interface

        self._kind = interface("control_msgs/action/GripperCommand")
        self.aborts, self.stalled = True, True
        self._server = ActionServer(node, self._kind, "gripper/gripper_cmd", self._end)

    def _end(self, goal: Any) -> Any:
        (goal.abort if self.aborts else goal.succeed)()
        return self._kind.Result(
            position=0.4, effort=3.0, stalled=self.stalled, reached_goal=not self.stalled
        )

    def close(self) -> None:
        """Serve no more."""
        self._server.destroy()


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    """(a CommandHand, the controller behind its action, what waits for an answer)."""
    if missing := missing_vendor_types():
        pytest.skip(missing)
    import rclpy
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor

    from robot_rl.ros.runtime import prepare_environment

    prepare_environment()
    context = Context()
    rclpy.init(context=context, domain_id=new_domain())
    node = rclpy.create_node("both", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    controller = Controller(node)
    driver = GripperDriver(kind="command", name="gripper/gripper_cmd", opened=0.0, closed=0.8)
    hand = grippers.CommandHand(node, driver, 0.085, 20.0)

    def ended() -> bool:
        executor.spin_once(timeout_sec=0.05)
        answers.append(hand.poll())
        return answers[-1] is not None

    def held(*, closing: bool) -> bool:
        wait_for(lambda: executor.spin_once(timeout_sec=0.05) or not hand.missing(), 20.0, "served")
        hand.begin(0.0 if closing else 0.085, closing)
        wait_for(ended, 20.0, "an answer")
        return answers[-1]

    answers: list[Any] = []
    try:
        yield controller, held
    finally:
        controller.close()
        node.destroy_node()
        rclpy.shutdown(context=context)


@pytest.mark.parametrize("aborts", [True, False])
def test_fingers_that_stall_when_they_close_hold_something(served: Any, aborts: bool) -> None:
    """A GripperActionController aborts such a goal unless `allow_stalling` is set."""
    controller, held = served
    controller.aborts, controller.stalled = aborts, True
    assert held(closing=True) is True
    controller.aborts, controller.stalled = False, False
    assert held(closing=True) is False


def test_what_is_aborted_for_another_reason_is_a_fault(served: Any) -> None:
    controller, held = served
    controller.aborts, controller.stalled = True, True
    with pytest.raises(LinkError, match="aborted"):
        held(closing=False)  # jammed
    controller.stalled = False
    with pytest.raises(LinkError, match="aborted"):
        held(closing=True)
