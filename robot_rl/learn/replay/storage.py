"""Where frames and steps lie: preallocated columns, and which row of an episode has which slot."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.learn.frames import Allocate
from robot_rl.spec import TensorSpec
from robot_rl.store.labels import Review
from robot_rl.types import EpisodeId, Label, Observation

OFFLINE = ("demo", "data")  # purposes of episodes that were not practised in this run


@dataclass(slots=True)
class Episode:
    """Where the rows of one episode lie: frame number -> slot, step number -> slot."""

    purpose: str
    frames: dict[int, int] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)  # frame number -> step numbers
    said: list[Label] = field(default_factory=list)  # by people, about this episode
    verdict: Review = field(default_factory=Review)  # what these labels say together
    progress: dict[int, float] = field(default_factory=dict)  # frame number -> what a model said
    worth: dict[int, float] = field(default_factory=dict)  # frame number -> a model's reward
    last: int = -1  # number of the step that ended it
    goes_on: bool = True  # whether the return goes on after that step, as recorded: a time limit
    success: bool | None = None  # as recorded
    gripper: int = 0  # last commanded direction: -1 closed, +1 open, 0 none yet
    segment: int = 0  # of the newest step
    over: bool = False
    alone: bool = False  # it succeeded, and no person drove
    failed: bool = False  # it is over, and did not succeed


class Frames:
    """Observations by slot, uint8 images included; `progress` is what a model says of a frame."""

    def __init__(
        self,
        kept: Mapping[str, TensorSpec],
        slots: int,
        allocate: Allocate,
        digest: Callable[[Observation], Observation] | None,
    ) -> None:
        self.keys = tuple(kept)
        if digest is not None:
            blank = {k: np.zeros(v.shape, v.dtype) for k, v in kept.items()}
            kept = {k: TensorSpec(v.shape, str(v.dtype)) for k, v in digest(blank).items()}
        self._digest = digest
        self.columns = {k: allocate(k, (slots, *v.shape), v.dtype) for k, v in kept.items()}
        self.progress = np.full(slots, np.nan, np.float32)
        self.free = list(range(slots - 1, -1, -1))
        self._slots = slots

    @property
    def held(self) -> int:
        """How many frames are kept."""
        return self._slots - len(self.free)

    def put(self, observation: Observation) -> int:
        """Keep what is needed of an observation; return its slot. There must be a free slot."""
        slot = self.free.pop()
        seen = {k: observation[k] for k in self.keys}
        for key, value in (self._digest(seen) if self._digest else seen).items():
            self.columns[key][slot] = value
        return slot

    def take(self, slots: NDArray[np.int64], keys: Iterable[str] | None = None) -> Observation:
        """Return the observations in some slots, each entry [B, ...]; keys: only these entries."""
        return {k: self.columns[k].take(slots, 0) for k in keys or self.columns}


class Steps:
    """The columns of the steps, by slot.

    frame, after: slots of the frames before and after, `awaited(number)` for a frame that is not
    here yet; follow: slot of the next step of the same driver, -1 for none; recorded: the reward
    before people labelled, NaN without one; kept: nobody excluded the step; failed: the episode
    ended in a failure here.
    """

    def __init__(self, capacity: int, action_size: int) -> None:
        self.action = np.zeros((capacity, action_size), np.float32)
        self.reward, self.mask, self.toggle = np.zeros((3, capacity), np.float32)
        self.human, self.usable, self.labelled = np.zeros((3, capacity), np.bool_)
        self.kept, self.failed = np.zeros((2, capacity), np.bool_)
        self.recorded = np.full(capacity, np.nan, np.float32)
        self.frame, self.after = np.full((2, capacity), -1, np.int64)
        self.follow = np.full(capacity, -1, np.int64)
        self.before_takeover = np.zeros(capacity, np.bool_)
        self.return_to_go = np.zeros(capacity, np.float32)
        self.free = list(range(capacity - 1, -1, -1))

    @property
    def bytes_each(self) -> int:
        """Memory of one step, without its frame."""
        return self.action[0].nbytes + 5 * 4 + 6 + 3 * 8

    def complete(self, slots: Any) -> Any:
        """Return which steps have their frames, are trusted, labelled and not excluded."""
        frames = (self.frame[slots] >= 0) & (self.after[slots] >= 0)
        return frames & self.usable[slots] & self.labelled[slots] & self.kept[slots]

    def is_complete(self, slot: int) -> bool:
        """The same of one step, which takes a tenth of the time."""
        there = self.frame[slot] >= 0 and self.after[slot] >= 0 and self.usable[slot]
        return bool(there and self.labelled[slot] and self.kept[slot])


def awaited(number: int) -> int:
    """Return what takes the place of the slot of a frame that is not here yet."""
    return -1 - number - 1


class Gone:
    """Identities of episodes, kept as ranges of numbers: a run of any length has few of them."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[str, str], list[range]] = {}

    def add(self, id_: EpisodeId) -> None:
        """Add one; twice is fine."""
        ranges = self._ranges.setdefault((id_.run, id_.actor), [])
        number = id_.episode
        at = bisect_right(ranges, number, key=_first)  # of the ranges that begin later
        if at and number in ranges[at - 1]:
            return
        first, after = number, number + 1
        if at < len(ranges) and ranges[at].start == after:
            after = ranges.pop(at).stop
        if at and ranges[at - 1].stop == number:
            at -= 1
            first = ranges.pop(at).start
        ranges.insert(at, range(first, after))

    def __contains__(self, id_: EpisodeId) -> bool:
        ranges = self._ranges.get((id_.run, id_.actor), [])
        at = bisect_right(ranges, id_.episode, key=_first)
        return bool(at) and id_.episode in ranges[at - 1]

    def __len__(self) -> int:
        """Number of ranges: what it takes in memory."""
        return sum(map(len, self._ranges.values()))


def _first(numbers: range) -> int:
    return numbers.start
