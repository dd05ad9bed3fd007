"""A run, its robot side, its console and a real headless browser, as fixtures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the console extra is not installed")

from robot_rl.bench.console.browser import BROWSERS
from tests.support.served import NETWORK_PIXELS, RobotSide, Served, rows_of, write_figures

QUICK = "chromium-headless-shell"  # draws no windows beside the page: a third of the processor time
CHROMIUM = next((found for name in (QUICK, *BROWSERS) if (found := shutil.which(name))), None)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with two cameras, five episodes and figures."""
    from robot_rl.run.experiment import Experiment
    from robot_rl.store.store import Store

    overrides = ["experiment=peg_insert_easy_pixels", f"task.image_size={NETWORK_PIXELS}"]
    experiment = Experiment.compose([*overrides, f"run_dir={tmp_path / 'run'}"])
    folder = experiment.save()
    with Store(folder / "actor.sqlite", spec=experiment.task.spec, reserve_bytes=0) as store:
        for i in range(5):
            store.append(rows_of(experiment.task.spec, "run", i, 12, success=i % 2 == 0))
    write_figures(folder)
    return folder


@pytest.fixture
def robot(run_dir: Path) -> Iterator[RobotSide]:
    """The robot side of the run."""
    side = RobotSide(run_dir)
    yield side
    side.close()


@pytest.fixture
def console(run_dir: Path) -> Iterator[Served]:
    """The console's server of the run."""
    served = Served(run_dir)
    yield served
    served.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real headless Chromium, as the distribution ships it.

    Closed with its module: Playwright runs an event loop meanwhile, beside which the benchmark
    could not open a browser of its own.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: sudo apt-get install -y chromium-headless-shell")
    with playwright.sync_playwright() as p:
        running = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    """A fresh browser profile at the size the page is made for."""
    made = browser.new_context(viewport={"width": 1280, "height": 800})
    yield made
    made.close()
