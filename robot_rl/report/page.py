"""The parts of report.html as HTML strings. Every text from a run is escaped here."""

from __future__ import annotations

import base64
import math
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from robot_rl.control.statistics import rolling_mean, wilson, work_s
from robot_rl.control.work import BEGAN
from robot_rl.report import findings, svg
from robot_rl.report.rundata import HOME, RunData
from robot_rl.store.labels import INVERSE

WINDOW = 20  # "success over the last 20 episodes", as on the dashboard

PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Episode length", "steps", {"episode/length": ""}),
    ("Return per episode", "", {"episode/return": ""}),
    ("Mean Q", "", {"critic/q_mean": ""}),
    ("Critic loss", "", {"critic/loss": ""}),
    ("Policy entropy", "nats", {"actor/entropy": ""}),
    ("Temperature", "", {"temperature/value": ""}),
    ("Updates per env step (UTD)", "", {"learner/utd": ""}),
    ("Gradient updates", "1/s", {"learner/updates_per_s": ""}),
    ("Share of dormant units", "", {"actor/dormant": "policy", "critic/dormant": "critic"}),
    ("Share of actions at full deflection", "", {"actor/saturated": ""}),
    ("Age of the weights that drive", "s", {"weights/staleness_s": ""}),
    ("Control period", "ms", {"loop/period_ms": "median", "loop/period_ms_p99": "p99"}),
    ("Replay", "steps", {"replay/online": "online", "replay/demo": "demo"}),
)
"""Title, unit, {metric key: name of its line}; what a run does not have is skipped."""

HIDDEN = ("time_s", "env_steps", "episode/", "demo_episode/", "eval_episode/", "gate/", "exam/")
HIDDEN += ("eval/", "start/", findings.PREFIX, "weights/version", "learner/updates")
HIDDEN += ("loop/period_ms_max", BEGAN)
"""Prefixes of keys that are shown elsewhere, or mean nothing as a curve."""


def headline(run: RunData) -> str:
    """Success with its interval, and the video beside it."""
    best = run.evaluation.get("deterministic") or run.evaluation.get("stochastic")
    goal = (run.config.get("train") or {}).get("target_success")
    if best and not best.get("success_known", True):
        text = f'<div class="rate">{best["return_mean"]:.4g}</div><p class="claim">mean return of '
        text += f"{escape(str(best['episodes']))} evaluation episodes <span>&middot; standard "
        text += f"deviation {best['return_std']:.3g}; nobody says what success is</span>"
        text += f"{_reservations(run)}</p>"
    elif best:
        rate = 100 * best["successes"] / max(best["episodes"], 1)
        cycle = best.get("cycle_time_s_mean")
        text = f'<div class="rate">{rate:.0f}<small>%</small></div><p class="claim">'
        text += f"{best['successes']} of {best['episodes']} evaluation episodes succeed, unaided"
        text += f" <span>&middot; {cycle:.1f} s per cycle</span>" if cycle else ""
        text = f"<div>{text}{_reservations(run)}</p>{_effort(run)}</div>"
        text += _whiskers(run.evaluation, goal)
    else:
        text = '<div class="rate none">not evaluated{}</div><p class="claim"><span>{}</span></p>'
        how = "Run <code>robot-rl eval</code> on this folder to measure success."
        soon = "Success is measured when practice has ended; this page loads itself again."
        text = text.format(" yet" if run.going else "", soon if run.going else how)
    left = f'<section class="card headline">{text}</section>'
    if run.video:
        source = f'src="data:video/mp4;base64,{base64.b64encode(run.video).decode()}"'
        video = f"<video controls muted autoplay loop playsinline {source}></video>"
        return f'<div class="top">{left}{video}</div>'
    if run.first_success:
        source = f'src="data:image/png;base64,{base64.b64encode(run.first_success).decode()}"'
        text = "the first episode that the policy solved by itself"
        picture = f'<img class="strip" alt="{text}" {source}><p class="note">{text}</p>'
        shown = f'<section class="card first">{picture}</section>'
        return f'<div class="top plain">{left}</div>{shown}'
    return f'<div class="top plain">{left}</div>'


def _reservations(run: RunData) -> str:
    """That the evaluation is of another scene than the one learned in, or of an older policy."""
    said = _elsewhere(run.evaluation)
    if len(run.learned_from()) < len(run.episodes()):
        steps = run.evaluation["env_steps"]
        said.append(f"measured after {steps:,.0f} steps; the policy has practised since")
    return "".join(f" <span>&middot; {escape(text)}</span>" for text in said)


def _elsewhere(evaluation: Mapping[str, Any]) -> list[str]:
    """What differs where it was measured; empty where that is the scene that was learned in."""
    place = evaluation.get("evaluated_in")
    return [] if place in HOME else [f"measured elsewhere: {place}"]


def _whiskers(evaluation: Mapping[str, Any], goal: float | None) -> str:
    """Interval bars, one per kind of evaluation."""
    rows = ""
    for kind in ("deterministic", "stochastic"):
        result = evaluation.get(kind)
        if not result or not result["episodes"]:
            continue
        low, high = wilson(result["successes"], result["episodes"])
        rate = result["successes"] / result["episodes"]
        mark = f'<div class="goal" style="left:{100 * goal:.1f}%"></div>' if goal else ""
        rows += (
            f'<span class="who">{kind}</span><div class="track">{mark}<div class="range" '
            f'style="left:{100 * low:.1f}%;right:{100 * (1 - high):.1f}%"></div>'
            f'<div class="dot" style="left:{100 * rate:.1f}%"></div></div>'
            f"<span>{100 * rate:.0f} % &nbsp;({100 * low:.1f}&ndash;{100 * high:.1f})</span>"
        )
    note = "95 % Wilson interval" + (f"; dashed: target {100 * goal:g} %" if goal else "")
    return (
        f'<div class="whiskers">{rows}<span></span><span class="note">{note}'
        f"{_other_evaluations(evaluation)}</span></div>"
    )


def _other_evaluations(evaluation: Mapping[str, Any]) -> str:
    """The evaluations that are not shown, newest first; "" when there is only one."""
    every = evaluation.get("evaluations") or []
    if len(every) < 2:
        return ""
    found = []
    for one in reversed(every):
        if not (part := one["deterministic"]) or part == evaluation["deterministic"]:
            continue
        seed = [] if one["seed"] is None else [f"starts from {one['seed']}"]
        notes = ", ".join([f"weights {one['weights_version']}", *seed, *_elsewhere(one)])
        found.append(f"{part['successes']} of {part['episodes']} ({notes})")
    return escape(f"; other evaluations, deterministic: {', '.join(found)}") if found else ""


def _effort(run: RunData) -> str:
    """What it took to learn what was evaluated, in one sentence."""
    episodes = run.learned_from()
    steps, human = _steps(episodes)
    if not steps:
        return ""
    trained_s = run.evaluation.get("train_s")  # demonstrations, practice and exams
    minutes = trained_s / 60 if trained_s else _minutes(run, episodes[-1].get("time_s", math.inf))
    return (
        f'<p class="effort">{minutes:.1f} minutes and {steps:,.0f} steps of practice; a person '
        f"drove {100 * human / steps:.0f} % of the steps.</p>"
    )


def _minutes(run: RunData, until_s: float = math.inf) -> float:
    """Minutes that were worked, from the first line on; none until the run went on after a stop."""
    times = [float(r["time_s"]) for r in run.rows if "time_s" in r and r["time_s"] <= until_s]
    return sum(work_s(a, b, run.begun) for a, b in pairwise(times)) / 60


def _steps(episodes: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Steps of these episodes, and how many of them a person drove."""
    steps = [e.get("episode/length", 0) for e in episodes]
    rates = [e.get("episode/intervention_rate", 0) for e in episodes]
    return sum(steps), sum(n * rate for n, rate in zip(steps, rates, strict=True))


def tiles(run: RunData) -> str:
    """The run in six numbers."""
    steps, human = _steps(run.episodes())
    cells = [
        (f"{_minutes(run):.1f} min", "time at work"),
        (svg.short(max((r.get("env_steps", 0) for r in run.rows), default=0)), "env steps"),
        (str(len(run.episodes())), "practice episodes"),
        (f"{run.total('episode/takeovers'):.0f}", "takeovers"),
        (f"{100 * human / steps:.0f} %" if steps else "-", "driven by a person"),
        (svg.short(run.last("learner/updates") or 0), "gradient updates"),
    ]
    inner = "".join(f'<div class="tile"><b>{a}</b><span>{b}</span></div>' for a, b in cells)
    return f'<section class="card tiles">{inner}</section>'


def arms(run: RunData) -> str:
    """What each of several arms has brought to the one learner."""
    lines = ""
    for name, episodes in sorted(run.by_arm().items()):
        steps, human = _steps(episodes)
        counted = [e["episode/success"] for e in episodes if not e.get("episode/aborted")]
        newest = counted[-WINDOW:]
        result = ((run.evaluation.get("arms") or {}).get(name) or {}).get("deterministic") or {}
        cells = (
            name,
            f"{len(episodes)}",
            f"{steps:,.0f}",
            f"{100 * sum(newest) / len(newest):.0f} %" if newest else "-",
            f"{100 * human / steps:.0f} %" if steps else "-",
            f"{result['successes']} of {result['episodes']}" if result else "-",
        )
        lines += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    if not lines:
        return ""
    names = (
        "arm",
        "practice episodes",
        "steps",
        f"success, last {WINDOW}",
        "by hand",
        "evaluation",
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    return (
        f'<h2>Arms</h2><section class="card"><table class="arms"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></section>"
    )


def learning(run: RunData) -> str:
    """The chart of success and of steps that a person drove; below, one bar per episode."""
    if not run.episodes():
        return ""
    x_range, curves = _x_range(run), []
    success = run.series("episode/success")
    if success is not None:  # else each was aborted
        smooth = rolling_mean(success.value, WINDOW)
        curves.append(svg.Curve("success", success.env_steps, smooth, "accent", fill=True))
    human = run.series("episode/intervention_rate")
    if human is not None:
        driven = rolling_mean(human.value, WINDOW)
        curves.append(svg.Curve("steps by a person", human.env_steps, driven, "human"))
    exams = run.series("exam/success")
    if exams is not None:
        curves.append(svg.Curve("exam", exams.env_steps, exams.value, "dots"))
    goal = (run.config.get("train") or {}).get("target_success")
    box = svg.Box(1040, 270)
    chart = svg.chart(curves, box, unit="%", x_range=x_range, y_range=(0, 1), goal=goal)
    keys = {"success": f"success, last {WINDOW} episodes", "exam": "exam without help"}
    legend = "".join(
        f'<span><i class="{c.style}"></i>{keys.get(c.label, c.label)}</span>' for c in curves
    )
    legend += '<span><i class="goal"></i>target</span>' if goal else ""
    bars = _bars(run)
    strip = svg.strip(bars, svg.Box(1040, 74, top=4, bottom=10), *x_range)
    aborted = any(style == "aborted" for _, _, style, _ in bars)
    return (
        f'<h2>Learning</h2><section class="card"><p class="legend">{legend}</p>'
        f'<div class="plot">{chart}</div>'
        '<p class="legend" style="margin-top:18px"><span><b>Each practice episode:</b></span>'
        '<span><i class="human"></i>share of its steps driven by a person</span>'
        '<span><i class="accent"></i>success</span><span><i class="bad"></i>failure</span>'
        + '<span><i class="aborted"></i>aborted, which counts neither way</span>' * aborted
        + f"</p>{strip}</section>"
    )


def _bars(run: RunData) -> list[tuple[float, float, str, str]]:
    bars = []
    for number, row in enumerate(run.episodes()):
        style, said = "lost", "failure"
        if row.get("episode/aborted"):
            style, said = "aborted", "aborted"
        elif row["episode/success"] > 0:
            style, said = "won", "success"
        share = float(row.get("episode/intervention_rate", 0.0))
        text = f"episode {row.get('episode/index', number):.0f}: {said}"
        text += f", {row.get('episode/length', 0):.0f} steps, {100 * share:.0f} % by a person"
        if row.get("episode/takeovers"):
            text += f", {row['episode/takeovers']:.0f} takeovers"
        bars.append((float(row.get("env_steps", 0)), share, style, text))
    return bars


def diagnosis(run: RunData) -> str:
    """What kept the run from learning: at its end in words, before that as a timeline."""
    judged = [row for row in run.rows if findings.judged(row)]
    if not judged:
        return ""
    now = findings.current(judged[-1])
    text = "".join(
        f'<p class="finding {escape(x.severity)}"><b>{escape(x.severity)}: {escape(x.what)}</b>'
        f"<span>Fix: {escape(x.fix)}</span></p>"
        for x in now
    )
    spans = findings.spans(judged)
    if not now:
        then = " at the end of the run; below, what was there before" if spans else ""
        text = f'<p class="finding">None of the known causes was found{then}.</p>'
    rows: dict[str, list[tuple[float, float, str, str]]] = {}
    for span in spans:
        title = f"{span.found.severity}: {span.found.what}, {span.begin:g} to {span.end:g} steps"
        bars = rows.setdefault(span.found.name.replace("_", " "), [])
        bars.append((span.begin, span.end, span.found.severity, title))
    timeline = svg.timeline(rows, 1040, _x_range(run)) if rows else ""
    return f'<h2>Why is it not learning?</h2><section class="card">{text}{timeline}</section>'


def panels(run: RunData) -> str:
    """Small multiples of everything else; keys this file does not know get a panel too."""
    known = {key for _, _, keys in PANELS for key in keys}
    extra = [k for k in run.keys if k not in known and not k.startswith(HIDDEN)]
    wanted = [*PANELS, *((key, "", {key: ""}) for key in extra)]
    cards = [_panel(run, title, unit, keys) for title, unit, keys in wanted]
    if not any(cards):
        return ""
    return f'<h2>Inside the run</h2><div class="grid3">{"".join(cards)}</div>'


def _panel(run: RunData, title: str, unit: str, keys: Mapping[str, str]) -> str:
    """One small chart: the smoothed curves in front, the measured values faintly behind."""
    smooth: list[svg.Curve] = []
    raw: list[svg.Curve] = []
    now: list[str] = []
    for (key, name), style in zip(keys.items(), ("accent", "human"), strict=False):
        series = run.series(key)
        if series is None:
            continue
        order = series.env_steps.argsort(kind="stable")
        x, y = series.env_steps[order], series.value[order]
        if y.size > 60:
            raw.append(svg.Curve("", x, y, f"faint {style}"))
        window = max(y.size // 30, 1)
        smooth.append(svg.Curve(name or title, x, rolling_mean(y, window), style))
        value = svg.short(float(series.value[-1]))
        now.append(f'<span class="{style if name else ""}">{escape(name)} {value}</span>')
    if not smooth:
        return ""
    chart = svg.chart([*raw, *smooth], svg.Box(330, 140), unit=unit, x_range=_x_range(run))
    return (
        f'<section class="card"><h3>{escape(title)}'
        f'<span class="now">{" ".join(now)} {escape(unit)}</span></h3>'
        f'<div class="plot">{chart}</div></section>'
    )


def configuration(run: RunData) -> str:
    """Every value that was in force, folded by section."""
    if not run.config:
        return ""
    single = {k: v for k, v in run.config.items() if not isinstance(v, Mapping)}
    blocks = _inferred(run) + _definitions(single)
    for name, section in run.config.items():
        if isinstance(section, Mapping):
            choice = escape(str(section.get("name", "")))
            inner = _definitions(dict(_flat(section)))
            summary = f"<summary>{escape(str(name))}<span>{choice}</span></summary>"
            blocks += f"<details>{summary}{inner}</details>"
    return f'<h2>Configuration</h2><section class="card">{blocks}</section>'


def _inferred(run: RunData) -> str:
    """A sentence where the data set has actions that nobody recorded."""
    model, said = run.imported.get(INVERSE), run.imported
    if not model:
        return ""
    text = (
        f"Of {said['steps']} steps of the data set {run.config['train']['dataset']} the actions of "
        f"{said['inferred']} were inferred from what they led to, by a model with R2 "
        f"{model['motion']:.2f} in held-out episodes."
    )
    return f"<p>{escape(text)}</p>"


def environment(run: RunData) -> str:
    """Machine, versions and source state."""
    machine, git = run.record.get("machine") or {}, run.record.get("git") or {}
    rows = {**machine, **(run.record.get("versions") or {})}
    if git:
        rows["commit"] = (
            f"{git.get('commit', '')[:12]}{' + local changes' * bool(git.get('dirty'))}"
        )
    if run.record.get("config_hash"):
        rows["config hash"] = run.record["config_hash"]
    if not rows:
        return ""
    return f'<h2>Environment</h2><section class="card">{_definitions(rows)}</section>'


def reproduce(run: RunData) -> str:
    """The commands that repeat the run and make this page again."""
    commit = str((run.record.get("git") or {}).get("commit", ""))[:12]
    lines = [f"git checkout {commit}"] if commit else []
    lines += ["make setup"]
    lines += [str(run.record["command"])] if run.record.get("command") else []
    folder = run.folder
    if folder.is_absolute():  # runs/<experiment>/<run>, without the machine's own folders
        folder = Path(*folder.parts[-3:])
    lines += [shlex.join(["robot-rl", verb, str(folder)]) for verb in ("eval", "report")]
    text = escape("\n".join(lines))
    return (
        '<h2>Do it again</h2><section class="card"><div style="float:right">'
        '<button id="copy" type="button">copy</button></div>'
        f'<pre id="commands">{text}</pre></section>'
    )


def _x_range(run: RunData) -> tuple[float, float]:
    last = max((float(r.get("env_steps", 0)) for r in run.rows), default=0.0)
    return 0.0, max(last, 1.0)


def _definitions(values: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<div><dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd></div>" for k, v in values.items()
    )
    return f"<dl>{rows}</dl>"


def _flat(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for key, value in section.items():
        if isinstance(value, Mapping):
            out += _flat(value, f"{prefix}{key}.")
        else:
            out.append((f"{prefix}{key}", value))
    return out
