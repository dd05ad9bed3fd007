"""One thread: results do not depend on the number of cores, and two cores serve many tests."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):  # the core's tests run without torch
    import torch

    torch.set_num_threads(1)
