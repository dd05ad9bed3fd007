"""The frame of every page that we write: one file with everything in it, whole or not there."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from robot_rl import __version__
from robot_rl.system.files import replace_file


def document(
    *, title: str, kicker: str, name: str, subtitle: str, body: str, style: str = "", head: str = ""
) -> str:
    """The page as one string. subtitle, body, style and head are HTML and CSS already."""
    assets = files("robot_rl.report") / "assets"
    return Template((assets / "page.html").read_text()).substitute(
        title=f"{escape(title)} - robot-rl",
        kicker=escape(kicker),
        refresh=head,
        style=(assets / "style.css").read_text() + style,
        script=(assets / "chart.js").read_text(),
        name=escape(name),
        subtitle=subtitle,
        body=body,
        footer=f"written by robot-rl {escape(__version__)}; this file is complete in itself",
    )


def write(target: Path, html: str) -> Path:
    """Write a page so that readers never see half of it; returns its path. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, html.encode())
    return target
