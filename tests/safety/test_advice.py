"""Whatever stops an arm, a person is told what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from robot_rl.safety.advice import ADVICE, explained, what_to_do

CODE = Path("robot_rl")
SOURCES = ("safety/gate.py", "safety/collision.py", "ros/gate_node.py", "ros/census.py")
COMMAND_ONLY = {"age", "sequence", "speed", "mode"}  # of a refused message: the arm does not stop


def test_every_reason_that_the_gate_gives_has_its_advice() -> None:
    text = "".join((CODE / name).read_text() for name in SOURCES)
    names = set(re.findall(r'f?"([a-z_]+): ', text)) - COMMAND_ONLY
    assert len(names) >= 15 and {"force", "watchdog", "publishers", "clock"} <= names
    assert [name for name in sorted(names) if not what_to_do(f"{name}: why")] == []


def test_logs_that_are_named_are_written() -> None:
    """`logs/NAME.log` is the name of a process of the graph."""
    named = set(re.findall(r"logs/(\w+)\.log", " ".join(ADVICE.values())))
    assert named and named <= {"gate", "watchdog", "actor", "learner", "arm"}


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        ("force: contact beyond the limit", "free the tool"),
        ("protective_stop: acknowledge first (force: contact beyond the limit)", "free the tool"),
        ("protective_stop: acknowledge first (something new)", "acknowledge"),
        ("", ""),
        ("no command", ""),
        ("not armed", ""),
    ],
)
def test_the_advice_follows_the_first_word(reason: str, todo: str) -> None:
    assert todo in what_to_do(reason) and bool(todo) == bool(what_to_do(reason))


@pytest.mark.parametrize("name", [*ADVICE, "arm: controller is inactive", "watchdog: x", "arm: x"])
def test_no_stop_goes_on_by_itself(name: str) -> None:
    """It has to be acknowledged; what is said of a stop says so whoever asks, log or gate."""
    reason = name if ":" in name else f"{name}: why"
    todo = what_to_do(reason, stopped=True)
    assert "goes on by itself" not in todo
    assert what_to_do(f"protective_stop: acknowledge first ({reason})") == todo
    assert explained("protective stop", reason, stopped=True).endswith(f"{todo}.")


def test_a_controller_that_is_not_active_has_to_be_started() -> None:
    reason = "arm: controller forward_position_controller is inactive"
    assert "controller/resume" in what_to_do(reason, stopped=True)


def test_a_line_of_a_log_says_what_why_and_what_to_do() -> None:
    line = explained("protective stop", "force: contact beyond the limit")
    assert line.startswith("protective stop: force: contact beyond the limit. What to do: free")
    assert explained("holding", "no command") == "holding: no command."
