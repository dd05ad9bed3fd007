"""One thread: results do not depend on the number of cores, and two cores serve many tests.

`make test` runs three tests at a time, since many wait. Those with the mark `alone` run one after
the other: a ROS 2 graph that keeps real time, or a figure of time. Beside them run those that are
marked `waits` as well, one after the other: they hardly need a processor.

A graph in real time stops the arm when the machine stalls, which is right and fails a test that
expects motion. So tests with the mark `alone` or `ros` have `ATTEMPTS`, and each that was needed is
listed at the end (RERUN). What fails for another reason than the machine fails every time; no other
test gets a second attempt.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from robot_rl.system import priority

with contextlib.suppress(ImportError):  # the core's tests run without torch
    import torch

    torch.set_num_threads(1)

# A suite started in the background, or with nohup, would hand down that these are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ATTEMPTS = 3
LONG = ("studio", "console")  # folders of tests in a browser

settings.register_profile("unhurried", deadline=None)  # a busy machine is no fault of an example's
settings.load_profile("unhurried")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read only files with such a test where `alone` is asked for: six of seven have none."""
    if not _asks_for_alone(config):
        return None
    is_test = collection_path.match("test_*.py")
    return True if is_test and "mark.alone" not in collection_path.read_text() else None


def _asks_for_alone(config: pytest.Config) -> bool:
    asked: str = config.option.markexpr or ""
    return " or " not in asked and "alone" in asked.replace("not alone", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More attempts for tests in real time; and long files first, or all wait for the last one."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)
    for item in items:
        if any(item.get_closest_marker(name) for name in ("alone", "ros")):
            item.add_marker(pytest.mark.flaky(reruns=ATTEMPTS - 1))


@pytest.fixture(autouse=True)
def _usual_priority() -> Iterator[None]:
    """A node in the tests' own process takes real-time priority: later tests would inherit it."""
    yield
    priority.step_back()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """One queue of the tests marked `alone`, and beside it one of those that also `waits`."""
    from xdist.scheduler import LoadScopeScheduling

    class Queues(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "waits" if _waits(config.rootpath / nodeid.partition("::")[0]) else "alone"

    return Queues(config, log) if _asks_for_alone(config) else None


@functools.cache
def _waits(path: Path) -> bool:
    return "mark.waits" in path.read_text()


def pytest_collection_finish() -> None:
    """Leave what was collected (half a million objects) out of each later garbage collection.

    One stalls every thread of a test for a quarter of a second, after which a driver is silent.
    """
    gc.collect()
    gc.freeze()
