"""What an algorithm asks of the replay, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robot_rl.reward.assembly import Assembly
from robot_rl.types import Observation


@dataclass(frozen=True, kw_only=True)
class View:
    """What an algorithm asks of the replay.

    n_step: transitions span up to this many steps; chunk: so many actions are read; gamma:
    discounts the rewards inside a transition and the return to go; demo_only: for
    cloning, which never imitates practice, nor demonstrations that failed (`replay.replay`);
    own_successes: see `replay.replay`; recent_fraction: share of the online draws, spread evenly,
    taken from the newest `recent_steps` online steps; decisions: transitions begin where the policy
    chose a base's noise (`spec.BASE_AGE` = 0), and end where it chooses again; assembly: how a
    reward is made of what was recorded.
    """

    n_step: int = 1
    chunk: int = 1
    gamma: float = 1.0
    demo_only: bool = False
    own_successes: bool = False
    recent_fraction: float = 0.0
    recent_steps: int = 1000
    decisions: bool = False
    assembly: Assembly = field(default_factory=Assembly)


@dataclass(frozen=True, slots=True)
class Batch:
    """B transitions. Rows of the two views alternate, so any slice keeps the mix (RLPD).

    observation, next_observation: name -> [B, ...]; action: float32 [B, A], as executed; reward,
    mask: float32 [B], mask = 1 - terminated (a truncated step bootstraps); human: bool [B]; toggle:
    float32 [B], how many steps reversed the gripper, discounted like the reward; steps: float32
    [B], how many steps the transition spans (reward is their discounted sum); return_to_go: float32
    [B], discounted rewards from here to the end of the episode, 0 while it runs; before_takeover:
    float32 [B], 1 where a person took over after this action, the policy's last that was not zero,
    discounted like the reward; chunk: float32 [B, h, A], this action and those that followed
    (`View.chunk` = h), zeros where the same driver did not go on; valid: bool [B, h], where the
    driver went on. chunk and valid are None for h = 1. room: float32 [B, 2], by how much the bounds
    of the value are narrower in this state, the lowest and the highest (`reward.assembly`); None
    without shaping. failed: bool [B], the episode ended in a failure where the transition ends;
    None = nowhere.
    """

    observation: Observation
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    next_observation: Observation
    mask: NDArray[np.float32]
    human: NDArray[np.bool_]
    toggle: NDArray[np.float32]
    steps: NDArray[np.float32]
    return_to_go: NDArray[np.float32]
    before_takeover: NDArray[np.float32]
    chunk: NDArray[np.float32] | None = None
    valid: NDArray[np.bool_] | None = None
    room: NDArray[np.float32] | None = None
    failed: NDArray[np.bool_] | None = None


def evenly(count: int, rows: int) -> NDArray[np.bool_]:
    """Mark `count` of some rows so that any slice has its share of them."""
    share = np.arange(rows + 1) * count // rows
    return share[1:] > share[:-1]


class SlotSet:
    """A set of slots with O(1) add, discard and an array to draw from."""

    def __init__(self, capacity: int) -> None:
        self._items = np.empty(capacity, np.int64)
        self._where = np.full(capacity, -1, np.int64)
        self.size = 0

    def add(self, slot: int) -> bool:
        """Add a slot; return whether it is new."""
        if self._where[slot] >= 0:
            return False
        self._items[self.size], self._where[slot] = slot, self.size
        self.size += 1
        return True

    def holds(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the slots are in the set."""
        return self._where[slots] >= 0

    def discard(self, slot: int) -> None:
        """Remove a slot, if it is in the set."""
        where = self._where[slot]
        if where >= 0:
            self.size -= 1
            last = self._items[self.size]
            self._items[where], self._where[last] = last, where
            self._where[slot] = -1

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw slots with replacement: int64 [count]."""
        return self._items[rng.integers(0, self.size, count)]
