"""The budget of a vision-language model outlasts a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_rl.reward.vlm.guards import HOUR_S, Budget, budget_of


class Time:
    """Both clocks; the monotonic one begins anew with each process."""

    def __init__(self) -> None:
        self.wall_s, self.booted_s = 1e9, 1e9 - 50.0

    def budget(self, kept: Path | None, limit: float = 5.0) -> Budget:
        """A process starts."""
        start_s = self.wall_s - 7.0
        return Budget(limit, lambda: self.wall_s - start_s, kept, lambda: self.wall_s)


def test_a_restart_begins_no_new_hour(tmp_path: Path) -> None:
    time, kept = Time(), tmp_path / "spent"
    for _ in range(5):  # a process that dies after each question
        assert time.budget(kept).take(1.0)
        time.wall_s += 60.0
    again = time.budget(kept)
    assert again.take(1.0) is None and again.used == 5.0
    assert again.wait_s == pytest.approx(HOUR_S - 300.0)
    time.wall_s += HOUR_S - 290.0
    assert again.take(1.0) and again.take(1.0) is None
    assert time.budget(kept).take(1.0) is None


def test_two_clients_of_one_process_have_one_budget(tmp_path: Path) -> None:
    """A deployment asks about yesterday's episodes and today's."""
    first, second = (budget_of(5.0, tmp_path / "spent", lambda: 0.0) for _ in range(2))
    assert [bool(b.take(1.0)) for b in (first, second) * 4] == [True] * 5 + [False] * 3
    assert budget_of(5.0, tmp_path / "another", lambda: 0.0).take(5.0)


def test_what_a_question_really_cost_is_kept_as_well(tmp_path: Path) -> None:
    time, kept = Time(), tmp_path / "spent"
    budget = time.budget(kept, 100.0)
    entry = budget.take(80.0)
    assert entry is not None
    budget.settle(entry, 30.0)
    assert time.budget(kept, 100.0).used == 30.0


@pytest.mark.parametrize(
    "text", ["", "x", "1e9", "1e9 nan\n", "1e9 inf\n", "\x00\n1 2 3\n", "1e99 4\n"]
)
def test_a_spoilt_file_stops_nothing(tmp_path: Path, text: str) -> None:
    time, kept = Time(), tmp_path / "spent"
    kept.write_text(text)
    assert time.budget(kept).used == (4.0 if text.startswith("1e99") else 0.0)


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    budget = Time().budget(tmp_path / "none" / "spent")
    assert budget.take(1.0) and budget.used == 1.0
