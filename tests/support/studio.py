"""A studio over a folder of made-up runs, served as `robot-rl studio` does it."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from robot_rl.console.access import Access
from robot_rl.console.address import HOST
from robot_rl.console.certificate import PageCertificate
from robot_rl.console.doors import FRAGMENT, SECRET
from robot_rl.console.remembered import Role
from robot_rl.control.statistics import wilson
from robot_rl.studio.app import studio_server
from robot_rl.studio.consoles import Consoles
from robot_rl.studio.studio import Studio
from tests.support.pairs import free_port
from tests.support.served import until

BROWSER = "a browser of the tests"


class ServedStudio:
    """A studio that runs. url; invite(role) makes a link; page(role): a client that is let in."""

    def __init__(self, folder: Path, certificate: PageCertificate | None = None) -> None:
        self.studio = Studio(folder, consoles=Consoles(HOST, certificate))
        self.port = free_port()
        self.url = f"{'https' if certificate else 'http'}://{HOST}:{self.port}"
        self.trust = ssl.create_default_context(cafile=certificate.ca) if certificate else True
        self.access: Access
        self.server, self.access = studio_server(
            self.studio, HOST, self.port, certificate=certificate
        )
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()
        until(lambda: self.server.started, 60.0)

    def invite(self, role: Role = Role.OPERATOR) -> str:
        return f"{self.url}/enter?token={self.access.invite(role)}"

    @contextmanager
    def page(self, role: Role = Role.OPERATOR) -> Iterator[httpx.Client]:
        """A client that sends what a page sends: cookie, secret, origin."""
        agent = {"user-agent": BROWSER}
        with httpx.Client(
            base_url=self.url, headers=agent, timeout=60.0, verify=self.trust
        ) as client:
            answer = client.get(self.invite(role))
            secret = answer.headers["location"].partition(f"#{FRAGMENT}=")[2]
            client.headers.update({SECRET: secret, "origin": self.url})
            yield client

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join()


def made_run(folder: Path, experiment: Path, name: str, episodes: int = 30) -> Path:
    """A run folder: a copy of one that was saved, with figures of practice."""
    run = folder / name
    shutil.copytree(experiment, run)
    lines = [line(index, index >= 10) for index in range(episodes)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    long_ago_s = time.time() - 3600.0
    for path in run.iterdir():
        os.utime(path, (long_ago_s, long_ago_s))
    return run


def line(index: int, success: bool, **more: Any) -> dict[str, Any]:
    """A line of metrics of a practice episode of 20 steps and 6 s, a quarter of it a person's."""
    return {
        "time_s": 1_700_000_000.0 + 6.0 * index,
        "env_steps": 20 * (index + 1),
        "episode/index": index,
        "episode/success": float(success),
        "episode/length": 20.0,
        "episode/intervention_rate": 0.25,
        "episode/takeovers": 1.0,
        "session/demos": 3.0,
        "progress": (index + 1) / 100,
        "time_left_s": 900.0 - 6.0 * index,
        "state": "practice",
        **more,
    }


def write_eval(run: Path, wins: int, episodes: int) -> None:
    """eval.json with one evaluation."""
    low, high = wilson(wins, episodes)
    part = {"successes": wins, "episodes": episodes, "success": wins / episodes}
    part |= {"wilson_low": low, "wilson_high": high, "cycle_time_s_mean": 1.5}
    one = {"deterministic": part, "stochastic": None, "evaluated_in": "lockstep", "time": ""}
    (run / "eval.json").write_text(json.dumps({**one, "mastered": False, "evaluations": [one]}))


def at_work(run: Path, verb: str, **told: Any) -> None:
    """The file that says who works in a run folder."""
    facts: Mapping[str, Any] = {"process": "", "began_s": 1.0, **told}
    (run / f"{verb}.process.json").write_text(json.dumps(facts))
