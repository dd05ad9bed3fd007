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


def test_a_line_of_a_log_says_what_why_and_what_to_do() -> None:
    line = explained("protective stop", "force: contact beyond the limit")
    assert line.startswith("protective stop: force: contact beyond the limit. What to do: free")
    assert explained("holding", "no command") == "holding: no command."
