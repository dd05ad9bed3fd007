"""The console's server without a browser: who gets in, who drives, what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from robot_rl.cli.main import main
from robot_rl.console.access import LEASE_SILENCE_S, Access, Role
from robot_rl.experiment import Experiment
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId
from tests.console.served import Served


def enter(console: Any, role: Role = Role.OPERATOR) -> httpx.Client:
    """A client with a session, speaking as the page does."""
    client = httpx.Client(base_url=console.url, headers={"Origin": console.url})
    assert client.get(console.invite(role)).status_code == 303
    return client


def socket_of(console: Any, client: httpx.Client, path: str, **headers: str) -> Any:
    cookie = "; ".join(f"{k}={v}" for k, v in client.cookies.items())
    url = console.url.replace("http", "ws") + path
    extra = {"Cookie": cookie, "Origin": console.url} | headers
    return connect(url, additional_headers=extra)


def test_a_link_works_once_and_its_cookie_is_strict(console: Any) -> None:
    link = console.invite()
    first = httpx.get(link)
    assert first.status_code == 303 and first.headers["location"] == "/"
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
    for path in static.iterdir():
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
            socket_of(console, client, path, Cookie="robot_rl_console=guess").recv()
    assert robot.commands == []


def test_no_get_changes_anything(console: Any, robot: Any) -> None:
    client = enter(console)
    for path in ("/api/command/hold", "/api/lease/claim", "/api/label"):
        assert client.get(path).status_code == 405
    assert robot.commands == [] and console.access.holder is None


def test_one_drives_many_watch_and_everybody_may_stop(console: Any, robot: Any) -> None:
    ada, ben, eve = enter(console), enter(console), enter(console, Role.OBSERVER)
    assert ada.post("/api/lease/claim").status_code == 200
    refused = ben.post("/api/lease/claim")
    assert refused.status_code == 409 and "operator 1 drives" in refused.json()["detail"]
    assert eve.post("/api/lease/claim").status_code == 403
    assert eve.post("/api/label", json={"kind": "success"}).status_code == 403
    assert eve.post("/api/command/acknowledge").status_code == 403
    assert eve.post("/api/command/hold").status_code == 200
    assert ben.post("/api/command/stop").status_code == 200
    assert robot.commands == ["hold", "stop"]
    assert ada.post("/api/command/fly").status_code == 404
    ada.post("/api/lease/release")
    assert ben.post("/api/lease/claim").status_code == 200


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


def test_the_lease_of_a_silent_driver_can_be_taken() -> None:
    now_s = 0.0
    access = Access(clock=lambda: now_s)
    ada, ben = (access.enter(access.invite()) for _ in range(2))
    assert ada and ben
    assert access.claim(ada) == "" and access.hears(ada)
    now_s = LEASE_SILENCE_S - 0.1
    assert "silent for 30 s" in access.claim(ben)
    now_s = LEASE_SILENCE_S + 0.1
    assert access.claim(ben) == "" and not access.hears(ada)
    access.release(ada)  # too late: it is not theirs
    assert access.holder is ben


def test_labels_are_appended_with_their_author_and_can_be_taken_back(
    console: Any, robot: Any, run_dir: Path
) -> None:
    client = enter(console)
    said = client.post("/api/label", json={"kind": "success", "value": 0}).json()
    assert said["episode"] == 4 and said["review"]["success"] is False
    undone = client.post("/api/label", json={"kind": "undo", "value": said["label"]}).json()
    assert undone["review"]["success"] is None
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
        {"kind": "reward", "step": "3"},
    ],
)
def test_a_label_that_says_nothing_is_explained_and_not_stored(
    console: Any, run_dir: Path, bad: dict[str, Any]
) -> None:
    answer = enter(console).post("/api/label", json=bad)
    assert answer.status_code == 409 and "expected" in answer.json()["error"]
    with Store(run_dir / "actor.sqlite") as store:
        assert store.all_labels() == []


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
