"""`robot-rl base check`: is a policy server the right one for a task?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.common import Parser, engine, printable, run_one_of, say, write_json

if TYPE_CHECKING:
    from rich.text import Text

    from robot_rl.policy.base.fit import Finding
    from robot_rl.run.check_base import Report

TEXT = """
Ask a policy server whether it fits a task, before anything moves: no robot is needed, and no
simulator. `check KIND HOST experiment=NAME` connects, looks at what the server says of its policy,
asks it 20 times with an observation that is made up, and says on one page what fits: cameras,
state, instruction, action, rate, and whether its plans arrive in time. What the server does not
say is marked with a question mark, because only you can know it. If everything fits, the last lines
are the command that trains on this server. Exit status: 0 = it fits, 1 = it does not, 2 = nobody
answered, or in another protocol.

KIND is what runs at HOST (HOST:PORT if it is not the usual port):
  openpi   openpi's scripts/serve_policy.py (pi0, pi0-FAST, pi0.5)
  groot    Isaac-GR00T's gr00t/eval/run_gr00t_server.py
  lerobot  robot-rl serve-policy with base=lerobot (ACT, Diffusion, SmolVLA, pi0, pi0.5);
           LeRobot's own server is refused, because what it sends are pickles
  smolvla  the same as lerobot; it only insists that the policy is a SmolVLA, which wants an
           instruction and takes noise

Without base.inputs, inputs are guessed from their names, and each guess is marked. key=value words
are those of `robot-rl train`; base and base.host are said by KIND and HOST.
"""
EXAMPLES = """
robot-rl base check openpi 192.168.1.20 experiment=lift_pixels base.prompt='lift the cube'
robot-rl base check openpi gpu:8001 experiment=lift_pixels base.prompt='lift the cube' \\
    'base.inputs={observation/image: image/front, observation/state: state, prompt: prompt}'
robot-rl base check groot gpu experiment=lift_pixels base.prompt='lift the cube' task.control_hz=20
robot-rl base check lerobot gpu experiment=lift_pixels base.folder=KEYS
robot-rl base check smolvla 127.0.0.1 experiment=lift_pixels base.run=runs/smolvla --asks 50
"""
MARKS = {"YES": ("✓", "green"), "NO": ("✗", "bold red"), "UNSAID": ("?", "yellow")}


def run(argv: Sequence[str]) -> int:
    """Check a server; return 1 when it does not fit."""
    return run_one_of({"check": _check}, argv, Parser("base", TEXT, EXAMPLES), " KIND HOST")


def _check(argv: Sequence[str]) -> int:
    parser = Parser("base check", TEXT, EXAMPLES).with_json()
    parser.add_argument("kind", metavar="KIND", help="openpi, groot, lerobot or smolvla")
    parser.add_argument("host", metavar="HOST[:PORT]", help="where the server runs")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="experiment=NAME ...")
    parser.add_argument(
        "--asks", type=int, default=20, metavar="N", help="how often it is asked (20)"
    )
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="your own YAML files")
    args = parser.read(argv)
    if not 1 <= args.asks <= 1000:
        parser.error("--asks must lie between 1 and 1000")
    check = engine("robot_rl.run.check_base:check_base")
    report: Report = check(
        args.kind,
        args.host,
        args.overrides,
        args.config_dir,
        asks=args.asks,
        tell=lambda text: sys.stderr.write(text + "\n"),
    )
    show(report)
    write_json(args.json, figures(report))
    return 0 if report.fits else 1


def figures(report: Report) -> dict[str, object]:
    """The report as plain data."""
    from dataclasses import asdict

    findings = [asdict(f) | {"fit": f.fit.value} for f in report.findings]
    return {
        "title": report.title,
        "fits": report.fits,
        "findings": findings,
        "command": report.line,
        "latency_s": report.took_s,
    }


def show(report: Report) -> None:
    """One page for a person."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in report.findings:
        mark, style = MARKS[finding.fit.name]
        table.add_row(Text(mark, style), Text(finding.topic), _said(finding))
    console = Console(file=sys.stdout, highlight=False)
    console.print(Text(report.title, "bold"))
    console.print(table)
    wrong = sum(f.fit.name == "NO" for f in report.findings)
    unsaid = sum(f.fit.name == "UNSAID" for f in report.findings)
    if wrong:
        say(f"\n{wrong} of {len(report.findings)} points do not fit. Fix them, and check again.")
        return
    check = f", once you have answered {unsaid} question{'s' * (unsaid > 1)} (?)" if unsaid else ""
    say(f"\nNothing speaks against it{check}. To train on it:\n\n  {printable(report.line)}")


def _said(finding: Finding) -> Text:
    from rich.text import Text

    text = Text(printable(finding.said))
    asks = finding.fit.name == "UNSAID"
    for name in ("expected", "got", "fix"):
        words = getattr(finding, name)
        if words:
            text.append(f"\n{'ask' if asks else name}: ", "dim")
            text.append(printable(words))
    return text
