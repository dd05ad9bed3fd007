"""`robot-rl verify`: is every byte of a run that means something as it was written?"""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser, engine, existing_run, say, write_json
from robot_rl.cli.doctor import CheckResult, examine
from robot_rl.cli.progress import ProgressBar

TEXT = """
Read everything in a run folder and compare it with its checksums: configuration, every row of every
store, checkpoints, policies; of a run with several arms, of each. Exit code 1 when something is
damaged, or gone although the folder says that it was there: the line says what, and the fix. What
cannot be checked here, because a package of the run is missing, is no damage.

No row is changed. Rows that an older version wrote have no checksum of their own: of those, what
can be checked is.
A store that a killed run left in a folder that cannot be written is not read, and is no
damage: copy the folder.
"""
EXAMPLES = """
robot-rl verify runs/peg_insert/20260101-120000-s0        (for example after a power cut)
robot-rl verify runs/peg_insert/20260101-120000-s0 --json verify.json
"""


def run(argv: Sequence[str]) -> int:
    """Check a run; return 1 when a part of it is damaged."""
    args = Parser("verify", TEXT, EXAMPLES).with_run().with_json().read(argv)
    run_dir = existing_run(args.run)
    found: list[CheckResult] = []
    with ProgressBar("rows read") as progress:
        for name, check in engine("robot_rl.run.verify:parts")(run_dir, progress).items():
            found.append(examine(name, check))
    for f in found:
        say(f"{f.status:<5} {f.name:<28} {f.text}" + (f"\n{'':35}fix: {f.fix}" if f.fix else ""))
    write_json(
        args.json, {f.name: {"status": f.status, "text": f.text, "fix": f.fix} for f in found}
    )
    damaged = sum(f.status == "fail" for f in found)
    unread = sum(f.status == "warn" for f in found)
    also = f", {unread} not checked" if unread else ""
    say(f"\n{len(found)} parts of {run_dir}, {damaged} damaged{also}")
    return 1 if damaged else 0
