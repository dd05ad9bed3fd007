"""A person at a touch screen: two sticks and a pad under the thumbs, hold below them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.test_page import OUTSIDE, driven, open_page, shoot
from tests.support.served import until

PHONE = {"width": 390, "height": 844}
TABLET = {"width": 768, "height": 1024}
ACROSS = {"width": 844, "height": 390}
FINGERS = """
(fingers) => {  // [number, what it is on, how far from its middle, what it does]
  for (const [id, selector, right, down, kind] of fingers) {
    const item = document.querySelector(selector), r = item.getBoundingClientRect();
    const at = { clientX: r.x + r.width / 2 + right * r.width, pointerId: id,
      clientY: r.y + r.height / 2 + down * r.height, pointerType: "touch", bubbles: true,
      cancelable: true };
    item.setPointerCapture = () => {};  // no real finger is there to be captured
    item.dispatchEvent(new PointerEvent(kind, at));
  }
}
"""
COVERED = """
() => {
  const found = [], box = (x) => x.getBoundingClientRect();
  for (const id of ["stick-move", "stick-turn", "touch-slow", "hold", "word"]) {
    const item = document.getElementById(id), r = box(item);
    const at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
    if (r.x < -1 || r.right > innerWidth + 1 || r.bottom > innerHeight + 1) found.push(`${id} out`);
    for (const b of document.querySelectorAll(".pads button")) {
      const p = box(b), over = p.x < r.right && r.x < p.right && p.y < r.bottom && r.y < p.bottom;
      if (over && item.className === "stick") found.push(`${id} over ${b.textContent}`);
    }
    if (!item.contains(at) && !at?.closest("#state")) found.push(`${id} under ${at?.id}`);
  }
  const picture = box(document.querySelector(".camera.chosen"));
  const top = box(document.getElementById("state")).bottom;
  const seen = Math.min(picture.bottom, innerHeight) - Math.max(picture.top, 0);
  if (seen < 0.9 * picture.height && innerHeight > 500) found.push("the picture is out of sight");
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is too wide");
  return found;
}
"""


@pytest.fixture
def page(browser: Any, console: Any, robot: Any) -> Iterator[Any]:
    """The console on a phone, in the seat."""
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    made = open_page(context, console)
    made.locator("#lease-button").tap()
    until(lambda: made.locator("#touch").is_visible())
    yield made
    assert made.problems == []
    context.close()


def test_two_thumbs_drive_and_lifting_both_lets_go(page: Any, robot: Any) -> None:
    page.evaluate(FINGERS, [[1, "#stick-move", 0.0, -0.5, "pointerdown"]])
    until(lambda: driven(robot))
    assert robot.heard[-1][1]["axes"] == pytest.approx([1, 0, 0, 0, 0, 0], abs=1e-6)
    page.evaluate(FINGERS, [[2, "#stick-turn", 0.19, 0.0, "pointerdown"]])
    until(lambda: robot.heard[-1][1]["axes"][5] == pytest.approx(0.5, abs=0.02))
    page.evaluate(FINGERS, [[1, "#stick-move", 0.0, 0.0, "pointerup"]])
    until(lambda: robot.heard[-1][1]["axes"][0] == 0)
    assert "drive" in robot.heard[-1][1]["held"]  # the other thumb still drives
    page.evaluate(FINGERS, [[2, "#stick-turn", 0.0, 0.0, "pointercancel"]])
    until(lambda: robot.heard[-1][1]["held"] == [])
    assert robot.heard[-1][1]["axes"] == [0, 0, 0, 0, 0, 0]


def test_the_gripper_slow_and_rewind_are_under_the_thumbs(page: Any, robot: Any) -> None:
    page.locator("#touch-slow").tap()
    for name, held in (("Close", {"drive", "close", "slow"}), ("Open", {"drive", "open", "slow"})):
        button = f"#touch [data-held='drive {name.lower()}']"
        page.evaluate(FINGERS, [[3, button, 0.0, 0.0, "pointerdown"]])
        until(lambda want=held: set(robot.heard[-1][1]["held"]) == want)
        page.evaluate(FINGERS, [[3, button, 0.0, 0.0, "pointerup"]])
        until(lambda: robot.heard[-1][1]["held"] == [])
    page.evaluate(FINGERS, [[3, "#touch [data-held='rewind']", 0.0, 0.0, "pointerdown"]])
    until(lambda: "rewind" in robot.heard[-1][1]["held"])


def test_a_page_that_is_left_lets_go_and_holds(page: Any, robot: Any) -> None:
    page.evaluate(FINGERS, [[1, "#touch [data-held='drive']", 0.0, 0.0, "pointerdown"]])
    until(lambda: driven(robot))
    page.evaluate("dispatchEvent(new Event('blur'))")
    until(lambda: robot.commands == ["hold"])
    until(lambda: robot.heard[-1][1]["held"] == [])
    page.locator("#lease-button").tap()
    until(lambda: not page.locator("#touch").is_visible())


def test_a_finger_that_the_system_takes_away_before_it_hides_the_page_did_not_let_go(
    page: Any, robot: Any
) -> None:
    page.evaluate(FINGERS, [[1, "#touch [data-held='drive']", 0.0, 0.0, "pointerdown"]])
    until(lambda: driven(robot))
    page.evaluate(FINGERS, [[1, "#touch [data-held='drive']", 0.0, 0.0, "pointercancel"]])
    until(lambda: robot.heard[-1][1]["held"] == [])
    page.evaluate("dispatchEvent(new Event('blur'))")
    until(lambda: robot.commands == ["hold"])


def test_picture_sticks_and_hold_are_on_the_screen_together(page: Any) -> None:
    for size in (PHONE, TABLET, ACROSS):
        page.locator("#lease-button").tap()
        until(lambda: not page.locator("#touch").is_visible())
        page.set_viewport_size(size)
        page.locator("#lease-button").tap()
        until(lambda: page.locator("#touch").is_visible())
        until(lambda: page.evaluate(COVERED) == [])
        shoot(page, f"touch_{size['width']}")


def test_without_a_touch_screen_there_are_no_sticks(context: Any, console: Any, robot: Any) -> None:
    page = open_page(context, console)
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    assert not page.locator("#touch").is_visible()
    assert page.evaluate(OUTSIDE) == []
