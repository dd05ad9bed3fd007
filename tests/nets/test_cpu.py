"""What is found out about the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from robot_rl.nets import cpu


@pytest.fixture(autouse=True)
def _measure_anew() -> Iterator[None]:
    cpu.bf16_is_faster.cache_clear()
    yield
    cpu.bf16_is_faster.cache_clear()


@pytest.mark.parametrize("slow", [torch.float32, torch.bfloat16])
def test_bfloat16_is_chosen_by_its_speed_not_by_what_the_cpu_says(
    slow: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(a: torch.Tensor, _: torch.Tensor) -> None:
        now_s[0] += 2.0 if a.dtype is slow else 1.0

    now_s = [0.0]
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.setattr(torch, "bmm", product)
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    assert cpu.bf16_is_faster() is (slow is torch.float32)


def test_emulated_bfloat16_is_not_even_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    monkeypatch.setattr(torch, "bmm", None)
    assert not cpu.bf16_is_faster()


@pytest.mark.parametrize(("threads", "cores", "taken"), [(0, 8, 2), (0, 1, 1), (3, 8, 3)])
def test_in_lockstep_the_learner_takes_two_cores(
    threads: int, cores: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "THREADS", cores)
    before = torch.get_num_threads()
    try:
        cpu.take_cores(threads)
        assert torch.get_num_threads() == taken
    finally:
        torch.set_num_threads(before)
