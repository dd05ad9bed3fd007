"""Nodes whose system clock can be set: `python -m robot_rl.bench.faults.stepped KIND ...`

Setting the machine's clock takes the rights of its owner, and would disturb whatever else runs on
it. So the nodes run as they are, and what they read as the time of day is the system's plus an
offset, which all of them read from one small file: a step of the clock reaches all at once, and the
monotonic clock goes on, as it does on a machine whose clock is set. The middleware's own stamps
(`source_timestamp`) are not stepped; no node of ours reads them.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robot_rl.ros.graph import Graph

VARIABLE = "ROBOT_RL_FAULTS_CLOCK"  # the file with the offset
OFFSET = struct.Struct("<d")  # seconds


class Clock:
    """The offset of a graph's clocks, in a file. Made by whoever steps them."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(OFFSET.pack(0.0))
        self.path, self._map = path, _mapped(path)

    def step(self, offset_s: float) -> None:
        """Set all clocks to the system's plus `offset_s`."""
        OFFSET.pack_into(self._map, 0, offset_s)

    def now_s(self) -> float:
        """The time of day as the nodes read it."""
        return time.time() + OFFSET.unpack_from(self._map)[0]

    def on(self, graph: Graph) -> Graph:
        """The nodes of a graph with this clock."""
        own = {VARIABLE: str(self.path)}
        return tuple(
            replace(spec, module=__name__, env={**spec.env, **own}) if spec.kind else spec
            for spec in graph
        )


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), OFFSET.size)


def main(args: Sequence[str] | None = None) -> int:
    """A node of ours, with the stepped clock in the place of the system's."""
    from robot_rl.ros.runtime import Shell
    from robot_rl.run import nodes

    shared, of_day_s = _mapped(Path(os.environ[VARIABLE])), time.time

    def now_s() -> float:
        return of_day_s() + OFFSET.unpack_from(shared)[0]

    time.time = now_s
    ros_now_s: Callable[[Shell], float] = Shell.now_s
    Shell.now_s = lambda self: ros_now_s(self) + OFFSET.unpack_from(shared)[0]  # type: ignore[method-assign]
    return nodes.main(sys.argv[1:] if args is None else args)


if __name__ == "__main__":
    raise SystemExit(main())
