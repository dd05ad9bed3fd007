"""Keys that a person moves, and prompts that are spoken."""

from __future__ import annotations

from typing import Any

from tests.console.test_page import driven, open_page, page, word
from tests.support.served import until

__all__ = ["page"]  # a fixture
SPOKEN = """
globalThis.heard = [];
speechSynthesis.speak = (said) => heard.push(said.text);
"""


def take_seat(page: Any) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")


def move_key(page: Any, meant: str, to: str) -> None:
    if not page.locator("#help").is_visible():
        page.keyboard.press("?")
    page.locator(f".key[data-key={meant}]").click()
    page.keyboard.press(to)


def test_a_moved_key_drives_and_changes_places_with_what_was_there(page: Any, robot: Any) -> None:
    take_seat(page)
    move_key(page, "KeyW", "ArrowUp")
    move_key(page, "KeyT", "f")
    assert page.evaluate("robotRL.control.now().held") == []  # the new key did nothing else
    page.keyboard.press("?")
    assert page.locator("#legend span").nth(1).inner_text() == "↑ S away, towards you"
    assert page.locator("#lease-button kbd").inner_text() == "F"
    page.keyboard.down("Space")
    page.keyboard.down("ArrowUp")
    until(lambda: driven(robot) and driven(robot)[-1]["axes"][0] == 1)
    page.keyboard.up("ArrowUp")
    page.keyboard.down("w")  # means nothing any more
    until(lambda: robot.heard[-1][1]["axes"][0] == 0)
    page.wait_for_timeout(100)
    assert robot.heard[-1][1]["axes"][0] == 0
    page.keyboard.up("w")
    page.keyboard.up("Space")
    page.keyboard.press("f")
    until(lambda: page.locator("#lease").inner_text() == "the seat is free")
    page.reload()  # this browser remembers it
    until(lambda: word(page) != "OFFLINE")
    assert page.locator("#lease-button kbd").inner_text() == "F"
    assert page.locator("#seat-first kbd").text_content() == "F"
    page.keyboard.press("?")
    page.locator("text=All keys as shipped").click()
    assert page.locator("#lease-button kbd").inner_text() == "T"


def test_hold_stays_where_it_is_and_is_heard_while_a_key_is_asked_for(
    page: Any, robot: Any
) -> None:
    page.keyboard.press("?")
    assert page.locator(".key[data-key=Escape]").is_disabled()
    page.locator(".key[data-key=KeyW]").click()
    assert "Press the new key" in page.locator("#keys-say").inner_text()
    page.keyboard.press("Escape")
    until(lambda: robot.commands == ["hold"])
    assert page.evaluate("localStorage.getItem('keys')") is None


def test_what_waits_for_a_person_is_spoken_when_somebody_wants_it(
    context: Any, console: Any, robot: Any
) -> None:
    context.add_init_script(SPOKEN)
    page = open_page(context, console)
    robot.view = robot.view | {"gate": {"mode": "hold", "reason": "x", "waits": "person"}}
    until(lambda: word(page) == "HOLD")
    assert page.evaluate("heard") == []  # nobody wants it yet
    page.keyboard.press("?")
    page.locator("#voice").click()
    robot.view = robot.view | {"asks": "place the peg", "gate": {"mode": "hold"}}
    until(lambda: page.evaluate("heard.at(-1)") == "Ready to reset?\nplace the peg")
    assert page.evaluate("heard") == ["Voice on", "Ready to reset?\nplace the peg"]
    assert page.problems == []
