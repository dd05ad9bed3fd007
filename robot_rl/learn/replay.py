"""Replay: a sampling view over the rows of the store.

Frames are kept once, in preallocated arrays (images stay uint8); a step refers to two of them by
(episode, frame), never by neighbourhood, so a gap in the stream can not pair an image with another
moment's state (reference: HIL-SERL's image buffer does exactly that). Everything here follows from
the sequence of rows alone: the same rows give the same replay, whatever the timing.

What may be sampled:

    purpose "eval", other spec         never
    driver RESET                       never
    ending STALE                       not that step
    ending ABORTED, or cut short       not one step of that episode
    reward None                        once a person's label for the step arrives, or one that says
                                       how the episode ended (then the other steps are worth 0)
    excluded, trimmed, left out        not while that label stands (`store.review`)
    frame not here yet                 once it arrives
    progress of a frame not here yet   once it arrives, where rewards are shaped by it
    a model's reward not here yet      once it arrives, where that is the reward

and in which view (HIL-SERL's table; a corrected step is in both):

    online   every step of an episode that is neither a demonstration nor imported data
    demo     every step that a person drove: demo, correction, recovery; every step of imported data
             (purpose "data"); with `own_successes` also every step of an episode that succeeded
             without a person (RaC's data)

A read of several steps (`n_step`) follows one driver inside one episode: it ends at a change of
hands, at a gap, at an unlabelled step and at the end of the episode, and bootstraps from there.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import SpecError
from robot_rl.learn.frames import Allocate, in_memory
from robot_rl.reward.assembly import Assembly, potential_based
from robot_rl.spec import BASE_AGE, Spec, TensorSpec
from robot_rl.store.review import FOLDED, Review, review
from robot_rl.store.store import EPISODE_ABORTED
from robot_rl.types import (
    MODEL_REWARD,
    PROGRESS,
    Driver,
    Ending,
    EpisodeId,
    EpisodeStart,
    Event,
    Frame,
    Label,
    Observation,
    Row,
    Step,
)

log = logging.getLogger(__name__)

OFFLINE = ("demo", "data")  # purposes of episodes that were not practised in this run
RECENT_EPISODES = 50  # of each purpose in a summary: some ten minutes of practice on an arm
AT_ONCE_STEPS = 3  # a reward that ends an episode this early was there before anything was done


@dataclass(frozen=True, kw_only=True)
class View:
    """What an algorithm wants of the replay.

    n_step: transitions span up to this many steps; chunk: so many actions are read; gamma:
    discounts the rewards inside a transition and the return to go; demo_only: never fall back on
    practice while there are no demonstrations (a cloner would clone itself); own_successes: see the
    module; recent_fraction: of the online draws, taken from the newest `recent_steps` online steps;
    decisions: transitions begin where the policy chose a base's noise (`spec.BASE_AGE` = 0), and
    end where it does again; assembly: how a reward comes of what was recorded.
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

    observation, next_observation: name -> [B, ...]; action: float32 [B, A], as executed;
    reward, mask: float32 [B], mask = 1 - terminated (a truncated step bootstraps); human: bool [B];
    toggle: float32 [B], 1 where the step reversed the gripper; steps: float32 [B], how many steps
    the transition spans (reward is their discounted sum); return_to_go: float32 [B], discounted
    rewards from here to the end of the episode, 0 while it runs; before_takeover: float32 [B], 1
    where a person took over after this step, discounted like the reward; chunk: float32 [B, h, A],
    this action and those that followed (`View.chunk` = h), zeros where the same driver did not go
    on; valid: bool [B, h], where they did. Both None for h = 1. room: float32 [B, 2], how far the
    value stays above its lowest bound in this state, and below its highest; None without shaping.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeCounts:
    """Of the newest `RECENT_EPISODES` episodes that are over and still in the replay: how many ...

    labelled: have a reward label at all; rewarded: succeeded, or got a reward above 0; at_once:
    were over with a reward within `AT_ONCE_STEPS`; truncated: met the time limit unrewarded;
    toggled: had a gripper reversal (in practice: by the policy).
    """

    episodes: int = 0
    labelled: int = 0
    rewarded: int = 0
    at_once: int = 0
    truncated: int = 0
    toggled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """What the newest episodes were like; rewards are (lowest, highest), (0, 0) without any.

    reward: of all labelled steps; running: of those after which the return goes on; ending: of the
    others.
    """

    practice: EpisodeCounts = EpisodeCounts()
    demos: EpisodeCounts = EpisodeCounts()
    data: EpisodeCounts = EpisodeCounts()
    reward: tuple[float, float] = (0.0, 0.0)
    running: tuple[float, float] = (0.0, 0.0)
    ending: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class _Episode:
    """Where the rows of one episode lie: frame number -> slot, step number -> slot."""

    purpose: str
    frames: dict[int, int] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)  # frame number -> step numbers
    said: list[Label] = field(default_factory=list)  # by people, about this episode
    verdict: Review = field(default_factory=Review)  # what that comes to
    progress: dict[int, float] = field(default_factory=dict)  # frame number -> what a model said
    worth: dict[int, float] = field(default_factory=dict)  # frame number -> a model's reward
    last: int = -1  # number of the step that ended it
    goes_on: bool = True  # after that step, as recorded: a time limit
    success: bool | None = None  # as recorded
    gripper: int = 0  # last commanded direction: -1 closed, +1 open, 0 none yet
    segment: int = 0  # of the newest step
    over: bool = False
    alone: bool = False  # it succeeded, and no person drove


class _IndexSet:
    """A set of slots with O(1) add, discard and an array to draw from."""

    def __init__(self, capacity: int) -> None:
        self._items = np.empty(capacity, np.int64)
        self._where = np.full(capacity, -1, np.int64)
        self.size = 0

    def add(self, slot: int) -> bool:
        if self._where[slot] >= 0:
            return False
        self._items[self.size], self._where[slot] = slot, self.size
        self.size += 1
        return True

    def holds(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self._where[slots] >= 0

    def discard(self, slot: int) -> None:
        where = self._where[slot]
        if where >= 0:
            self.size -= 1
            last = self._items[self.size]
            self._items[where], self._where[last] = last, where
            self._where[slot] = -1

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return self._items[rng.integers(0, self.size, count)]


class Replay:
    """Holds the newest `capacity` steps; when full, whole episodes go, see `_evict`.

    Args:
        spec: of the run; rows of another spec are refused episode by episode, with a warning.
        capacity: steps. Memory is touched only as it fills.
        keys: observation entries to keep; None keeps all.
        view: what the algorithm wants.
        digest: turns a frame's observation into what is kept of it (`nets.actor.ActorNet.digest`).
        allocate: where frames are kept (`learn.frames`).
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        keys: Iterable[str] | None = None,
        *,
        view: View | None = None,
        allocate: Allocate = in_memory,
        digest: Callable[[Observation], Observation] | None = None,
    ) -> None:
        self.view = view or View()
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 step, got {capacity}")
        self.spec, self.capacity = spec, capacity
        self.env_steps = 0  # practice steps ever ingested: what the update budget counts
        self.refused_rows = 0  # rows without a known episode (or of another spec)
        kept = spec.observation if keys is None else {k: spec.observation[k] for k in keys}
        if digest is not None:
            blank = {k: np.zeros(v.shape, v.dtype) for k, v in kept.items()}
            kept = {k: TensorSpec(v.shape, str(v.dtype)) for k, v in digest(blank).items()}
        self._digest = digest or (lambda observation: observation)
        slots = capacity + capacity // 4 + 2  # an episode has one frame more than steps
        self._frames = {k: allocate(k, (slots, *v.shape), v.dtype) for k, v in kept.items()}
        self._free_frames = list(range(slots - 1, -1, -1))
        self._progress = np.full(slots, np.nan, np.float32)  # phi of a frame
        self._free_steps = list(range(capacity - 1, -1, -1))
        self._action = np.zeros((capacity, spec.action.size), np.float32)
        self._reward, self._mask, self._toggle = np.zeros((3, capacity), np.float32)
        self._human, self._usable, self._labelled = np.zeros((3, capacity), np.bool_)
        self._kept = np.zeros(capacity, np.bool_)  # nobody excluded it
        self._recorded = np.full(capacity, np.nan, np.float32)  # reward before people spoke
        self._frame, self._next = np.full((2, capacity), -1, np.int64)
        self._follow = np.full(capacity, -1, np.int64)  # slot of the next step of the same driver
        self._before_takeover = np.zeros(capacity, np.bool_)
        self._return_to_go = np.zeros(capacity, np.float32)
        self._recent = np.full(max(self.view.recent_steps, 1), -1, np.int64)  # a ring
        self._recent_count = 0
        self._online, self._demo = _IndexSet(capacity), _IndexSet(capacity)
        self._episodes: dict[EpisodeId, _Episode] = {}
        self.weights_version = -1  # that drove the newest practice step
        self._over: dict[str, deque[tuple[EpisodeId, Ending, bool]]] = {}  # for `summary`
        self._gone: set[EpisodeId] = set()  # eval, foreign, aborted or evicted: never again
        self._changed: set[EpisodeId] = set()  # rewards, since returns to go were added up

    @property
    def len_online(self) -> int:
        """Steps in the online view."""
        return self._online.size

    @property
    def len_demo(self) -> int:
        """Steps in the demo view."""
        return self._demo.size

    @property
    def can_sample(self) -> bool:
        """Whether `sample` has something to draw from."""
        return bool(self._demo.size or (self._online.size and not self.view.demo_only))

    @property
    def bytes_per_step(self) -> int:
        """Memory of one step with its frame."""
        frame = sum(v[0].nbytes for v in self._frames.values())
        return frame + self._action[0].nbytes + 5 * 4 + 5 + 3 * 8

    def ingest(self, rows: Iterable[Row]) -> int:
        """Take rows in commit order; a row seen before changes nothing. Returns new env steps."""
        before = self.env_steps
        for row in rows:
            if isinstance(row, EpisodeStart):
                self._begin(row)
            elif row.id not in self._gone:
                episode = self._episodes.get(row.id)
                if isinstance(row, Event):
                    if row.name == EPISODE_ABORTED and episode is not None and not episode.over:
                        self._drop(row.id)
                elif episode is None:
                    self.refused_rows += 1
                elif isinstance(row, Frame):
                    self._add_frame(episode, row)
                elif isinstance(row, Step):
                    self._add_step(episode, row)
                else:
                    self._add_label(episode, row)
        for episode in map(self._episodes.get, self._changed):
            if episode is not None and episode.over:
                self._add_up(episode)
        self._changed.clear()
        return self.env_steps - before

    def sample(self, batch_size: int, demo_fraction: float, rng: np.random.Generator) -> Batch:
        """Draw with replacement: `demo_fraction` of the rows from the demo view, spread evenly.

        While one view is empty, all rows come from the other (unless `View.demo_only`).

        Raises:
            SpecError: nothing can be sampled yet.
        """
        if not self.can_sample:
            raise SpecError(
                "there is nothing to learn from yet",
                expected="at least one complete, labelled step"
                + (" that a person drove" if self.view.demo_only else ""),
                got=f"{self._online.size} online, {self._demo.size} demo",
                fix="record demonstrations or practice first; check that steps have rewards",
            )
        if not self._online.size or not self._demo.size:
            demo_fraction = 0.0 if self._online.size else 1.0
        count = round(batch_size * demo_fraction)
        share = np.arange(batch_size + 1) * count // batch_size
        from_demo = share[1:] > share[:-1]
        slots = np.empty(batch_size, np.int64)
        if count:
            slots[from_demo] = self._demo.draw(count, rng)
        if count < batch_size:
            slots[~from_demo] = self._draw_online(batch_size - count, rng)
        return self._gather(slots)

    def _draw_online(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        slots = self._online.draw(count, rng)
        recent = round(count * self.view.recent_fraction)
        if recent:
            filled = min(self._recent_count, len(self._recent))
            newest = self._recent[rng.integers(0, filled, recent)]
            slots[:recent] = np.where(self._online.holds(newest), newest, slots[:recent])
        return slots

    def read(self, slots: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Slots [B, length] of the steps from `slots` [B] on; -1 beyond the end.

        Never leaves the segment: see the module docstring.
        """
        chain = np.full((len(slots), length), -1, np.int64)
        at = chain[:, 0] = slots
        for column in range(1, length):
            at = np.where(at >= 0, self._follow[at], -1)  # index -1 reads something, unused
            at = np.where((at >= 0) & self._ready(at), at, -1)
            chain[:, column] = at
        return chain

    def _ready(self, slots: Any) -> Any:
        """Which steps (slot or slots) are complete, trusted and labelled: bool or [B]."""
        frames = (self._frame[slots] >= 0) & (self._next[slots] >= 0)
        ready = frames & self._usable[slots] & self._labelled[slots] & self._kept[slots]
        if not self.view.assembly.shaping:
            return ready
        places = (np.maximum(column[slots], 0) for column in (self._frame, self._next))
        before, after = (self._progress[place] for place in places)
        return ready & ~np.isnan(before) & (~np.isnan(after) | (self._mask[slots] == 0.0))

    def _gather(self, slots: NDArray[np.int64]) -> Batch:
        last, reward = slots, self._reward[slots]
        steps, taken = np.ones(len(slots), np.float32), self._before_takeover[slots]
        if self.view.n_step > 1:
            chain = self.read(slots, self.view.n_step)
            there = chain >= 0
            if self.view.decisions:
                later = self._frames[BASE_AGE].take(self._frame[chain], 0)[..., 0] > 0.0
                later[:, 0] = True
                there &= np.logical_and.accumulate(later, 1)
            discount = self.view.gamma ** np.arange(self.view.n_step)
            reward = (np.where(there, self._reward[chain], 0.0) @ discount).astype(np.float32)
            taken = np.where(there, self._before_takeover[chain], False) @ discount
            steps = there.sum(1).astype(np.float32)
            last = chain[np.arange(len(slots)), there.sum(1) - 1]
        now, after = self._frame[slots], self._next[last]
        return_to_go, assembly = self._return_to_go[slots], self.view.assembly
        room = None
        if assembly.shaping:
            phi, discounts = self._progress[now], np.float32(self.view.gamma) ** steps
            later = self._progress[after] - 1.0
            gain = potential_based(phi - 1.0, later, self._mask[last], discounts)
            reward = (reward + assembly.shaping * gain).astype(np.float32)
            room = assembly.shaping * np.stack((1.0 - phi, phi), -1)
            return_to_go = (return_to_go + room[:, 0]).astype(np.float32)
        chunk = valid = None
        if self.view.chunk > 1:
            along = self.read(slots, self.view.chunk)
            valid = along >= 0
            chunk = self._action[along] * valid[..., None]
        return Batch(
            observation={k: v.take(now, 0) for k, v in self._frames.items()},
            action=self._action.take(slots, 0),
            reward=reward,
            next_observation={k: v.take(after, 0) for k, v in self._frames.items()},
            mask=self._mask[last],
            human=self._human[slots],
            toggle=self._toggle[slots],
            steps=steps,
            return_to_go=return_to_go,
            before_takeover=taken.astype(np.float32),
            chunk=chunk,
            valid=valid,
            room=room,
        )

    def _begin(self, row: EpisodeStart) -> None:
        if row.id in self._gone or row.id in self._episodes:
            return
        if row.spec_hash != self.spec.hash:
            log.warning("%s has spec %s, not %s: left out", row.id, row.spec_hash, self.spec.hash)
        if row.purpose == "eval" or row.spec_hash != self.spec.hash:
            self._gone.add(row.id)
        else:
            self._episodes[row.id] = _Episode(row.purpose)

    def _add_frame(self, episode: _Episode, row: Frame) -> None:
        if row.frame in episode.frames:
            return
        if not all(np.isfinite(row.observation[k]).all() for k in self._frames):
            self.refused_rows += 1  # its two steps wait for ever; one NaN would poison the critic
            return
        while not self._free_frames:
            self._evict()
        if row.id in self._gone:  # capacity is smaller than this one episode
            return
        slot = self._free_frames.pop()
        observation = self._digest({k: row.observation[k] for k in self._frames})
        for key, store in self._frames.items():
            store[slot] = observation[key]
        episode.frames[row.frame] = slot
        self._progress[slot] = self._smooth(episode, row.frame)
        for number in episode.readers.get(row.frame, ()):
            step_slot = episode.steps[number]
            for column in (self._frame, self._next):
                if column[step_slot] == -1 - row.frame - 1:  # it waited for this frame
                    column[step_slot] = slot
            self._offer(episode, step_slot)

    def _add_step(self, episode: _Episode, row: Step) -> None:
        if row.step in episode.steps:
            return
        if episode.purpose not in OFFLINE and row.driver is not Driver.RESET:
            self.env_steps += 1
            self.weights_version = row.weights_version
        if row.ending is Ending.ABORTED:
            self._drop(row.id)
            return
        while not self._free_steps:
            self._evict()
        if row.id in self._gone:
            return
        slot = self._free_steps.pop()
        episode.steps[row.step] = slot
        finite = np.isfinite(row.action).all() and np.isfinite(row.reward or 0.0)
        self.refused_rows += not finite
        self._action[slot] = row.action
        self._recorded[slot] = np.nan if row.reward is None else row.reward
        if self.view.assembly.rewards_by:
            self._recorded[slot] = episode.worth.get(row.next_frame, np.nan)
        self._mask[slot] = row.ending is not Ending.TERMINATED
        self._human[slot] = row.driver.is_human
        trusted = row.driver is not Driver.RESET and row.ending is not Ending.STALE
        self._usable[slot] = trusted and finite
        self._toggle[slot] = self._reversed_gripper(episode, row)
        self._follow[slot], self._before_takeover[slot], self._return_to_go[slot] = -1, False, 0.0
        self._connect(episode, row, slot)
        if row.ending is not None:
            episode.last, episode.goes_on = row.step, row.ending is not Ending.TERMINATED
            episode.success = row.success
        self._judge(episode, row.step)
        for number, column in ((row.frame, self._frame), (row.next_frame, self._next)):
            column[slot] = episode.frames.get(number, -1 - number - 1)
            episode.readers.setdefault(number, []).append(row.step)
        self._offer(episode, slot)
        if row.ending is not None:
            episode.over = True
            self._judge_all(row.id)  # how it ended may say what the other steps are worth
            kind = episode.purpose if episode.purpose in OFFLINE else "train"
            over = self._over.setdefault(kind, deque(maxlen=RECENT_EPISODES))
            over.append((row.id, row.ending, bool(row.success)))

    def _connect(self, episode: _Episode, row: Step, slot: int) -> None:
        """Tell the step before that this one follows, or that a person took over."""
        before = episode.steps.get(row.step - 1)
        if before is None:
            episode.segment = row.segment
            return
        if row.segment == episode.segment:
            self._follow[before] = slot
        elif row.driver.is_human and not self._human[before]:
            self._before_takeover[before] = True
        episode.segment = row.segment

    def _add_up(self, episode: _Episode) -> None:
        """Returns to go."""
        rest = 0.0
        for number in sorted(episode.steps, reverse=True):
            slot = episode.steps[number]
            rest = float(self._reward[slot]) + self.view.gamma * rest
            self._return_to_go[slot] = rest

    def _reversed_gripper(self, episode: _Episode, row: Step) -> bool:
        """True when this step commands the opposite of the last gripper command."""
        if self.spec.action.gripper_width_m(row.action) is None:
            return False
        before, episode.gripper = episode.gripper, 1 if row.action[6] > 0 else -1
        return before not in (0, episode.gripper)

    def _add_label(self, episode: _Episode, row: Label) -> None:
        """A model's progress of a frame; or a person spoke: what they say now stands for all steps
        of the episode."""
        assembly = self.view.assembly
        if row.kind == PROGRESS and row.author == assembly.progress_by:
            self._add_progress(episode, row)
        if row.kind == MODEL_REWARD and row.author == assembly.rewards_by:
            self._add_worth(episode, row)
        if row.kind not in FOLDED:
            return
        episode.said.append(row)
        episode.verdict = review(episode.said)
        self._judge_all(row.id)

    def _judge_all(self, key: EpisodeId) -> None:
        """Rewards of all steps, and whether the episode is one of the successes."""
        episode = self._episodes[key]
        won = episode.over and bool(episode.verdict.outcome(episode.success))
        episode.alone = won and not self._human[list(episode.steps.values())].any()
        for number, slot in episode.steps.items():
            self._judge(episode, number)
            self._offer(episode, slot)
        self._changed.add(key)

    def _add_progress(self, episode: _Episode, row: Label) -> None:
        assert row.step is not None
        if not np.isfinite(row.value):
            return
        episode.progress[row.step] = row.value
        for frame in range(row.step, row.step + self.view.assembly.smooth_steps):
            if (slot := episode.frames.get(frame)) is None:
                continue
            self._progress[slot] = self._smooth(episode, frame)
            for number in episode.readers.get(frame, ()):
                self._offer(episode, episode.steps[number])

    def _smooth(self, episode: _Episode, frame: int) -> float:
        """phi of a frame: the mean of what is known of it and those before; NaN if it is not."""
        if frame not in episode.progress:
            return np.nan
        window = range(frame, frame - self.view.assembly.smooth_steps, -1)
        known = [episode.progress[f] for f in window if f in episode.progress]
        return sum(known) / len(known)

    def _add_worth(self, episode: _Episode, row: Label) -> None:
        assert row.step is not None
        episode.worth[row.step] = row.value
        place = episode.frames.get(row.step, -1 - row.step - 1)
        for number in episode.readers.get(row.step, ()):
            slot = episode.steps[number]
            if self._next[slot] == place:
                self._recorded[slot] = row.value
                self._judge(episode, number)
                self._offer(episode, slot)
        self._changed.add(row.id)

    def _judge(self, episode: _Episode, number: int) -> None:
        """Reward of a step as recorded, or as people say; success pays 1 on the last step."""
        slot, verdict = episode.steps[number], episode.verdict
        reward = verdict.rewards.get(number, float(self._recorded[slot]))
        success = verdict.outcome(episode.success)
        # a model's rewards may all be below 0: there the 0 of a failure would be the best
        pays = success is not None and not self.view.assembly.rewards_by
        if np.isnan(reward) and pays:
            reward = 0.0
        if number == episode.last:
            said = verdict.success is not None or np.isnan(self._recorded[slot])
            if said and pays:
                reward = float(bool(success))
            self._mask[slot] = episode.goes_on and not (said and success)
        self._labelled[slot] = not np.isnan(reward)
        cost = self.view.assembly.step_cost
        self._reward[slot] = reward - cost if self._labelled[slot] else 0.0
        self._kept[slot] = verdict.keeps(number) and number not in verdict.left_out

    def _offer(self, episode: _Episode, slot: int) -> None:
        """Enter a step into the views where it belongs now, and take it out of the others."""
        if not self._ready(slot) or (self.view.decisions and not self._is_decision(slot)):
            self._online.discard(slot)
            self._demo.discard(slot)
            return
        if episode.purpose not in OFFLINE and self._online.add(slot):
            self._recent[self._recent_count % len(self._recent)] = slot
            self._recent_count += 1
        own = self.view.own_successes and episode.alone
        if self._human[slot] or own or episode.purpose == "data":
            self._demo.add(slot)
        else:
            self._demo.discard(slot)

    def _is_decision(self, slot: int) -> bool:
        """Whether the policy chose a base's noise there."""
        age = self._frames[BASE_AGE][int(self._frame[slot])]
        return not self._human[slot] and float(age[0]) == 0.0

    def _evict(self) -> None:
        """Forget the oldest practice episode; then demonstrations and data; last of all the newest
        practice of each actor: it may still run, and would go at its own next step for ever."""
        practice = [k for k, e in self._episodes.items() if e.purpose not in OFFLINE]
        newest = {(k.run, k.actor): k for k in practice}.values()
        offline = (k for k, e in self._episodes.items() if e.purpose in OFFLINE)
        old = next((k for k in practice if k not in newest), None)
        self._drop(old or next(offline, None) or practice[0])

    def _drop(self, key: EpisodeId) -> None:
        episode = self._episodes.pop(key)
        self._gone.add(key)
        for slot in episode.steps.values():
            self._online.discard(slot)
            self._demo.discard(slot)
        self._free_steps.extend(episode.steps.values())
        self._free_frames.extend(episode.frames.values())

    def summary(self) -> ReplaySummary:
        """What `learn.diagnostics` asks; a millisecond or two, whatever the capacity."""
        parts = [self._count(purpose) for purpose in ("train", *OFFLINE)]
        slots = np.concatenate([slots for _, slots in parts])
        slots = slots[self._labelled[slots] & self._usable[slots]]
        reward, goes_on = self._reward[slots], self._mask[slots] > 0.0
        return ReplaySummary(
            practice=parts[0][0],
            demos=parts[1][0],
            data=parts[2][0],
            reward=_span(reward),
            running=_span(reward[goes_on]),
            ending=_span(reward[~goes_on]),
        )

    def _count(self, purpose: str) -> tuple[EpisodeCounts, NDArray[np.int64]]:
        """Counts over the newest episodes of one purpose, and the slots of all their steps."""
        counts: Counter[str] = Counter()
        everything = [np.empty(0, np.int64)]
        for key, ending, success in self._over.get(purpose, ()):
            episode = self._episodes.get(key)
            if episode is None:
                continue
            slots = np.fromiter(episode.steps.values(), np.int64)
            labelled, toggled = self._labelled[slots], self._toggle[slots] > 0.0
            rewarded = success or bool((labelled & (self._reward[slots] > 0.0)).any())
            if purpose == "train":
                toggled &= ~self._human[slots]
            counts["episodes"] += 1
            counts["labelled"] += bool(labelled.any())
            counts["rewarded"] += rewarded
            counts["at_once"] += rewarded and len(slots) <= AT_ONCE_STEPS
            counts["truncated"] += ending is Ending.TRUNCATED and not rewarded
            counts["toggled"] += bool(toggled.any())
            everything.append(slots)
        return EpisodeCounts(**counts), np.concatenate(everything)


def _span(values: NDArray[np.float32]) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
