"""Cases that need no graph, in a process: `-m robot_rl.bench.faults.beside SECONDS N ...`

Each result is a line of JSON on the standard output.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

from robot_rl.bench.faults import running, table
from robot_rl.bench.faults.case import Result
from robot_rl.run.console import end_with_supervisor

NICE = 3  # the graph beside has deadlines


def main(args: Sequence[str]) -> int:
    """Measure the cases with these numbers within the seconds."""
    logging.getLogger("robot_rl").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # folders are removed
    end_with_supervisor()
    table_pid = os.getppid()
    os.nice(NICE)

    def tell(result: Result) -> None:
        sys.stdout.write(f"{running.write(result)}\n")
        sys.stdout.flush()

    queue = running.in_order(table.chosen(args[1:]))
    running.run_lane(queue, float(args[0]), tell, table_pid)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
