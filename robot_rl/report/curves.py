"""Learning curves of a study as one SVG picture: success without help over practice steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from robot_rl.control.statistics import over_seeds, rolling_mean
from robot_rl.report.rundata import RunData, read_run
from robot_rl.report.svg import F64, Box, Curve, Plot, nice_ticks

WINDOW = 20  # newest practice episodes of every seed
POINTS = 120
COLOURS = ("#0b6bcb", "#d9480f", "#2b8a3e", "#9c36b5", "#868e96", "#e8a200")
STYLE = """
svg { background: #fff; font: 12px system-ui, sans-serif }
.grid { stroke: #e3e6ea } .tick, .name { fill: #495057 } .tick { font-size: 11px }
.line { fill: none; stroke-width: 2 } .band { opacity: 0.15 }
"""


@dataclass(frozen=True)
class LearningCurve:
    """Unaided success over practice, pooled over seeds.

    env_steps, success, low, high: float64 [N]; low and high: 95 % interval over seeds
    (`control.statistics`). seeds: how many runs; beyond the shortest run, those that have ended
    count with their last episodes.
    """

    env_steps: F64
    success: F64
    low: F64
    high: F64
    seeds: int


def learning_curve(folders: Sequence[Path]) -> LearningCurve | None:
    """The learning curve of the runs that practised; None when none of them did.

    An episode counts as a success when it succeeded and nobody took over.
    """
    seeds = [unaided(read_run(folder)) for folder in folders]
    seeds = [s for s in seeds if s is not None]
    if not seeds:
        return None
    grid = np.linspace(0.0, max(steps[-1] for steps, _ in seeds), POINTS)
    wins, episodes = np.zeros((2, POINTS, len(seeds)), np.int64)
    for index, (steps, success) in enumerate(seeds):
        ends = np.searchsorted(steps, grid, side="right")
        held = episodes[:, index] = np.minimum(ends, WINDOW)
        rate = np.concatenate(([0.0], rolling_mean(success, WINDOW)))[ends]
        wins[:, index] = np.rint(rate * held)
    bounds = np.array([over_seeds(w, n) for w, n in zip(wins, episodes, strict=True)])
    wins, episodes = wins.sum(1), episodes.sum(1)
    known = episodes >= WINDOW // 2
    rate = wins / np.maximum(episodes, 1)
    return LearningCurve(
        grid[known], rate[known], bounds[known, 0], bounds[known, 1], seeds=len(seeds)
    )


def unaided(run: RunData) -> tuple[F64, F64] | None:
    """(env steps, 1.0 where it succeeded and nobody took over) of each episode that counts."""
    rows = run.counted()
    if not rows:
        return None
    steps = np.array([r["env_steps"] for r in rows], np.float64)
    alone = [r["episode/success"] > 0 and not r.get("episode/takeovers") for r in rows]
    return steps, np.array(alone, np.float64)


def picture(curves: Mapping[str, LearningCurve], title: str) -> str:
    """A standalone SVG document: one line with its interval per name."""
    box = Box(760.0, 300.0 + 18.0 * len(curves), top=30.0, bottom=30.0 + 18.0 * len(curves))
    longest = max((float(c.env_steps[-1]) for c in curves.values() if c.env_steps.size), default=1)
    plot = Plot(box, (0.0, longest), (0.0, 1.0))
    parts = [
        f'<text class="name" x="{box.left:g}" y="18">{escape(title)}</text>',
        plot.grid(nice_ticks(0.0, 1.0), percent=True),
        plot.x_axis("practice steps"),
    ]
    for index, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        y = plot.floor + 34.0 + 18.0 * index
        parts += [
            f"<style>.band.c{index}{{fill:{colour}}} .line.c{index}{{stroke:{colour}}}</style>",
            *plot.draw(
                Curve(name, curve.env_steps, curve.success, style=f"c{index}"),
                curve.env_steps,
                curve.success,
                curve.low,
                curve.high,
            ),
            f'<path class="line c{index}" d="M{box.left:g},{y:g}h24"/>',
            f'<text class="name" x="{box.left + 32:g}" y="{y + 4:g}">{escape(name)}, '
            f"{curve.seeds} seeds</text>",
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {box.width:g} {box.height:g}" '
        f'width="{box.width:g}" height="{box.height:g}"><style>{STYLE}</style>'
        + "".join(parts)
        + "</svg>\n"
    )
