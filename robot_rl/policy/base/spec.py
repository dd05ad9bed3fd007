"""What a base policy tells about itself, and what it must be able to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.spec import Spec
from robot_rl.types import Observation


@dataclass(frozen=True, slots=True)
class BaseSpec:
    """What a base can do.

    chunk: actions that it proposes at once; action_size: A; noise_shape: of the noise that decides
    which chunk it samples, None when it takes none (no noise head then).
    """

    chunk: int
    action_size: int
    noise_shape: tuple[int, ...] | None = None


class BasePolicy(Protocol):
    """A frozen policy; one robot, one observation at a time."""

    spec: BaseSpec

    def reset(self) -> None:
        """Forget the last episode. Raises `RobotRLError` when a served one does not answer."""
        ...

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """A chunk [H, A] of actions in [-1, 1]; from `noise`, or from noise of its own.

        Raises:
            RobotRLError: the base does not answer, or its answer is malformed.
        """
        ...


class BaseConfig(Protocol):
    """A registered config (group `base`)."""

    @property
    def execute(self) -> int:
        """Actions of a chunk that are carried out before the base is asked again."""
        ...

    @property
    def ahead(self) -> int:
        """How many of the base's next actions are recorded with each frame."""
        ...

    def open(self, spec: Spec, seed: int) -> BasePolicy:
        """Load the base for a task's spec (without what the base adds).

        Raises:
            CheckpointError, ConfigError: the base is not there, or made for something else.
        """
        ...
