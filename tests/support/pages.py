"""A page of the docs as the package that it shows: its files, and what its commands say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def write_files(page: str, folder: Path) -> Path:
    """Every block that begins with the name of a file; the package is found by its entry point."""
    names = set()
    for block in re.findall(r"```\w*\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        head = re.match(r"# ([\w/.]+\.(?:py|yaml|toml))\n", block)
        if head:
            path = folder / head[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
            names |= {head[1].split("/")[0]} if path.suffix == ".py" else set()
    (package,) = names
    info = folder / f"{package}-0.1.dist-info"  # as if it were installed
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[robot_rl.plugins]\n{package} = {package}\n")
    return folder


def run(folder: Path, words: list[str]) -> str:
    """What a Python program says, started in the folder."""
    env = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout


def commands(page: str, heading: str) -> list[list[str]]:
    """The commands of the first block under a heading, as words after `robot-rl`."""
    block = (DOCS / page).read_text().split(f"## {heading}")[1].split("```")[1]
    return [shlex.split(line)[1:] for line in block.strip().splitlines()]
