"""Mirror augmentation: half of a batch is reflected, left <-> right (GR-RL, arXiv 2512.01801).

A reflection of the scene turns a transition into another one, which is just as true if robot,
workspace, task and reward look the same in the mirror. Here a reflection is a sign for each number
of the state and of the action; a task states the signs by name (its property `mirror`). With x and
z of the tool in the plane of reflection,

    polar vectors (positions, velocities, forces)      (x, y, z) -> (x, -y, z)
    axial vectors (rotations, their rates, torques)    (x, y, z) -> (-x, y, -z)

Deviation: GR-RL also mirrors pictures and swaps the wrists of two arms; here pictures are refused,
because a camera's view is only nearly symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError
from robot_rl.geometry import AXIAL, POLAR
from robot_rl.learn.replay import Batch
from robot_rl.spec import BASE, Spec
from robot_rl.types import Observation

STATE = "state"
SHARE = 0.5  # of the rows


@dataclass(frozen=True, slots=True)
class Reflection:
    """Signs of the state's numbers, float32 [S], and of the action's, [A]."""

    state: NDArray[np.float32]
    action: NDArray[np.float32]

    @classmethod
    def of(cls, signs: Mapping[str, Sequence[int]] | None, spec: Spec) -> Reflection:
        """Make a reflection from signs by name, one entry for each part of the state.

        The signs of the action follow from what its numbers are: a pose, and maybe a gripper.

        Raises:
            ConfigError: the task states no signs, a part is missing or has another size, or the
                observation holds more than the state vector.
        """
        others = sorted(k for k in spec.observation if k != STATE)
        if signs is None or others:
            base = any(k.startswith(BASE) for k in others)
            raise ConfigError(
                "learner.mirror does not fit this run",
                expected="a task that says its mirror signs, observed as a state vector alone",
                got="a base's plan, which is not symmetric" if base else str(others or "no signs"),
                fix="learner.mirror=false",
            )
        sizes = {name: size for name, size, _ in spec.state_layout}
        wrong = {k: v for k, v in sizes.items() if len(signs.get(k, ())) != v}
        if wrong:
            raise ConfigError(
                "the mirror signs do not fit the state",
                expected=f"as many signs as numbers: {wrong}",
                got=str({k: signs.get(k) for k in wrong}),
                fix="correct the task's `mirror`",
            )
        pose = (*POLAR, *AXIAL, *([1] if spec.pose_action.gripper else []))
        state = np.concatenate([np.array(signs[name], np.float32) for name in sizes])
        return cls(state, np.array(pose, np.float32))

    def __call__(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Return the batch, each row as it was or mirrored."""
        flipped = rng.random(len(batch.action)) < SHARE
        action = np.where(flipped[:, None], self.action, np.float32(1.0))
        chunk = None if batch.chunk is None else batch.chunk * action[:, None]
        return replace(
            batch,
            observation=self._seen(batch.observation, flipped),
            next_observation=self._seen(batch.next_observation, flipped),
            action=batch.action * action,
            chunk=chunk,
        )

    def _seen(self, observation: Observation, flipped: NDArray[np.bool_]) -> Observation:
        signs = np.where(flipped[:, None], self.state, np.float32(1.0))
        return {**observation, STATE: observation[STATE] * signs}
