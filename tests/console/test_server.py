"""The console's server without a browser: who gets in, who drives, what is stored."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from websockets.exceptions import InvalidStatus

from robot_rl.cli.main import main
from robot_rl.console import access as access_module
from robot_rl.console import intake
from robot_rl.console.access import (
    LEASE_SILENCE_S,
    NOTE_S,
    PEOPLE,
    PRESENT_S,
    Access,
    Elsewhere,
    Numbers,
    Seat,
)
from robot_rl.console.address import free_port
from robot_rl.console.doors import SECRET
from robot_rl.console.records import Records
from robot_rl.console.remembered import (
    LASTS_S,
    PageSession,
    Remembered,
    Role,
    forget,
    last_port,
)
from robot_rl.console.serve import listen
from robot_rl.console.sockets import PageClock, lease_of
from robot_rl.errors import StoreError
from robot_rl.link.panel import seat_file
from robot_rl.run.experiment import Experiment
from robot_rl.store.labels import (
    ACTION_SPREAD,
    INVERSE,
    PREDICATE,
    PROGRESS,
    Review,
    of_step,
    review,
)
from robot_rl.store.store import Store
from robot_rl.system.audit import AuditLog, audit
from robot_rl.types import Ending, EpisodeId, Label
from tests.support import entry
from tests.support.served import CAMERAS, Served, rows_of, scores_of, until


def enter(console: Any, role: Role = Role.OPERATOR) -> httpx.Client:
    """A client with a session, speaking as the page does."""
    return entry.entered(console.invite(role))


def session_of(access: Access) -> PageSession:
    """The session that a new link of this console opens."""
    entry_ = access.enter(access.invite())
    assert entry_ is not None
    return entry_.session


def socket_of(_console: Any, client: httpx.Client, path: str, **headers: str) -> Any:
    return entry.socket_of(client, path, **headers)


def test_a_link_works_once_and_its_cookie_is_strict(console: Any) -> None:
    link = console.invite()
    first = httpx.get(link)
    assert first.status_code == 303 and first.headers["location"].startswith("/#page=")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    stolen = httpx.get(link)
    assert stolen.status_code == 403 and "set-cookie" not in stolen.headers
    assert httpx.get(console.url + "/").status_code == 401
    assert httpx.get(console.url + "/enter?token=").status_code == 403


def test_every_answer_carries_strict_headers_and_nothing_comes_from_elsewhere(console: Any) -> None:
    answer = enter(console).get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    static = Path("robot_rl/console/static")
    scripts = [path.read_text() for path in static.glob("*.js")]
    assert sum("function toast(" in text for text in scripts) == 1
    for path in (file for file in static.rglob("*") if file.is_file()):
        text = path.read_text()
        for place in ("https://", "http://"):
            assert place not in text.replace("http://www.w3.org/2000/svg", ""), path


@pytest.mark.parametrize("path", ["/api/about", "/api/episodes", "/review"])
def test_nobody_reads_without_a_session(console: Any, path: str) -> None:
    assert httpx.get(console.url + path).status_code == 401


def test_foreign_origins_and_hosts_are_refused(console: Any, robot: Any) -> None:
    client = enter(console)
    for origin in (
        "http://evil.example",
        "null",
        "",
        console.url.replace("127.0.0.1", "127.0.0.2"),
    ):
        answer = client.post("/api/command/hold", headers={"Origin": origin})
        assert answer.status_code == 403, origin
    rebound = client.get("/api/about", headers={"Host": "evil.example"})
    assert rebound.status_code == 403
    for path in ("/ws/control", "/ws/telemetry", "/ws/video/front"):
        with pytest.raises(InvalidStatus) as refused:
            socket_of(console, client, path, Origin="http://evil.example").recv()
        assert refused.value.response.status_code == 403
        with pytest.raises(InvalidStatus):
            guess = f"{console.console.cookie}=guess"
            socket_of(console, client, path, Cookie=guess).recv()
    assert robot.commands == []


def test_the_cookie_alone_does_not_act(console: Any, robot: Any) -> None:
    """A browser sends the cookie to every port of this host: a server there could use it here."""
    page = enter(console)
    thief = httpx.Client(base_url=console.url, headers={"Origin": console.url})
    thief.cookies.update(page.cookies)
    for guess in ("", "guess", page.cookies[console.console.cookie]):
        thief.headers[SECRET] = guess
        for path in ("command/hold", "command/go", "lease/claim", "label"):
            assert thief.post(f"/api/{path}").status_code == 401
        for path in ("/ws/control", "/ws/telemetry", "/ws/video/front"):
            with pytest.raises(InvalidStatus) as refused:
                entry.socket_of(thief, path).recv()
            assert refused.value.response.status_code == 403
    assert robot.commands == [] and page.post("/api/command/hold").status_code == 200


def test_no_get_changes_anything(console: Any, robot: Any) -> None:
    client = enter(console)
    for path in ("/api/command/hold", "/api/lease/claim", "/api/label"):
        assert client.get(path).status_code == 405
    assert robot.commands == [] and console.access.holder is None


def test_one_drives_many_watch_and_everybody_may_stop(console: Any, robot: Any) -> None:
    ada, ben, eve = enter(console), enter(console), enter(console, Role.OBSERVER)
    assert ada.post("/api/lease/claim").status_code == 200
    refused = ben.post("/api/lease/claim")
    assert refused.status_code == 409 and "operator 1 has the seat" in refused.json()["detail"]
    assert eve.post("/api/lease/claim").status_code == 403
    assert eve.post("/api/label", json={"kind": "success"}).status_code == 403
    assert eve.post("/api/command/acknowledge").status_code == 403
    assert eve.post("/api/command/hold").status_code == 200
    assert ben.post("/api/command/stop").status_code == 200
    assert robot.commands == ["hold", "stop"]
    assert ada.post("/api/command/fly").status_code == 404
    ada.post("/api/lease/release")
    assert ben.post("/api/lease/claim").status_code == 200


def test_the_robot_goes_to_its_start_on_the_word_of_the_person_in_the_seat(
    console: Any, robot: Any
) -> None:
    ada, ben, eve = enter(console), enter(console), enter(console, Role.OBSERVER)
    assert eve.post("/api/command/ready").status_code == 403
    refused = ada.post("/api/command/ready")
    assert refused.status_code == 409 and "take the seat first" in refused.json()["detail"]
    ada.post("/api/lease/claim")
    assert ben.post("/api/command/ready").status_code == 409
    assert robot.commands == []
    assert ada.post("/api/command/ready").status_code == 200
    assert robot.commands == ["ready"]


GOES_ON = ("go", "acknowledge", "resume")


def test_what_was_stopped_goes_on_at_the_word_of_whoever_has_the_seat(
    console: Any, robot: Any
) -> None:
    ada, ben = enter(console), enter(console)
    for verb in GOES_ON:  # nobody has the seat
        assert ben.post(f"/api/command/{verb}").status_code == 200
    ada.post("/api/lease/claim")
    robot.commands.clear()
    for verb in GOES_ON:
        refused = ben.post(f"/api/command/{verb}")
        assert refused.status_code == 409
        assert refused.json()["detail"] == "operator 1 has the seat, and lets it go on"
    assert ben.post("/api/command/hold").status_code == 200 and robot.commands == ["hold"]
    assert ada.post("/api/command/go").status_code == 200
    console.access._heard_s -= PRESENT_S  # who has gone leaves nobody stuck
    assert ben.post("/api/command/go").status_code == 200


def test_who_has_the_seat_at_another_console_is_named_and_alone_lets_it_go_on(
    console: Any, robot: Any, run_dir: Path
) -> None:
    other = Served(run_dir)
    try:
        ada, ben = enter(console), enter(other)
        assert ben.get("/api/about").json()["you"] == "operator 2"
        ada.post("/api/lease/claim")
        with socket_of(console, ada, "/ws/control") as keys:
            keys.send('{"axes": [0, 0, 0, 0, 0, 0], "held": []}')
            assert keys.recv() == "1"
            for verb in GOES_ON:
                refused = ben.post(f"/api/command/{verb}")
                assert refused.status_code == 409
                assert "operator 1 at another console" in refused.json()["detail"]
        robot.view = robot.view | {"driving": True, "present": False}
        with socket_of(other, ben, "/ws/telemetry") as line:

            def said() -> Any:
                return json.loads(line.recv())

            until(lambda: said()["word"] == "SCRIPT")
            for _ in range(15):  # steadily
                now = said()
                assert now["lease"]["holder"] == "operator 1" and now["lease"]["elsewhere"]
                assert now["reason"] == "" and not now["lease"]["mine"]
            assert ben.post("/api/command/hold").status_code == 200
            assert ada.post("/api/command/go").status_code == 200
            ada.post("/api/lease/release")
            assert ben.post("/api/command/go").status_code == 200
            until(lambda: not (now := said())["lease"]["elsewhere"] and now["reason"])
        assert robot.commands == ["hold", "go", "go"]
    finally:
        other.close()


def test_a_page_that_was_left_while_it_drove_is_why_the_arm_is_held(
    console: Any, robot: Any, run_dir: Path
) -> None:
    ada = enter(console)
    robot.view = robot.view | {"gate": {"mode": "hold", "reason": "x", "waits": "person"}}
    with socket_of(console, ada, "/ws/telemetry") as line:
        for asked, words in (("?left=yes", "was left"), ("", "held by a person")):
            assert ada.post(f"/api/command/hold{asked}").status_code == 200
            until(lambda w=words: w in json.loads(line.recv())["reason"])


def test_two_consoles_on_one_host_do_not_throw_each_other_out(
    console: Any, tmp_path: Path, run_dir: Path
) -> None:
    client = enter(console)
    other = Served(Experiment.compose([f"run_dir={tmp_path / 'new'}"]).save())
    try:
        assert client.get(other.invite()).status_code == 303
        assert client.get(other.url + "/api/about").status_code == 200
        assert client.get("/api/about").json()["run"] == run_dir.name
    finally:
        other.close()


@pytest.fixture
def full_disk(request: pytest.FixtureRequest, run_dir: Path) -> Iterator[None]:
    """The run's audit log on a disk that is full: it cannot be written, or not even opened."""
    path = run_dir / "audit.log"
    lines = AuditLog(path)
    if request.param == "write":
        path.symlink_to("/dev/full")
    else:

        def full() -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

        lines._open = full
    audit.addHandler(lines)
    yield
    audit.removeHandler(lines)
    with suppress(OSError):
        lines.close()


@pytest.mark.parametrize("full_disk", ["write", "open"], indirect=True)
def test_an_audit_log_that_cannot_be_written_stops_nobody_from_stopping(
    full_disk: None, console: Any, robot: Any
) -> None:
    client = enter(console)
    assert client.post("/api/command/hold").status_code == 200
    assert client.post("/api/lease/claim").status_code == 200
    assert client.post("/api/label", json={"kind": "success"}).status_code == 200
    assert client.post("/api/command/stop").status_code == 200
    assert robot.commands == ["hold", "stop"]


def test_only_the_holder_of_the_lease_is_heard(console: Any, robot: Any) -> None:
    ada, ben = enter(console), enter(console)
    ada.post("/api/lease/claim")
    with socket_of(console, ada, "/ws/control") as a, socket_of(console, ben, "/ws/control") as b:
        while not robot.heard:  # the line to the robot side comes up on its own
            a.send('{"axes": [1, 0, 0, 0, 0, 0], "held": []}')
            assert a.recv() == "1"
        for _ in range(200):
            a.send('{"axes": [1, 0, 0, 0, 0, 0], "held": ["drive"]}')
            b.send('{"axes": [-1, 0, 0, 0, 0, 0], "held": ["drive"]}')
            assert (a.recv(), b.recv()) == ("1", "0")
        a.send("x" * 3000)
        assert a.recv() == "1"
    assert robot.heard and all(said["axes"][0] == 1 for _, said in robot.heard)


def test_a_socket_outlives_the_time_that_a_request_may_take(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "REQUEST_S", 0.3)
    ada = enter(console)
    ada.post("/api/lease/claim")
    with socket_of(console, ada, "/ws/control") as line:
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            line.send('{"axes": [0, 0, 0, 0, 0, 0], "held": []}')
            assert line.recv() == "1"
            time.sleep(0.02)


def test_what_was_held_up_keeps_the_time_at_which_it_was_said() -> None:
    clock = PageClock()

    def said(at_ms: object, now_s: float) -> float:
        return clock.stamp_s({"at": at_ms}, now_s)

    assert said(5000, 100.0) == 100.0
    assert said(5020, 100.05) == pytest.approx(100.02, abs=1e-3)  # 30 ms on its way
    for k in range(50):  # the server stalls for a second, and then reads all at once
        assert said(5040 + 20 * k, 101.1) == pytest.approx(100.04 + 0.02 * k, abs=1e-2)
    assert said(0, 102.0) < 96.0 and said(1e300, 102.0) == 102.0 == said(-1, 102.0)
    for odd in ("", "x", None, [], "1e999"):
        assert clock.stamp_s({"at": odd}, 103.0) == 103.0
    assert clock.stamp_s({}, 103.0) == 103.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".config" / "robot-rl" / "pages"


def test_a_page_is_let_in_after_a_restart_of_the_server_and_nobody_else(
    run_dir: Path, home: Path, robot: Any
) -> None:
    first = Served(run_dir, remembered=Remembered(run_dir, port=1))
    page, observer = enter(first), enter(first, Role.OBSERVER)
    first.close()
    [file] = home.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and home.stat().st_mode & 0o777 == 0o700
    kept = file.read_text()
    assert page.headers[SECRET] not in kept
    assert not any(cookie in kept for cookie in page.cookies.values())

    second = Served(run_dir, port=first.port, remembered=Remembered(run_dir, port=1))
    try:
        assert page.get("/api/about").json()["you"] == "operator 1"
        assert page.post("/api/lease/claim").status_code == 200
        with entry.socket_of(page, "/ws/telemetry") as line:
            assert json.loads(line.recv())["lease"]["mine"]
        assert observer.post("/api/lease/claim").status_code == 403
        assert observer.post("/api/command/hold").status_code == 200
        page.headers["User-Agent"] = "another browser"
        assert page.get("/api/about").status_code == 401
    finally:
        second.close()

    for other in (Remembered(run_dir, port=2), Remembered(run_dir.parent, port=1), None):
        third = Served(run_dir, port=first.port, remembered=other)
        try:
            assert observer.get("/api/about").status_code == 401
        finally:
            third.close()


def test_a_session_ends_a_day_after_its_page_was_last_heard(home: Path, tmp_path: Path) -> None:
    now_s = 1e9

    def server() -> Access:
        remembered = Remembered(tmp_path, 8080, now=lambda: now_s)
        return Access(Seat(tmp_path / "seat.lock"), remembered)

    first = server()
    entry_ = first.enter(first.invite(), "browser")
    assert entry_ and last_port(tmp_path) == 8080
    now_s += 0.9 * LASTS_S
    second = server()
    assert second.session(entry_.cookie, "browser") and not second.session(entry_.secret, "browser")
    now_s += 0.9 * LASTS_S  # it was heard meanwhile
    assert server().session(entry_.cookie, "browser")
    now_s += 1.1 * LASTS_S
    assert not server().session(entry_.cookie, "browser")
    Remembered(tmp_path, 8081).keep([])
    Remembered(tmp_path / "another", 8080).keep([])
    forget(tmp_path)
    assert last_port(tmp_path) is None and last_port(tmp_path / "another") == 8080


@pytest.mark.parametrize(
    "damage", ["", "[", "[]", '{"sessions": [{"cookie": 1}]}', '{"sessions": 3}', "9" * 70_000]
)
def test_a_damaged_file_of_sessions_lets_nobody_in_and_stops_nobody(
    home: Path, tmp_path: Path, damage: str
) -> None:
    remembered = Remembered(tmp_path, 8080)
    access = Access(Seat(tmp_path / "seat.lock"), remembered)
    assert access.enter(access.invite())
    [file] = home.iterdir()
    assert len(remembered.load()) == 1
    file.write_text(damage)
    assert remembered.load() == []
    home.chmod(0o500)  # and a folder into which nothing can be written
    again = Access(Seat(tmp_path / "seat.lock"), remembered)
    assert again.enter(again.invite())
    home.chmod(0o700)


def test_sessions_from_the_future_are_not_believed(home: Path, tmp_path: Path) -> None:
    """A file that says a session lasts for years was not written by this program."""
    remembered = Remembered(tmp_path, 8080)
    session = PageSession("0" * 64, "0" * 64, "0" * 64, Role.OPERATOR, "operator 1", 1e18)
    remembered.keep([session])
    assert remembered.load() == []


def test_the_lease_of_a_silent_driver_can_be_taken(tmp_path: Path) -> None:
    now_s = 0.0
    access = Access(Seat(tmp_path / "seat.lock"), clock=lambda: now_s)
    ada, ben = (session_of(access) for _ in range(2))
    assert access.claim(ada) == "" and access.hears(ada)
    now_s = LEASE_SILENCE_S - 0.1
    assert "silent for 30 s" in access.claim(ben)
    now_s = LEASE_SILENCE_S + 0.1
    assert access.claim(ben) == "" and not access.hears(ada)
    access.release(ada)  # too late: it is not theirs
    assert access.holder is ben


def test_a_run_has_one_seat_however_many_consoles_serve_it(tmp_path: Path) -> None:
    here, there = (Access(Seat(tmp_path / "seat.lock")) for _ in range(2))
    ada, ben = session_of(here), session_of(there)
    assert here.claim(ada) == "" == here.claim(ada)
    assert "another console" in there.claim(ben) and not there.hears(ben)
    here.release(ada)
    assert there.claim(ben) == "" and there.hears(ben)
    assert "another console" in here.claim(ada)


def test_a_look_at_the_seat_takes_it_from_nobody_and_keeps_nobody_out(tmp_path: Path) -> None:
    here, there, looks = (Seat(tmp_path / "seat.lock") for _ in range(3))
    assert looks.elsewhere() is None
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            looks.elsewhere()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(2000):
            assert here.take() and not there.take()
            here.free()
            assert there.take()
            there.free()
    finally:
        over.set()
        looking.join()


def test_the_seat_says_who_has_it_to_the_other_consoles_only_while_they_have_it(
    tmp_path: Path,
) -> None:
    now_s = 0.0
    here, there = (Access(Seat(tmp_path / "seat.lock"), clock=lambda: now_s) for _ in range(2))
    ada, ben = session_of(here), session_of(there)
    assert here.claim(ada) == "" and here.rename(ada, "Ada") == ""
    assert there.elsewhere() == Elsewhere("Ada", 0.0) and here.elsewhere() is None
    assert there.claim(ben) == "Ada at another console of this run has the seat"
    assert there.other_present(ben) == "Ada at another console of this run"
    now_s = 2 * PRESENT_S + NOTE_S
    assert there.other_present(ben) == "" and lease_of(there, ben)["holder"] == "Ada"
    assert here.hears(ada)
    here.offer()
    assert there.other_present(ben) and not here.other_present(ada)
    here.release(ada)
    now_s += NOTE_S
    assert there.elsewhere() is None and lease_of(there, ben)["holder"] is None
    terminal = Seat(tmp_path / "seat.lock")
    assert terminal.take() and "somebody at another" in there.other_present(ben)
    (tmp_path / "seat.lock").write_bytes(b"{")  # damaged
    assert "somebody at another" in there.other_present(ben)


def test_people_without_a_name_are_told_apart_at_all_consoles_of_a_run(tmp_path: Path) -> None:
    people, seat = tmp_path / PEOPLE, tmp_path / "seat.lock"
    here, there = (Access(Seat(seat), numbers=Numbers(people)) for _ in range(2))
    names = [session_of(access).name for access in (here, there, there, here)]
    assert names == ["operator 1", "operator 2", "operator 3", "operator 4"]
    people.unlink()  # e.g. a copy of the run
    assert [session_of(access).name for access in (here, there)] == ["operator 5", "operator 6"]
    there._sessions["x"] = PageSession("", "", "", Role.OPERATOR, "operator 99999999", 0.0)
    assert session_of(there).name == "operator 7"  # nobody makes the file as long as this
    nowhere = Access(Seat(seat), numbers=Numbers(tmp_path / "nothing" / PEOPLE))
    assert [session_of(nowhere).name for _ in range(2)] == ["operator 1", "operator 2"]


def test_a_silent_page_keeps_no_other_console_out(tmp_path: Path) -> None:
    now_s = 0.0
    here, there = (Access(Seat(tmp_path / "seat.lock"), clock=lambda: now_s) for _ in range(2))
    ada, ben = session_of(here), session_of(there)
    assert here.claim(ada) == ""
    now_s = LEASE_SILENCE_S - 0.1
    here.offer()
    assert "another console" in there.claim(ben)
    now_s = LEASE_SILENCE_S
    here.offer()
    assert here.hears(ada)  # she is back before anybody took it
    assert "another console" in there.claim(ben)
    now_s = 2 * LEASE_SILENCE_S
    here.offer()
    assert there.claim(ben) == "" and not here.hears(ada) and here.holder is None
    there.release(ben)
    assert here.claim(ada) == ""


def test_a_page_that_was_closed_in_the_seat_leaves_it_to_a_terminal(
    console: Any, robot: Any, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "LEASE_SILENCE_S", 0.5)
    assert enter(console).post("/api/lease/claim").status_code == 200
    terminal = Seat(seat_file(run_dir))
    assert not terminal.take()
    until(terminal.take)
    terminal.free()


def test_labels_are_appended_with_their_author_and_can_be_taken_back(
    console: Any, robot: Any, run_dir: Path
) -> None:
    client = enter(console)
    said = client.post("/api/label", json={"kind": "success", "value": 0}).json()
    assert said["episode"] == 4 and said["review"]["success"] is False
    undone = client.post("/api/label", json={"kind": "undo", "value": said["label"]}).json()
    assert undone["review"]["success"] is None
    ahead = client.post("/api/label", json={"kind": "undo", "value": 2})
    assert ahead.status_code == 409 and "never given" in ahead.json()["error"]
    where = {"run": "run", "actor": "actor-0", "episode": 2}
    trimmed = client.post("/api/label", json={**where, "kind": "keep_to", "step": 5}).json()
    assert trimmed["review"]["last"] == 5
    listed = {e["episode"]: e["review"] for e in client.get("/api/episodes").json()}
    assert listed[2]["last"] == 5 and listed[4]["success"] is None
    with Store(run_dir / "actor.sqlite") as store:
        labels = store.labels(EpisodeId("run", "actor-0", 4))
    assert [(x.kind, x.author) for x in labels] == [
        ("success", "operator 1"),
        ("undo", "operator 1"),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "sucess"},
        {"kind": "keep_to"},
        {"kind": "keep_to", "step": 99},
        {"kind": "success", "value": "yes"},
        {"kind": "success", "episode": 77, "run": "run", "actor": "actor-0"},
        {"kind": "success", "episode": "four", "run": "run", "actor": "actor-0"},
        {"kind": "neutral", "step": 3},
        {"kind": "reward", "step": "3"},
        {"kind": "shows"},
        {"kind": "shows", "step": 12},
        {"kind": "shows", "last_s": "1"},
        {"kind": "shows", "last_s": -1.0},
        {"kind": "shows", "last_s": 1e9},
        {"kind": "success", "last_s": 1.0},
        {"kind": "vlm_success"},
        {"kind": "reward", "step": 3, "value": 1e308},
        {"kind": "reward", "step": 3, "value": -1e308},
        {"kind": "reward", "step": 3, "value": 10**400},
    ],
)
def test_a_label_that_says_nothing_is_explained_and_not_stored(
    console: Any, run_dir: Path, bad: dict[str, Any]
) -> None:
    answer = enter(console).post("/api/label", json=bad)
    assert answer.status_code == 409 and "expected" in answer.json()["error"]
    with Store(run_dir / "actor.sqlite") as store:
        assert store.all_labels() == []


def test_the_last_second_is_labelled_at_once_and_taken_back_at_once(
    console: Any, run_dir: Path
) -> None:
    client, id_ = enter(console), EpisodeId("run", "actor-0", 4)
    word = {"kind": "shows", "value": 0, "last_s": 1.0}
    for _ in range(2):
        said = client.post("/api/label", json=word).json()
        assert said["said"] == "shows 0 of episode 4, steps 2 to 11"
        with Store(run_dir / "actor.sqlite") as store:
            assert store.spec and store.spec.control_hz == 10.0
            assert review(store.labels(id_)).shows == dict.fromkeys(range(2, 12), False)
            assert store.ending(id_) is Ending.TERMINATED  # as it was
        undo = {"kind": "undo", "value": said["label"]}
        assert client.post("/api/label", json=undo).status_code == 200
        with Store(run_dir / "actor.sqlite") as store:
            assert review(store.labels(id_)) == Review()
    longer = client.post("/api/label", json=word | {"last_s": 9.0}).json()
    assert longer["said"].endswith("steps 0 to 11") and longer["label"] == 22


def test_scores_are_lines_and_no_words(console: Any, run_dir: Path) -> None:
    id_ = EpisodeId("run", "actor-0", 3)
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(scores_of(3, [0.25, 0.9], "classifier", "success-1"))
        store.append(scores_of(3, [0.125], "progress", "progress-1", PROGRESS))
        store.append([Label(id_, 0, None, "vlm_success", 1.0, "vlm", "model-x", 7)])
    found = enter(console).get("/api/episode", params={**asdict(id_)}).json()
    assert found["scores"] == [
        {"author": "progress-1", "kind": "progress", "points": [[1, 0.125]]},
        {"author": "success-1", "kind": "success_score", "points": [[1, 0.25], [2, 0.9]]},
    ]
    assert [(x["author"], x["kind"]) for x in found["labels"]] == [("model-x", "vlm_success")]


def test_actions_that_nobody_recorded_are_counted(console: Any, run_dir: Path) -> None:
    id_ = EpisodeId("run", "actor-0", 4)
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(
            Label(id_, of_step(k), k, ACTION_SPREAD, 0.1, INVERSE, INVERSE, 1) for k in range(5)
        )
    client = enter(console)
    found = [
        client.get("/api/episode", params={"run": "run", "actor": "actor-0", "episode": n}).json()
        for n in (4, 3)
    ]
    assert [x["inferred"] for x in found] == [5, 0]
    assert [x["labels"] for x in found] == [[], []], "they are no person's words"


def test_who_says_what_of_an_episode(console: Any, run_dir: Path) -> None:
    """Episodes 4, 2 and 0 are recorded as successes, 3 and 1 as failures."""
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(scores_of(4, [0.0] * 12, PREDICATE, PREDICATE))
        store.append(scores_of(4, [0.9] * 12, "classifier", "success-1"))
        store.append(scores_of(3, [0.5] * 12, PREDICATE, PREDICATE, PROGRESS))
        store.append(scores_of(2, [0.0] * 11 + [1.0], PREDICATE, PREDICATE))
        store.append(scores_of(2, [0.5] * 12, PREDICATE, PREDICATE, PROGRESS))
        vlm = Label(EpisodeId("run", "actor-0", 1), 0, None, "vlm_success", 1.0, "vlm", "m", 7)
        store.append([vlm])
    client = enter(console)
    client.post("/api/label", json={"kind": "success", "value": 0})
    listed = {e["episode"]: e["voices"] for e in client.get("/api/episodes").json()}
    assert listed == {
        4: {"person": False, "predicate": False, "recorded": True},
        3: {"recorded": False},
        2: {"predicate": True, "recorded": True},
        1: {"recorded": False, "vlm": True},
        0: {"recorded": True},
    }
    where = {"run": "run", "actor": "actor-0", "episode": 4}
    voices = client.get("/api/episode", params=where).json()["voices"]
    assert voices == {"person": False, "predicate": False, "classifier": True}


def test_the_score_of_this_moment_is_told(console: Any, robot: Any, run_dir: Path) -> None:
    def told() -> Any:
        with socket_of(console, client, "/ws/telemetry") as line:
            return json.loads(line.recv(timeout=3))["score"]

    client = enter(console)
    until(lambda: told() is None)
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(scores_of(4, [0.5, 0.75], "classifier", "success-1"))
        store.append(scores_of(4, [0.0], PREDICATE, PREDICATE))
    until(lambda: told() == {"author": "success-1", "value": 0.75})


def test_a_store_that_the_run_has_just_made_is_opened_later(tmp_path: Path) -> None:
    folder = Experiment.compose([f"run_dir={tmp_path / 'new'}"]).save()
    records = Records(folder)
    Store(folder / "actor.sqlite", reserve_bytes=0).close()  # before its spec is there
    with pytest.raises(StoreError, match="just begun"):
        records.score()
    Store(folder / "actor.sqlite", spec=Experiment.load(folder).spec, reserve_bytes=0).close()
    assert records.score() is None and records.store.spec is not None


def test_review_reads_steps_pictures_and_says_what_is_missing(console: Any) -> None:
    client = enter(console)
    where = {"run": "run", "actor": "actor-0", "episode": 1}
    found = client.get("/api/episode", params=where).json()
    assert len(found["steps"]) == 12 and found["cameras"] == ["front", "wrist"]
    assert [s["driver"] for s in found["steps"][2:7]] == ["policy", *["correction"] * 3, "policy"]
    picture = client.get("/api/frame/front/3", params=where)
    assert picture.headers["content-type"] == "image/jpeg" and picture.content[:2] == b"\xff\xd8"
    assert client.get("/api/frame/front/99", params=where).status_code == 409
    assert client.get("/api/episode", params=where | {"episode": 9}).status_code == 409


def test_a_simulated_run_without_cameras_is_drawn_when_somebody_looks(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    from robot_rl.run.record import record

    chosen = ["experiment=reach", "train.demos=1", f"run_dir={tmp_path / 'run'}"]
    record(Experiment.compose(chosen))
    run_dir = tmp_path / "run"
    records = Records(run_dir, Experiment.load(run_dir).mirror)
    id_ = EpisodeId("run", "actor-0", 0)
    assert records.episode(id_)["cameras"] == ["scene"]
    count = len(records.episode(id_)["steps"])
    first, last = (records.picture(id_, k, "scene") for k in (0, count))
    assert first[:2] == last[:2] == b"\xff\xd8" and first != last
    with pytest.raises(StoreError, match=f"frame {count + 1} of 'scene'"):
        records.picture(id_, count + 1, "scene")
    records.close()


def test_an_episode_that_still_runs_can_be_watched_to_its_end(run_dir: Path) -> None:
    id_ = EpisodeId("run", "actor-0", 5)
    records = Records(run_dir)
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        rows = rows_of(store.spec, "run", 5, 12, success=True)
        store.append(rows[:8])
        assert records.picture(id_, 3, "front")
        with pytest.raises(StoreError, match="frame 12"):
            records.picture(id_, 12, "front")
        store.append(rows[8:])
    assert records.picture(id_, 12, "front")


def test_cameras_that_ask_at_once_read_an_episode_once(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, asked = Records(run_dir), []
    read = records.store.frames

    def slowly(id_: EpisodeId) -> Any:
        asked.append(id_)
        time.sleep(0.2)
        return read(id_)

    monkeypatch.setattr(records.store, "frames", slowly)
    id_ = EpisodeId("run", "actor-0", 3)
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda camera: records.picture(id_, 0, camera), CAMERAS))
    assert asked == [id_]


def test_what_models_said_beside_the_learner_is_shown(run_dir: Path) -> None:
    id_ = EpisodeId("run", "actor-0", 1)
    words = [
        Label(id_, 0, None, "vlm_success", 0.0, "vlm", "model prompt@1", 1),
        Label(id_, 1, 3, PROGRESS, 0.25, "vlm", "model prompt@1", 1),
        Label(id_, 0, None, "success", 0.0, "person", "ada", 1),  # came from the actor's store
    ]
    records = Records(run_dir)
    before = len(records.episode(id_)["labels"])
    with Store(run_dir / "learner.sqlite", spec=records.store.spec, reserve_bytes=0) as learner:
        learner.append(words)
    found = records.episode(id_)
    assert len(found["labels"]) == before + 1
    assert "model prompt@1" in str(found["scores"])
    (listed,) = (e for e in records.episodes() if e["episode"] == 1)
    assert "vlm" in str(listed["voices"])


def test_labels_said_at_the_same_moment_are_all_kept(run_dir: Path) -> None:
    records = Records(run_dir)
    with ThreadPoolExecutor(8) as pool:
        words = [{"kind": "success", "value": i % 2} for i in range(40)]
        said = list(pool.map(lambda word: records.label(word, "operator 1")["label"], words))
    assert sorted(said) == list(range(40))


def test_a_run_that_has_not_started_is_no_error(tmp_path: Path) -> None:
    folder = Experiment.compose([f"run_dir={tmp_path / 'new'}"]).save()
    served = Served(folder)
    try:
        client = enter(served)
        assert client.get("/api/episodes").status_code == 409
        assert "nothing has been recorded" in client.get("/api/episodes").json()["error"]
        with socket_of(served, client, "/ws/telemetry") as line:
            assert '"word":"OFFLINE"' in line.recv(timeout=3)
        assert client.post("/api/command/hold", timeout=5).status_code == 503
    finally:
        served.close()


def test_the_command_line_refuses_the_network_and_a_taken_port(
    tmp_path: Path, console: Any, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in ("0.0.0.0", "192.168.1.5", "robot-pc", "::"):
        assert main(["console", str(run_dir), "--host", host]) == 2
        assert "ssh -L" in capsys.readouterr().err
    port = console.url.rpartition(":")[2]
    assert main(["console", str(run_dir), "--port", port]) == 2
    assert "is taken" in capsys.readouterr().err
    assert main(["console", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("page", "leads_to"),
    [
        ("review", "/review"),
        ("", "/"),
        ("Review", "/"),
        ("/review", "/"),
        ("//evil.example", "/"),
        ("https://evil.example/", "/"),
        ("review%0d%0aLocation:%20https://evil.example", "/"),
    ],
)
def test_a_link_leads_to_a_page_of_ours_and_nowhere_else(
    console: Any, page: str, leads_to: str
) -> None:
    answer = httpx.get(f"{console.invite()}&page={page}")
    assert answer.status_code == 303 and answer.headers["location"].partition("#")[0] == leads_to


def test_a_link_to_the_review_page_opens_it(console: Any) -> None:
    answer = httpx.get(f"{console.invite()}&page=review", follow_redirects=True)
    assert answer.status_code == 200 and "review.js" in answer.text
    refused = httpx.get(f"{console.url}/enter?token=guess&page=review", follow_redirects=True)
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("verb", "before"), [("console", "/enter?token="), ("review", "/enter?page=review&token=")]
)
def test_the_verbs_print_and_open_links_to_their_page(
    run_dir: Path,
    verb: str,
    before: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[str] = []

    def serve_run(_run: Path, host: str, port: int, started: Any, _tls: Any) -> None:
        started(lambda role: f"a-token-of-an-{role}")

    monkeypatch.setattr("robot_rl.run.console.serve_run", serve_run)
    monkeypatch.setattr("robot_rl.cli.console.check_free", lambda host, port: None)
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main([verb, str(run_dir), "--port", "8123"]) == 0
    assert main([verb, str(run_dir), "--port", "8123", "--host", "::1", "--no-browser"]) == 0
    links = [f"http://{host}:8123{before}a-token-of-an-operator" for host in ("127.0.0.1", "[::1]")]
    assert opened == links[:1]
    said = "".join(f"{verb} of {run_dir}\n  {link}\n" for link in links)
    assert capsys.readouterr().out == said


def test_an_answer_does_not_wait_until_the_page_speaks_again() -> None:
    """Nagle's algorithm holds it back otherwise; who accepts inherits what the listener is told."""
    server = uvicorn.Server(uvicorn.Config(lambda: None, "127.0.0.1", 0))
    with listen(server) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_page_takes_a_port_beside_the_one_that_is_taken_unless_it_was_asked_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ports: list[int] = []
    monkeypatch.setattr("robot_rl.run.console.serve_run", lambda *args: ports.append(args[2]))
    with socket.socket() as console:
        console.bind(("127.0.0.1", 0))
        console.listen()
        taken = console.getsockname()[1]
        monkeypatch.setattr("robot_rl.cli.console.FIRST_PORT", taken)
        asked = ["console", str(run_dir), "--no-browser", "--port", str(taken)]
        assert main(asked) == 2
        assert f"port {taken} is taken" in capsys.readouterr().err
        assert main(asked[:3]) == 0 == main(["review", *asked[1:3]])
    assert len(ports) == 2 and taken not in ports


def test_two_consoles_that_start_together_look_for_different_ports() -> None:
    """Each imports its task between looking and listening; the later one had no page then."""
    code = "from robot_rl.console.address import free_port; print(free_port(8700), flush=True)"
    waits = [sys.executable, "-c", f"{code}; input()"]
    with ExitStack() as stack:
        ports = []
        for _ in range(3):
            one = stack.enter_context(
                subprocess.Popen(
                    waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            )
            stack.callback(one.kill)
            assert one.stdout
            ports.append(int(one.stdout.readline()))
        assert len(set(ports)) == 3
    assert free_port(8700) == free_port(8700)  # this process has it already
