"""A folder of runs, its studio, and a real headless browser."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the console extra is not installed")

from tests.console.conftest import browser, context
from tests.support.studio import ServedStudio, made_run

__all__ = ["browser", "context"]  # fixtures


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as `robot-rl train` makes it, in which nothing was done yet."""
    from robot_rl.run.experiment import Experiment

    folder = tmp_path_factory.mktemp("saved") / "run"
    Experiment.compose(["experiment=reach", f"run_dir={folder}"]).save()
    return folder


@pytest.fixture
def runs(tmp_path: Path, saved: Path) -> Path:
    """A folder of two runs. Its path is longer than a page is wide."""
    folder = tmp_path / "-".join(["runs"] * 40)
    made_run(folder, saved, "reach/20260101-120000-s0")
    made_run(folder, saved, "reach/20260101-130000-s1", episodes=12)
    return folder


@pytest.fixture
def studio(runs: Path) -> Iterator[ServedStudio]:
    """The studio's server."""
    served = ServedStudio(runs)
    yield served
    for job in served.studio.jobs.all():  # what was started outlives a studio, but not its test
        if job.is_running:
            os.kill(int(job.process.split()[2]), signal.SIGKILL)
    served.close()
