"""`robot-rl studio` as a process: its link, what outlives it, and the consoles that it opens."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from robot_rl.cli.main import main
from robot_rl.console.address import free_port
from robot_rl.console.doors import FRAGMENT, SECRET
from robot_rl.errors import SetupError
from robot_rl.studio.consoles import Consoles
from robot_rl.system.presence import runs_still
from tests.support.served import until

FIRST = "reach/20260101-120000-s0"
BROWSER = {"user-agent": "a browser"}


class Program:
    """`robot-rl studio FOLDER` on a port, with its link."""

    def __init__(self, runs: Path, port: int, home: Path) -> None:
        words = ["studio", str(runs), "--no-browser", "--port", str(port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "robot_rl.cli.main", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"HOME": str(home), "ROBOT_RL_DISK_RESERVE_BYTES": "0"},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.link = ""
        while not self.link:
            line = self.process.stdout.readline()
            assert line, "it has ended"
            self.link = next(iter(re.findall(r"http\S+", line)), "")
        self.url = f"http://127.0.0.1:{port}"

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=20)


@pytest.fixture
def programs(runs: Path, tmp_path: Path) -> Iterator[list[Program]]:
    """The programs of a test; ended with it."""
    made: list[Program] = []
    yield made
    for program in made:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()
    for path in (runs / ".studio").glob("*.json"):
        process = json.loads(path.read_text())["process"]
        if runs_still(process):
            os.kill(int(process.split()[2]), signal.SIGKILL)


def test_what_it_has_started_outlives_it_and_is_found_and_finished_by_the_next(
    runs: Path, tmp_path: Path, programs: list[Program]
) -> None:
    port = free_port(8600)
    programs.append(Program(runs, port, tmp_path))
    with httpx.Client(base_url=programs[0].url, headers=BROWSER, timeout=60.0) as page:
        until(lambda: answers(page))
        secret = page.get(programs[0].link).headers["location"].partition(f"#{FRAGMENT}=")[2]
        page.headers.update({SECRET: secret, "origin": programs[0].url})
        words = ["experiment=reach", "train.demos=1", "train.video=false"]
        job = page.post("/api/start", json={"verb": "train", "words": words}).json()
        programs[0].end()
        (facts,) = (runs / ".studio").glob("*train.json")
        process = json.loads(facts.read_text())["process"]
        assert runs_still(process)
        programs.append(Program(runs, port, tmp_path))
        until(lambda: answers(page))

        def row() -> dict[str, object]:  # with the session of before
            rows = page.get("/api/runs").json()["rows"]
            return next((x for x in rows if x["id"] == job["run"]), {})

        until(lambda: row().get("phase") == "practice", 60.0)
        body = {"run": job["run"], "verb": "train"}
        assert page.post("/api/finish", json=body).status_code == 200
        until(lambda: not runs_still(process), 30.0)
        until(lambda: row()["state"] == "stopped")  # the list looks twice a second
        programs[1].end()
    audit = (runs / ".studio" / "audit.log").read_text()
    assert "started robot-rl train experiment=reach" in audit and "finish train" in audit


def answers(page: httpx.Client) -> bool:
    """Whether the studio serves."""
    try:
        return page.get("/").status_code in (200, 401)
    except httpx.TransportError:
        return False


def test_each_link_to_the_page_of_a_run_is_another_one(runs: Path) -> None:
    consoles = Consoles()
    try:
        first = consoles.link(FIRST, runs / FIRST, "")
        again = consoles.link(FIRST, runs / FIRST, "review")
        assert first != again and "page=review&token=" in again
        for link, leads in ((first, "/#"), (again, "/review#")):
            answer = httpx.get(link, headers=BROWSER)
            assert answer.status_code == 303 and answer.headers["location"].startswith(leads)
            assert httpx.get(link, headers=BROWSER).status_code == 403
    finally:
        consoles.close_all()
    until(lambda: refuses(first))


def refuses(link: str) -> bool:
    """Whether nobody serves there any more."""
    try:
        httpx.get(link)
    except httpx.TransportError:
        return True
    return False


def test_a_console_that_does_not_open_says_why(runs: Path) -> None:
    (runs / FIRST / "config.yaml").write_text("name: edited\n")
    with pytest.raises(SetupError, match="was changed after the run began"):
        Consoles().link(FIRST, runs / FIRST, "")


def test_a_run_is_no_folder_of_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studio", str(runs / FIRST)]) == 2
    assert f"robot-rl console {runs / FIRST}" in capsys.readouterr().err
    assert main(["studio", str(runs), "--host", "0.0.0.0"]) == 2
    assert "127.0.0.1" in capsys.readouterr().err
