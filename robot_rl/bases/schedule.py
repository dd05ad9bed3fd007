"""One action per control tick out of a base policy's chunks.

    restart()   a new episode, or somebody else drove: what was planned is worth nothing
    look(obs)   -> {"base/action": [ahead, A]}, the next actions of the plan in force

`look` is called once per tick, before anybody decides who drives; what it returns is recorded with
the frame, so that the learner sees what the base said at the time (asking again would be another
sample, and a served base is far too slow for that). While a person drives, each frame gets the
beginning of a fresh plan: what the base would do from there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_rl.bases.spec import BaseConfig, BasePolicy
from robot_rl.errors import SpecError
from robot_rl.spec import BASE_ACTION, Spec
from robot_rl.types import Observation


class Schedule:
    """See the module. Args as in `BaseConfig`."""

    def __init__(self, base: BasePolicy, *, execute: int, ahead: int) -> None:
        self.base, self._execute, self._ahead = base, execute, ahead
        self._plan: NDArray[np.float32] | None = None
        self._at = 0  # index into it

    @classmethod
    def of(cls, config: BaseConfig, spec: Spec, seed: int) -> Schedule:
        """Open the base of a config. Raises as `BaseConfig.open`."""
        return cls(config.open(spec, seed), execute=config.execute, ahead=config.ahead)

    def restart(self) -> None:
        """Ask again at the next look."""
        self._plan = None

    def begin_episode(self) -> None:
        """Nothing of the last episode matters."""
        self.base.reset()
        self.restart()

    def look(self, observation: Observation) -> Observation:
        """What the base would do in the next ticks, one tick after the last look.

        Raises:
            SpecError: the base's chunk has another shape, or is not finite: never executed.
        """
        self._at += 1
        plan = self._plan
        if plan is None or self._at >= self._execute or self._at + self._ahead > len(plan):
            plan, self._at = self.base.sample(observation), 0
            spec = self.base.spec
            if plan.shape != (spec.chunk, spec.action_size) or not np.isfinite(plan).all():
                raise SpecError(
                    "the base policy's chunk cannot be used",
                    expected=f"finite float32 [{spec.chunk}, {spec.action_size}]",
                    got=f"{list(plan.shape)}, finite: {bool(np.isfinite(plan).all())}",
                    fix="check that the base was made for this task and its action",
                )
            self._plan = plan
        ahead = plan[self._at : self._at + self._ahead]
        return {BASE_ACTION: np.clip(ahead, -1.0, 1.0).astype(np.float32)}
