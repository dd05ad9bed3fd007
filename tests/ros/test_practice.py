"""`robot-rl practice` as a whole: the script drives, and goes on when a person lets go again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")
pytest.importorskip("fastapi", reason="the console extra is not installed")

from robot_rl.bench.console.drive import ScriptedPage
from robot_rl.link.panel import link_file
from tests.support.ros import new_domain, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone, pytest.mark.waits]
UP_S = 90.0


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    """The link to the page of a practice that runs."""
    run = tmp_path / "run"
    words = [f"run_dir={run}", f"ros.domain_id={new_domain()}"]
    tool = Path(sys.executable).with_name("robot-rl")
    env = os.environ | {"BROWSER": "true"}  # nobody opens the page
    process = subprocess.Popen([str(tool), "practice", *words], env=env)
    try:
        wait_for(link_file(run).is_file, UP_S, "the page is served")
        yield link_file(run).read_text().strip()
    finally:
        process.terminate()
        process.wait(30.0)


def test_the_script_drives_a_person_takes_over_and_lets_go(link: str) -> None:
    with ScriptedPage(link, drives=False, speaks=False) as page:
        telemetry = page.open("telemetry")

        def until(says: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
            heard: dict[str, Any] = {}

            def look() -> bool:
                heard.update(json.loads(telemetry.recv(timeout=UP_S)))
                return says(heard)

            wait_for(look, UP_S, lambda: f"{what}; the page says {heard.get('word')}")
            return heard

        until(lambda now: now["word"] == "SCRIPT" and now["robot"]["speed_mm_s"] > 5.0, "it moves")
        page.post("lease/claim")
        page.silent = False
        until(lambda now: now["word"] == "SCRIPT" and now["lease"]["mine"], "beside the seat")
        for _ in range(2):
            take_over(page, until)
            page.held, page.axes = [], [0.0] * 6
            until(lambda now: now["word"] == "SCRIPT", "the script goes on")
        page.post("command/hold")
        until(lambda now: now["robot"]["gate"].get("waits") == "person", "a person holds")
        page.post("command/go")
        until(lambda now: now["word"] == "SCRIPT", "it goes on after the hold")
        telemetry.close()


def take_over(page: ScriptedPage, until: Callable[[Callable[[Any], bool], str], Any]) -> None:
    """Hold the drive key until the person drives; let go and press again after each reset."""

    def drives(now: dict[str, Any]) -> bool:
        page.held = ["drive"] if now["word"] in ("SCRIPT", "HUMAN") else []
        if now["word"] == "HOLD" and now["robot"].get("gate", {}).get("waits"):
            page.go_on()  # a busy machine was late
        return now["word"] == "HUMAN"

    until(drives, "a person drives")
    page.axes = [0.0, 0.0, -1.0, 0.0, 0.0, 0.0]
    until(lambda now: drives(now) and now["robot"]["speed_mm_s"] > 5.0, "they move it")
