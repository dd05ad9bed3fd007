"""An episode in which a person takes over."""

from __future__ import annotations

from dataclasses import replace

from robot_rl.types import Driver, Ending, Row, Step
from tests.support.replay_rows import frame, start, step


def with_segments(rows: list[Row]) -> list[Row]:
    """Number the segments: a new one at each change of driver."""
    state: dict[int, tuple[Driver, int]] = {}
    numbers: dict[tuple[int, int], int] = {}
    steps = sorted((r for r in rows if isinstance(r, Step)), key=lambda r: (r.id.episode, r.step))
    for row in steps:
        driver, segment = state.get(row.id.episode, (row.driver, 0))
        segment += driver is not row.driver
        state[row.id.episode] = row.driver, segment
        numbers[row.id.episode, row.step] = segment
    return [
        replace(r, segment=numbers[r.id.episode, r.step]) if isinstance(r, Step) else r
        for r in rows
    ]


def corrected(number: int, drivers: list[Driver], success: bool = True) -> list[Row]:
    rows: list[Row] = [start(number), frame(number, 0)]
    for index, driver in enumerate(drivers):
        last = index == len(drivers) - 1
        row = step(
            number,
            index,
            driver,
            reward=float(last and success),
            ending=Ending.TERMINATED if last else None,
        )
        rows += [replace(row, success=success if last else None), frame(number, index + 1)]
    return with_segments(rows)
