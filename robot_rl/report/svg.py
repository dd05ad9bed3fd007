"""Inline SVG charts: colours come from CSS classes (dark and light), hover values from `data-*`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.floating[Any]]

MAX_POINTS = 240  # more than a screen shows; keeps the page small after a million steps


@dataclass(frozen=True)
class Curve:
    """One line of a chart: x, y float64 [N]. Without a label it is drawn but has no hover value.

    style: CSS classes, one of accent, human, second, dots, with `faint` for the background.
    """

    label: str
    x: F64
    y: F64
    style: str = "accent"
    fill: bool = False


@dataclass(frozen=True)
class Box:
    """Size and margins of a chart in SVG units (about CSS pixels)."""

    width: float
    height: float
    left: float = 44.0
    right: float = 10.0
    top: float = 8.0
    bottom: float = 22.0


def thin(x: F64, y: F64, limit: int = MAX_POINTS) -> tuple[F64, F64, F64, F64]:
    """Average into at most `limit` buckets: x, mean, min, max, float64 [<= limit] each."""
    if x.size <= limit:
        return x, y, y, y
    parts = np.array_split(np.arange(x.size), limit)
    mean, low, high = (np.array([f(y[i]) for i in parts]) for f in (np.mean, np.min, np.max))
    return np.array([x[i].mean() for i in parts]), mean, low, high


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About `count` round values that lie in [low, high]."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number as people write it: 12.3k, 0.95, 1.2e-05."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k"
    if size and size < 1e-3:
        return f"{value:.1e}"
    return f"{value:.4g}"


def chart(
    curves: Sequence[Curve],
    box: Box,
    *,
    unit: str = "",
    x_range: tuple[float, float],
    y_range: tuple[float, float] | None = None,
    x_label: str = "env steps",
    goal: float | None = None,
) -> str:
    """A line chart. One crosshair serves all charts of a page: their x axes mean the same."""
    thinned = [(c, *thin(c.x, c.y)) for c in curves]
    lows = [float(low.min()) for _, _, _, low, _ in thinned]
    highs = [float(high.max()) for *_, high in thinned]
    y0, y1 = y_range or _padded(min(lows), max(highs))
    plot = Plot(box, x_range, (y0, y1))
    percent = unit == "%"
    parts = [plot.grid(nice_ticks(y0, y1, 4 if box.height > 180 else 3), percent)]
    parts.append(plot.x_axis(x_label))
    if goal is not None:
        parts.append(plot.goal_line(goal))
    for curve, x, mean, low, high in thinned:
        parts += plot.draw(curve, x, mean, low, high)
    hover = [
        {
            "label": c.label,
            "style": c.style,
            "x": [float(f"{v:.7g}") for v in x],
            "y": [float(f"{v:.4g}") for v in mean],
        }
        for c, x, mean, _, _ in thinned
        if c.label
    ]
    meta = {"series": hover, "unit": unit, "x0": x_range[0], "x1": x_range[1], "left": box.left}
    meta |= {"right": box.width - box.right, "top": box.top, "bottom": box.height - box.bottom}
    meta |= {"y0": y0, "y1": y1, "x_label": x_label}
    label = ", ".join(c.label for c in curves if c.label)
    return (
        f'<svg class="chart" viewBox="0 0 {box.width:g} {box.height:g}" role="img" '
        f'aria-label="{escape(label)}" data-chart="{escape(json.dumps(meta))}">'
        + "".join(parts)
        + '<g class="cursor" visibility="hidden"><line/></g></svg>'
    )


def strip(bars: Sequence[tuple[float, float, str, str]], box: Box, x0: float, x1: float) -> str:
    """Timeline: one bar per episode. bars: (x, height 0..1, CSS class, tooltip), by x."""
    scale = (box.width - box.left - box.right) / max(x1 - x0, 1e-9)
    floor = box.height - box.bottom
    room = floor - box.top
    out = []
    before = x0
    for x, height, style, title in bars:
        left = box.left + (before - x0) * scale
        wide = max((x - before) * scale - 0.6, 0.7)
        tall = max(height, 0.0) * room
        out.append(
            f'<g class="{escape(style)}"><title>{escape(title)}</title>'
            f'<rect class="base" x="{left:.1f}" y="{floor:.1f}" width="{wide:.1f}" height="6"/>'
            f'<rect class="part" x="{left:.1f}" y="{floor - tall:.1f}" width="{wide:.1f}" '
            f'height="{tall:.1f}"/>'
            f'<rect class="hit" x="{left:.1f}" y="0" width="{wide:.1f}" '
            f'height="{box.height:g}"/></g>'
        )
        before = x
    return (
        f'<svg class="strip" viewBox="0 0 {box.width:g} {box.height:g}" role="img" '
        f'aria-label="interventions per episode">'
        f'<text class="tick" x="{box.left - 6:g}" y="{box.top + 8:g}" text-anchor="end">100 %'
        f'</text><text class="tick" x="{box.left - 6:g}" y="{floor:.1f}" text-anchor="end">0</text>'
        + "".join(out)
        + "</svg>"
    )


def timeline(
    rows: Mapping[str, Sequence[tuple[float, float, str, str]]],
    width: float,
    x_range: tuple[float, float],
    x_label: str = "env steps",
) -> str:
    """When findings were there: one line per name, with bars (begin, end, CSS class, tooltip)."""
    box = Box(width, 22.0 * len(rows) + 26.0, left=120.0, top=4.0)
    plot = Plot(box, x_range, (0.0, 1.0))
    parts = [plot.x_axis(x_label)]
    for index, (name, bars) in enumerate(rows.items()):
        y = box.top + 22.0 * index
        parts.append(
            f'<text class="tick" x="{box.left - 10:g}" y="{y + 13:g}" text-anchor="end">'
            f'{escape(name)}</text><rect class="base" x="{box.left:g}" y="{y + 4:g}" '
            f'width="{plot.right - box.left:g}" height="12"/>'
        )
        for begin, end, style, title in bars:
            left, right = float(plot.x(begin)), float(plot.x(end))
            parts.append(
                f'<rect class="{escape(style)}" x="{left:.1f}" y="{y + 4:g}" '
                f'width="{max(right - left, 2.0):.1f}" height="12">'
                f"<title>{escape(title)}</title></rect>"
            )
    return (
        f'<svg class="timeline" viewBox="0 0 {box.width:g} {box.height:g}" role="img" '
        f'aria-label="findings over the run">{"".join(parts)}</svg>'
    )


def scatter(
    points: Sequence[tuple[float, float, str, str]], box: Box, x_label: str, y_label: str
) -> str:
    """Points (x, y, CSS class, tooltip) at one scale in both directions."""
    x, y = np.array([p[:2] for p in points]).T
    room = box.width - box.left - box.right, box.height - box.top - box.bottom
    scale = 1.1 * max(np.ptp(x) / room[0], np.ptp(y) / room[1], 1e-9)  # of data to SVG units
    middle, half = (float(np.ptp(v)) / 2 + float(v.min()) for v in (x, y)), np.array(room) / 2
    ranges = [(m - scale * h, m + scale * h) for m, h in zip(middle, half, strict=True)]
    plot = Plot(box, *ranges)
    dots = "".join(
        f'<circle class="{escape(style)}" cx="{float(plot.x(a)):.1f}" cy="{float(plot.y(b)):.1f}" '
        f'r="3.2"><title>{escape(title)}</title></circle>'
        for a, b, style, title in points
    )
    return (
        f'<svg class="scatter" viewBox="0 0 {box.width:g} {box.height:g}" role="img" '
        f'aria-label="{escape(y_label)} over {escape(x_label)}">'
        f"{plot.grid(nice_ticks(*ranges[1]), False)}{plot.x_axis(x_label)}"
        f'<text class="tick" x="{box.left:g}" y="{box.top + 3:g}">{escape(y_label)}</text>'
        f"{dots}</svg>"
    )


class Plot:
    """Maps data to SVG coordinates and draws the pieces."""

    def __init__(
        self, box: Box, x_range: tuple[float, float], y_range: tuple[float, float]
    ) -> None:
        self.box, self.x_range, self.y_range = box, x_range, y_range
        self.floor, self.right = box.height - box.bottom, box.width - box.right

    def x(self, value: F64 | float) -> F64:
        """Data to SVG x."""
        low, high = self.x_range
        share = (np.asarray(value) - low) / max(high - low, 1e-9)
        return self.box.left + share * (self.right - self.box.left)

    def y(self, value: F64 | float) -> F64:
        """Data to SVG y (grows downwards)."""
        low, high = self.y_range
        share = (np.asarray(value) - low) / max(high - low, 1e-12)
        return self.floor - share * (self.floor - self.box.top)

    def grid(self, ticks: Sequence[float], percent: bool) -> str:
        """Horizontal lines with their values."""
        out = []
        for tick in ticks:
            y = float(self.y(tick))
            text = f"{tick * 100:g} %" if percent else short(tick)
            out.append(
                f'<line class="grid" x1="{self.box.left:g}" x2="{self.right:g}" y1="{y:.1f}" '
                f'y2="{y:.1f}"/><text class="tick" x="{self.box.left - 6:g}" y="{y + 3.5:.1f}" '
                f'text-anchor="end">{text}</text>'
            )
        return "".join(out)

    def x_axis(self, label: str) -> str:
        """Tick values along the floor, the name of the axis at its end."""
        keep_clear = 24.0 + 6.0 * len(label)  # about the text's width at 11 px
        out = [
            f'<text class="tick" x="{self.right:g}" y="{self.floor + 15:.1f}" '
            f'text-anchor="end">{escape(label)}</text>'
        ]
        for tick in nice_ticks(*self.x_range, 8 if self.box.width > 500 else 4):
            x = float(self.x(tick))
            if x < self.right - keep_clear:
                out.append(
                    f'<text class="tick" x="{x:.1f}" y="{self.floor + 15:.1f}" '
                    f'text-anchor="middle">{short(tick)}</text>'
                )
        return "".join(out)

    def goal_line(self, value: float) -> str:
        """Dashed line at the value to reach."""
        y = float(self.y(value))
        return (
            f'<line class="goal" x1="{self.box.left:g}" x2="{self.right:g}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/>'
        )

    def draw(self, curve: Curve, x: F64, mean: F64, low: F64, high: F64) -> list[str]:
        """The curve: dots, or a line with its range band or area."""
        px, py = self.x(x), self.y(mean)
        style = escape(curve.style)
        if curve.style == "dots" or x.size == 1:
            pairs = zip(px, py, strict=True)
            return [
                f'<circle class="{style}" cx="{a:.1f}" cy="{b:.1f}" r="3.2"/>' for a, b in pairs
            ]
        line = _path(px, py)
        out = []
        if curve.fill:
            area = f"{line}L{px[-1]:.1f},{self.floor:.1f}L{px[0]:.1f},{self.floor:.1f}Z"
            out.append(f'<path class="area {style}" d="{area}"/>')
        elif low is not mean and curve.label:
            band = _path(px, self.y(high)) + _path(px[::-1], self.y(low)[::-1]).replace("M", "L", 1)
            out.append(f'<path class="band {style}" d="{band}Z"/>')
        return [*out, f'<path class="line {style}" d="{line}"/>']


def _path(x: F64, y: F64) -> str:
    return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _padded(low: float, high: float) -> tuple[float, float]:
    """Range with air above and below; anchored at 0 when the data nearly reaches it."""
    span = high - low or abs(high) or 1.0
    bottom = 0.0 if 0 <= low < 0.5 * high else low - 0.06 * span
    return bottom, high + 0.08 * span
