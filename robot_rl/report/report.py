"""Writes report.html: one file with everything in it, to open offline, mail or keep."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from pathlib import Path

import yaml

from robot_rl.errors import ConfigError
from robot_rl.report import page
from robot_rl.report.deployment import deployment
from robot_rl.report.document import document, write
from robot_rl.report.rundata import RunData, read_run
from robot_rl.report.starts import starts

REPORT = "report.html"


def write_report(run_dir: Path, *, again_s: float = 0.0) -> Path:
    """Write `report.html` into a run folder and return its path.

    The run need not be complete: one that was killed gets a report of what it left behind.
    again_s: above 0 while the run goes on; a browser loads the page again this often.

    Raises:
        ConfigError: its files say what no run writes.
    """
    return write(run_dir / REPORT, page_of(run_dir, again_s))


def page_of(run_dir: Path, again_s: float = 0.0) -> str:
    """The page of a run folder as one string. Raises `ConfigError`; see `write_report`."""
    try:
        return render(read_run(run_dir), again_s)
    except (
        LookupError, TypeError, ValueError, AttributeError, ArithmeticError, yaml.YAMLError
    ) as error:  # fmt: skip
        raise ConfigError(
            f"{run_dir} holds something that no run writes",
            expected="config.yaml, *.jsonl, eval.json, deploy.json as robot-rl wrote them",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="restore the files; robot-rl verify tells which of them have changed",
        ) from error


def render(run: RunData, again_s: float = 0.0) -> str:
    """The page as one string; again_s: see `write_report`."""
    run = replace(run, going=again_s > 0)
    name = str(run.config.get("name") or run.folder.name)
    parts = (page.headline, page.tiles, page.arms, page.learning, starts, page.diagnosis)
    parts += (deployment, page.panels)
    if run.deployment and run.deployed_in == run.folder:  # of a policy at work, not of a training
        parts = (deployment, page.configuration, page.environment)
    else:
        parts += (page.configuration, page.environment, page.reproduce)
    return document(
        title=name,
        kicker=_kicker(run),
        name=name,
        subtitle=_subtitle(run),
        body="\n".join(part(run) for part in parts),
        head=f'<meta http-equiv="refresh" content="{again_s:g}">' if again_s else "",
    )


def _kicker(run: RunData) -> str:
    what = "deployment" if run.deployment and run.deployed_in == run.folder else "run"
    return f"robot-rl {what}" + (", still going on" if run.going else "")


def _subtitle(run: RunData) -> str:
    facts = [
        ("task", (run.config.get("task") or {}).get("name")),
        ("algorithm", (run.config.get("algo") or {}).get("name")),
        ("runtime", run.config.get("runtime")),
        ("seed", run.config.get("seed")),
        ("started", str(run.record.get("created", "")).replace("T", " ")[:16]),
    ]
    shown = [f"{key} <b>{escape(str(v))}</b>" for key, v in facts if v not in (None, "")]
    return " &middot; ".join(shown)
