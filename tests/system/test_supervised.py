"""What a process tells its supervisor: whether a restart is worth it."""

from __future__ import annotations

import pytest

from robot_rl.errors import (
    CheckpointError,
    ConfigError,
    LinkError,
    RobotRLError,
    SetupError,
    SpecError,
    StoreError,
)
from robot_rl.link.auth import KeyFileError
from robot_rl.system.supervised import EXIT_SETUP, exit_code


@pytest.mark.parametrize("kind", [ConfigError, SetupError, SpecError, StoreError, KeyFileError])
def test_what_a_person_has_to_mend_is_not_tried_again(kind: type[RobotRLError]) -> None:
    def work() -> None:
        raise kind("wrong")

    assert exit_code(work) == EXIT_SETUP


@pytest.mark.parametrize("kind", [LinkError, CheckpointError, RobotRLError])
def test_what_may_pass_is_tried_again(kind: type[RobotRLError]) -> None:
    def work() -> None:
        raise kind("not now")

    assert exit_code(work) == 1


def test_what_the_work_returns_is_the_code() -> None:
    assert exit_code(lambda: None) == 0 and exit_code(lambda: 3) == 3
