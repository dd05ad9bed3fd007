"""The whole page in a real headless browser, against the real server."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from robot_rl.console.remembered import Remembered, Role
from robot_rl.errors import StoreError
from robot_rl.learn.replay import Replay
from robot_rl.store.labels import PREDICATE, PROGRESS, review
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Label
from tests.support.served import Served, new_page, scores_of, until

HOLD_AFTER_S = 0.09  # operator_timeout_s of every configs/safety
SHOTS = os.environ.get("ROBOT_RL_SCREENSHOTS")
PAD = """
const pad = { id: "Test Pad", connected: true, mapping: "standard", index: 0,
  axes: [0, 0, 0, 0], buttons: Array.from({ length: 17 }, () => ({ pressed: false, value: 0 })) };
window.testPad = pad;
navigator.getGamepads = () => [pad];
"""
OUTSIDE = """
[...document.querySelectorAll('aside > *, #left > *, header > *')].filter((x) => !x.hidden)
  .filter((x) => {
    const r = x.getBoundingClientRect();
    return r.bottom > innerHeight + 1 || r.right > innerWidth + 1;
  }).map((x) => x.id || x.tagName)
"""
SMALLEST = """
Math.min(...[...document.querySelectorAll('#strip *, #labels button, #figures *, #reason')]
  .map((x) => parseFloat(getComputedStyle(x).fontSize)))
"""
COUNT = """
globalThis.said = 0;
const line = robotRL.control.line, send = line.send;
line.send = (data) => { said += 1; send(data); };
"""
SOONER = """
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => timeout(ms < 2000 ? ms / 2 : ms);
"""
ATTACK = """
async (url) => {
  const socket = new WebSocket(url.replace('http', 'ws') + '/ws/control');
  const closed = await new Promise((done) => {
    socket.onopen = () => done('open');
    socket.onclose = () => done('closed');
  });
  const post = { method: 'POST', credentials: 'include', mode: 'no-cors' };
  await fetch(url + '/api/command/hold', post).catch(() => null);
  const read = await fetch(url + '/api/about', { credentials: 'include' })
    .then(() => 'read').catch(() => 'blocked');
  return [closed, read];
}
"""


def shoot(page: Any, name: str) -> None:
    """Pictures in both themes, when asked for; docs/img has the light ones."""
    for scheme, suffix in (("dark", "_dark"), ("light", "")) if SHOTS else ():
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)
        page.screenshot(path=str(Path(SHOTS or "") / f"{name}{suffix}.png"))


@pytest.fixture
def page(context: Any, console: Any, robot: Any) -> Any:
    """The console, opened by link, telemetry flowing; fails on any error in the page."""
    made = open_page(context, console)
    yield made
    assert made.problems == []


def open_page(context: Any, console: Any, role: Role = Role.OPERATOR) -> Any:
    page = new_page(context)
    page.goto(console.invite(role))
    until(lambda: page.evaluate("document.body.dataset.word") != "OFFLINE")
    return page


def word(page: Any) -> str:
    return page.evaluate("document.body.dataset.word")


def press_german(page: Any, key: str, code: str, **beside: bool) -> None:
    """Press a key of a keyboard that has it in another place."""
    said = json.dumps({"key": key, "code": code, "bubbles": True, "cancelable": True, **beside})
    page.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {said}))")


def driven(robot: Any) -> list[dict[str, Any]]:
    return [said for _, said in robot.heard if "drive" in said["held"]]


def test_everything_fits_on_1280_by_800_and_says_who_drives(page: Any, robot: Any) -> None:
    until(lambda: page.locator(".camera .age.green").count() == 3 or page.locator(".age").count())
    page.wait_for_timeout(700)
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    hidden = page.evaluate(OUTSIDE)
    assert hidden == []
    assert word(page) == "POLICY"
    assert page.locator("#findings").inner_text().startswith("▲ the time limit ends 9 of 10")
    smallest = page.evaluate(SMALLEST)
    assert smallest >= 13
    shoot(page, "console")


STATES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"driving": True, "driver": "correction"}, "HUMAN"),
    ({"driving": True, "driver": "recovery"}, "REWIND"),
    ({"driving": True, "driver": "demo", "present": False}, "SCRIPT"),
    ({"gate": {"mode": "hold", "reason": "person: hold"}}, "HOLD"),
    (
        {"gate": {"mode": "protective_stop", "reason": "force: 61 N", "waits": "device"}},
        "PROTECTIVE STOP",
    ),
    ({"stopped": True}, "PROTECTIVE STOP"),
    ({"episode": {"purpose": "train", "active": False}}, "RESETTING"),
    ({"episode": {}}, "IDLE"),
    ({"asks": "place the peg in the fixture", "gate": {"mode": "hold"}}, "RESET?"),
)


def test_one_word_one_colour_one_shape_for_every_state(page: Any, robot: Any) -> None:
    path, usual = page.locator("#shape-path"), robot.view
    until(lambda: word(page) == "POLICY")
    shapes = {"POLICY": path.get_attribute("d")}
    for change, shown in STATES:
        robot.view = usual | change
        until(lambda want=shown: word(page) == want)
        shapes[shown] = path.get_attribute("d")
        assert shapes[shown] != shapes["POLICY"], shown
        assert page.locator("#acknowledge").is_visible() == (shown == "PROTECTIVE STOP"), shown
        assert page.locator("#ready").is_visible() == (shown == "RESET?"), shown
        assert page.evaluate(OUTSIDE) == [], shown
        shoot(page, "word_" + "_".join(shown.lower().split()).strip("?"))
        robot.view = usual
        until(lambda: word(page) == "POLICY")


def test_takeover_by_key_reaches_the_robot_side_and_ends_with_the_key(
    page: Any, robot: Any
) -> None:
    page.keyboard.down("Space")
    page.wait_for_timeout(200)
    assert driven(robot) == []  # no lease: nobody is heard
    page.keyboard.up("Space")
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.down("Space")
    page.keyboard.down("w")
    page.keyboard.down("Shift")
    until(lambda: driven(robot) and "slow" in driven(robot)[-1]["held"])
    assert driven(robot)[-1]["axes"] == [1, 0, 0, 0, 0, 0]
    robot.view = robot.view | {"driving": True, "driver": "correction"}
    until(lambda: word(page) == "HUMAN")
    shoot(page, "console_human")
    page.keyboard.up("Shift")
    page.keyboard.up("w")
    page.keyboard.up("Space")
    until(lambda: robot.heard[-1][1]["held"] == [])


@pytest.mark.parametrize("beside", ["Control", "Alt", "Meta"])
def test_a_key_that_is_let_go_beside_a_modifier_is_let_go(
    page: Any, robot: Any, beside: str
) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.down("Space")
    page.keyboard.down("w")
    until(lambda: driven(robot) and driven(robot)[-1]["axes"][0] == 1)
    page.keyboard.down(beside)
    page.keyboard.press("Escape")
    until(lambda: robot.commands == ["hold"])  # is heard whatever else is pressed
    page.keyboard.up("w")
    page.keyboard.up("Space")
    page.keyboard.up(beside)
    until(lambda: robot.heard[-1][1]["held"] == [] and robot.heard[-1][1]["axes"][0] == 0)


def test_a_key_that_is_moved_while_it_is_held_is_let_go(page: Any, robot: Any) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.down("Space")
    until(lambda: driven(robot))
    moved = "import('/static/keymap.js').then((m) => m.move('Space', 'KeyV'))"
    assert page.evaluate(moved)
    page.keyboard.up("Space")
    until(lambda: robot.heard[-1][1]["held"] == [])


def test_enter_on_a_button_that_tab_has_reached_presses_it_and_labels_nothing(
    page: Any, run_dir: Path
) -> None:
    page.locator("#episodes button").nth(1).click()
    page.evaluate("robotRL.strip.until_ms = 0")  # the person thought for half a minute
    page.locator("#note-text").fill("slipped")
    assert page.evaluate("robotRL.strip.until_ms - performance.now()") > 29_000
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"
    page.evaluate("robotRL.strip.until_ms = 0")
    page.wait_for_timeout(600)  # looks at it each half second
    page.keyboard.press("Enter")
    until(lambda: "slipped" in page.locator("#notes").inner_text())
    page.wait_for_timeout(200)
    assert page.evaluate("document.activeElement === document.body")  # it may go on to the newest
    with Store(run_dir / "actor.sqlite") as store:
        assert not store.labels(EpisodeId("run", "actor-0", 4))
    page.locator("#mute").click()  # what was clicked does not keep the keys
    page.keyboard.press("Enter")
    until(lambda: page.locator("#said-text").inner_text() == "episode 4: success")


def test_the_page_speaks_50_times_a_second(context: Any, console: Any, robot: Any) -> None:
    """By the page's own clock, so that a busy machine changes nothing."""
    context.clock.install()
    page = open_page(context, console)
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)
    page.evaluate(COUNT)
    page.clock.run_for(1000)
    assert page.evaluate("globalThis.said") in (50, 51)


def test_a_gamepad_needs_no_installation(context: Any, console: Any, robot: Any) -> None:
    context.add_init_script(PAD)
    page = open_page(context, console)
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.evaluate("testPad.buttons[5].pressed = testPad.buttons[6].pressed = true")
    page.evaluate("testPad.axes[1] = -0.5")
    until(lambda: driven(robot) and driven(robot)[-1]["axes"][0] == 0.5)
    assert "close" in driven(robot)[-1]["held"]
    page.evaluate("testPad.connected = false")
    until(lambda: robot.heard[-1][1]["held"] == [])


def test_undo_of_a_word_that_ended_the_episode_leaves_it_out(page: Any, run_dir: Path) -> None:
    """The word stands in the last step as well: the label alone would change nothing."""
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#undo").is_visible())
    page.keyboard.press("Control+z")
    until(lambda: "neutral until" in page.locator("#said-text").inner_text())
    with Store(run_dir / "actor.sqlite") as store:
        said = review(store.labels(EpisodeId("run", "actor-0", 4)))
    assert said.neutral and said.excluded and said.success is None


def test_labels_by_key_with_undo(page: Any, run_dir: Path) -> None:
    page.keyboard.press("Enter")
    until(lambda: page.locator("#said-text").inner_text() == "episode 4: success")
    press_german(page, "z", "KeyY", ctrlKey=True)
    until(lambda: page.locator("#said-text").inner_text() == "episode 4: taken back")
    page.keyboard.press("Backspace")
    until(lambda: page.locator("#said-text").inner_text() == "episode 4: failure")
    press_german(page, "y", "KeyZ", ctrlKey=True)  # where Z is on other keyboards
    page.keyboard.press("x")
    until(lambda: "excluded" in page.locator("#said-text").inner_text())
    with Store(run_dir / "actor.sqlite") as store:
        said = [(x.kind, x.value) for x in store.labels(EpisodeId("run", "actor-0", 4))]
    assert said == [("success", 1.0), ("undo", 0.0), ("success", 0.0), ("exclude", 1.0)]


def test_the_last_second_is_said_to_be_not_done_and_the_episode_goes_on(
    page: Any, robot: Any, run_dir: Path
) -> None:
    said, id_ = page.locator("#said-text"), EpisodeId("run", "actor-0", 4)
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.press("b")
    until(lambda: said.inner_text() == "episode 4: the last second is not a success yet")
    with Store(run_dir / "actor.sqlite") as store:
        labels = store.labels(id_)
    assert {(x.kind, x.value) for x in labels} == {("shows", 0.0)} and len(labels) == 10
    assert {word for _, heard in robot.heard for word in heard["held"]} == set()  # nothing ends
    page.keyboard.press("Control+z")
    until(lambda: said.inner_text() == "episode 4: taken back")
    with Store(run_dir / "actor.sqlite") as store:
        assert review(store.labels(id_)) == review([])
    page.locator("[data-label='not done']").click()
    until(lambda: said.inner_text() == "episode 4: the last second is not a success yet")


def test_the_score_of_the_model_that_pays_is_shown_while_there_is_one(
    page: Any, run_dir: Path
) -> None:
    gauge = page.locator("#score")
    page.wait_for_timeout(500)
    assert not gauge.is_visible()
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(scores_of(4, [0.42], "classifier", "success-3f2a91c04d77"))
    until(lambda: gauge.is_visible() and page.locator("#v-score").inner_text() == "0.42")
    assert gauge.locator("label").inner_text() == "success-3f2a91c04d77"
    assert page.evaluate(OUTSIDE) == []
    page.wait_for_timeout(700)
    shoot(page, "console_score")


def learned_from(run_dir: Path) -> int:
    """Practice steps that can be drawn after what was recorded and said so far."""
    with Store(run_dir / "actor.sqlite") as store:
        assert store.spec is not None
        replay = Replay(store.spec, 100)
        replay.ingest(store.rows_since(0, 10_000)[0])
    return replay.len_online


def test_neutral_takes_an_episode_out_of_the_mix_until_somebody_says_more(
    page: Any, console: Any, run_dir: Path
) -> None:
    said = page.locator("#said-text")
    assert learned_from(run_dir) == 5 * 12
    page.keyboard.press("Enter")
    until(lambda: said.inner_text() == "episode 4: success")
    page.keyboard.press("n")
    until(lambda: said.inner_text() == "episode 4: neutral")
    assert learned_from(run_dir) == 4 * 12
    page.keyboard.press("Control+z")
    until(lambda: said.inner_text() == "episode 4: taken back")
    assert learned_from(run_dir) == 5 * 12
    page.goto(console.url + "/review")
    verdict, shown = page.locator("#verdict"), page.locator("#count")
    until(lambda: "success" in verdict.inner_text())
    page.keyboard.press("n")
    until(lambda: "neutral: counts as failed" in verdict.inner_text())
    assert learned_from(run_dir) == 4 * 12
    page.select_option("[data-filter=outcome]", "neutral")
    until(lambda: shown.inner_text() == "1 of 5 episodes")
    shoot(page, "review_neutral")
    page.select_option("[data-filter=outcome]", "excluded")
    until(lambda: shown.inner_text() == "0 of 5 episodes")
    page.locator("#clear").click()
    until(lambda: shown.inner_text() == "5 of 5 episodes")
    page.keyboard.press("u")
    until(lambda: "neutral" not in verdict.inner_text())
    page.keyboard.press("n")
    until(lambda: "neutral" in verdict.inner_text())
    page.keyboard.press("Backspace")
    until(lambda: "failure" in verdict.inner_text())
    assert learned_from(run_dir) == 5 * 12


def test_a_full_disk_is_explained_and_the_console_goes_on(
    page: Any, console: Any, robot: Any, run_dir: Path
) -> None:
    db = console.console.records.store._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={pages}")  # SQLite says then what it says on a full disk
    page.keyboard.press("Enter")
    until(lambda: page.evaluate("robotRL.said?.label ?? -1") >= 0)
    id_ = EpisodeId("run", "actor-0", 4)
    with pytest.raises(StoreError):
        while True:  # until the last page is full
            console.console.records.say(id_, "success", 1.0, "operator 1")
    toast = page.locator("#toast")

    def refused() -> bool:  # a shorter row may still have found a place
        page.keyboard.press("Enter")
        page.wait_for_timeout(500)
        return toast.is_visible()

    until(refused)
    text = toast.inner_text()
    assert "the disk is full" in text and "expected" in text and "free some space" in text
    shoot(page, "console_disk_full")
    with Store(run_dir / "actor.sqlite") as store:
        said = len(store.all_labels())
        assert said > 1
        store.verify()
    page.keyboard.press("Escape")
    until(lambda: robot.commands == ["hold"])
    db.execute("PRAGMA max_page_count=1000000")
    page.keyboard.press("Enter")
    until(lambda: page.evaluate("robotRL.said?.label ?? -1") >= said)  # one may still have got in
    page.problems.clear()  # the refused request itself, as the browser reports it


def test_a_page_that_misses_messages_still_draws_what_was_learned(
    context: Any, console: Any, robot: Any, run_dir: Path
) -> None:
    deaf = False

    def pass_on(line: Any) -> None:
        server = line.connect_to_server()
        server.on_message(lambda message: None if deaf else line.send(message))

    context.route_web_socket("**/ws/telemetry", pass_on)
    page = open_page(context, console)
    until(lambda: "1,950" in page.locator("#figures").inner_text())
    deaf = True
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 98765}\n')
    page.wait_for_timeout(500)
    deaf = False
    until(lambda: "98,765" in page.locator("#figures").inner_text())
    assert page.problems == []


def test_a_camera_says_when_it_shows_what_the_network_sees(page: Any, robot: Any) -> None:
    def note(camera: str) -> str:
        return page.locator(f"[data-camera={camera}] .name").inner_text()

    page.locator("[data-camera=wrist]").click()  # a small picture has no room for it
    until(lambda: note("wrist") == "wrist\n32x32, as the network sees it")
    assert note("video").strip() == "overview"  # no network sees the overview
    robot.shapes["wrist"] = (120, 160)
    page.reload()
    until(lambda: note("wrist") == "wrist\nthe network sees it at 32x32")


def test_whoever_drives_reads_why_the_device_does_not(page: Any, robot: Any) -> None:
    problem = "let go of everything: 'drive' is held, forward is at +0.80 (dead zone 0.10)"
    robot.view = robot.view | {"device_problem": problem}
    page.wait_for_timeout(300)
    shown = page.locator("#device")
    assert not shown.is_visible()  # who watches has no device
    page.keyboard.press("t")
    until(lambda: shown.is_visible() and shown.inner_text() == problem)
    assert page.evaluate(OUTSIDE) == []
    page.wait_for_timeout(700)
    shoot(page, "console_device")
    robot.view = robot.view | {"device_problem": ""}
    until(lambda: not shown.is_visible())


def test_the_robot_goes_to_its_start_when_the_person_in_the_seat_says_so(
    page: Any, robot: Any
) -> None:
    asks = {"asks": "the part in the gripper\npeg in its place\nhands out of the way?"}
    page.keyboard.press("f")
    robot.view = robot.view | asks | {"gate": {"mode": "hold", "reason": "no command"}}
    until(lambda: word(page) == "RESET?")
    assert "peg in its place" in page.locator("#asks").inner_text()
    assert page.locator("#ready").is_disabled()
    page.keyboard.press("f")
    until(lambda: "take the seat first" in page.locator("#toast").inner_text())
    shoot(page, "console_reset_watching")
    page.keyboard.press("t")
    until(lambda: page.locator("#ready").is_enabled())
    assert robot.commands == []
    page.keyboard.press("f")
    until(lambda: robot.commands == ["ready"])
    page.locator("#ready").click()
    until(lambda: robot.commands == ["ready", "ready"])
    assert page.evaluate(OUTSIDE) == []
    shoot(page, "console_reset")
    page.keyboard.press("Escape")
    until(lambda: robot.commands[2:] == ["hold"])
    robot.view = robot.view | {
        "gate": {"mode": "hold", "reason": "person: hold", "waits": "person"}
    }
    until(lambda: word(page) == "HOLD" and not page.locator("#ask").is_visible())
    page.keyboard.press("f")
    page.wait_for_timeout(200)
    assert robot.commands[3:] == []
    page.problems.clear()  # the refused request itself, as the browser reports it


STOPS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"gate": {"mode": "protective_stop", "reason": "force: 61 N"}}, "Free the tool"),
    ({"gate": {"mode": "hold", "reason": "person: hold", "waits": "person"}}, "lets it go on"),
    ({"gate": {"mode": "hold", "reason": "operator_silent: no", "waits": "device"}}, "fell silent"),
    ({"gate": {"mode": "hold", "reason": "driver: its process has ended"}}, "started again"),
    ({"stopped": True}, "Y), which starts it again"),
    (  # at a start
        {
            "gate": {
                "mode": "hold",
                "reason": "not armed",
                "refusal": "watchdog: nobody serves /stop, so nobody can stop the arm",
            }
        },
        "start the service",
    ),
)


def test_a_stop_says_why_and_what_to_do(page: Any, robot: Any) -> None:
    before = robot.view
    for change, todo in STOPS:
        assert not page.locator("#advice").is_visible(), todo
        robot.view = before | change
        until(lambda want=todo: want in page.locator("#advice-do").inner_text())
        why = change.get("gate", {}).get("refusal") or page.locator("#reason").inner_text()
        assert page.locator("#advice-why").inner_text() == why
        assert page.evaluate(OUTSIDE) == [], todo
        shoot(page, "advice")
        robot.view = before
        until(lambda: not page.locator("#advice").is_visible())


def test_hold_from_anywhere(page: Any, robot: Any) -> None:
    page.keyboard.press("Escape")
    until(lambda: robot.commands == ["hold"])
    page.locator("#hold").click()
    until(lambda: robot.commands == ["hold", "hold"])


def test_a_hold_is_said_again_until_it_is_heard_and_else_the_page_says_so(
    context: Any, console: Any, robot: Any
) -> None:
    context.add_init_script(SOONER)
    page = open_page(context, console)
    said: list[Any] = []
    dead = 6  # connections on which nobody answers, for minutes
    hold = "**/api/command/hold"
    page.route(hold, lambda r: said.append(r) if len(said) < dead else r.continue_())
    page.locator("#hold").click()
    until(lambda: "was not heard" in page.locator("#toast").inner_text())
    assert len(said) == dead and robot.commands == []
    dead += 2
    page.keyboard.press("Escape")
    until(lambda: page.evaluate("1") and robot.commands)
    assert page.problems == []


def test_a_line_that_is_cut_without_a_word_is_opened_anew(
    context: Any, console: Any, robot: Any
) -> None:
    lines: list[Any] = []
    dead: set[Any] = set()

    def pass_on(line: Any) -> None:
        lines.append(line)
        server = line.connect_to_server()
        server.on_message(lambda message: None if line in dead else line.send(message))
        line.on_message(lambda message: None if line in dead else server.send(message))

    context.clock.install()
    context.route_web_socket("**/ws/*", pass_on)
    page = open_page(context, console)
    page.keyboard.press("t")
    until(lambda: page.evaluate("robotRL.lease.mine && robotRL.control.heard"))
    dead.update(lines)
    page.clock.run_for(1500)
    until(lambda: word(page) == "OFFLINE")
    page.clock.run_for(6000)
    until(lambda: word(page) == "POLICY" and page.evaluate("robotRL.control.heard"))
    assert len(lines) == 4  # telemetry and control, twice
    assert page.problems == []


@pytest.mark.parametrize("fails", ["/?arm=left", "/"])
def test_a_hold_is_heard_whatever_fails_at_the_start(
    context: Any, console: Any, robot: Any, fails: str
) -> None:
    context.clock.install()
    page = new_page(context)
    page.route("**/api/about", lambda route: route.abort(), times=1)
    page.goto(console.invite())
    if "arm" in fails:
        page.goto(console.url + fails)  # of another run
    until(lambda: page.locator("#toast").is_visible())
    page.locator("#hold").click()
    page.keyboard.press("n")  # means nothing yet
    page.keyboard.press("Escape")
    until(lambda: robot.commands == ["hold", "hold"])
    if "arm" in fails:
        assert "no arm 'left'" in page.locator("#toast").inner_text()
    else:
        page.clock.run_for(2000)
        until(lambda: word(page) == "POLICY")  # it has asked again


def test_after_a_hold_only_a_press_lets_it_go_on(page: Any, robot: Any) -> None:
    page.keyboard.press("r")
    page.wait_for_timeout(150)
    assert robot.commands == [] and page.locator("#go").is_hidden()
    robot.view = robot.view | {
        "gate": {"mode": "hold", "reason": "person: hold", "waits": "person"}
    }
    until(lambda: word(page) == "HOLD" and page.locator("#go").is_visible())
    shoot(page, "console_waits")
    page.keyboard.press("r")
    until(lambda: robot.commands == ["go"])
    robot.view = robot.view | {"stopped": True, "gate": {"mode": "protective_stop", "reason": "x"}}
    until(lambda: word(page) == "PROTECTIVE STOP")
    page.keyboard.press("y")
    until(lambda: robot.commands == ["go", "resume"])
    robot.view = robot.view | {"stopped": False}
    until(lambda: page.evaluate("robotRL.robot.stopped") is False)
    page.locator("#acknowledge").click()
    until(lambda: robot.commands == ["go", "resume", "acknowledge"])


def test_two_browsers_one_driver(browser: Any, page: Any, console: Any, robot: Any) -> None:
    other_context = browser.new_context()
    other = open_page(other_context, console)
    page.keyboard.press("t")
    until(lambda: other.locator("#lease").inner_text() == "operator 1 has the seat")
    other.keyboard.press("t")
    until(lambda: "operator 1 has the seat" in other.locator("#toast").inner_text())
    other.keyboard.down("Space")
    other.wait_for_timeout(200)
    assert driven(robot) == []
    watcher = open_page(other_context, console, Role.OBSERVER)
    until(lambda: watcher.locator("#lease-button").is_disabled())
    other_context.close()


def test_a_page_without_the_seat_shows_why_it_lets_nothing_go_on(
    browser: Any, page: Any, console: Any, robot: Any
) -> None:
    page.keyboard.press("t")
    other = open_page(browser.new_context(), console)
    robot.view = robot.view | {"gate": {"mode": "hold", "reason": "x", "waits": "person"}}
    until(lambda: word(other) == "HOLD" and other.locator("#go").is_visible())
    other.keyboard.press("r")
    said = "operator 1 has the seat, and lets it go on"
    until(lambda: other.locator("#toast").inner_text() == said)
    page.keyboard.press("r")
    until(lambda: robot.commands == ["go"])
    other.context.close()


def test_the_page_of_another_console_says_where_the_seat_is(
    context: Any, page: Any, run_dir: Path, robot: Any
) -> None:
    robot.view = robot.view | {"driving": True, "driver": "demo", "present": False}
    there = Served(run_dir)
    other = open_page(context, there)
    until(lambda: other.locator("#lease").inner_text() == "the seat is free")
    assert "somebody takes the seat" in other.locator("#reason").inner_text()
    page.keyboard.press("t")
    said = "operator 1 at another console has the seat"
    until(lambda: other.locator("#lease").inner_text() == said)
    until(lambda: other.locator("#reason").text_content() == "")
    assert other.evaluate(OUTSIDE) == []
    shoot(other, "console_elsewhere")
    page.keyboard.press("t")
    until(lambda: other.locator("#lease").inner_text() == "the seat is free")
    other.close()
    there.close()


def test_what_the_browser_draws_is_dark_where_the_page_is(page: Any) -> None:
    scheme = "getComputedStyle(document.getElementById('g-force')).colorScheme"
    for wanted in ("dark", "light"):
        page.emulate_media(color_scheme=wanted)
        assert page.evaluate(scheme) == wanted
        page.locator("#theme").click()
        assert page.evaluate(scheme) != wanted
        page.evaluate("delete document.documentElement.dataset.theme")


@pytest.mark.parametrize("key", ["Space", "z"])
def test_a_page_that_is_left_lets_go_and_asks_for_a_hold(page: Any, robot: Any, key: str) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.down(key)  # the person drives, or leads back what the policy did
    until(lambda: robot.heard and robot.heard[-1][1]["held"])
    page.evaluate("window.dispatchEvent(new Event('blur'))")
    until(lambda: robot.heard[-1][1]["held"] == [])
    until(lambda: robot.commands == ["hold"])
    robot.view = robot.view | {"gate": {"mode": "hold", "reason": "x", "waits": "person"}}
    until(lambda: "the page that drove was left" in page.locator("#reason").inner_text())
    page.keyboard.press("Escape")
    until(lambda: page.locator("#reason").inner_text().startswith("held by a person"))


def test_a_hidden_page_says_nothing_and_holds_what_a_pad_has_driven(
    context: Any, console: Any, robot: Any
) -> None:
    context.add_init_script(PAD)
    page = open_page(context, console)
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.evaluate("testPad.buttons[5].pressed = true")
    until(lambda: driven(robot))
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # no blur comes first
    until(lambda: robot.commands == ["hold"])
    until(lambda: robot.heard[-1][1]["held"] == [])
    page.wait_for_timeout(200)  # what was under way has come
    count = len(robot.heard)
    page.wait_for_timeout(500)
    assert len(robot.heard) == count


def test_of_two_windows_of_one_person_the_idle_one_lets_nothing_go(
    context: Any, page: Any, console: Any, robot: Any
) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    other = context.new_page()
    other.goto(console.url)
    until(lambda: other.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.down("Space")
    until(lambda: driven(robot))
    page.wait_for_timeout(300)
    begun = len(robot.heard)
    page.wait_for_timeout(500)
    assert all("drive" in said["held"] for _, said in robot.heard[begun:])
    page.keyboard.up("Space")
    until(lambda: robot.heard[-1][1]["held"] == [])
    other.keyboard.down("Space")  # and the other one drives once nothing is held here
    until(lambda: "drive" in robot.heard[-1][1]["held"])
    other.keyboard.up("Space")


def test_another_link_in_the_same_browser_changes_nothing_on_the_open_page(
    context: Any, page: Any, console: Any, robot: Any
) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    other = context.new_page()
    other.goto(f"{console.invite()}&page=review")
    until(lambda: "/review" in other.url)
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "the seat is free")
    other.evaluate("localStorage.clear()")  # a page that has never come as far as to keep it
    lost = context.new_page()
    lost.goto(console.invite())
    until(lambda: lost.evaluate("document.body.dataset.word") == "POLICY")


def longest_silence_s(heard: Any) -> float:
    times = [at for at, _ in heard]
    return max((b - a for a, b in pairwise(times)), default=0.0)


def test_a_cut_line_is_shown_and_heals(page: Any, console: Any, robot: Any) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    page.keyboard.down("Space")
    until(lambda: driven(robot))
    before = len(robot.heard)
    page.evaluate("robotRL.control.line.socket.close()")
    # Nothing is said for a page that is cut off, so the gate stops; and it comes back by itself.
    until(lambda: longest_silence_s(robot.heard[before - 1 :]) > HOLD_AFTER_S)
    page.keyboard.up("Space")


def test_a_page_goes_on_after_a_restart_of_the_server_and_says_so_when_it_may_not(
    context: Any, run_dir: Path, robot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    first = Served(run_dir, remembered=Remembered(run_dir, 1))
    page = context.new_page()
    page.goto(first.invite())
    until(lambda: page.evaluate("document.body.dataset.word") == "POLICY")
    first.close()
    until(lambda: page.evaluate("document.body.dataset.word") == "OFFLINE")
    until(lambda: "start the same command" in page.locator("#advice").inner_text())
    assert "the policy or a script drove, it may go on" in page.locator("#advice").inner_text()
    for old in ("#v-force", "#v-speed", "#lease"):
        assert page.locator(old).inner_text() == "-", "nothing that may no longer be so"
    second = Served(run_dir, port=first.port, remembered=Remembered(run_dir, 1))
    until(lambda: page.evaluate("document.body.dataset.word") == "POLICY")
    assert not page.locator("#advice").is_visible()
    assert page.locator("#lease").inner_text() == "the seat is free"
    page.keyboard.press("t")
    until(lambda: page.evaluate("robotRL.lease.mine"))
    second.close()
    third = Served(run_dir, port=first.port)  # it knows nobody
    try:
        until(lambda: "open the newest link" in page.locator("#reason").inner_text())
        page.goto(third.url)
        shoot(page, "refused")
        assert page.locator("h1").inner_text() == "This link does not open the page"
        box = page.locator("h1").bounding_box()
        assert box["y"] > 0 and box["width"] > 500, "the whole width, and all of it can be seen"
        page.goto(third.invite())
        until(lambda: page.evaluate("document.body.dataset.word") == "POLICY")
    finally:
        third.close()


def test_an_old_word_never_stays_on_the_page(page: Any, robot: Any) -> None:
    until(lambda: word(page) == "POLICY")
    robot.view = {"gate": "nonsense"}  # what no view node says: the console must not hang on it
    until(lambda: word(page) == "OFFLINE")
    robot.view = {"gate": {"mode": "run"}, "episode": {"purpose": "train", "active": True}}
    until(lambda: word(page) == "POLICY")
    page.evaluate("WebSocket.prototype.send = () => {}")  # the page itself is cut off
    robot.close()
    until(lambda: word(page) == "OFFLINE")


def test_a_picture_that_nobody_can_decode_does_not_stop_its_camera(page: Any, robot: Any) -> None:
    answer, broken = robot._answer, []

    def break_one(question: Any) -> Any:
        head, jpeg = answer(question)
        if question["want"] == "picture" and question["camera"] == "front" and jpeg and not broken:
            broken.append(head["number"])
            jpeg = b"no picture"
        return head, jpeg

    front = "robotRL.views.find((view) => view.box.dataset.camera === 'front').drawn"
    until(lambda: page.evaluate(front))
    robot._answer = break_one
    until(lambda: broken)
    page.wait_for_timeout(200)  # it has come
    drawn = page.evaluate(front)
    until(lambda: page.evaluate(front) > drawn + 2, 5.0)
    page.problems.clear()  # the browser's line about it


def test_a_frozen_camera_is_called_frozen(page: Any, robot: Any) -> None:
    until(lambda: page.locator(".camera .age").first.inner_text().endswith("ms"))
    robot.frozen = True
    until(lambda: "frozen" in page.locator(".camera .age").first.inner_text())


def test_a_page_of_another_origin_gets_nothing(
    context: Any, page: Any, console: Any, robot: Any
) -> None:
    evil = context.new_page()
    evil.route(
        "http://evil.example/",
        lambda route: route.fulfill(body="<p>hello</p>", content_type="text/html"),
    )
    evil.goto("http://evil.example/")
    outcome = evil.evaluate(
        ATTACK,
        console.url,
    )
    assert outcome == ["closed", "blocked"]
    assert robot.commands == []


def test_a_word_is_about_the_episode_on_the_page_while_the_next_one_loads(
    page: Any, console: Any, run_dir: Path
) -> None:
    page.goto(console.url + "/review")
    until(lambda: page.evaluate("!!globalThis.robotRL?.data"))
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/api/episode?*episode=3*", hold)
    page.locator("#space .episode").nth(1).click()
    until(lambda: page.evaluate("1") and held)  # the handler runs within a call
    assert page.locator("#name").inner_text() == "episode 4"
    page.keyboard.press("Backspace")
    until(lambda: "failure" in page.locator("#verdict").inner_text())
    with Store(run_dir / "actor.sqlite") as store:
        said = [review(store.labels(EpisodeId("run", "actor-0", n))).success for n in (4, 3)]
    assert said[0] is False and said[1] is not False
    page.select_option(
        "[data-filter=outcome]", "excluded"
    )  # leaves no episode while that one loads
    until(lambda: page.locator("#count").inner_text() == "0 of 5 episodes")
    held.pop(0).continue_()
    page.wait_for_timeout(300)
    assert page.locator("#name").inner_text() == "episode 4"


def test_review_scrubs_relabels_trims_and_takes_back(
    page: Any, context: Any, console: Any, run_dir: Path
) -> None:
    page.goto(console.url + "/review")
    until(lambda: page.evaluate("!!globalThis.robotRL?.data"))
    assert page.locator("#name").inner_text() == "episode 4"
    page.keyboard.press("ArrowDown")
    until(lambda: page.locator("#name").inner_text() == "episode 3")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    until(lambda: "step 4 of 12 · correction" in page.locator("#step").inner_text())
    assert page.evaluate("[...document.querySelectorAll('#frames img')].length") == 2
    loaded = (
        "[...document.querySelectorAll('#frames img')].every(i => i.complete && i.naturalWidth)"
    )
    until(lambda: page.evaluate(loaded))
    page.keyboard.press("Enter")
    until(lambda: page.locator("#voices").inner_text() == "person: success; recorded: failure")
    press_german(page, "[", "Digit8", ctrlKey=True, altKey=True)  # Alt Gr
    until(lambda: "keeps steps 4 to 11" in page.locator("#verdict").inner_text())
    press_german(page, "\u00fc", "BracketLeft")  # where [ is on other keyboards
    shoot(page, "review")
    page.locator("[data-filter=disagree]").click()
    until(lambda: page.locator("#count").inner_text() == "1 of 5 episodes")
    page.keyboard.press("u")
    until(lambda: "keeps steps" not in page.locator("#verdict").inner_text())
    with Store(run_dir / "actor.sqlite") as store:
        said = [x.kind for x in store.labels(EpisodeId("run", "actor-0", 3))]
    assert said == ["success", "keep_from", "undo"]


def test_review_draws_what_models_say_and_queues_where_they_differ(
    page: Any, console: Any, run_dir: Path
) -> None:
    """Episodes 4, 2 and 0 are recorded as successes, 3 and 1 as failures."""
    ramp = [i / 11 for i in range(12)]
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(scores_of(4, [x**3 for x in ramp], "classifier", "success-3f2a91c04d77"))
        store.append(scores_of(4, [0.0] * 12, PREDICATE, PREDICATE))
        store.append(scores_of(4, [0.6 * x for x in ramp], PREDICATE, PREDICATE, PROGRESS))
        store.append(scores_of(4, [0.8 * x**2 for x in ramp], "progress", "progress-1", PROGRESS))
        asked = [Label(EpisodeId("run", "actor-0", 4), i, 10 * i, PROGRESS, 0.9 * i, "vlm",
                       "model-x progress@1f", i) for i in range(2)]  # fmt: skip
        vlm = Label(EpisodeId("run", "actor-0", 1), 0, None, "vlm_success", 1.0, "vlm", "m", 7)
        store.append([*asked, vlm])
    page.goto(console.url + "/review")
    voices, shown = page.locator("#voices"), page.locator("#count")
    says = "predicate: failure; classifier: success"
    until(lambda: voices.inner_text() == f"{says}; nobody has looked")
    assert page.locator("#scores").inner_text().split("\n") == [
        "progress, model-x progress@1f",
        "progress, predicate",
        "success, predicate",
        "progress, progress-1",
        "success, success-3f2a91c04d77",
    ]
    assert page.locator("#words li").count() == 0
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("b")
    until(lambda: "shows 0 step 6" in page.locator("#words").inner_text())
    page.wait_for_timeout(300)
    shoot(page, "review_scores")
    page.locator("[data-filter=disagree]").click()
    until(lambda: shown.inner_text() == "2 of 5 episodes")
    page.keyboard.press("n")
    until(lambda: "neutral" in page.locator("#verdict").inner_text())
    page.locator("#clear").click()  # the list stays as it was until a filter is set anew
    page.locator("[data-filter=disagree]").click()
    until(lambda: shown.inner_text() == "1 of 5 episodes")
    until(lambda: voices.inner_text() == "recorded: failure; vlm: success; nobody has looked")
    assert page.locator("#scores").inner_text() == ""
    page.keyboard.press("s")  # nothing has led to the first picture
    until(lambda: "no step has led" in page.locator("#toast").inner_text())
    page.keyboard.press("End")
    page.keyboard.press("s")
    until(lambda: "shows 1 step 11" in page.locator("#words").inner_text())
    page.keyboard.press("u")
    until(lambda: "undo" in page.locator("#words").inner_text())
    with Store(run_dir / "actor.sqlite") as store:
        folded = [review(store.labels(EpisodeId("run", "actor-0", i))) for i in (4, 1)]
    assert folded[0].shows == {6: False} and folded[0].neutral
    assert folded[1].shows == {} and folded[1].model_success is True


# --- what is loud, and what is said before there is anything to say -------------------------------


def figures(run_dir: Path, **values: float) -> None:
    """A line of figures, as the session writes one after each episode; `__` stands for a slash."""
    line = {"env_steps": 2000} | {name.replace("__", "/"): v for name, v in values.items()}
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_how_an_episode_ended_is_shown_with_how_far_the_phase_is(page: Any, run_dir: Path) -> None:
    result = page.locator("#result")
    assert result.is_hidden()
    demo = {"demo_episode__index": 7.0, "demo_episode__success": 1.0, "session__demos": 3.0}
    figures(run_dir, **demo)
    until(lambda: result.inner_text() == "✓ success · demo 3 of 20")
    assert result.get_attribute("class") == "success"
    exam = {"exam__success": 0.9375}
    figures(run_dir, episode__index=8.0, episode__success=0.0, **exam)
    until(lambda: result.inner_text() == "✗ failure · last exam 94 %")
    figures(run_dir, episode__index=9.0, episode__success=0.0, episode__aborted=1.0)
    until(lambda: result.inner_text() == "✗ aborted · last exam 94 %")
    assert result.get_attribute("title") == "episode 9"
    assert page.evaluate(OUTSIDE) == []
    shoot(page, "result")


def test_the_counter_is_not_cut_beside_the_button_that_lets_go_on(
    page: Any, robot: Any, run_dir: Path
) -> None:
    page.keyboard.press("t")
    robot.view = robot.view | {"gate": {"mode": "hold", "reason": "x", "waits": "person"}}
    until(lambda: page.locator("#go").is_visible())
    demo = {"demo_episode__index": 7.0, "demo_episode__success": 0.0, "session__demos": 19.0}
    figures(run_dir, demo_episode__aborted=1.0, **demo)
    until(lambda: page.locator("#result").inner_text() == "✗ aborted · demo 19 of 20")
    shoot(page, "result_beside_go")
    assert page.evaluate("(x => x.scrollWidth <= x.clientWidth)(document.getElementById('result'))")
    assert page.evaluate(OUTSIDE) == []


def test_a_label_in_an_evaluation_is_beside_the_rule_and_its_undo_leaves_the_rules_word(
    page: Any, robot: Any, run_dir: Path
) -> None:
    page.keyboard.press("t")
    until(lambda: page.locator("#lease").inner_text() == "you have the seat")
    robot.view = robot.view | {"episode": {"purpose": "eval", "active": True}}
    until(lambda: "evaluation" in page.locator("#reason").inner_text())
    page.keyboard.press("Enter")
    said = page.locator("#said-text")
    until(lambda: "the evaluation counts what the task's rule says" in said.inner_text())
    page.keyboard.press("Control+z")
    until(lambda: said.inner_text().endswith("taken back"))
    with Store(run_dir / "actor.sqlite") as store:
        newest = list(store.episode_summaries())[-1]
        folded = review(store.labels(newest.id))
    assert folded.success is None and not folded.neutral  # what was recorded stands


def test_before_anything_is_learned_the_page_says_so(
    context: Any, console: Any, robot: Any, run_dir: Path
) -> None:
    for name in ("metrics.jsonl", "learner.jsonl"):
        (run_dir / name).write_text("")
    figures(run_dir, weights__version=-1.0)
    page = open_page(context, console)
    page.locator("#details summary").click()
    until(lambda: "policy version" in page.locator("#internals").inner_text())
    assert "none yet" in page.locator("#internals").inner_text()
    assert page.locator("#findings").inner_text() == "learning has not begun"


def test_the_curves_and_the_phase_can_be_read_at_1280_by_800(page: Any) -> None:
    until(lambda: page.locator("#curves figure").count() == 2)
    box = page.locator("#curves").bounding_box()
    for figure in page.locator("#curves figure").all():
        there = figure.bounding_box()
        assert (
            there["x"] < box["x"] + box["width"]
        )  # a curve without room would be in a column beside
        assert there["y"] + there["height"] <= box["y"] + box["height"] + 1
    assert page.locator("#phase-word").inner_text() == "practice"


def test_a_picture_of_the_keys_and_the_words_of_the_page_and_hold_goes_on_working(
    page: Any, robot: Any
) -> None:
    dialog = page.locator("#help")
    page.keyboard.press("?")
    assert dialog.is_visible()
    captions = page.evaluate("import('/static/help.js').then((m) => Object.keys(m.CAPTIONS))")
    others = {"ShiftRight", "NumpadEnter"}  # the same as their twins
    assert set(page.evaluate("robotRL.keys")) - others == set(captions)
    assert dialog.locator(".key").count() == len(captions)
    glossary = Path("docs/glossary.md").read_text().replace("*", "").replace("`", "")
    shown = page.evaluate("import('/static/help.js').then((m) => m.PAD.map((b) => `${b[1]}`))")
    used = page.evaluate("import('/static/control.js').then((m) => Object.keys(m.PAD_BUTTONS))")
    assert sorted(shown) == sorted(used)
    assert dialog.locator(".pad dt").count() == len(used) + 2  # and two sticks
    words = dialog.locator(".words dt").all_inner_texts()
    meanings = dialog.locator(".words dd").all_inner_texts()
    assert len(words) >= 12
    for word_, meaning in zip(words, meanings, strict=True):
        assert f"| {word_} | {meaning}" in glossary, word_
    shoot(page, "help")
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    until(lambda: robot.commands[-1:] == ["hold"])  # as everywhere


def test_what_only_the_curious_need_is_behind_details(page: Any) -> None:
    until(lambda: page.locator("#figures div").count())
    for name in ("rows to send", "policy age", "late ticks", "updates per step", "mean Q"):
        assert name not in page.locator("#left, aside").all_inner_texts()[1]
    page.locator("#details summary").click()
    for name in ("rows to send", "policy age", "late ticks", "updates per step", "mean Q"):
        assert name in page.locator("#learning").inner_text()
    assert page.evaluate(OUTSIDE) == []
    page.reload()  # this browser remembers it
    until(
        lambda: page.locator("#internals div").count() and page.locator("#internals").is_visible()
    )


def test_the_word_says_who_drives(browser: Any, page: Any, console: Any, robot: Any) -> None:
    said = page.locator("#word")
    assert said.inner_text() == "Robot driving"
    page.keyboard.press("t")
    robot.view = robot.view | {"driving": True, "driver": "correction"}
    until(lambda: said.inner_text() == "You are driving")
    other = open_page(browser.new_context(), console)
    until(lambda: other.locator("#word").inner_text() == "operator 1 is driving")
    other.context.close()
    robot.view = robot.view | {"driving": False, "gate": {"mode": "hold", "reason": "x"}}
    until(lambda: said.inner_text() == "Holding" and page.title().startswith("Holding"))
