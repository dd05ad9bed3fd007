"""`robot-rl faults`: break every part of the system, and measure what it does then."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from robot_rl.cli.common import Parser, engine, say
from robot_rl.errors import ConfigError
from robot_rl.system.files import replace_json

TEXT = """
Break every part of the system, measure what it does then, and compare with what is promised: 34
cases, from a killed gate to a full disk, against the real processes beside the double of a real
arm. The answer is a table here, and faults.json and faults.html in a folder.

A case is met, not met, or not run (with what this machine lacks). Figures of time need a machine
that does nothing else: the table says what other programs used meanwhile.
"""
EXAMPLES = """
robot-rl faults                                   about two minutes, few samples of each case
robot-rl faults --case 4 --case page_silent       some of them, by number or name
robot-rl faults --seconds 600                     more samples
robot-rl faults --full --out runs/faults/full     every sample: more than an hour
robot-rl faults --list                            what the cases are
"""


def run(argv: Sequence[str]) -> int:
    """Run the fault table; 1 when a promise was not kept."""
    parser = Parser("faults", TEXT, EXAMPLES)
    parser.add_argument(
        "--case", action="append", default=[], metavar="N", help="number or name; may be repeated"
    )
    parser.add_argument(
        "--seconds", type=float, default=None, help="about how long all of it takes (120)"
    )
    parser.add_argument("--full", action="store_true", help="all samples, however long it takes")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/faults"), metavar="FOLDER", help="(runs/faults)"
    )
    parser.add_argument("--list", action="store_true", help="show the cases and stop")
    args = parser.read(argv)
    engine("robot_rl.bench.faults.learning:CASES")  # says what to install where torch is missing
    table = engine("robot_rl.bench.faults.table:chosen")(args.case)
    if args.list:
        for case in table:
            say(f"{case.number:2}  {case.name:<24} {case.title}: {case.promise}")
        return 0
    seconds = _seconds(args.seconds, full=args.full)
    _check_folder(args.out)
    facts_of = engine("robot_rl.bench.faults.table:facts")
    path = args.out / "faults.json"
    with _quiet():
        results = engine("robot_rl.bench.faults.running:run")(
            table, seconds, say, lambda so_far: replace_json(path, facts_of(so_far, seconds))
        )
    facts = facts_of(results, seconds)
    replace_json(path, facts)
    page = engine("robot_rl.bench.faults.page:write_page")(args.out / "faults.html", facts)
    for line in engine("robot_rl.bench.faults.table:text")(results):
        say(line)
    say(str(page))
    return int(engine("robot_rl.bench.faults.table:failed")(results))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without --debug, no lines of the log: deaths and refusals are what is asked for here."""
    ours = logging.getLogger("robot_rl")
    before = ours.level
    if logging.getLogger().getEffectiveLevel() > logging.DEBUG:
        ours.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ours.setLevel(before)


def _seconds(given: float | None, *, full: bool) -> float:
    """Seconds of the table, infinity for the full one.

    Raises:
        ConfigError: no time at all, or a time for the full table.
    """
    if full and given is not None:
        raise ConfigError(
            "--full takes every sample, --seconds as many as fit",
            expected="one of the two",
            got=f"--full --seconds {given:g}",
            fix="leave one out",
        )
    if full:
        return math.inf
    seconds = 120.0 if given is None else given
    if not 1.0 <= seconds < math.inf:
        raise ConfigError(
            "the fault table needs time",
            expected="--seconds 1 or more",
            got=f"--seconds {seconds:g}",
            fix="leave --seconds out (two minutes), or give --full",
        )
    return seconds


def _check_folder(out: Path) -> None:
    """Make the folder now, not after the table has run. Raises `ConfigError`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"nothing can be written into '{out}'",
            expected="a folder, or a name that a folder can have",
            got=str(error),
            fix="--out FOLDER, for example runs/faults",
        ) from error
