"""One thread: results do not depend on the number of cores, and two cores serve many tests.

`make test` runs two tests at a time, but for those of real processes in real time: they get the
mark `alone`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

ALONE = ("ros", "faults")  # folders of tests

with contextlib.suppress(ImportError):  # the core's tests run without torch
    import torch

    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the machine for itself."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        if folder in ALONE or item.get_closest_marker("ros"):
            item.add_marker("alone")
