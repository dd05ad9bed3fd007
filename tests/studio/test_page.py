"""The studio in a real browser: a run is begun, watched, finished, compared, put away, restored."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from robot_rl.config.run_folder import METRICS, POLICY
from robot_rl.console.remembered import Role
from tests.support.served import new_page, until
from tests.support.studio import ServedStudio, at_work, line, write_eval

FIRST, SECOND = "reach/20260101-120000-s0", "reach/20260101-130000-s1"
SHOTS = os.environ.get("ROBOT_RL_SCREENSHOTS")
SIZES = ((1280, 800), (390, 844), (768, 1024), (2560, 1440))
WIDER = """
[...document.querySelectorAll('body *')].filter((x) => !x.closest('.scroll, .log'))
  .filter((x) => x.checkVisibility() && x.getBoundingClientRect().right > innerWidth + 1)
  .map((x) => `${x.tagName}.${x.className?.baseVal ?? x.className}`)
"""
NAMELESS = """
[...document.querySelectorAll('input, select, textarea, button')].filter((x) => x.checkVisibility())
  .filter((x) => !(x.labels?.length || x.textContent.trim() || x.getAttribute('aria-label')))
  .map((x) => x.outerHTML.slice(0, 120))
"""
CONTRAST = """
() => {
  const parts = (c) => (c.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (c) => {
    const [r, g, b] = parts(c).map((v) => v / 255);
    const lin = [r, g, b].map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2];
  };
  const below = (x) => {
    for (; x; x = x.parentElement) {
      const c = getComputedStyle(x).backgroundColor, p = parts(c);
      if (p.length === 3 || p[3] === 1) return c;
    }
    return "rgb(255, 255, 255)";
  };
  const found = new Set();
  for (const x of document.querySelectorAll("body *")) {
    const own = [...x.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !x.checkVisibility() || x.closest("svg, :disabled, option")) continue;
    const [a, b] = [light(getComputedStyle(x).color), light(below(x))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const who = `${x.tagName}.${x.className} ${x.textContent.slice(0, 30)}`;
    if (ratio < 4.5) found.add(`${who} ${ratio.toFixed(2)}`);
  }
  return [...found];
}
"""


@pytest.fixture
def page(context: Any, studio: ServedStudio) -> Any:
    """The studio, opened by a link; fails on any error in the page."""
    made = open_page(context, studio)
    yield made
    assert made.problems == []


def open_page(context: Any, studio: ServedStudio, role: Role = Role.OPERATOR) -> Any:
    page = new_page(context)
    page.goto(studio.invite(role))
    until(lambda: page.locator(".run").count())
    return page


def fits(page: Any, name: str) -> None:
    """At every size nothing sticks out, everything has a name, and text can be read in both."""
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for wide, high in SIZES:
            page.set_viewport_size({"width": wide, "height": high})
            page.wait_for_timeout(80)
            with suppress(AssertionError):  # a busy browser lays the page out later
                until(lambda: page.evaluate(WIDER) == [], 3.0)
            assert page.evaluate(WIDER) == [], f"{name} at {wide}x{high}"
            assert page.evaluate("document.documentElement.scrollWidth") <= wide, f"{name}, {wide}"
            if SHOTS:
                page.screenshot(path=f"{SHOTS}/studio-{name}-{scheme}-{wide}.png")
        assert page.evaluate(CONTRAST) == [], f"{name}, {scheme}"
    assert page.evaluate(NAMELESS) == []
    page.set_viewport_size({"width": 1280, "height": 800})


def row(page: Any, name: str) -> Any:
    """The row of a run in the list."""
    return page.locator(f'.run[data-id="{name}"]')


@pytest.mark.timeout(300)  # all its waits together, on a busy machine
def test_a_run_from_the_form_to_the_bin_and_back(  # noqa: PLR0915 - one person's way
    page: Any, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBOT_RL_DISK_RESERVE_BYTES", "0")
    page.get_by_role("link", name="Start a run").click()
    until(lambda: page.locator(".plan code").count(), 60.0)
    page.locator("#experiment").select_option("reach")
    until(lambda: page.locator(".field").count() > 20, 60.0)
    page.get_by_label("demos", exact=False).first.fill("1")
    page.get_by_label("more words").fill("train.dmos=1")
    until(lambda: "did you mean 'demos'?" in page.locator(".plan .trouble").inner_text(), 30.0)
    assert page.get_by_role("button", name="Start", exact=True).is_disabled()
    page.problems.clear()  # the refused request itself, as the browser reports it
    page.get_by_label("more words").fill("train.video=false\ntrain.eval_episodes=2")
    start = page.get_by_role("button", name="Start", exact=True)
    until(start.is_enabled, 30.0)
    command = page.locator(".plan code").inner_text()
    words = "train experiment=reach train.demos=1 train.video=false train.eval_episodes=2"
    assert command.startswith(f"robot-rl {words} run_dir=")
    fits(page, "new")
    start.click()
    # above the list only until the folder is there, which a quick machine has made by the next look
    places = page.locator("#waiting, #toast")
    until(lambda: "train is starting" in "".join(places.all_inner_texts()), 30.0)
    name = Path(command.rpartition("run_dir=")[2]).relative_to(runs).as_posix()
    until(lambda: row(page, name).count(), 60.0)
    until(lambda: "practising" in row(page, name).inner_text(), 60.0)
    steps = row(page, name).locator(".n").first
    before = steps.inner_text()
    until(lambda: steps.inner_text() != before, 30.0)  # it is live
    assert json.loads((runs / name / "run.json").read_text())["command"] == command

    row(page, name).get_by_role("link").click()
    until(lambda: "practice budget" in page.locator(".detail").inner_text())
    until(lambda: "train" in page.locator(".log").inner_text())
    assert page.get_by_role("button", name="Put away").is_disabled()
    fits(page, "run")
    ask = page.locator("dialog")
    page.get_by_role("button", name="Pause").click()
    until(lambda: f"robot-rl pause {runs / name}" in ask.inner_text())
    ask.get_by_role("button", name="Pause").click()
    until(lambda: "paused" in row(page, name).inner_text(), 30.0)
    until(lambda: "no episode begins" in page.locator(".log").inner_text(), 30.0)
    told = (runs / name / METRICS).read_text().count("\n")
    page.wait_for_timeout(1000)
    assert (runs / name / METRICS).read_text().count("\n") == told
    page.get_by_role("button", name="Go on").click()
    until(lambda: f"robot-rl pause {runs / name} --end" in ask.inner_text())
    ask.get_by_role("button", name="Go on").click()
    until(lambda: "practising" in row(page, name).inner_text(), 30.0)
    until(lambda: (runs / name / METRICS).read_text().count("\n") > told, 30.0)
    page.get_by_role("button", name="Finish train").click()
    page.locator("dialog").get_by_role("button", name="Finish train").click()
    until(lambda: "stopped" in row(page, name).inner_text(), 90.0)  # its last update, its report
    until(lambda: "interrupted; what was recorded is safe" in page.locator(".log").inner_text())
    page.get_by_role("button", name="Go on").click()
    until(lambda: page.locator("dialog code").count(), 30.0)
    assert page.locator("dialog code").inner_text() == command  # the same one goes on
    fits(page, "dialog")
    page.keyboard.press("Escape")

    page.get_by_role("link", name="all runs").click()
    row(page, name).get_by_role("checkbox").check()
    row(page, FIRST).get_by_role("checkbox").check()
    page.get_by_role("link", name="Compare 2").click()
    until(lambda: "train.demos" in page.locator(".compare").inner_text())
    assert page.locator(".compare thead").first.locator("th").count() == 2
    fits(page, "compare")

    page.goto(page.url.partition("#")[0] + f"#run={name.replace('/', '%2F')}")
    page.get_by_role("button", name="Put away").click()
    page.locator("dialog").get_by_role("button", name="Put away").click()
    until(lambda: page.locator(".bin .item").count() == 1)
    until(lambda: row(page, name).count() == 0)
    assert not (runs / name).exists()
    assert page.locator("#waiting").inner_text() == ""  # it has not failed to start
    fits(page, "bin")
    page.get_by_role("button", name="Restore").click()
    until(lambda: row(page, name).count() == 1)
    assert (runs / name / "store.sqlite").is_file()
    page.get_by_role("link", name="all runs").click()
    fits(page, "list")


def test_a_list_follows_its_files_and_keeps_what_a_person_does(page: Any, runs: Path) -> None:
    assert "No evaluation" not in row(page, FIRST).inner_text()
    page.locator("#filter").fill("s1")
    until(lambda: page.locator(".run").count() == 1)
    assert "1 of 2 runs" in page.locator("#count").inner_text()
    write_eval(runs / SECOND, 19, 20)
    until(lambda: "19 of 20" in row(page, SECOND).inner_text())
    assert page.locator("#filter").input_value() == "s1"
    page.locator("#filter").fill("nothing like it")
    until(lambda: page.locator("#empty").is_visible())
    page.locator("#filter").fill("")
    page.evaluate("robotRL.told.server = 'before'; robotRL.rows.delete(robotRL.names[0])")
    until(lambda: page.locator(".run").count() == 1)
    until(lambda: page.locator(".run").count() == 2)  # a studio that was started again tells all


def test_the_keyboard_reaches_a_run_and_its_actions(page: Any) -> None:
    page.locator("#filter").focus()
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(lambda: page.locator(".detail").count())
    page.get_by_role("button", name="Write report").focus()
    page.keyboard.press("Enter")
    until(lambda: "robot-rl report" in page.locator("dialog").inner_text())
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()


def test_a_run_that_changes_leaves_the_focus_and_what_is_pressed(page: Any, runs: Path) -> None:
    page.clock.install()
    row(page, FIRST).get_by_role("link").click()
    report = page.get_by_role("button", name="Write report")
    until(report.count)

    def tell(text: str) -> None:
        (runs / FIRST / "logs" / "actor.log").write_text(f"INFO a.b: {text}\n")
        for _ in range(3):
            page.clock.run_for(2100)
            page.wait_for_timeout(100)

    (runs / FIRST / "logs").mkdir()
    report.focus()
    tell("one")
    until(lambda: "one" in page.locator(".log").inner_text())
    assert report.evaluate("x => x === document.activeElement")
    box = report.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    tell("two")
    page.mouse.up()
    until(lambda: "robot-rl report" in page.locator("dialog").inner_text())


def kept(page: Any, path: str) -> list[Any]:
    """The page's requests of this path, which the test answers when it likes."""
    found: list[Any] = []

    def keep(route: Any) -> None:
        found.append(route)

    page.route(path, keep)
    return found


def test_what_runs_is_what_is_shown(page: Any) -> None:
    """Of two answers the older one may come last."""
    held = kept(page, "**/api/plan")
    row(page, FIRST).get_by_role("link").click()
    page.get_by_role("button", name="Export").click()
    dialog, yes = page.locator("dialog"), page.locator("dialog button.go")
    until(lambda: page.evaluate("1") and held)
    dialog.locator("select").select_option("mcap")
    held[0].continue_()
    page.wait_for_timeout(250)
    assert yes.is_disabled() and "checking" in dialog.inner_text()
    until(lambda: page.evaluate("1") and len(held) == 2)
    held[1].continue_()
    until(yes.is_enabled)
    assert "--to mcap" in dialog.locator("code").inner_text()
    dialog.get_by_role("button", name="Cancel").click()
    assert dialog.is_hidden()


def test_a_form_that_comes_late_and_a_plan_of_other_words_are_not_shown(page: Any) -> None:
    forms, plans = kept(page, "**/api/form"), kept(page, "**/api/plan")

    def form(key: str) -> dict[str, Any]:
        field = {"key": key, "kind": "int", "value": 1, "about": "", "options": []}
        return {"top": [field], "sections": []}

    def plan(command: str) -> dict[str, Any]:
        return {"verb": "train", "run": "r", "command": command, "warning": ""}

    page.get_by_role("link", name="Start a run").click()
    until(lambda: page.evaluate("1") and forms)
    page.locator("#experiment").select_option("peg_insert")
    until(lambda: page.evaluate("1") and len(forms) == 2)
    forms[1].fulfill(json=form("second"))
    until(lambda: page.evaluate("1") and plans)
    forms[0].fulfill(json=form("first"))
    page.get_by_label("second").fill("2")
    plans[0].fulfill(json=plan("without it"))
    page.wait_for_timeout(200)
    assert page.locator(".field .name").all_inner_texts() == ["second"]
    start = page.get_by_role("button", name="Start", exact=True)
    assert start.is_disabled() and page.locator(".plan code").count() == 0
    until(lambda: page.evaluate("1") and len(plans) == 2)
    plans[1].fulfill(json=plan("with it"))
    until(start.is_enabled)
    assert page.locator(".plan code").inner_text() == "with it"


def test_enter_in_a_field_does_what_the_dialog_is_for(page: Any, runs: Path) -> None:
    (runs / FIRST / POLICY).write_bytes(b"")
    page.route("**/api/plan", lambda r: r.fulfill(json={"command": "robot-rl eval", "warning": ""}))
    started: list[Any] = []
    page.route("**/api/start", lambda r: started.append(r) or r.fulfill(json={}))
    row(page, FIRST).get_by_role("link").click()
    page.get_by_role("button", name="Evaluate").click()
    until(page.locator("dialog button.go").is_enabled)
    page.locator("dialog input[type=number]").press("Enter")
    until(lambda: page.evaluate("1") and started)
    until(lambda: "Evaluate: started" in page.locator("#toast").inner_text())


def test_whoever_may_only_look_finds_no_button_that_acts(
    context: Any, studio: ServedStudio
) -> None:
    page = open_page(context, studio, Role.OBSERVER)
    page.locator(".run a").first.click()
    until(lambda: page.locator(".actions button").count())
    assert page.locator(".actions button:enabled").count() == 0


def test_markup_in_a_run_is_text(page: Any, runs: Path) -> None:
    mark = """'"><img src=x onerror="globalThis.struck=1">"""
    log = runs / FIRST / "logs"
    log.mkdir()
    (log / "actor.log").write_text(f"INFO a.b: {mark}\n")
    record = json.loads((runs / FIRST / "run.json").read_text())
    (runs / FIRST / "run.json").write_text(json.dumps(record | {"command": mark}))
    row(page, FIRST).get_by_role("link").click()
    until(lambda: mark in page.locator(".log").inner_text())
    until(lambda: page.locator(".command code").first.inner_text() == mark)
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("globalThis.struck ?? 0") == 0


def test_the_page_says_that_the_studio_is_gone(page: Any, studio: ServedStudio) -> None:
    studio.close()
    until(lambda: page.locator("#lost").is_visible())
    page.problems.clear()  # requests that nobody answered


def test_a_press_on_a_list_that_changes_is_a_click(page: Any, runs: Path) -> None:
    """Rows are made anew while the button is down, and while it was down for long."""
    link = row(page, FIRST).get_by_role("link")
    box = link.bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + 8)
    page.mouse.down()
    write_eval(runs / FIRST, 19, 20)
    until(lambda: page.evaluate(f"robotRL.rows.get('{FIRST}').success.successes === 19"), 20.0)
    page.wait_for_timeout(100)
    page.mouse.up()
    until(lambda: page.locator(".detail").count())
    until(lambda: "19 of 20" in row(page, FIRST).inner_text())  # what had changed meanwhile
    page.mouse.down()
    page.mouse.move(640, 790)  # it ends where it is no click
    write_eval(runs / FIRST, 18, 20)
    page.mouse.up()
    until(lambda: "18 of 20" in row(page, FIRST).inner_text())


def test_what_is_selected_stays_while_the_rest_goes_on(page: Any, runs: Path) -> None:
    row(page, FIRST).get_by_role("link").click()
    until(page.locator(".detail .id").count)
    page.evaluate("""
        const range = document.createRange();
        range.selectNodeContents(document.querySelector(".detail .figures"));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        globalThis.title = document.querySelector(".detail h2");
    """)
    chosen = page.evaluate("String(getSelection())")
    assert "takeovers" in chosen
    at_work(runs / FIRST, "train", ended="stopped")
    (runs / FIRST / "eval.json").unlink(missing_ok=True)
    with (runs / FIRST / METRICS).open("a") as file:
        file.write(json.dumps(line(30, True)) + "\n")
    until(lambda: "It was stopped by a person" in page.locator(".detail").inner_text())
    assert page.evaluate("String(getSelection())") == chosen
    page.evaluate("getSelection().removeAllRanges()")
    until(lambda: "620 of" in page.locator(".detail .figures").inner_text())


@pytest.mark.parametrize("how", ["put away", "deleted"])
def test_a_run_that_is_gone_says_so_and_has_no_buttons(
    page: Any, studio: ServedStudio, runs: Path, how: str
) -> None:
    row(page, FIRST).get_by_role("link").click()
    until(page.locator(".actions button").count)
    id_ = studio.studio.put_away(FIRST) if how == "put away" else ""
    if how == "deleted":
        shutil.rmtree(runs / FIRST)
    until(lambda: "is gone from the folder" in page.locator(".detail").inner_text(), 20.0)
    assert page.locator(".detail button").count() == 0
    until(lambda: row(page, FIRST).count() == 0)
    asked: list[Any] = []
    page.on(
        "request", lambda request: asked.append(request.url) if "/api/run?" in request.url else 0
    )
    page.wait_for_timeout(4500)
    assert asked == []  # nobody asks for what is not there
    if id_:
        studio.studio.restore(id_)
        until(page.locator(".actions button").count, 20.0)
    page.problems.clear()  # the refused request itself, as the browser reports it


def test_a_run_whose_config_cannot_be_read_shows_no_limits(page: Any, runs: Path) -> None:
    (runs / FIRST / "config.yaml").write_text("train: {demos: [")
    row(page, FIRST).get_by_role("link").click()
    detail = page.locator(".detail")
    until(lambda: "config.yaml cannot be read" in detail.inner_text())
    figures = page.locator(".detail .figures").inner_text()
    assert (
        "at most" not in detail.inner_text() and "of 20" not in figures and "limit" not in figures
    )
    fits(page, "unfit")


def test_steps_beyond_the_limit_are_no_part_of_it(page: Any, runs: Path) -> None:
    config = runs / FIRST / "config.yaml"
    most = re.search(r"max_env_steps: \d+", config.read_text())
    assert most is not None
    config.write_text(config.read_text().replace(most[0], "max_env_steps: 590"))
    row(page, FIRST).get_by_role("link").click()
    until(lambda: "600, limit 590 reached" in page.locator(".detail").inner_text())


def test_a_form_keeps_what_was_typed_until_a_run_was_started(page: Any) -> None:
    page.route("**/api/start", lambda r: r.fulfill(json={"verb": "record", "run": "reach/x"}))

    def opened() -> None:
        page.get_by_role("link", name="Start a run").click()
        until(lambda: page.locator(".field").count() > 20, 60.0)

    def steps() -> Any:
        return page.locator(".field", has_text="max_env_steps").locator("input")

    opened()
    page.locator("#experiment").select_option("peg_insert")
    until(lambda: "experiment=peg_insert" in page.locator(".plan").inner_text(), 60.0)
    steps().fill("77")
    page.get_by_label("what to do").select_option("record")
    page.get_by_label("more words").fill("name=two words")
    page.go_back()
    until(lambda: page.locator(".field").count() == 0)
    opened()
    assert page.locator("#experiment").input_value() == "peg_insert"
    assert page.get_by_label("what to do").input_value() == "record"
    assert page.get_by_label("more words").input_value() == "name=two words"
    assert steps().input_value() == "77"
    page.problems.clear()  # the name was refused
    page.get_by_label("more words").fill("")
    start = page.get_by_role("button", name="Start", exact=True)
    until(start.is_enabled, 60.0)
    assert (
        "record experiment=peg_insert train.max_env_steps=77" in page.locator(".plan").inner_text()
    )
    start.click()
    until(lambda: page.locator(".field").count() == 0)
    opened()
    assert page.locator("#experiment").input_value() == "reach" and steps().input_value() != "77"
