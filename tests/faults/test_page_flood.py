"""A stop stays a stop while somebody without a session floods the page."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the console extra is not installed")

import httpx
from websockets.exceptions import ConnectionClosedError

from robot_rl.console import intake
from robot_rl.console.doors import SECRET
from robot_rl.console.serve import MAX_MESSAGE
from robot_rl.link.panel import link_file
from robot_rl.run.experiment import Experiment
from tests.support import entry
from tests.support.served import RobotSide, Served, until

HALF_OPEN, BODY_MB, ATTACK_S = 1300, 60, 8.0
STOP_S = 0.1
LATEST_S = 1.0  # for a page that has its connection
CONNECT_S = 2.0  # who has to connect first stands in the system's queue behind the strangers
GROWTH_MB = 64


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that has recorded nothing yet."""
    return Experiment.compose(["experiment=reach", f"run_dir={tmp_path / 'run'}"]).save()


@pytest.fixture
def robot(run_dir: Path) -> Iterator[RobotSide]:
    """The robot side of the run."""
    side = RobotSide(run_dir)
    yield side
    side.close()


@pytest.fixture
def console(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The console as a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "robot_rl.run.console", str(run_dir)])
    until(lambda: link_file(run_dir).is_file(), 60.0)
    yield process
    process.terminate()
    assert process.wait(10) == 0


def resident_mb(pid: int) -> float:
    """Memory that a process has used at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def entered(link: str) -> httpx.Client:
    """A page with a session."""
    until(lambda: reachable(link.partition("/enter")[0]))
    return entry.entered(link, timeout=30.0)


def reachable(url: str) -> bool:
    """Whether the server answers."""
    try:
        return httpx.get(url).status_code == 401
    except httpx.TransportError:
        return False


@pytest.mark.alone
def test_stop_is_answered_while_strangers_flood_the_page(
    run_dir: Path, robot: RobotSide, console: Any, record_property: Any
) -> None:
    client = entered(link_file(run_dir).read_text().strip())
    assert client.post("/api/command/stop").status_code == 200
    before_mb = resident_mb(console.pid)
    port = str(client.base_url.port)
    words = [port, str(HALF_OPEN), str(BODY_MB), str(ATTACK_S)]
    attack = subprocess.Popen(
        [sys.executable, "-m", "tests.support.flood", *words], stdout=subprocess.PIPE
    )
    assert attack.stdout is not None and attack.stdout.readline()
    took_s: dict[str, list[float]] = {"open": [], "new": []}
    end_s = time.monotonic() + ATTACK_S
    while time.monotonic() < end_s:
        for kind, said in took_s.items():  # a page has a connection; a browser may have to make one
            began_s = time.monotonic()
            if kind == "new":
                one = httpx.Client(base_url=client.base_url, headers=client.headers, timeout=30.0)
                one.cookies.update(client.cookies)
                with one:
                    assert one.post("/api/command/stop").status_code == 200
            else:
                assert client.post("/api/command/stop").status_code == 200
            said.append(time.monotonic() - began_s)
        time.sleep(0.02)
    attack.wait(30)
    grown_mb = resident_mb(console.pid) - before_mb
    for kind, said in took_s.items():
        p50, p99, most = (1e3 * np.percentile(said, [50, 99, 100])).tolist()
        words = (
            f"{len(said)} stops, {kind} connection: p50 {p50:.1f}, p99 {p99:.1f}, max {most:.1f} ms"
        )
        sys.stdout.write(f"{words}; memory +{grown_mb:.0f} MB\n")
        record_property(f"{kind}_ms", (p50, p99, most))
    assert robot.commands.count("stop") == sum(map(len, took_s.values())) + 1
    assert grown_mb < GROWTH_MB
    assert np.percentile(took_s["open"], 95) < STOP_S  # one in twenty waits for the processor
    assert max(took_s["open"]) < LATEST_S and max(took_s["new"]) < CONNECT_S


@pytest.fixture
def served(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The console in this process, with short times and small numbers."""
    monkeypatch.setattr(intake, "REQUEST_S", 0.5)
    monkeypatch.setattr(intake, "MAX_STRANGERS", 8)
    server = Served(run_dir)
    yield server
    server.close()


def raw(server: Served, request: str, timeout_s: float = 5.0) -> bytes:
    """What the server answers to these bytes until it closes the connection."""
    host = server.url.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(host[10:])), timeout_s) as line:
        line.sendall(request.replace("HOST", host).encode())
        data = b""
        with suppress(ConnectionResetError):
            while part := line.recv(65536):
                data += part
        return data


def own(client: httpx.Client) -> str:
    """The header lines that tell a session."""
    said = {SECRET: client.headers[SECRET], "User-Agent": client.headers["User-Agent"]}
    said["Cookie"] = entry.cookie_of(client)
    return "".join(f"{name}: {value}\r\n" for name, value in said.items())


POST = "POST /api/label HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\n"


@pytest.mark.parametrize(
    ("length", "status"),
    [
        ("Content-Length: 1000000000", 413),
        (f"Content-Length: {intake.MAX_BODY + 1}", 413),
        ("Content-Length: 99999999999999999999", 413),
        ("Transfer-Encoding: chunked", 411),
    ],
)
def test_a_long_body_is_refused_by_its_head(served: Served, length: str, status: int) -> None:
    client = entered(served.invite())
    for words, wanted in ((own(client), status), ("", 401)):
        answer = raw(served, f"{POST}{words}{length}\r\n\r\n")  # nothing of the body is sent
        assert answer.startswith(b"HTTP/1.1 %d " % wanted), answer
    looks = raw(served, f"GET / HTTP/1.1\r\nHost: HOST\r\n{length}\r\n\r\n")
    assert looks.startswith(b"HTTP/1.1 %d " % status)
    assert client.post("/api/label", json={"kind": "x" * 1000}).status_code == 409


@pytest.mark.parametrize("part", ["", "GE", "GET / HTTP/1.1\r\nHost: HOST\r\nX: "])
def test_a_request_that_does_not_come_is_given_up(served: Served, part: str) -> None:
    began_s = time.monotonic()
    assert raw(served, part) == b""
    assert 0.4 < time.monotonic() - began_s < 3.0


def test_a_body_that_does_not_come_is_given_up(served: Served) -> None:
    words = own(entered(served.invite()))
    began_s = time.monotonic()
    answer = raw(served, f"{POST}{words}Content-Length: 9\r\n\r\n{{")
    assert not answer.startswith(b"HTTP/1.1 2") and time.monotonic() - began_s < 3.0


def test_strangers_do_not_crowd_out_who_has_a_session(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "REQUEST_S", 60.0)
    client = entered(served.invite())  # keeps its connection
    assert client.get("/api/about").status_code == 200
    (mine,) = ends(client)
    port = client.base_url.port
    crowd = [socket.create_connection(("127.0.0.1", port), 5.0) for _ in range(3 * 8)]
    for line in crowd[: 2 * 8]:  # the oldest are ended, nobody else is
        assert line.recv(1) == b""
    assert client.get("/api/about").status_code == 200
    assert ends(client) == [mine]
    for line in crowd:
        line.close()


def ends(client: httpx.Client) -> list[Any]:
    """The open connections of a client."""
    return [id(c) for c in client._transport._pool.connections]  # type: ignore[attr-defined]


def test_a_long_message_ends_its_socket(served: Served) -> None:
    client = entered(served.invite())
    with entry.socket_of(client, "/ws/control") as line:
        line.send("x" * (MAX_MESSAGE + 1))
        with pytest.raises(ConnectionClosedError) as closed:
            line.recv(timeout=5)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
