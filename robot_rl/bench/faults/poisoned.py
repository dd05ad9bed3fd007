"""An actor that can be made to fail inside: `python -m robot_rl.bench.faults.poisoned actor ...`

Some faults do not come from outside. Weights that hold NaN are refused when they are adopted, so a
NaN action of finite weights, as an overflow or a GPU's driver may bring about, has to be made up;
and so has a collection of garbage, which holds Python's interpreter while the middleware's threads
go on. Everything else is the actor as it is. While the file NAN is in the folder of `VARIABLE`, the
policy proposes NaN; the file PAUSE makes the next proposal take `PAUSE_S` longer, once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from robot_rl.ros.graph import Graph

VARIABLE = "ROBOT_RL_FAULTS_POISON"
NAN, PAUSE = "poison-nan", "poison-pause"
PAUSE_S = 0.3


def on(graph: Graph, folder: Path) -> Graph:
    """A graph whose actor obeys the files in a folder."""
    own = {VARIABLE: str(folder)}
    return tuple(
        replace(spec, module=__name__, env={**spec.env, **own}) if spec.kind == "actor" else spec
        for spec in graph
    )


def main(args: Sequence[str] | None = None) -> int:
    """The actor's node."""
    from robot_rl.nets import actor
    from robot_rl.run import nodes

    folder, net_act = Path(os.environ[VARIABLE]), actor.ActorNet.act
    pause, nan = folder / PAUSE, folder / NAN
    holds_interpreter = ctypes.PyDLL(None)

    def act(self: actor.ActorNet, *given: Any, **by_name: Any) -> Tensor:
        proposed = net_act(self, *given, **by_name)
        if pause.exists():
            pause.unlink()
            holds_interpreter.usleep(round(1e6 * PAUSE_S))
        return proposed * float("nan") if nan.exists() else proposed

    actor.ActorNet.act = act  # type: ignore[method-assign]
    return nodes.main(sys.argv[1:] if args is None else args)


if __name__ == "__main__":
    raise SystemExit(main())
