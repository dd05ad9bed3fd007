"""comparison.html: the success of each policy, and the difference of each two, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from robot_rl.report.document import document, write


def write_page(folder: Path, result: Mapping[str, Any]) -> Path:
    """Write comparison.html into a folder, complete in itself; returns its path."""
    parts = (_policies, _differences, _starts, _seal)
    page = document(
        title="comparison",
        kicker="robot-rl comparison",
        name="Which policy is better?",
        subtitle=f"{result['starts']} starts, each used by every policy; nobody saw who drove",
        body="\n".join(part(result) for part in parts),
    )
    return write(folder / "comparison.html", page)


def _name(index: int) -> str:
    return chr(ord("A") + index)


def _track(value: float, low: float, high: float, left: float, mark: float | None) -> str:
    """A point with its interval on a scale from `left` to 1."""

    def at(x: float) -> float:
        return 100 * (x - left) / (1.0 - left)

    goal = "" if mark is None else f'<div class="goal" style="left:{at(mark):.1f}%"></div>'
    return (
        f'<div class="track">{goal}<div class="range" style="left:{at(low):.1f}%;'
        f'right:{100 - at(high):.1f}%"></div>'
        f'<div class="dot" style="left:{at(value):.1f}%"></div></div>'
    )


def _policies(result: Mapping[str, Any]) -> str:
    rows = ""
    for index, p in enumerate(result["policies"]):
        low, high = p["wilson_low"], p["wilson_high"]
        cycle = p["cycle_time_s_median"]
        rows += (
            f'<span class="who">{_name(index)} {escape(p["run"])}</span>'
            + _track(p["success"], low, high, 0.0, None)
            + f"<span>{p['successes']} of {p['episodes']}, {100 * p['success']:.0f} % "
            f"({100 * low:.0f}&ndash;{100 * high:.0f})"
            + (f", {cycle:.1f} s per cycle" if cycle else "")
            + "</span>"
        )
    note = '<span></span><span class="note">success, 95 % Wilson interval</span>'
    return (
        f'<h2>Success</h2><section class="card"><div class="whiskers">{rows}{note}</div></section>'
    )


def _differences(result: Mapping[str, Any]) -> str:
    if not result["pairs"]:
        return ""
    rows = ""
    several = len(result["pairs"]) > 1
    for pair in result["pairs"]:
        p_value = f"p = {pair['p_value']:.3g}"
        p_value += f" (Holm {pair['p_holm']:.3g})" if several else ""
        rows += (
            f'<span class="who">{_name(pair["first"])} &minus; {_name(pair["second"])}</span>'
            + _track(pair["difference"], pair["low"], pair["high"], -1.0, 0.0)
            + f"<span>{100 * pair['difference']:+.0f} points "
            f"({100 * pair['low']:+.0f} to {100 * pair['high']:+.0f}), {p_value}</span>"
        )
    note = "difference of success on the same starts: 95 % interval (Newcombe 1998, method 10), "
    note += "McNemar's exact test; dashed: no difference"
    note = f'<span></span><span class="note">{note}</span>'
    return (
        '<h2>Difference</h2><section class="card">'
        f'<div class="whiskers">{rows}{note}</div></section>'
    )


def _starts(result: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{_name(i)}</th>" for i in range(len(result["policies"])))
    rows = ""
    for start, (outcomes, order) in enumerate(
        zip(result["outcomes"], result["orders"], strict=True)
    ):
        cells = "".join(f"<td>{'success' if won else 'failure'}</td>" for won in outcomes)
        drove = ", ".join(_name(i) for i in order)
        rows += f"<tr><td>{start}</td>{cells}<td>{drove}</td></tr>"
    return (
        '<h2>Each start</h2><section class="card"><details><summary>outcomes and order</summary>'
        f"<table><tr><th>start</th>{head}<th>order</th></tr>{rows}</table></details></section>"
    )


def _seal(result: Mapping[str, Any]) -> str:
    holds = "fits the secret" if result["commitment_holds"] else "does NOT fit the secret"
    text = f"The hash that was told before the first episode {holds}: SHA-256 of "
    text += f"<code>{escape(result['secret'])}</code> is <code>{escape(result['commitment'])}"
    return f'<h2>The order</h2><section class="card"><p>{text}</code>.</p></section>'
