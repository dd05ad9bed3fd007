"""The review page in a real browser: what a person uses who goes through many episodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from robot_rl.console.remembered import Role
from robot_rl.store.labels import DROVE, review
from robot_rl.store.store import Store
from robot_rl.types import Driver, Ending, EpisodeId, Label, Outcome, Step
from tests.console.test_page import shoot
from tests.support.served import Served, new_page, rows_of, until

SIZES = ((390, 844), (768, 1024), (1280, 800), (2560, 1440))
OVERFLOWING = """
[...document.querySelectorAll('header *, main *')]
  .filter((x) => x.offsetParent && !x.closest('#list'))
  .filter((x) => x.getBoundingClientRect().right > innerWidth + 1).map((x) => x.id || x.tagName)
"""
UNNAMED = """
[...document.querySelectorAll('button, input, select, canvas[role], svg[role]')]
  .filter((x) => x.offsetParent || x.ownerSVGElement === null)
  .filter((x) => !(x.innerText?.trim() || x.labels?.length || x.getAttribute('aria-label')))
  .map((x) => x.outerHTML.slice(0, 80))
"""
CONTRAST = """
() => {  // of every text on the page with what lies behind it
  const pen = document.createElement('canvas').getContext('2d');
  const rgba = (c) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = c;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (x) => {
    for (let at = x; at; at = at.parentElement) {
      const c = rgba(getComputedStyle(at).backgroundColor);
      if (c[3] > 0.95) return c;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  for (const x of document.querySelectorAll('header *, #side *, #episode *')) {
    const text = [...x.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || !x.offsetParent || x.closest('#frames, :disabled, .out')) continue;
    const [a, b] = [light(rgba(getComputedStyle(x).color)), light(behind(x))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = `${x.id || x.className || x.tagName} ${x.textContent.slice(0, 20)}`;
    if (ratio < 4.5) found.push(`${name} ${ratio.toFixed(2)}`);
  }
  return found;
}
"""


@pytest.fixture
def run_dir(run_dir: Path) -> Path:
    """The run, with more kinds of episodes: 4 to 0 are practice with a correction."""
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        spec = store.spec

        def add(number: int, purpose: str, steps: int, success: bool, **every: Any) -> None:
            rows = rows_of(spec, "run", number, steps, success=success)
            header = replace(rows[0], purpose=purpose)
            body = [replace(r, **every) if isinstance(r, Step) else r for r in rows[1:]]
            store.append([header, *body])

        add(10, "demo", 12, True, driver=Driver.DEMO, segment=0)
        add(11, "train", 12, False, driver=Driver.POLICY, segment=0)
        add(12, "train", 3, False)  # too short for a takeover
        rows = rows_of(spec, "run", 13, 12, success=False)
        ended = replace(rows[-2], ending=Ending.ABORTED, success=None)
        held = [
            replace(r, outcome=Outcome.HOLD, reason="force", driver=Driver.RECOVERY)
            if isinstance(r, Step) and r.step == 4
            else r
            for r in rows[:-2]
        ]
        store.append([*held, ended, rows[-1]])
        said = Label(EpisodeId("run", "actor-0", 11), 0, None, "exclude", 1.0, "person", "ada", 5)
        drove = Label(
            EpisodeId("run", "actor-0", 10), 0, None, DROVE, 12.0, "person", "operator A", 6
        )
        store.append([said, drove])
    return run_dir


@pytest.fixture
def page(context: Any, console: Served) -> Iterator[Any]:
    """The review page, opened by link; fails on any error in the page."""
    made = opened(context, console)
    yield made
    assert made.problems == []


def opened(context: Any, console: Served, role: Role = Role.OPERATOR) -> Any:
    made = new_page(context)
    made.goto(f"{console.invite(role)}&page=review")
    ready(made)
    return made


def ready(page: Any) -> None:
    until(lambda: page.evaluate("!!globalThis.robotRL?.data"))


def listed(page: Any) -> list[int]:
    return page.evaluate("robotRL.shown.map((e) => e.episode)")


def address(page: Any) -> str:
    return page.evaluate("location.href")


def step(page: Any) -> int:
    return page.evaluate("robotRL.step")


def number(text: str) -> float:
    """As the page writes it, with a true minus."""
    return float(text.replace("\u2212", "-"))


def out(run_dir: Path) -> list[int]:
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        all_ = store.episode_summaries()
        return [r.id.episode for r in all_ if review(store.labels(r.id)).excluded]


# --- filters --------------------------------------------------------------------------------------


def test_filters_combine_and_a_link_leads_to_the_same_list(
    page: Any, context: Any, console: Served
) -> None:
    assert listed(page) == [13, 12, 11, 10, 4, 3, 2, 1, 0]
    choose = partial(page.select_option, timeout=5000)
    for name, value, expected in (
        ("purpose", "demo", [10]),
        ("outcome", "success", [10, 4, 2, 0]),
        ("outcome", "failure", [12, 3, 1]),
        ("outcome", "excluded", [11]),
        ("outcome", "aborted", [13]),
        ("outcome", "neutral", []),
        ("driver", "policy", [12, 11]),
        ("driver", "human", [13, 10, 4, 3, 2, 1, 0]),
        ("driver", "recovery", [13]),
        ("driver", "seat", [10]),
        ("driver", "script", [13, 4, 3, 2, 1, 0]),
        ("author", "ada", [11]),
        ("author", "-", [13, 12, 10, 4, 3, 2, 1, 0]),
    ):
        choose(f"[data-filter={name}]", value)
        assert listed(page) == expected, (name, value)
        page.locator("#clear").click()
    choose("[data-filter=outcome]", "failure")
    choose("[data-filter=driver]", "correction")
    page.fill("[data-filter=number]", "2-12")
    assert listed(page) == [3]
    assert page.locator("#count").inner_text() == "1 of 9 episodes"
    until(lambda: page.locator("#name").inner_text() == "episode 3")
    until(lambda: "number=2-12" in address(page) and "episode=3" in address(page))
    link = address(page)
    other = context.new_page()
    other.goto(link)
    ready(other)
    assert listed(other) == [3] and other.input_value("[data-filter=driver]") == "correction"
    assert other.input_value("[data-filter=number]") == "2-12"
    other.close()
    page.fill("[data-filter=number]", "1")
    assert listed(page) == [1]
    page.locator("#clear").click()
    until(lambda: "outcome" not in address(page))
    page.fill("[data-filter=number]", "1")
    assert listed(page) == [13, 12, 11, 10, 1]
    page.evaluate("location.hash = 'purpose=demo'")
    until(lambda: listed(page) == [10])
    shoot(page, "review_filters")


def test_everything_is_reached_by_keyboard_and_fields_keep_their_keys(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("1 3")
    until(lambda: listed(page) == [13, 12, 11, 10, 3, 1])
    page.keyboard.press("ArrowRight")  # moves in the field, not in the episode
    assert step(page) == 0
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    until(lambda: step(page) == 1)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        name = "document.activeElement.id || document.activeElement.dataset.filter"
        reached.add(page.evaluate(f"{name} || document.activeElement.dataset.say || ''"))
    wanted = {"number", "purpose", "outcome", "driver", "author", "disagree", "clear"}
    wanted |= {"choose-all", "scrub", "play", "speed", "add-plot", "success", "undo"}
    assert wanted <= reached
    page.locator("[data-filter=disagree]").focus()
    page.keyboard.press("Enter")  # presses the button; labels nothing
    assert page.get_attribute("[data-filter=disagree]", "aria-pressed") == "true"
    assert page.locator("#words li").count() == 0
    page.locator("#clear").click()
    page.locator("#space .episode").nth(4).click()
    until(lambda: page.locator("#name").inner_text() == "episode 4")
    page.keyboard.press("Enter")  # after a click the keys are the page's again
    until(lambda: "operator 1: success 1" in page.locator("#words").inner_text())


def test_an_episode_that_cannot_be_loaded_leaves_the_keys_with_the_one_on_the_page(
    page: Any, run_dir: Path
) -> None:
    page.select_option("#add-plot", "reward")
    until(lambda: page.locator(".plot").count() == 1)
    gone = {"error": "its steps are on another machine"}
    page.route("**/api/episode?*episode=12", lambda route: route.fulfill(status=409, json=gone))
    page.keyboard.press("ArrowDown")
    until(lambda: gone["error"] in page.locator("#toast").inner_text())
    assert "episode 13" in page.locator("#space .on .episode").get_attribute("aria-label")
    page.keyboard.press("x")
    until(lambda: out(run_dir) == [11, 13])
    page.route("**/api/signals?*", lambda route: route.fulfill(status=409, json=gone))
    page.locator("#space .episode").nth(2).click()
    until(lambda: page.locator("#name").inner_text() == "episode 11")
    until(lambda: page.locator(".plot").count() == 0)  # no curve of another episode
    assert "Jan 1, 1970" in page.locator("#words").inner_text()  # when Ada excluded it
    page.problems.clear()  # the browser's own lines about the answers 409


def test_an_undo_after_a_change_of_name_takes_nothing_of_the_new_name_back(
    page: Any, console: Served, run_dir: Path
) -> None:
    page.keyboard.press("x")
    until(lambda: out(run_dir) == [11, 13])
    (session,) = console.access._sessions.values()
    assert console.access.rename(session, "Grace") == ""  # in another window
    page.keyboard.press("Backspace")
    until(lambda: "Grace: success 0" in page.locator("#words").inner_text())
    page.keyboard.press("u")
    until(lambda: "Grace: undo" in page.locator("#words").inner_text())
    page.keyboard.press("u")
    until(lambda: "nothing of yours" in page.locator("#toast").inner_text())
    assert out(run_dir) == [11, 13]


def test_colours_of_the_timeline_have_a_legend(page: Any) -> None:
    until(lambda: page.locator("#colours span").count())
    assert page.locator("#colours").inner_text().split("\n") == [
        "policy",
        "correction",
        "recovery",
        "gate held",
        "action dx",
        "dy",
        "dz",
    ]


# --- playing --------------------------------------------------------------------------------------


def test_speed_has_keys_and_is_remembered(page: Any) -> None:
    assert page.input_value("#speed") == "1"
    for key, speed in ((".", "2"), (".", "4"), (".", "8"), (".", "8"), (",", "4")):
        page.keyboard.press(key)
        assert page.input_value("#speed") == speed
    page.reload()
    ready(page)
    assert page.input_value("#speed") == "4"
    assert page.locator("#speed option").all_inner_texts() == [
        f"{speed}\u00d7" for speed in ("0.25", "0.5", "1", "2", "4", "8")
    ]

    def plays_ms() -> float:
        page.keyboard.press("Home")
        began = page.evaluate("performance.now()")
        page.keyboard.press("Space")
        assert page.get_attribute("#play", "aria-label") == "pause"
        until(lambda: page.get_attribute("#play", "aria-label") == "play")
        assert step(page) == 12
        return page.evaluate("performance.now()") - began

    fast = plays_ms()  # 12 steps at 10 Hz: 1.2 s at the robot's speed
    page.select_option("#speed", "1")
    slow = plays_ms()
    assert slow >= 1150 and 250 <= fast < slow  # no faster; how much later hangs on the machine
    page.locator("#play").click()  # at the end: from the beginning
    until(lambda: step(page) > 2)
    page.locator("#play").click()
    stopped = step(page)
    page.wait_for_timeout(400)
    assert step(page) == stopped


# --- plots ----------------------------------------------------------------------------------------


def test_the_words_of_a_step_are_not_cut(page: Any) -> None:
    """With every value of the action, also where the window is small."""
    page.keyboard.press("ArrowRight")
    words = page.locator("#step")
    assert "action" in words.inner_text()
    assert words.evaluate("x => x.scrollWidth <= x.clientWidth && x.scrollHeight <= x.clientHeight")
    words.evaluate("x => { x.style.whiteSpace = 'nowrap'; }")
    assert words.evaluate("x => x.scrollWidth > x.clientWidth")  # in one line they would be


def test_plots_follow_the_cursor_and_are_remembered(page: Any, run_dir: Path) -> None:
    until(lambda: page.locator("#add-plot option").count() > 5)
    page.select_option("#add-plot", "force_in_tcp")
    page.select_option("#add-plot", "outcome")
    until(lambda: page.locator(".plot").count() == 2)
    force, outcome = page.locator(".plot").nth(0), page.locator(".plot").nth(1)
    assert force.locator("b").inner_text() == "force_in_tcp (N clipped at 20)"
    with Store(run_dir / "actor.sqlite") as store:
        id_, spec = EpisodeId("run", "actor-0", 13), store.spec
        assert spec is not None
        part = store.frames(id_)[0].observation["state"][spec.state_slices["force_in_tcp"]]
    told = list(map(number, force.locator("output span span").all_inner_texts()))
    assert told == pytest.approx([10.0 * float(v) for v in part], rel=1e-3)
    low, high = (number(force.locator(f".{end}").inner_text()) for end in ("low", "high"))
    assert low == pytest.approx(min(told), rel=1e-3) and high == pytest.approx(max(told), rel=1e-3)
    assert "over the steps, from" in force.locator("canvas").get_attribute("aria-label")
    assert outcome.locator("output").inner_text().strip() == "pass"
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")

    box = outcome.locator("canvas").bounding_box()
    at = lambda frame: box["x"] + box["width"] * (frame + 0.5) / 13  # noqa: E731
    page.mouse.click(at(4), box["y"] + 20)
    assert step(page) == 4 and outcome.locator("output").inner_text().strip() == "hold"
    assert "step 4 of 12 · recovery · hold: force" in page.locator("#step").inner_text()
    shoot(page, "review_plots")
    page.mouse.move(at(2), box["y"] + 20)
    page.mouse.down()
    page.mouse.move(at(9), box["y"] + 25, steps=4)
    page.mouse.up()
    assert step(page) == 9
    page.mouse.move(at(1), box["y"] + 25)  # not held any more
    assert step(page) == 9
    cursor = page.locator("#cursor").bounding_box()
    assert abs(cursor["x"] + cursor["width"] / 2 - at(9)) < 1.5
    scrub = page.locator("#scrub").bounding_box()
    thumb = scrub["x"] + 8 + (scrub["width"] - 16) * 9 / 12
    assert abs(thumb - at(9)) < 1.5

    page.reload()
    ready(page)
    until(lambda: page.locator(".plot").count() == 2)
    page.keyboard.press("ArrowDown")
    until(lambda: page.locator("#name").inner_text() == "episode 12")
    until(lambda: page.locator(".plot").nth(1).locator("output").inner_text().strip() == "pass")
    page.locator("[data-remove=force_in_tcp]").click()
    until(lambda: page.locator(".plot").count() == 1)
    assert page.locator("#add-plot option[value=force_in_tcp]").count() == 1
    page.evaluate("localStorage.setItem('review-plots-' + robotRL.about.task, '[\"gone\"]')")
    page.reload()
    ready(page)
    until(lambda: page.locator("#add-plot option").count() > 5)  # of another run: forgotten
    assert page.locator(".plot").count() == 0
    page.problems.clear()  # the browser's own line about the answer 409


# --- the map --------------------------------------------------------------------------------------


def test_the_map_shows_where_the_episodes_of_the_list_started(page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url) if "/api/starts" in r.url else None)
    page.wait_for_timeout(200)
    assert asked == []  # only when somebody looks
    page.locator("#map summary").click()
    points = page.locator("#map-points [role=option]")
    until(lambda: points.count() == 9)
    assert "tcp_in_workspace" in page.input_value("#map-x")
    assert page.input_value("#map-x") != page.input_value("#map-y")
    kinds = page.evaluate(
        "[...document.querySelectorAll('#map-points [role=option]')].map((x) => x.classList[0])"
    )
    assert sorted(kinds) == ["cross"] * 3 + ["full"] * 4 + ["hollow"] * 2
    words = page.locator("#map-points [data-episode='10']").get_attribute("aria-label")
    assert words.startswith("episode 10: success, 100 % human-driven; ")
    assert "mm from its middle" in words
    page.select_option("[data-filter=outcome]", "success")
    until(lambda: points.count() == 4)
    spot = page.locator("#map-points [data-episode='2']").bounding_box()
    page.mouse.move(spot["x"] + 4, spot["y"] + 4)
    until(lambda: page.locator("#map-text").inner_text().startswith("episode 2: success"))
    page.mouse.click(spot["x"] + 4, spot["y"] + 4)
    until(lambda: page.locator("#name").inner_text() == "episode 2")
    assert page.locator("#map-points .ring").count() == 1
    page.select_option("#map-by", "share")
    assert page.locator("#map-legend").inner_text().endswith("100 % human-driven")
    shoot(page, "review_map")
    page.locator("#map-points").focus()
    page.keyboard.press("ArrowRight")
    told = page.locator("#map-text").inner_text()
    active = page.get_attribute("#map-points", "aria-activedescendant")
    assert told == page.locator(f"#{active}").get_attribute("aria-label")
    page.keyboard.press("Enter")
    chosen = told.partition(":")[0]
    until(lambda: page.locator("#name").inner_text() == chosen)
    assert page.locator("#words li").count() == 0  # Enter was the map's
    page.reload()
    ready(page)
    until(lambda: page.locator("#map-points [role=option]").count() == 4)  # open, as it was


# --- several at once ------------------------------------------------------------------------------


def test_several_episodes_are_excluded_and_taken_back(page: Any, run_dir: Path) -> None:
    boxes = page.locator("#space .entry input")
    boxes.nth(4).click()
    boxes.nth(7).click(modifiers=["Shift"])
    assert page.locator("#chosen").inner_text() == "4 chosen"
    boxes.nth(5).click()
    assert page.locator("#exclude-chosen").inner_text() == "Exclude 3"
    sent: list[str] = []
    page.on("request", lambda r: sent.append(r.url) if "/api/labels" in r.url else None)
    page.locator("#exclude-chosen").click()
    until(lambda: out(run_dir) == [1, 2, 4, 11])
    until(lambda: page.locator(".entry.out").count() == 4)
    assert len(sent) == 1
    undo = page.locator("#undo-batch")
    until(undo.is_visible)
    assert undo.inner_text() == "Undo: exclude of 3 episodes"
    shoot(page, "review_batch")
    page.select_option("[data-filter=outcome]", "success")
    page.locator("#choose-all").click()
    assert page.locator("#chosen").inner_text() == "2 chosen"  # 10 and 0: the rest is excluded
    page.locator("#exclude-chosen").click()
    until(lambda: out(run_dir) == [0, 1, 2, 4, 10, 11])
    until(lambda: undo.inner_text() == "Undo: exclude of 2 episodes")
    page.keyboard.press("Control+z")
    until(lambda: out(run_dir) == [1, 2, 4, 11])
    until(lambda: undo.inner_text() == "Undo: exclude of 3 episodes")
    undo.click()
    until(lambda: out(run_dir) == [11])
    until(lambda: not undo.is_visible())
    page.locator("#clear").click()
    page.keyboard.press("m")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("m")
    assert page.locator("#chosen").inner_text() == "2 chosen"


def test_what_the_page_shows_follows_a_batch_about_it(page: Any) -> None:
    page.locator("#choose-all").click()
    page.locator("#exclude-chosen").click()
    until(lambda: "excluded" in page.locator("#verdict").inner_text())
    until(lambda: "exclude 1" in page.locator("#words").inner_text())
    page.locator("#undo-batch").click()
    until(lambda: "excluded" not in page.locator("#verdict").inner_text())


# --- other viewers --------------------------------------------------------------------------------


def test_an_episode_is_downloaded_for_foxglove(page: Any) -> None:
    pytest.importorskip("mcap", reason="the data extra is not installed")
    with page.expect_download() as download:
        page.locator("[data-export=mcap]").click()
    assert download.value.suggested_filename == "run-episode-000013.mcap"
    assert Path(download.value.path()).read_bytes()[:8] == b"\x89MCAP0\r\n"
    until(lambda: "drag it into Foxglove" in page.locator("#toast").inner_text())


def test_a_missing_extra_is_named_with_its_fix(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "rerun", None)
    monkeypatch.delitem(sys.modules, "robot_rl.data.rerun_write", raising=False)
    page.locator("[data-export=rrd]").click()
    until(lambda: "robot-rl[data,rerun]" in page.locator("#toast").inner_text())
    until(lambda: page.locator("[data-export=rrd]").is_enabled())
    page.problems.clear()  # the browser's own line about the answer 409


# --- every screen ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_and_every_text_can_be_read(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.locator("#map summary").click()
    until(lambda: page.locator("#add-plot option").count() > 5)
    page.select_option("#add-plot", "force_in_tcp")
    until(lambda: page.locator(".plot").count() == 1)
    found = {}
    for wide, high in SIZES:
        page.set_viewport_size({"width": wide, "height": high})
        page.wait_for_timeout(150)
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        problems = page.evaluate(OVERFLOWING) + page.evaluate(CONTRAST) + page.evaluate(UNNAMED)
        if over > 0 or problems:
            found[f"{wide}x{high}"] = (over, problems)
    assert found == {}, json.dumps(found, indent=1)
