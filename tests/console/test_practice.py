"""The practice card: a step is done when the robot side says so; only a simulated arm has it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_rl.console.app import STATIC
from robot_rl.console.remembered import Role
from tests.console.test_page import OUTSIDE, open_page, shoot
from tests.console.test_touch import ACROSS, COVERED, PHONE
from tests.support.served import until

SCRIPT = {"driving": True, "driver": "demo", "present": False, "device_problem": ""}
PERSON = {**SCRIPT, "present": True}
RUN, HELD = {"mode": "run"}, {"mode": "hold", "reason": "person: hold", "waits": "person"}
DEMO = {"purpose": "demo", "active": True}
STEPS = 9
SETTLED_MS = 400  # four messages of telemetry


@pytest.fixture
def page(context: Any, console: Any, robot: Any) -> Iterator[Any]:
    """The page of a practice run: a script drives."""
    console.console.feed.about["practice"] = True
    robot.view = {**robot.view, **SCRIPT, "gate": RUN, "episode": DEMO, "speed_mm_s": 0.0}
    made = open_page(context, console)
    until(lambda: made.locator("#practice").is_visible())
    yield made
    assert made.problems == []


def at(page: Any) -> int:
    """How many steps are done."""
    return page.locator("#practice-steps .done").count()


def stays(page: Any, step: int) -> None:
    """Nothing of what was just done counts."""
    page.wait_for_timeout(SETTLED_MS)
    assert at(page) == step


def goes(page: Any, robot: Any, step: int, **view: Any) -> None:
    """What the robot side says now leads to this step."""
    robot.view = robot.view | view
    until(lambda: at(page) == step)


def take_the_seat(page: Any) -> None:
    page.keyboard.press("t")
    until(lambda: at(page) == 1)


def walk(page: Any, robot: Any, seen: Callable[[], Any] = lambda: None) -> None:
    """From the first step to the last one."""
    seen()
    take_the_seat(page)
    seen()
    for step, view in enumerate(
        (
            PERSON,
            {"speed_mm_s": 80.0},
            SCRIPT,
            PERSON,
            SCRIPT,
            {"gate": HELD},
            {"gate": RUN},
        ),
        start=2,
    ):
        goes(page, robot, step, **view)
        seen()
    page.keyboard.press("Enter")
    until(lambda: at(page) == STEPS)
    seen()


def test_keys_alone_tick_nothing(page: Any, robot: Any) -> None:
    page.keyboard.down("Space")  # without the seat
    page.keyboard.press("Escape")
    stays(page, 0)
    page.keyboard.up("Space")
    take_the_seat(page)
    page.keyboard.down("Space")
    until(lambda: any("drive" in said["held"] for _, said in robot.heard))
    stays(page, 1)  # the key arrives, and the script drives on
    goes(page, robot, 2, **PERSON)
    page.keyboard.press("w")
    stays(page, 2)  # the tool stands
    page.keyboard.up("Space")
    goes(page, robot, 3, speed_mm_s=80.0)
    stays(page, 3)  # the person is still driving, says the robot side
    robot.view = robot.view | SCRIPT | {"device_problem": "let go of Space"}
    stays(page, 3)  # the reset has taken the key, not the person
    goes(page, robot, 4, **SCRIPT)
    goes(page, robot, 5, **PERSON)
    goes(page, robot, 6, **SCRIPT)
    page.keyboard.press("Escape")
    until(lambda: robot.commands[-1:] == ["hold"])
    stays(page, 6)
    robot.view = robot.view | {"gate": {"mode": "hold", "reason": "stale", "waits": "device"}}
    stays(page, 6)  # it holds, and not for the person
    goes(page, robot, 7, gate=HELD)
    stays(page, 7)
    robot.view = robot.view | {"gate": {}}
    stays(page, 7)  # a gate that says nothing has not let anybody go on
    goes(page, robot, 8, gate=RUN)
    page.keyboard.press("n")  # neutral is a label, too, and not the one that is asked for
    until(lambda: "neutral" in page.locator("#said-text").inner_text())
    stays(page, 8)
    page.keyboard.press("Backspace")
    until(lambda: at(page) == STEPS)


def test_somebody_else_who_drives_or_has_the_seat_ticks_nothing(
    browser: Any, page: Any, console: Any, robot: Any
) -> None:
    other = open_page(browser.new_context(), console)
    other.keyboard.press("t")
    until(lambda: "has the seat" in page.locator("#lease").inner_text())
    robot.view = robot.view | PERSON
    stays(page, 0)
    other.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "the seat is free")
    other.context.close()


def test_at_the_end_it_says_how_long_it_took_and_what_comes_next(page: Any, robot: Any) -> None:
    said = page.locator("#practice-now")
    assert said.get_attribute("aria-live") == "polite"
    assert "Take the seat" in said.inner_text() and said.locator("kbd").inner_text() == "T"
    take_the_seat(page)
    until(lambda: page.locator("#reason").inner_text() == "it stops while you hold the drive key")
    page.wait_for_timeout(2500)  # the person thinks it over
    goes(page, robot, 2, **PERSON)
    shoot(page, "practice")
    goes(page, robot, 3, speed_mm_s=80.0)
    goes(page, robot, 4, **SCRIPT)
    robot.view = robot.view | {"episode": DEMO | {"active": False}}
    page.wait_for_timeout(2500)  # in a reset nobody can take over: it does not count
    robot.view = robot.view | {"episode": DEMO}
    until(lambda: page.evaluate("document.body.dataset.word") == "SCRIPT")
    goes(page, robot, 5, **PERSON)
    for step, view in ((6, SCRIPT), (7, {"gate": HELD}), (8, {"gate": RUN})):
        goes(page, robot, step, **view)
    page.keyboard.press("Enter")
    until(lambda: said.inner_text().startswith("Done in 0:"))
    first_s, second_s = map(float, re.findall(r"(\d+\.\d) s", said.inner_text()))
    assert 1.0 <= first_s < 15.0 and second_s < 2.0  # of which the reset alone took 2.5 s
    assert (
        "robot-rl train experiment=peg_insert runtime=ros" in page.locator("#practice").inner_text()
    )
    time = page.locator("#practice-time").inner_text()
    page.wait_for_timeout(1200)
    assert page.locator("#practice-time").inner_text() == time
    assert page.evaluate(OUTSIDE) == []


def test_it_is_closed_and_begun_again_from_the_picture_of_the_keys(page: Any, robot: Any) -> None:
    take_the_seat(page)
    page.locator("#practice-close").click()
    assert not page.locator("#practice").is_visible()
    assert page.locator("#why").is_visible()
    page.keyboard.press("?")
    page.locator("#to-practice").click()
    assert not page.locator("#help").is_visible() and page.locator("#practice").is_visible()
    until(lambda: at(page) == 1)  # the seat is taken already
    goes(page, robot, 2, **PERSON)
    clock = page.locator("#practice-time")
    until(lambda: clock.inner_text() >= "0:03")
    page.locator("#practice-again").click()
    until(lambda: at(page) == 2)  # and the person drives already
    assert clock.inner_text() < "0:03"


@pytest.mark.parametrize("arm", ["simulated", "real", "watched"])
def test_where_it_is_offered(context: Any, console: Any, robot: Any, arm: str) -> None:
    console.console.feed.about["simulated"] = arm != "real"
    page = open_page(context, console, Role.OBSERVER if arm == "watched" else Role.OPERATOR)
    assert not page.locator("#practice").is_visible()  # this run was not started for it
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    assert page.locator("#to-practice").is_visible() is (arm == "simulated")


def test_the_server_knows_which_runs_are_simulated_and_which_are_practice(tmp_path: Path) -> None:
    from robot_rl.run.console import about
    from robot_rl.run.experiment import Experiment

    def facts(*words: str) -> tuple[bool, bool]:
        run = Experiment.compose(["experiment=reach", "runtime=ros", f"run_dir={tmp_path}", *words])
        told = about(run)
        return told["simulated"], told["practice"]

    script = ("operator=console", "operator.with_script=true")
    assert facts("operator=console") == (True, False)
    assert facts(*script) == (True, False)
    assert facts(*script, "operator.script_goes_on=true") == (True, True)
    assert facts("operator=console", "ros=real") == (False, False)
    assert facts("operator=gamepad", "ros=real", "ros.double=true") == (False, False)


@pytest.mark.parametrize("size", [PHONE, ACROSS], ids=["upright", "across"])
def test_on_a_phone_it_covers_neither_hold_nor_the_sticks(
    browser: Any, console: Any, robot: Any, size: dict[str, int]
) -> None:
    console.console.feed.about["practice"] = True
    robot.view = {**robot.view, **SCRIPT, "gate": RUN, "episode": DEMO}
    context = browser.new_context(viewport=size, has_touch=True, is_mobile=True)
    page = open_page(context, console)
    assert page.locator("#practice-now b").inner_text() == "Take the seat"
    page.locator("#lease-button").tap()
    until(lambda: page.locator("#touch").is_visible())
    until(lambda: at(page) == 1)
    assert page.locator("#practice-now b").inner_text() == "Hold to drive"
    until(lambda: page.evaluate(COVERED) == [])
    card, state = page.locator("#practice").bounding_box(), page.locator("#state").bounding_box()
    picture = page.locator(".camera.chosen").bounding_box()
    assert state["y"] + state["height"] <= card["y"]  # between the word and the picture
    assert card["y"] + card["height"] <= picture["y"]
    shoot(page, f"practice_{size['width']}")
    assert page.problems == []
    context.close()


def test_every_step_is_in_german(browser: Any, console: Any, robot: Any) -> None:
    words = json.loads((STATIC / "lang" / "de.json").read_text())
    console.console.feed.about["practice"] = True
    robot.view = {**robot.view, **SCRIPT, "gate": RUN, "episode": DEMO, "speed_mm_s": 0.0}
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="de-DE")
    page = open_page(context, console)
    said: list[str] = []
    walk(page, robot, lambda: said.append(page.locator("#practice-now").inner_text()))
    assert len(said) == STEPS + 1 and not {text for text in said if text in words}
    assert said[1].startswith("Übernehmen Sie") and said[-1].startswith("Fertig in")
    assert page.evaluate("import('/static/language.js').then((m) => [...m.missing])") == []
    assert page.evaluate(OUTSIDE) == []
    context.close()
