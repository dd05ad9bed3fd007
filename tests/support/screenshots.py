"""`make screenshots`: the pages of the console and the studio in docs/img, of runs that learn.

python -m tests.support.screenshots [FOLDER]
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robot_rl.bench.console.browser import browser, until
from robot_rl.cli.main import main
from robot_rl.link.panel import link_file

WORDS = (
    "experiment=lift_pixels",
    "runtime=ros",
    "operator=console",
    "operator.with_script=true",
    "train.demos=4",
    "train.video=false",
)
REACH = ("train", "experiment=reach", "runtime=lockstep", "train.video=false")  # beside it
SIZE = {"width": 1280, "height": 800}
EPISODES = 8  # of practice, so that there are curves
LINK = re.compile(r"http://\S+/enter\?token=\S+")
START_S, LEARNS_S = 120.0, 900.0


def take(folder: Path) -> None:
    """Train, look at the pages, and write the pictures."""
    with tempfile.TemporaryDirectory(
        prefix="robot-rl-screenshots-", ignore_cleanup_errors=True
    ) as made:
        runs = Path(made)
        for seed in range(2):
            main(
                [
                    *REACH,
                    f"seed={seed}",
                    f"run_dir={runs / 'reach' / f'20260101-12000{seed}-s{seed}'}",
                ]
            )
        run_dir = runs / "lift_pixels" / "20260101-130000-s0"
        with program("train", *WORDS, f"run_dir={run_dir}"), browser() as running:
            until(lambda: link_file(run_dir).is_file(), "the console leaves its link", START_S)
            page = running.new_context(viewport=SIZE, color_scheme="light").new_page()
            page.goto(link_file(run_dir).read_text().strip())
            until(lambda: learns(page), f"{EPISODES} episodes of practice", LEARNS_S)
            until(lambda: word(page) in ("POLICY", "SCRIPT"), "the arm is driven", START_S)
            time.sleep(1.0)
            page.screenshot(path=str(folder / "console.png"))
            page.goto(f"{page.url.partition('#')[0].rstrip('/')}/review")
            page.locator(".episode").nth(2).click()
            until(lambda: page.locator("#frames img").count(), "the episode is shown", START_S)
            page.locator("#map summary").click()
            for name in ("reward", "action"):
                page.locator("#add-plot").select_option(name)
                plot = page.locator(f'.plot[data-signal="{name}"]')
                until(plot.count, f"the plot of {name}", START_S)
            for _ in range(12):
                page.keyboard.press("ArrowRight")
            time.sleep(2.0)
            page.screenshot(path=str(folder / "review.png"))
            with program("studio", str(runs), "--no-browser") as studio:
                page.goto(link_of(studio))
                until(lambda: page.locator(".run").count() == 3, "the runs are listed", START_S)
                page.locator(".run", has_text="lift_pixels").get_by_role("link").click()
                until(lambda: page.locator(".detail .log").count(), "the run is shown", START_S)
                time.sleep(2.0)
                page.screenshot(path=str(folder / "studio.png"))


@contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[str]]:
    """`robot-rl WORDS`, which is ended at the end; its output can be read."""
    command = [sys.executable, "-u", "-m", "robot_rl.cli.main", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE} if words[0] == "studio" else {}
    run = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **pipes)
    try:
        yield run
    finally:
        run.terminate()
        run.wait()


def link_of(studio: subprocess.Popen[str]) -> str:
    """The link that a studio prints."""
    assert studio.stdout is not None
    return next(found[0] for line in studio.stdout if (found := LINK.search(line)))


def word(page: Any) -> str:
    """The word of state."""
    return str(page.evaluate("document.body.dataset.word"))


def learns(page: Any) -> bool:
    """Whether the page has seen enough of practice to draw curves, with all its pictures."""
    shown = "robotRL.views?.every((view) => view.drawn) ? robotRL.figures?.['episode/index'] : 0"
    return (page.evaluate(f"globalThis.robotRL && ({shown})") or 0) >= EPISODES


if __name__ == "__main__":
    take(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/img"))
