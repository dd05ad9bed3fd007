"""One goal per change of the gripper's command."""

from __future__ import annotations

import pytest

from robot_rl.errors import LinkError

grippers = pytest.importorskip("robot_rl.ros.grippers")
pytestmark = pytest.mark.ros


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


@pytest.fixture
def commands(hand: Hand):
    return grippers.GripperCommands(hand)


def test_the_same_command_at_every_step_is_one_goal(hand: Hand, commands) -> None:
    for _ in range(100):
        commands.ask(0.08)
        commands.tick()
    assert hand.goals == [(0.08, True)] and commands.goals == 1


def test_nothing_is_sent_before_somebody_commands(hand: Hand, commands) -> None:
    commands.tick()
    assert hand.goals == []


def test_a_change_is_a_goal_and_tells_whether_the_fingers_close(hand: Hand, commands) -> None:
    for width_m in (0.08, 0.08, 0.0, 0.0005, 0.08):
        commands.ask(width_m)
        commands.tick()
        hand.answer = False
        commands.tick()
    assert hand.goals == [(0.08, True), (0.0, True), (0.08, False)]
    assert hand.cancelled == 0


def test_a_change_during_a_goal_gives_it_up_and_keeps_the_newest(hand: Hand, commands) -> None:
    for width_m in (0.08, 0.0):
        commands.ask(width_m)
        commands.tick()
    assert hand.goals == [(0.08, True), (0.0, True)] and hand.cancelled == 1


def test_something_between_the_fingers_is_held(hand: Hand, commands) -> None:
    commands.ask(0.0)
    commands.tick()
    hand.answer = True
    commands.tick()
    assert commands.holding and not commands.problem
    commands.ask(0.08)
    commands.tick()
    assert not commands.holding


def test_a_lost_server_is_a_problem_and_gets_the_command_again(hand: Hand, commands) -> None:
    commands.ask(0.0)
    commands.tick()
    hand.gone = "gripper/move"
    commands.tick()
    assert commands.problem == "gripper: nobody serves gripper/move"
    hand.gone = ""
    commands.tick()
    assert commands.problem == "" and len(hand.goals) == 2


def test_a_goal_that_fails_is_a_problem_until_one_succeeds(hand: Hand, commands) -> None:
    commands.ask(0.0)
    commands.tick()
    hand.answer = LinkError("the action was refused")
    commands.tick()
    assert "refused" in commands.problem
    commands.ask(0.05)
    commands.tick()
    hand.answer = False
    commands.tick()
    assert commands.problem == ""
