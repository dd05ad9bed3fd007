"""Hours at the page: who is there, who drove, the newest episodes at a glance, notes, hand-over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robot_rl.console.access import ASKED_S, LEASE_SILENCE_S, PRESENT_S, Access, Seat
from robot_rl.console.notes import LONGEST, Notes
from robot_rl.console.records import Records
from robot_rl.console.remembered import LASTS_S, MAX_SESSIONS, Remembered, Role
from robot_rl.console.shift import Shift, strip, totals
from robot_rl.errors import StoreError
from robot_rl.store.labels import review
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId
from tests.console.test_page import OUTSIDE, open_page, page, shoot
from tests.console.test_server import enter, session_of
from tests.support.served import rows_of, until

__all__ = ["page"]  # a fixture
EXCLUDED = "\u2013"
NEXT = EpisodeId("run", "actor-0", 5)


def seat_text(page: Any) -> str:
    return page.locator("#lease").inner_text()


@pytest.fixture
def records(run_dir: Path) -> Any:
    made = Records(run_dir)
    yield made
    made.close()


def add_part(run_dir: Path, first: int, last: int) -> None:
    """Rows of episode 5 as they come: its steps 3 to 5 are a person's."""
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        assert store.spec is not None
        rows = rows_of(store.spec, "run", NEXT.episode, 12, success=True)
        head, rest = rows[:2], rows[2:]
        store.append([*(head if first == 0 else []), *rest[2 * first : 2 * last]])


def test_who_drove_is_said_when_the_episode_ends(records: Records, run_dir: Path) -> None:
    seat = ["operator Ada"]
    shift = Shift(records, lambda: seat[0])
    shift.look()  # what was there before is nobody's
    add_part(run_dir, 0, 5)
    shift.look()
    seat[0] = "operator Ben"  # hand-over in the middle
    add_part(run_dir, 5, 7)
    shift.look()
    seat[0] = ""
    shift.look()
    assert records.episodes()[0]["drove"] == {}
    add_part(run_dir, 7, 12)
    shift.look()
    shift.look()
    assert records.episodes()[0]["drove"] == {"operator Ada": 2, "operator Ben": 1}
    assert all(e["drove"] == {} for e in records.episodes()[1:])
    with Store(run_dir / "actor.sqlite") as store:
        assert review(store.labels(NEXT)) == review([])  # it judges nothing
        store.verify()
    assert totals(records.drove(), records.episodes(), "operator Ada", 0) == {
        "episodes": 1,
        "successes": 1,
        "steps": 2,
    }
    assert totals(records.drove(), records.episodes(), "operator Ada", 2**62) == {
        "episodes": 0,
        "successes": 0,
        "steps": 0,
    }


def test_without_anybody_in_the_seat_nobody_drove(records: Records, run_dir: Path) -> None:
    shift = Shift(records, lambda: "")
    shift.look()
    add_part(run_dir, 0, 12)
    shift.look()
    assert records.episodes()[0]["drove"] == {}


@pytest.mark.parametrize("text", ["", "   ", "x" * (LONGEST + 1)])
def test_a_note_that_says_nothing_or_too_much_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StoreError, match="this is no note"):
        Notes(tmp_path).add(NEXT, text, "operator Ada")
    assert not list(tmp_path.iterdir())


def test_notes_survive_and_lines_of_strangers_are_passed_over(tmp_path: Path) -> None:
    Notes(tmp_path).add(NEXT, "the cube\nslipped", "operator Ada")
    with (tmp_path / "notes.jsonl").open("a") as file:
        file.write('{"run": "run"}\nno json\n[1]\n')
    notes = Notes(tmp_path)
    notes.add(NEXT, "again", "operator Ben")
    said = [(n["author"], n["text"]) for n in notes.read()[NEXT]]
    assert said == [("operator Ada", "the cube slipped"), ("operator Ben", "again")]


@pytest.mark.parametrize("name", ["", "x" * 25, "operator 2", "Observer", "a<b>", "a\nb\x00", "🤖"])
def test_names_that_are_refused(tmp_path: Path, name: str) -> None:
    access = Access(Seat(tmp_path / "seat"))
    session = session_of(access)
    assert access.rename(session, name)
    assert session.name == "operator 1" and session.author == "operator 1"


@pytest.mark.parametrize("name", ["Ada", "José M. O'Neil-2", "  李 雷 "])
def test_names_that_are_good(tmp_path: Path, name: str) -> None:
    access = Access(Seat(tmp_path / "seat"))
    session = session_of(access)
    assert access.rename(session, name) == ""
    assert session.name == " ".join(name.split())
    assert session.author == f"operator {session.name}"  # never the name of a model or a rule


def test_a_page_that_is_silent_drives_no_more_and_then_has_the_seat_no_more(tmp_path: Path) -> None:
    now_s = [0.0]
    access = Access(Seat(tmp_path / "seat"), clock=lambda: now_s[0])
    ada = session_of(access)
    assert access.present() is None and access.claim(ada) == ""
    now_s[0] += PRESENT_S + 0.1
    assert access.present(PRESENT_S) is None and access.present() is ada
    now_s[0] += LEASE_SILENCE_S
    assert access.present() is None
    assert access.hears(ada) and access.present(PRESENT_S) is ada  # nobody took it meanwhile


def test_one_link_more_than_there_are_sessions_forgets_the_oldest(tmp_path: Path) -> None:
    access = Access(Seat(tmp_path / "seat"))
    opened = [access.enter(access.invite()) for _ in range(MAX_SESSIONS)]
    first, second = opened[0], opened[1]
    assert first and second and access.claim(first.session) == ""
    assert access.enter(access.invite()) is not None
    assert access.session(first.cookie) is first.session  # has the seat
    assert access.session(second.cookie) is None


def test_a_session_ends_a_day_after_it_was_heard_of_in_a_running_server_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    now_s = [1e9]
    remembered = Remembered(tmp_path, 1, now=lambda: now_s[0])
    access = Access(Seat(tmp_path / "seat"), remembered)
    entry = access.enter(access.invite())
    assert entry is not None
    now_s[0] += LASTS_S - 1.0
    assert access.session(entry.cookie) is entry.session
    now_s[0] += LASTS_S + 1.0
    assert access.session(entry.cookie) is None


def test_the_holder_of_the_seat_is_told_who_would_like_it(tmp_path: Path) -> None:
    now_s = [0.0]
    access = Access(Seat(tmp_path / "seat"), clock=lambda: now_s[0])
    ada, ben = session_of(access), session_of(access)
    assert access.rename(ada, "Ada") == access.rename(ben, "Ben") == ""
    assert access.claim(ada) == "" and access.asked_by() == ""
    assert "Ada has the seat" in access.claim(ben)
    assert access.asked_by() == "Ben"
    now_s[0] += ASKED_S + 0.1
    assert access.asked_by() == ""
    access.claim(ben)
    access.release(ada)
    assert access.claim(ben) == "" and access.asked_by() == ""


def test_the_server_takes_names_and_notes_from_pages_only(console: Any, run_dir: Path) -> None:
    client, watcher = enter(console), enter(console, Role.OBSERVER)
    assert client.post("/api/name", json={"name": "Ada"}).json() == {"you": "Ada"}
    assert client.post("/api/name", json={"name": 3}).status_code == 422
    assert client.post("/api/name", json={"name": "operator"}).status_code == 422
    said = {"run": "run", "actor": "actor-0", "episode": 4, "text": "slipped"}
    assert client.post("/api/note", json=said).json() == {"episode": 4}
    assert client.post("/api/note", json=said | {"episode": 99}).status_code == 409
    assert client.post("/api/note", json=said | {"episode": "4"}).status_code == 409
    assert client.post("/api/note", json={"text": "x"}).status_code == 409
    assert watcher.post("/api/note", json=said).status_code == 403
    found = watcher.get("/api/strip").json()["episodes"]
    assert [e["episode"] for e in found] == [0, 1, 2, 3, 4]
    assert [n["text"] for n in found[-1]["notes"]] == ["slipped"]
    assert found[-1]["notes"][0]["author"] == "operator Ada"
    del client.headers["X-Robot-RL-Page"]
    assert client.post("/api/name", json={"name": "Eve"}).status_code == 401
    assert client.post("/api/note", json=said).status_code == 401


def test_a_name_outlives_the_link_and_stands_beside_what_a_person_does(
    browser: Any, context: Any, console: Any, robot: Any, run_dir: Path
) -> None:
    page = open_page(context, console)
    page.locator("#you").click()
    page.locator("#who-name").fill("Ada t")  # letters are letters here
    page.keyboard.press("Enter")
    until(lambda: page.locator("#you").inner_text() == "Ada t")
    assert seat_text(page) == "the seat is free"
    page.keyboard.press("n")
    until(lambda: page.locator("#said-text").inner_text() == "episode 4: neutral")
    with Store(run_dir / "actor.sqlite") as store:
        (label,) = store.labels(EpisodeId("run", "actor-0", 4))
    assert label.author == "operator Ada t"
    page.goto(console.url + "/review")  # where this person takes it back
    until(lambda: "neutral" in page.locator("#verdict").inner_text())
    page.keyboard.press("u")
    until(lambda: "neutral" not in page.locator("#verdict").inner_text())
    page.close()
    page = open_page(context, console)  # by a new link, in the same browser
    until(lambda: page.locator("#you").inner_text() == "Ada t")
    page.keyboard.press("t")
    until(lambda: seat_text(page) == "you have the seat")
    with browser.new_context() as elsewhere:
        other = open_page(elsewhere, console)
        until(lambda: seat_text(other) == "Ada t has the seat")
        other.keyboard.press("t")
        until(lambda: "operator 2 would like" in page.locator("#toast").inner_text())
    assert page.problems == []


def test_the_hold_key_is_heard_while_somebody_types(page: Any, robot: Any) -> None:
    page.locator("#you").click()
    page.locator("#who-name").fill("Eva")
    page.keyboard.press("Escape")
    until(lambda: robot.commands == ["hold"])
    until(lambda: not page.locator("#who").is_visible())


def test_an_earlier_episode_is_labelled_by_its_cell_and_keys_mean_the_newest(
    page: Any, run_dir: Path
) -> None:
    cells, said = page.locator("#episodes button"), page.locator("#said-text")
    until(lambda: cells.count() == 5)
    assert [c.inner_text() for c in cells.all()] == ["✓", "✗", "✓", "✗", "✓"]
    assert "25 % of the steps" in str(cells.nth(1).get_attribute("aria-label"))
    shoot(page, "strip")
    cells.nth(1).click()
    until(lambda: page.locator("#label-about").inner_text() == "episode 1")
    page.locator("[data-label=success]").click()
    until(lambda: said.inner_text() == "episode 1: success")
    until(lambda: cells.nth(1).inner_text() == "✓")
    page.keyboard.press("x")
    until(lambda: said.inner_text() == "episode 4: excluded")
    until(lambda: cells.nth(4).inner_text() == EXCLUDED)
    page.locator("#note-text").fill("the cube slipped")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#notes").inner_text() == "operator 1: the cube slipped")
    shoot(page, "strip_chosen")
    assert page.evaluate(OUTSIDE) == []
    page.locator("#strip-newest").click()
    until(lambda: page.locator("#label-about").inner_text() == "newest episode")
    with Store(run_dir / "actor.sqlite") as store:
        assert [x.kind for x in store.labels(EpisodeId("run", "actor-0", 1))] == ["success"]


def test_what_a_person_did_since_the_shift_began(page: Any, console: Any, run_dir: Path) -> None:
    until(lambda: "0 driven" in page.locator("#totals").inner_text())
    page.keyboard.press("t")
    until(lambda: seat_text(page) == "you have the seat")
    page.wait_for_timeout(500)  # the console looks at the store a few times a second
    add_part(run_dir, 0, 5)
    page.wait_for_timeout(500)
    add_part(run_dir, 5, 12)
    until(lambda: "1 driven, 1 succeeded" in page.locator("#totals").inner_text())
    assert strip(console.console.records.episodes(), console.console.notes, 1)[0]["drove"] == {
        "operator 1": 3
    }
