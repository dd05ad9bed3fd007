"""`make screenshots`: docs/img/console.png and review.png, anew, of a run that really learns.

python -m tests.support.screenshots [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from robot_rl.bench.console.browser import browser, until
from robot_rl.link.panel import link_file

WORDS = (
    "experiment=lift_pixels",
    "runtime=ros",
    "operator=console",
    "operator.with_script=true",
    "train.demos=4",
    "train.video=false",
)
SIZE = {"width": 1280, "height": 800}
EPISODES = 8  # of practice, so that there are curves
START_S, LEARNS_S = 120.0, 900.0


def take(folder: Path) -> None:
    """Train, look at the page, and write both pictures."""
    with tempfile.TemporaryDirectory(prefix="robot-rl-screenshots-") as name:
        run_dir = Path(name) / "run"
        command = [sys.executable, "-m", "robot_rl.cli.main", "train", *WORDS]
        run = subprocess.Popen([*command, f"run_dir={run_dir}"], stdin=subprocess.DEVNULL)
        try:
            until(lambda: link_file(run_dir).is_file(), "the console leaves its link", START_S)
            with browser() as running:
                page = running.new_context(viewport=SIZE, color_scheme="light").new_page()
                page.goto(link_file(run_dir).read_text().strip())
                until(lambda: learns(page), f"{EPISODES} episodes of practice", LEARNS_S)
                until(lambda: word(page) in ("POLICY", "SCRIPT"), "the arm is driven", START_S)
                time.sleep(1.0)
                page.screenshot(path=str(folder / "console.png"))
                page.goto(f"{page.url.partition('#')[0].rstrip('/')}/review")
                page.locator(".episode").nth(2).click()
                until(lambda: page.locator("#frames img").count(), "the episode is shown", START_S)
                time.sleep(2.0)
                page.screenshot(path=str(folder / "review.png"))
        finally:
            run.terminate()
            run.wait()


def word(page: Any) -> str:
    """The word of state."""
    return str(page.evaluate("document.body.dataset.word"))


def learns(page: Any) -> bool:
    """Whether the page has seen enough of practice to draw curves, with all its pictures."""
    shown = "robotRL.views?.every((view) => view.drawn) ? robotRL.figures?.['episode/index'] : 0"
    return (page.evaluate(f"globalThis.robotRL && ({shown})") or 0) >= EPISODES


if __name__ == "__main__":
    take(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/img"))
