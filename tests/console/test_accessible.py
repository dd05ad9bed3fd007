"""The pages against axe-core's rules (WCAG 2.1 A and AA), in both themes and at four sizes.

Each look takes seconds without a GPU. Contrast depends on the theme, names on neither, and the
layout changes once, below 1280 pixels. So only the operator's page is looked at in both themes at
every size; its other states in one theme where it is narrow, in the other where it is wide.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from tests.console.test_page import page, word
from tests.support.served import until

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

log = logging.getLogger(__name__)
__all__ = ["page"]  # a fixture
SIZES = ((390, 844), (768, 1024), (1280, 800), (2560, 1440))
SCHEMES: tuple[Any, ...] = ("dark", "light")
EVERY = tuple((scheme, size) for scheme in SCHEMES for size in SIZES)
EACH = tuple(zip(SCHEMES, SIZES[::2], strict=True))  # both themes, a narrow and a wide page
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
RUN = "(rules) => axe.run(document, rules).then((told) => told.violations)"
STOPPED = {
    "gate": {"mode": "protective_stop", "reason": "force: 61.3 N", "waits": "person"},
    "stopped": True,
}
ASKS = {"asks": "place the peg in the fixture", "gate": {"mode": "hold"}}


def findings(page: Any) -> set[str]:
    """What axe-core finds: rule, place, message."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe.Axe().axe_script)
    return {
        f"{found['id']}: {node['target']}: {node['any'][0]['message'] if node['any'] else ''}"
        for found in page.evaluate(RUN, RULES)
        for node in found["nodes"]
    }


def everywhere(page: Any, places: Sequence[tuple[Any, tuple[int, int]]] = EACH) -> list[str]:
    """What is found in those themes at those sizes."""
    found: dict[str, str] = {}
    for scheme, (wide, high) in places:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size({"width": wide, "height": high})
        page.wait_for_timeout(150)
        for problem in findings(page):
            found.setdefault(problem, f"{scheme}, {wide}x{high}")
    for problem, where in found.items():
        log.warning(
            "%s (%s)", problem, where
        )  # all of it, which the message of a test is too short for
    return sorted(found)


def test_the_page_while_the_policy_drives(page: Any) -> None:
    until(lambda: page.locator("#episodes button").count() == 5)
    assert everywhere(page, EVERY) == []


def test_the_page_with_every_part_open(page: Any, robot: Any) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.locator("#episodes button").first.click()
    page.locator("#details summary").click()
    page.locator("#you").click()
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    until(lambda: page.locator("#help").is_visible())
    robot.view = robot.view | STOPPED
    until(lambda: word(page) == "PROTECTIVE STOP")
    assert everywhere(page) == []


def test_the_page_that_asks(page: Any, robot: Any) -> None:
    robot.view = robot.view | ASKS
    until(lambda: word(page) == "RESET?")
    assert everywhere(page) == []


def test_the_page_while_somebody_practises(page: Any) -> None:
    page.keyboard.press("?")
    page.locator("#to-practice").click()
    page.keyboard.press("t")
    until(lambda: page.locator("#practice-steps .done").count() == 1)
    assert everywhere(page) == []


def test_the_other_pages(page: Any, console: Any) -> None:
    for path in ("/review", "/xr"):
        page.goto(console.url + path)
        page.wait_for_timeout(1000)
        assert everywhere(page) == [], path


def test_the_page_of_a_refused_link(context: Any, console: Any) -> None:
    page = context.new_page()
    page.goto(f"{console.url}/enter?token=wrong")
    assert everywhere(page) == []
