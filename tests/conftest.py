"""One thread: results do not depend on the number of cores, and two cores serve many tests.

`make test` runs three tests at a time, since many wait; those of a whole ROS 2 graph in real time
get the mark `alone` and run one after the other.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

with contextlib.suppress(ImportError):  # the core's tests run without torch
    import torch

    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the machine for itself."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here / "ros"):
            item.add_marker("alone")
