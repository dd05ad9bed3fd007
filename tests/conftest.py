"""One thread: results do not depend on the number of cores, and two cores serve many tests.

`make test` runs three tests at a time, since many wait. Those with the mark `alone` run one after
the other: a ROS 2 graph that keeps real time, or a figure of time.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):  # the core's tests run without torch
    import torch

    torch.set_num_threads(1)
