"""The part of report.html about a policy at work: success over time, autonomy, last failures."""

from __future__ import annotations

import calendar
import shlex
import time
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from robot_rl.control.statistics import wilson
from robot_rl.report import svg
from robot_rl.report.rundata import RunData

MOST_HOURS = 72  # of a curve by the hour; longer deployments are shown by the day


def deployment(run: RunData) -> str:
    """Success with its interval, figures, success by the hour or day, failures; "" without any."""
    d = run.deployment
    if not d.get("episodes") and not d.get("stops"):
        return ""
    where = f' <span class="note">{escape(d["since"])} to {escape(d["until"])}</span>'
    return (
        f'<h2>Deployment{where}</h2><section class="card">{_rates(d)}</section>'
        f'<section class="card tiles">{_tiles(d)}</section>{_curve(d)}{_failures(d, run)}'
    )


def _rates(d: Mapping[str, Any]) -> str:
    rows = ""
    for name, wins, key in (
        ("success", "successes", "success"),
        ("without help", "unaided", "unaided"),
    ):
        low, high = d[f"{key}_low"], d[f"{key}_high"]
        share = d[wins] / max(d["labelled"], 1)
        rows += (
            f'<span class="who">{name}</span><div class="track"><div class="range" '
            f'style="left:{100 * low:.1f}%;right:{100 * (1 - high):.1f}%"></div>'
            f'<div class="dot" style="left:{100 * share:.1f}%"></div></div>'
            f"<span>{d[wins]} of {d['labelled']}, {100 * share:.0f} % "
            f"({100 * low:.1f}&ndash;{100 * high:.1f})</span>"
        )
    note = "95 % Wilson interval"
    if d["unlabelled"]:
        note += f"; {d['unlabelled']} more are unlabelled: nobody has said how they ended"
    note = f'<span></span><span class="note">{escape(note)}</span>'
    return f'<div class="whiskers">{rows}{note}</div>'


def _tiles(d: Mapping[str, Any]) -> str:
    def seconds(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:.1f} s" if value < 90 else f"{value / 60:.1f} min"

    def share(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    cells = [
        (f"{d['episodes']}", "episodes"),
        (f"{d['driven_s'] / 3600:.2f} h", "driven"),
        (seconds(d["cycle_time_s_median"]), "cycle time, median"),
        (seconds(d["cycle_time_s_p90"]), "cycle time, p90"),
        (share(d["autonomy_steps"]), "of the steps alone"),
        (share(d["autonomy_episodes"]), "of the episodes alone"),
        (f"{d['interventions']}", "takeovers"),
        (seconds(d["mtbi_s"]), "between takeovers"),
    ]
    return "".join(f'<div class="tile"><b>{escape(a)}</b><span>{b}</span></div>' for a, b in cells)


def _curve(d: Mapping[str, Any]) -> str:
    """Success by the hour, or by the day, with its interval."""
    bins: dict[str, list[int]] = dict(sorted(d["hours"].items()))  # clocks are set back, too
    unit, name, length = "%Y-%m-%dT%H", "hour", 3600
    if len(bins) > MOST_HOURS:
        by_day: dict[str, list[int]] = {}
        for hour, (wins, labelled) in bins.items():
            counted = by_day.setdefault(hour[:10], [0, 0])
            counted[0] += wins
            counted[1] += labelled
        bins, unit, name, length = by_day, "%Y-%m-%d", "day", 86_400
    if not bins:
        return ""
    times = [calendar.timegm(time.strptime(text, unit)) for text in bins]
    x = np.array([(t - times[0]) / length + 0.5 for t in times])  # the middle of each
    rate = np.array([wins / n for wins, n in bins.values()])
    bounds = np.array([wilson(wins, n) for wins, n in bins.values()])
    box = svg.Box(1040, 220)
    plot = svg.Plot(box, (0.0, float(x[-1]) + 0.5), (0.0, 1.0))
    curve = svg.Curve("success", x, rate, "accent")
    parts = [plot.grid(svg.nice_ticks(0.0, 1.0), percent=True), plot.x_axis(f"{name}s")]
    for at, (low, high) in zip(x, bounds, strict=True):
        px = float(plot.x(float(at)))
        parts.append(
            f'<line class="whisker" x1="{px:.1f}" x2="{px:.1f}" '
            f'y1="{float(plot.y(low)):.1f}" y2="{float(plot.y(high)):.1f}"/>'
        )
    parts += plot.draw(curve, x, rate, rate, rate)
    dots = svg.Curve("", x, rate, "dots")
    parts += plot.draw(dots, x, rate, rate, rate)
    text = f"success by the {name} (UTC, from {escape(next(iter(bins)))}), 95 % Wilson intervals"
    picture = (
        f'<svg class="chart" viewBox="0 0 {box.width:g} {box.height:g}" role="img" '
        f'aria-label="{text}">{"".join(parts)}</svg>'
    )
    return f'<section class="card"><p class="legend">{text}</p>{picture}</section>'


def _failures(d: Mapping[str, Any], run: RunData) -> str:
    rows = "".join(
        f"<li>episode {escape(str(one['episode']))}, {escape(one['at'])}: "
        f"{escape(one['reason'])}, {escape(str(one['steps']))} steps</li>"
        for one in d["failed"]
    )
    stops = "".join(
        f"<li>{escape(str(count))} &times; {escape(why)}</li>" for why, count in d["stops"].items()
    )
    command = shlex.join(["robot-rl", "review", str(run.deployed_in)])
    look = f"<code>{escape(command)}</code> shows them"
    text = f"<p>Last failures ({look}):</p><ul>{rows}</ul>" if rows else "<p>No failure.</p>"
    text += f"<p>Aborted episodes, which count neither way:</p><ul>{stops}</ul>" if stops else ""
    return f'<section class="card">{text}</section>'
