"""An actor whose policy can be made to propose NaN: `-m robot_rl.bench.faults.poisoned actor`.

Weights that hold NaN are refused when they are adopted, so that finite weights with a NaN action,
as an overflow or a driver of the GPU may bring about, have to be made up. Everything else is the
actor as it is. It proposes NaN while the file of `VARIABLE` exists.
"""

from __future__ import annotations

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


def on(graph: Graph, poison: Path) -> Graph:
    """A graph whose actor proposes NaN while the file `poison` exists."""
    own = {VARIABLE: str(poison)}
    return tuple(
        replace(spec, module=__name__, env={**spec.env, **own}) if spec.kind == "actor" else spec
        for spec in graph
    )


def main(args: Sequence[str] | None = None) -> int:
    """The actor's node."""
    from robot_rl.nets import actor
    from robot_rl.run import nodes

    poison, net_act = Path(os.environ[VARIABLE]), actor.ActorNet.act

    def act(self: actor.ActorNet, *given: Any, **by_name: Any) -> Tensor:
        proposed = net_act(self, *given, **by_name)
        return proposed * float("nan") if poison.exists() else proposed

    actor.ActorNet.act = act  # type: ignore[method-assign]
    return nodes.main(sys.argv[1:] if args is None else args)


if __name__ == "__main__":
    raise SystemExit(main())
