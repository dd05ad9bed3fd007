"""1e6 adversarial commands, 0 violations: whatever is asked, what is sent satisfies every limit."""

from __future__ import annotations

import pytest

from robot_rl.bench.faults.adversary import attack


@pytest.mark.timeout(300)  # 40 s of one idle core
@pytest.mark.parametrize(
    "commands",
    [40_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
)
def test_a_million_adversarial_commands_break_no_limit(commands: int) -> None:
    found, counts = attack(commands)
    assert sum(counts.values()) == commands
    assert found == dict.fromkeys(found, 0), found
    moved = sum(n for k, n in counts.items() if not k.startswith("hold"))
    assert moved > commands // 5, counts  # the gate that always holds is not the one we test
    for check in ("finite", "age", "sequence", "lease", "state", "speed", "joint", "force"):
        assert any(k.startswith(f"hold: {check}") for k in counts), (check, counts)
