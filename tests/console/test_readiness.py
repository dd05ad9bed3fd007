"""The card "Ready?" in a real headless browser: what fails comes first, and a person accepts it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from robot_rl.console.remembered import Role
from tests.console.test_page import OUTSIDE, SHOTS, open_page, page, shoot
from tests.console.test_server import enter
from tests.support.served import until

__all__ = ["page"]  # a fixture

PROGRAM = "io_and_status_controller/robot_program_running"
WELL = [
    ("arm", "nothing is under way"),
    ("io_and_status_controller/safety_mode", "ready"),
    ("io_and_status_controller/robot_mode", "ready"),
    ("controllers", "cartesian_motion_controller, joint_state_broadcaster active"),
    ("stop", "the watchdog can stop the arm"),
    ("state", "the gate sees the arm"),
    ("camera front", "camera/front/color/image_raw"),
]


def item(name: str, status: str, text: str, fix: str = "", never: str = "") -> dict[str, str]:
    return {"name": name, "status": status, "text": text, "fix": fix, "never": never}


def well(*others: dict[str, str], accept: tuple[str, ...] = ()) -> dict[str, Any]:
    """A list in which `others` stand behind what is well."""
    return {"items": [*(item(n, "ok", t) for n, t in WELL), *others], "accept": list(accept)}


WRIST = item(
    "camera wrist",
    "fail",
    "camera wrist: camera/wrist/color/image_raw is silent",
    "look at the camera's cable and node, start it again",
)
STOPPED = item(
    PROGRAM,
    "fail",
    f"{PROGRAM} says that the program on the pendant does not run: press play",
    "clear the cause at the robot, then arm/recover",
    "it is the driver's or an enabling device's own word; the profile says it: driver.ready",
)
PRIORITY = item(
    "priority",
    "warn",
    "no real-time priority: nodes are late when the machine is busy",
    "echo 'ada - rtprio 40' | sudo tee -a /etc/security/limits.conf, then log in again",
)
STOP = {"gate": {"mode": "protective_stop", "reason": f"arm: {STOPPED['text']}"}}


def say(robot: Any, ready: dict[str, Any] | None, **more: Any) -> None:
    robot.view = robot.view | {"ready": ready} | more


def lines(page: Any) -> list[str]:
    return page.locator("#ready-items li").evaluate_all("rows => rows.map((r) => r.dataset.name)")


def take_seat(page: Any) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")


def test_one_green_line_while_all_is_well(page: Any, robot: Any) -> None:
    card = page.locator("#readiness")
    assert not card.is_visible()  # a simulated arm has no list
    say(robot, well(PRIORITY))
    until(card.is_visible)
    assert page.locator("#ready-text").inner_text() == "Ready"
    assert page.locator("#ready-count").inner_text() == "1 to look at, 7 well"
    assert card.get_attribute("data-state") == "ok" and lines(page) == []
    assert card.bounding_box()["height"] < 60
    assert page.locator("#learning").is_visible() and page.evaluate(OUTSIDE) == []
    shoot(page, "ready")
    page.locator("#ready-line").click()
    until(lambda: len(lines(page)) == 8)
    assert lines(page)[0] == "priority" and page.evaluate(OUTSIDE) == []
    shoot(page, "ready_open")
    page.locator("#ready-line").click()
    until(lambda: lines(page) == [])


def test_an_open_list_leaves_the_question_of_the_reset_whole(page: Any, robot: Any) -> None:
    say(robot, well(PRIORITY), asks="peg in its place\nhands out of the way?")
    until(page.locator("#ask").is_visible)
    page.locator("#ready-line").click()
    until(lambda: len(lines(page)) == 8)

    def below(name: str) -> float:
        box = page.locator(name).bounding_box()
        return box["y"] + box["height"]

    until(lambda: below("#ready") <= below("#ask"))  # the list has scrolled to its end


def test_what_fails_comes_first_with_its_fix(page: Any, robot: Any) -> None:
    say(robot, well(WRIST, STOPPED, PRIORITY), **STOP)
    until(lambda: lines(page) == ["camera wrist", PROGRAM])
    assert "Not ready" in page.locator("#ready-text").inner_text()
    first, second = page.locator("#ready-items li").all()
    assert "silent" in first.inner_text() and "cable and node" in first.inner_text()
    assert "press play" in second.inner_text() and "Nobody can accept" in second.inner_text()
    assert "take the seat" in page.locator("#ready-seat").inner_text()
    assert page.locator("#ready-items button").count() == 0  # who watches accepts nothing
    assert page.evaluate(OUTSIDE) == []
    shoot(page, "not_ready")
    say(robot, well(), gate={"mode": "hold", "reason": ""})
    until(lambda: lines(page) == [] and page.locator("#learning").is_visible())


def test_a_person_in_the_seat_accepts_an_item_and_takes_it_back(page: Any, robot: Any) -> None:
    say(robot, well(WRIST, STOPPED), **STOP)
    take_seat(page)
    until(lambda: page.locator("#ready-items .accept").count() == 1)  # not the driver's own word
    page.locator("#ready-items .accept").click()
    question = page.locator("#ready-items .question")
    until(question.is_visible)
    assert "Accept camera wrist? The arm may move although: " in question.inner_text()
    assert robot.commands == []
    shoot(page, "not_ready_asked")
    page.locator("#ready-items .no").click()
    until(lambda: not question.is_visible())
    page.locator("#ready-items .accept").click()
    page.locator("#ready-items .yes").click()
    until(lambda: robot.commands == ["accept camera wrist"])
    say(robot, {**robot.view["ready"], "items": robot.view["ready"]["items"][:-1]})
    until(lambda: page.locator("#readiness").get_attribute("data-state") == "accepted")
    assert page.locator("#ready-text").inner_text() == "Ready"
    assert lines(page) == ["camera wrist"]  # for as long as it holds
    shoot(page, "ready_accepted")
    say(robot, well(item("camera wrist", "ok", "x"), accept=("camera wrist",)))
    until(lambda: "well now" in page.locator("#ready-items").inner_text())
    page.locator("#ready-items .back").click()
    until(lambda: robot.commands[1:] == ["take back camera wrist"])


def test_a_key_never_accepts(page: Any, robot: Any) -> None:
    """Space drives and Enter labels: neither presses what was clicked last."""
    say(robot, well(WRIST), **STOP)
    take_seat(page)
    until(lambda: page.locator("#ready-items .accept").count() == 1)
    page.locator("#ready-items .accept").click()
    page.locator("#ready-items .yes").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#said-text").inner_text() == "episode 4: success")
    assert robot.commands == []


@pytest.mark.parametrize("scheme", ["light", "dark"] if SHOTS else ["light"])
def test_it_works_on_a_phone(browser: Any, console: Any, robot: Any, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = open_page(context, console)
    say(robot, well(WRIST, STOPPED, PRIORITY), **STOP)
    until(lambda: lines(page) == ["camera wrist", PROGRAM])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    narrow = "[...document.querySelectorAll('#readiness *, header *')].filter((x) => x.offsetParent"
    narrow += " && x.getBoundingClientRect().right > innerWidth).map((x) => x.id || x.className)"
    assert page.evaluate(narrow) == []
    page.locator("#lease-button").click()
    until(lambda: page.locator("#ready-items .accept").count() == 1)
    page.locator("#ready-items .accept").click()
    shoot_one(page, f"phone_{scheme}")
    page.locator("#ready-items .yes").click()
    until(lambda: robot.commands == ["accept camera wrist"])
    say(robot, well(), gate={"mode": "run", "reason": ""})
    until(lambda: page.locator("#learning").is_visible())
    shoot_one(page, f"phone_ready_{scheme}")
    page.locator("#hold").click()
    until(lambda: robot.commands[1:] == ["hold"])
    assert page.problems == []
    context.close()


def shoot_one(page: Any, name: str) -> None:
    """A picture of the whole page, when asked for."""
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def test_only_the_seat_accepts_and_every_word_is_in_the_audit_log(
    console: Any, robot: Any, caplog: pytest.LogCaptureFixture
) -> None:
    say(robot, well(WRIST))
    ada, ben, eve = enter(console), enter(console), enter(console, Role.OBSERVER)
    body = {"name": "camera wrist", "on": True}

    def post(client: httpx.Client, body: Any = body) -> int:
        return client.post("/api/accept", json=body).status_code

    assert post(eve) == 403 and post(ada) == 409
    ada.post("/api/lease/claim")
    assert post(ben) == 409 and robot.commands == []
    for odd in ({}, {"name": 3, "on": True}, {"name": "x" * 200, "on": True}, {"name": "a"}):
        assert post(ada, odd) == 422
    with caplog.at_level("INFO", logger="robot_rl.audit"):
        assert post(ada) == 200
    assert "operator 1: accepts camera wrist" in caplog.text
    assert robot.commands == ["accept camera wrist"]
    assert ada.get("/api/accept").status_code == 405
