"""The page in another language: no text of the page, and none that nodes always say, is missing."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from robot_rl.console.app import STATIC
from robot_rl.console.telemetry import SAYS, SCRIPT_STOPS, WAITS
from robot_rl.operate.remote import TAKE_SEAT
from robot_rl.safety.advice import ADVICE, AT_THE_END, IN_A_STOP
from robot_rl.studio.studio import REAL_ARM
from tests.console.test_page import OUTSIDE, open_page, shoot, word
from tests.support.served import new_page, until

FILES = sorted((STATIC / "lang").glob("*.json"))
CALL = re.compile(r'\bt\("((?:[^"\\]|\\.)*)"')
ERROR = re.compile(r'\bError\("([^"]*)"')
VALUE = re.compile(r"\{\w+\}")
MISSING = "import('/static/language.js').then((m) => [...m.missing])"
RECORDED = {"reward", "outcome"}  # names of signals, which are the same in every language
SHOWN = """
(words) => {  // English texts that are still on the page
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const text = node.data.trim();
    if (words.includes(text) && !node.parentElement.closest("kbd, script")) found.push(text);
  }
  return found;
}
"""


class Texts(HTMLParser):
    """What `translate` looks for in the HTML of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._inside: list[str] = []
        self.feed("<body" + (STATIC / page).read_text().partition("<body")[2])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside += [tag] if tag in ("kbd", "code", "script", "style", "svg") else []
        self._take(*(v or "" for k, v in attrs if k in ("title", "aria-label", "placeholder")))

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside[:-1] if self._inside[-1:] == [tag] else self._inside

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self._take(" ".join(data.split()))

    def _take(self, *texts: str) -> None:
        self.found |= {text for text in texts if re.search("[A-Za-z]{2}", text)}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_language_has_every_text_and_every_place_for_a_value(file: Path) -> None:
    words = json.loads(file.read_text())
    wanted = {*SAYS.values(), *WAITS.values(), *ADVICE.values(), AT_THE_END, REAL_ARM}
    wanted |= {*IN_A_STOP.values(), SCRIPT_STOPS, TAKE_SEAT}
    for page in ("index.html", "review.html", "xr.html", "studio.html"):
        wanted |= Texts(page).found
    for script in STATIC.glob("*.js"):
        wanted |= {found.replace('\\"', '"') for found in CALL.findall(script.read_text())}
    wanted |= set(ERROR.findall((STATIC / "socket.js").read_text()))
    assert wanted - words.keys() == set()
    for text, said in words.items():
        assert sorted(VALUE.findall(text)) == sorted(VALUE.findall(said)), text
        assert said.strip(), text


def test_the_page_in_german(browser: Any, console: Any, robot: Any, run_dir: Path) -> None:
    words = json.loads((STATIC / "lang" / "de.json").read_text())
    same = {text for text, said in words.items() if text == said}
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="de-DE")
    page = open_page(context, console)
    assert page.evaluate("document.documentElement.lang") == "de"
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "Sie haben den Platz")
    until(lambda: page.locator("#episodes button").count() == 5)
    until(lambda: "1.950" in page.locator("#figures, #internals").nth(1).text_content())
    assert page.locator("#v-force").inner_text() == "3,2 N"
    page.keyboard.press("?")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#said-text").inner_text() == "Episode 4: Erfolg")
    shoot(page, "german_help")
    page.keyboard.press("?")
    states: list[dict[str, Any]] = [
        {"driving": True, "driver": "correction"},
        {"driving": True, "driver": "recovery"},
        {"gate": {"mode": "hold", "reason": "person: hold", "waits": "person"}},
        {"gate": {"mode": "protective_stop", "reason": "force: 61 N", "waits": "person"}},
        {"episode": {"purpose": "demo", "active": True}},
        {"episode": {"purpose": "train", "active": False}},
        {"asks": "x", "gate": {"mode": "hold"}},
    ]
    before = dict(robot.view)
    for state in states:
        last = word(page), page.locator("#reason").inner_text()
        robot.view = before | state
        until(lambda b=last: (word(page), page.locator("#reason").inner_text()) != b)
        assert page.evaluate(SHOWN, sorted(words.keys() - same)) == []
        assert page.evaluate(OUTSIDE) == []
    robot.view = before
    until(lambda: page.locator("#word").inner_text() == "Roboter steuert")
    shoot(page, "german")
    assert page.evaluate(MISSING) == []
    page.keyboard.press("?")
    page.locator("#help button[lang=en]").click()
    until(lambda: page.locator("html").get_attribute("lang") == "en")
    until(lambda: page.locator("#word").inner_text() == "Robot driving")
    page.reload()  # this browser remembers it
    until(lambda: page.locator("#word").inner_text() == "Robot driving")
    context.close()


def test_the_review_and_the_headsets_page_in_german(
    browser: Any, console: Any, robot: Any, run_dir: Path
) -> None:
    words = json.loads((STATIC / "lang" / "de.json").read_text())
    english = sorted({k for k, said in words.items() if k != said} - RECORDED)
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="de-DE")

    def is_german(page: Any) -> None:
        assert page.evaluate("document.documentElement.lang") == "de"
        assert page.evaluate(SHOWN, english) == []
        assert page.evaluate(MISSING) == []

    page = new_page(context)
    page.goto(f"{console.invite()}&page=review")
    until(lambda: page.evaluate("!!globalThis.robotRL?.data"))
    assert page.locator("#count").inner_text() == "5 von 5 Episoden"
    is_german(page)
    page.locator("#map summary").click()
    page.locator("#add-plot").select_option("reward")
    until(lambda: page.locator(".plot").count() == 1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("n")  # neutral
    until(lambda: "neutral" in page.locator("#verdict").inner_text())
    page.keyboard.press("m")
    page.locator("#exclude-chosen").click()
    until(lambda: "Rückgängig (1 Episode)" in page.locator("#undo-batch").inner_text())
    until(lambda: "Schritt 1 von" in page.locator("#step").inner_text())
    is_german(page)
    shoot(page, "german_review")
    assert page.problems == []
    headset = new_page(context)
    headset.goto(f"{console.invite()}&page=xr")
    until(lambda: headset.locator("#word").inner_text() == "Roboter steuert")
    assert "Platz" in headset.locator("#say").inner_text()
    is_german(headset)
    shoot(headset, "german_headset")
    assert headset.problems == []
    context.close()
