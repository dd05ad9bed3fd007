"""The studio in German: list, run, form, comparison and bin, without a text that stays English."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_rl.config.run_folder import POLICY
from robot_rl.console.app import STATIC
from robot_rl.system.presence import own_process
from tests.studio.test_page import FIRST, SECOND, fits, open_page, row
from tests.support.served import until
from tests.support.studio import ServedStudio, at_work, write_eval

MARK = "\u2063"  # is not seen; stands before every text of the language file
MISSING = "import('/static/language.js').then((m) => [...m.missing])"
UNTRANSLATED = """
(mark) => {  // texts that are neither from the language file nor data, commands, logs, comments
  const kept = "code, pre, script, [lang=en], .field, .choice, summary b, #experiment";
  const values = (x) => (x && typeof x === "object" ? Object.values(x).flatMap(values) : [x]);
  const rows = values([...robotRL.rows.values()].map(({ state, phase, busy, ...row }) => row));
  const data = [robotRL.about.folder, ...rows].filter((x) => typeof x === "string" && x.length > 1);
  data.sort((a, b) => b.length - a.length);
  const isEnglish = (text) => {
    if (text.includes(mark)) return false;
    for (const known of [...data, "min", "train", "Studio"]) text = text.replaceAll(known, "");
    return /\\p{L}{3}/u.test(text);
  };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (!node.parentElement.closest(kept) && isEnglish(node.data)) found.push(node.data);
  }
  for (const name of ["title", "aria-label", "placeholder", "alt"]) {
    for (const item of document.body.querySelectorAll(`[${name}]`)) {
      if (isEnglish(item.getAttribute(name))) found.push(`${name}: ${item.getAttribute(name)}`);
    }
  }
  return found;
}
"""


@pytest.fixture
def page(browser: Any, runs: Path, studio: ServedStudio) -> Iterator[Any]:
    """The studio in a German browser; the first run has a policy that was evaluated, one works."""
    words = json.loads((STATIC / "lang" / "de.json").read_text())
    marked = {english: MARK + german for english, german in words.items()}
    write_eval(runs / FIRST, 19, 20)
    (runs / FIRST / POLICY).write_bytes(b"")
    at_work(runs / SECOND, "train", process=own_process())
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="de-DE")
    context.route("**/static/lang/de.json", lambda route: route.fulfill(json=marked))
    made = open_page(context, studio)
    yield made
    assert made.problems == []
    context.close()


def is_german(page: Any) -> None:
    assert page.evaluate(UNTRANSLATED, MARK) == []
    assert page.evaluate(MISSING) == []


def test_a_walk_through_the_studio_in_german(page: Any) -> None:  # noqa: PLR0915 - one way
    assert page.evaluate("document.documentElement.lang") == "de"
    until(lambda: "übt" in row(page, SECOND).inner_text())
    assert "2 Läufe" in page.locator("#count").inner_text()
    page.locator("#filter").fill("übt")
    until(lambda: "1 von 2 Läufen" in page.locator("#count").inner_text())
    page.locator("#filter").fill("")
    is_german(page)
    fits(page, "german-list")

    row(page, SECOND).get_by_role("link").click()
    until(lambda: "des Übungsbudgets" in page.locator(".detail").inner_text())
    is_german(page)
    page.get_by_role("button", name="train beenden").click()
    is_german(page)
    page.keyboard.press("Escape")
    row(page, FIRST).get_by_role("link").click()
    until(lambda: "19 von 20, 95-%-Intervall 76 bis 99 %" in page.locator(".detail").inner_text())
    is_german(page)
    fits(page, "german-run")
    page.get_by_role("button", name="Auswerten").click()
    until(lambda: "robot-rl eval" in page.locator("dialog").inner_text(), 30.0)
    is_german(page)
    fits(page, "german-dialog")
    page.keyboard.press("Escape")

    page.get_by_role("link", name="Lauf beginnen").click()
    until(lambda: page.locator(".plan code").count(), 60.0)
    is_german(page)
    fits(page, "german-new")

    page.get_by_role("link", name="alle Läufe").click()
    page.get_by_role("link", name="Vergleichen").press("Enter")
    until(lambda: "Markieren Sie 2 bis 6 Läufe" in page.locator("#side").inner_text())
    page.get_by_role("link", name="alle Läufe").click()
    for name in (FIRST, SECOND):
        row(page, name).get_by_role("checkbox").check()
    page.get_by_role("link", name="2 vergleichen").click()
    until(lambda: "Dauer eines Erfolgs" in page.locator(".compare").inner_text())
    assert "1,5 s" in page.locator(".compare").inner_text()
    is_german(page)
    fits(page, "german-compare")

    page.goto(page.url.partition("#")[0] + f"#run={FIRST.replace('/', '%2F')}")
    page.get_by_role("button", name="Weglegen").click()
    page.locator("dialog").get_by_role("button", name="Weglegen").click()
    until(lambda: page.locator(".bin .item").count() == 1)
    assert f"{FIRST} ist im Papierkorb" in page.locator("#toast").inner_text()
    is_german(page)
    fits(page, "german-bin")
    page.get_by_role("button", name="Wiederherstellen").click()
    until(lambda: "Der Papierkorb ist leer" in page.locator("#side").inner_text())

    page.get_by_role("button", name="English").click()
    until(lambda: page.locator("html").get_attribute("lang") == "en")
    until(lambda: page.get_by_role("link", name="Start a run").count())
    page.reload()  # this browser remembers it
    until(lambda: "2 runs" in page.locator("#count").inner_text())
