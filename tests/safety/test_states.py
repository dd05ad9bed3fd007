"""The mode tables: no way to RUN without an arm, none out of a stop without acknowledging."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from robot_rl.errors import SafetyError
from robot_rl.safety.states import (
    ENGAGEMENT_TRANSITIONS,
    TRANSITIONS,
    DeviceEvent,
    Engagement,
    Mode,
    Request,
    advance,
    engage,
    markdown_table,
)

PAGE = Path(__file__).parents[2] / "docs" / "hazards" / "gate.md"
DISARMING = (Mode.HOLD, Mode.PROTECTIVE_STOP)


def test_no_path_reaches_run_without_an_arm_since_the_last_disarming() -> None:
    """Every path of up to six requests from every disarmed mode."""
    for start in DISARMING:
        for path in itertools.product(Request, repeat=6):
            mode, armed = start, False
            for request in path:
                after = TRANSITIONS.get((mode, request))
                if after is None:
                    continue  # refused: nothing happens
                armed = (armed or request is Request.ARM) and after not in DISARMING
                assert armed or not after.is_armed, (start, path)
                mode = after


def test_a_protective_stop_is_left_by_an_acknowledgement_only_and_never_straight_to_run() -> None:
    ways_out = {
        (r, after)
        for (m, r), after in TRANSITIONS.items()
        if m is Mode.PROTECTIVE_STOP and after is not m
    }
    assert ways_out == {(Request.ACKNOWLEDGE, Mode.HOLD)}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("request_", [Request.HOLD, Request.PROTECTIVE_STOP])
def test_stopping_is_possible_in_every_mode(mode: Mode, request_: Request) -> None:
    assert not advance(mode, request_).is_armed


def test_an_impossible_request_says_what_is_possible() -> None:
    with pytest.raises(SafetyError, match=r"(?s)'arm'.*'protective_stop'.*acknowledge"):
        advance(Mode.PROTECTIVE_STOP, Request.ARM)


def test_a_device_that_fell_silent_cannot_drive_before_it_was_released() -> None:
    for path in itertools.product(DeviceEvent, repeat=5):
        now, released = Engagement.SILENT, False
        for hand in path:
            now = engage(now, hand)
            released |= hand is DeviceEvent.LET_GO
            assert released or now is Engagement.SILENT, path
    assert ENGAGEMENT_TRANSITIONS  # the table itself is data


def test_the_page_shows_the_table_in_force() -> None:
    assert markdown_table() in PAGE.read_text(), markdown_table()
