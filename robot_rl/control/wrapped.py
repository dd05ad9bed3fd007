"""A policy around another one, which does all that is not said otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.loop import Policy
from robot_rl.types import Observation


class Wrapped(Policy):
    """Hands every call on to `policy`; what a subclass says takes its place."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def version(self) -> int:
        """See `Policy`."""
        return self.policy.version

    @property
    def problem(self) -> str:
        """See `Policy`."""
        return self.policy.problem

    def ready(self) -> str:
        """See `Policy`."""
        return self.policy.ready()

    def begin_episode(self, deterministic: bool = False) -> None:
        """See `Policy`."""
        self.policy.begin_episode(deterministic)

    def annotate(self, observation: Observation) -> Observation:
        """See `Policy`."""
        return self.policy.annotate(observation)

    def act(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        """See `Policy`."""
        return self.policy.act(observation, deterministic)

    def interrupt(self) -> None:
        """See `Policy`."""
        self.policy.interrupt()
