"""The page of `robot-rl reward eval`: figures, and strips of episodes.

A person can check the strips in a minute; episodes that the model got wrong come first.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from robot_rl.report import svg
from robot_rl.report.document import document, write
from robot_rl.reward.metrics import Strip

PICTURES = 10  # of an episode
BOX = svg.Box(820.0, 110.0)
STYLES = ("accent", "human", "second")
STYLE = """
.card { margin: 0 0 18px; } .card h2 { margin: 0 0 10px; }
.strip-row { margin: 0 0 18px; } .strip-row h3 .bad { color: var(--bad); }
.pictures { display: grid; grid-template-columns: repeat(10, 1fr); gap: 2px; }
.pictures img { width: 100%; image-rendering: pixelated; border-radius: 3px; display: block; }
table.figures { border-collapse: collapse; width: 100%; } table.figures td { padding: 3px 8px;
  border-bottom: 1px dotted var(--rule); } table.figures td + td { text-align: right;
  font-variant-numeric: tabular-nums; }
"""


def write_reward_page(
    target: Path,
    *,
    name: str,
    subtitle: str,
    figures: Mapping[str, str],
    strips: Sequence[Strip],
) -> Path:
    """Write the page, whole or not at all, and return its path."""
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in figures.items())
    ordered = sorted(strips, key=lambda s: not s.wrong)
    body = f'<section class="card"><h2>Figures</h2><table class="figures">{rows}</table></section>'
    body += '<section class="card"><h2>Episodes, what it got wrong first</h2>'
    names = next((s.curves for s in strips), {})
    legend = "".join(
        f'<span><i class="{style}"></i> {escape(name)}</span>'
        for name, style in zip(names, STYLES, strict=False)
    )
    body += f'<p class="legend">{legend}</p>'
    body += "".join(_strip(s) for s in ordered) + "</section>"
    return write(
        target,
        document(
            title=name,
            kicker="robot-rl reward model",
            name=name,
            subtitle=escape(subtitle),
            body=body,
            style=STYLE,
        ),
    )


def _strip(strip: Strip) -> str:
    from robot_rl.data.video import encode_still

    length = len(strip.images)
    shown = np.linspace(0, length - 1, min(PICTURES, length)).round().astype(int)
    pictures = "".join(
        f'<img alt="frame {t}" title="frame {t}" src="data:image/png;base64,'
        f'{base64.b64encode(encode_still(strip.images[t], "png")).decode()}">'
        for t in shown
    )
    steps = np.arange(length, dtype=np.float64)
    curves = [
        svg.Curve(name, steps[np.isfinite(y)], y[np.isfinite(y)], style)
        for (name, y), style in zip(strip.curves.items(), STYLES, strict=False)
        if np.isfinite(y).any()
    ]
    chart = svg.chart(
        curves,
        BOX,
        x_range=(0.0, float(max(length - 1, 1))),
        y_range=(-0.02, 1.02),
        x_label="frame",
        goal=strip.threshold,
    )
    wrong = f' <span class="bad">{escape(strip.wrong)}</span>' if strip.wrong else ""
    title = f"<h3>{escape(strip.title)}{wrong}</h3>"
    return (
        f'<div class="strip-row">{title}<div class="pictures">{pictures}</div>'
        f'<div class="plot">{chart}</div></div>'
    )
