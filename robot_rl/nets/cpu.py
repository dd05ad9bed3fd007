"""What the CPU under the learner can do, and how to keep its allocator out of the way."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import shutil
import time
from functools import cache

import torch

from robot_rl.errors import SetupError

log = logging.getLogger(__name__)

THREADS = torch.get_num_threads()  # before anybody changed it: cores, or OMP_NUM_THREADS

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # glibc malloc.h
_ROUNDS = 20  # of two products of 0.2 to 0.8 ms
_CLEARLY = 1.5  # far from 1, so that every start of a run decides alike
_KEEP_BYTES = 64 << 20  # far above the activations of one update (about 10 MB)


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed blocks instead of returning them to the kernel.

    An update allocates and frees the same few megabytes each time; by default each block is mapped
    anew, and about 700 page faults per update cost 15-40 % of the learner's speed (measured).
    Returns False where the C library has no `mallopt` (not Linux with glibc): slower, not wrong.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        log.debug("no mallopt here; the learner runs without allocator tuning")
        return False
    options = (_M_MMAP_THRESHOLD, 4 * _KEEP_BYTES), (_M_TRIM_THRESHOLD, 4 * _KEEP_BYTES)
    return all(mallopt(key, value) for key, value in (*options, (_M_TOP_PAD, _KEEP_BYTES)))


def need_compiler(device: torch.device) -> None:
    """Check that `torch.compile` has what it needs, before anything is compiled.

    Raises:
        SetupError: no C++ compiler, on a CPU.
    """
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    if device.type == "cpu" and not any(shutil.which(x) for x in wanted):
        raise SetupError(
            "learner.compile needs a C++ compiler",
            expected=" or ".join(wanted),
            got="none in PATH",
            fix="sudo apt-get install -y g++, or learner.compile=false",
        )


@cache
def bf16_is_faster() -> bool:
    """True when this CPU multiplies clearly faster in bfloat16 than in float32: measured, once.

    What a CPU says of itself does not tell. With AMX bfloat16 is several times as fast; a Xeon with
    AVX512_BF16 alone multiplies at half the rate of float32, and convolves at two thirds of it.
    """
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    if not (capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")):
        return False  # emulated
    pairs = [torch.ones(2, 2, 256, 256, dtype=d) for d in (torch.float32, torch.bfloat16)]
    best = [math.inf, math.inf]
    for _ in range(_ROUNDS):  # in turn, so that other work on the machine hits both
        for index, (a, b) in enumerate(pairs):
            began = time.perf_counter()
            torch.bmm(a, b)
            best[index] = min(best[index], time.perf_counter() - began)
    return best[0] > _CLEARLY * best[1]


def take_cores(threads: int) -> None:
    """Compute with so many threads; 0 = two, because nothing else needs the cores.

    On two cores that makes an update 1.4 times as fast from a state, 1.7 times from cameras. One
    where there is only one core, or OMP_NUM_THREADS=1.
    """
    torch.set_num_threads(threads or min(2, THREADS))
