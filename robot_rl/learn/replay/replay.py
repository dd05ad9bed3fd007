"""Replay: a sampling view over the rows of the store.

Frames are kept once, in preallocated arrays (images stay uint8); a step refers to two of them by
(episode, frame), never by neighbouring places, so that a gap in the stream cannot pair an image
with the state of another moment (in HIL-SERL's image buffer it does). Everything here follows from
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
             without a person (RaC's data). `demo_only` (cloning) leaves demonstrations and data out
             that failed, but no correction of a failed practice episode

A read of several steps (`n_step`) follows one driver inside one episode: it ends at a change of
driver, at a gap, at an unlabelled step and at the end of the episode, and bootstraps from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import SpecError
from robot_rl.learn.frames import Allocate, in_memory
from robot_rl.learn.replay.rewards import Rewards
from robot_rl.learn.replay.storage import OFFLINE, Episode, Frames, Gone, Steps, awaited
from robot_rl.learn.replay.summary import Recent, ReplaySummary
from robot_rl.learn.replay.views import Batch, SlotSet, View, evenly
from robot_rl.reward.assembly import potential_based
from robot_rl.spec import BASE_AGE, Spec
from robot_rl.store.labels import FOLDED, MODEL_REWARD, PROGRESS
from robot_rl.store.store import EPISODE_ABORTED
from robot_rl.types import (
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


class Replay:
    """Holds the newest `capacity` steps; when full, it forgets whole episodes, see `_evict`.

    Args:
        spec: of the run; rows of another spec are refused episode by episode, with a warning.
        capacity: steps. Memory is touched only as it fills.
        keys: observation entries to keep; None keeps all.
        view: what the algorithm asks for.
        digest: turns a frame's observation into what is kept of it (`nets.actor.ActorNet.digest`).
        allocate: where frames are kept (`learn.frames`).

    Attributes:
        steps, frames, episodes: where everything lies (`storage`); to be read, not changed.
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
        slots = capacity + capacity // 4 + 2  # an episode has one frame more than steps
        self.frames = Frames(kept, slots, allocate, digest)
        self.steps = Steps(capacity, spec.action.size)
        self.episodes: dict[EpisodeId, Episode] = {}
        self._rewards = Rewards(self.steps, self.frames, self.view.assembly, self.view.gamma)
        self._over = Recent(self.steps, self.episodes)
        self._recent = np.full(max(self.view.recent_steps, 1), -1, np.int64)  # a ring
        self._recent_count = 0
        self._online, self._demo = SlotSet(capacity), SlotSet(capacity)
        self.weights_version = -1  # of the weights that drove the newest practice step
        self._gone = Gone()  # eval, foreign, aborted or evicted: never taken again
        self._changed: set[EpisodeId] = set()  # rewards changed since returns to go were added up

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
        frame = sum(v[0].nbytes for v in self.frames.columns.values())
        return frame + self.steps.bytes_each

    def summary(self) -> ReplaySummary:
        """Return what the newest episodes were like."""
        return self._over.summary()

    # --- drawing ---------------------------------------------------------------------------------

    def sample(
        self,
        batch_size: int,
        demo_fraction: float,
        rng: np.random.Generator,
        keys: Iterable[str] | None = None,
    ) -> Batch:
        """Draw with replacement: `demo_fraction` of the rows from the demo view, spread evenly.

        While one view is empty, all rows come from the other (unless `View.demo_only`). keys: the
        entries of the observation that are needed; None = all that are kept.

        Raises:
            SpecError: nothing can be sampled yet.
        """
        if not self.can_sample:
            raise SpecError(
                "there is nothing to learn from yet",
                expected="at least one complete, labelled step"
                + (", of a demonstration that did not fail" if self.view.demo_only else ""),
                got=f"{self._online.size} online, {self._demo.size} demo",
                fix="record demonstrations or practice first; check that steps have rewards",
            )
        if not self._online.size or not self._demo.size:
            demo_fraction = 0.0 if self._online.size else 1.0
        count = round(batch_size * demo_fraction)
        from_demo = evenly(count, batch_size)
        slots = np.empty(batch_size, np.int64)
        if count:
            slots[from_demo] = self._demo.draw(count, rng)
        if count < batch_size:
            slots[~from_demo] = self._draw_online(batch_size - count, rng)
        return self.gather(slots, keys)

    def _draw_online(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        slots = self._online.draw(count, rng)
        recent = round(count * self.view.recent_fraction)
        if recent:
            filled = min(self._recent_count, len(self._recent))
            newest, at = self._recent[rng.integers(0, filled, recent)], evenly(recent, count)
            slots[at] = np.where(self._online.holds(newest), newest, slots[at])
        return slots

    def read(self, slots: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return slots [B, length] of the steps from `slots` [B] on; -1 beyond the end.

        Never leaves the segment: see the module docstring.
        """
        chain = np.full((len(slots), length), -1, np.int64)
        at = chain[:, 0] = slots
        for column in range(1, length):
            at = np.where(at >= 0, self.steps.follow[at], -1)  # index -1 reads an unused value
            at = np.where((at >= 0) & self._ready(at), at, -1)
            chain[:, column] = at
        return chain

    def _ready(self, slots: Any) -> Any:
        """Return which steps (a slot or slots) may be learned from: bool or bool [B]."""
        steps, progress = self.steps, self.frames.progress
        ready = steps.complete(slots)
        if not self.view.assembly.shaping:
            return ready
        places = (np.maximum(column[slots], 0) for column in (steps.frame, steps.after))
        before, after = (progress[place] for place in places)
        return ready & ~np.isnan(before) & (~np.isnan(after) | (steps.mask[slots] == 0.0))

    def gather(self, slots: NDArray[np.int64], keys: Iterable[str] | None = None) -> Batch:
        """Return the transitions that begin with the steps in these slots [B]."""
        held = self.steps
        last, reward = slots, held.reward[slots]
        steps, taken = np.ones(len(slots), np.float32), held.before_takeover[slots]
        toggle = held.toggle[slots]
        if self.view.n_step > 1:
            chain = self.read(slots, self.view.n_step)
            there = chain >= 0
            if self.view.decisions:
                later = self.frames.columns[BASE_AGE].take(held.frame[chain], 0)[..., 0] > 0.0
                later[:, 0] = True
                there &= np.logical_and.accumulate(later, 1)
            discount = self.view.gamma ** np.arange(self.view.n_step)
            reward = (np.where(there, held.reward[chain], 0.0) @ discount).astype(np.float32)
            taken = np.where(there, held.before_takeover[chain], False) @ discount
            toggle = (np.where(there, held.toggle[chain], 0.0) @ discount).astype(np.float32)
            steps = there.sum(1).astype(np.float32)
            last = chain[np.arange(len(slots)), there.sum(1) - 1]
        now, after = held.frame[slots], held.after[last]
        return_to_go, assembly = held.return_to_go[slots], self.view.assembly
        room = None
        if assembly.shaping:
            phi, discounts = self.frames.progress[now], np.float32(self.view.gamma) ** steps
            later = self.frames.progress[after] - 1.0
            gain = potential_based(phi - 1.0, later, held.mask[last], discounts)
            reward = (reward + assembly.shaping * gain).astype(np.float32)
            room = assembly.shaping * np.stack((1.0 - phi, phi), -1)
            return_to_go = (return_to_go + room[:, 0]).astype(np.float32)
        chunk = valid = None
        if self.view.chunk > 1:
            along = self.read(slots, self.view.chunk)
            valid = along >= 0
            chunk = held.action[along] * valid[..., None]
        return Batch(
            observation=self.frames.take(now, keys),
            action=held.action.take(slots, 0),
            reward=reward,
            next_observation=self.frames.take(after, keys),
            mask=held.mask[last],
            human=held.human[slots],
            toggle=toggle,
            steps=steps,
            return_to_go=return_to_go,
            before_takeover=taken.astype(np.float32),
            chunk=chunk,
            valid=valid,
            room=room,
            failed=held.failed[last],
        )

    # --- taking rows -----------------------------------------------------------------------------

    def leave_out(self, gone: Iterable[EpisodeId], env_steps: int) -> None:
        """Count practice that is not read, and take none of its rows (`replay.tail`)."""
        for id_ in gone:
            self._gone.add(id_)
        self.env_steps += env_steps

    def ingest(self, rows: Iterable[Row]) -> int:
        """Take rows in commit order; a row seen before changes nothing. Returns new env steps."""
        before = self.env_steps
        for row in rows:
            if isinstance(row, EpisodeStart):
                self._begin(row)
            elif row.id not in self._gone:
                episode = self.episodes.get(row.id)
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
        for episode in map(self.episodes.get, self._changed):
            if episode is not None and episode.over:
                self._rewards.add_up(episode)
        self._changed.clear()
        return self.env_steps - before

    def _begin(self, row: EpisodeStart) -> None:
        if row.id in self._gone or row.id in self.episodes:
            return
        if row.spec_hash != self.spec.hash:
            log.warning("%s has spec %s, not %s: left out", row.id, row.spec_hash, self.spec.hash)
        if row.purpose == "eval" or row.spec_hash != self.spec.hash:
            self._gone.add(row.id)
        else:
            self.episodes[row.id] = Episode(row.purpose)

    def _add_frame(self, episode: Episode, row: Frame) -> None:
        if row.frame in episode.frames:
            return
        if not all(np.isfinite(row.observation[k]).all() for k in self.frames.keys):
            self.refused_rows += 1  # never sampled: one NaN would spoil the critic
            return
        while not self.frames.free:
            self._evict()
        if row.id in self._gone:  # capacity is smaller than this one episode
            return
        slot = episode.frames[row.frame] = self.frames.put(row.observation)
        self.frames.progress[slot] = self._rewards.smooth(episode, row.frame)
        for number in episode.readers.get(row.frame, ()):
            step = episode.steps[number]
            for column in (self.steps.frame, self.steps.after):
                if column[step] == awaited(row.frame):
                    column[step] = slot
            self._offer(episode, step)

    def _add_step(self, episode: Episode, row: Step) -> None:
        if row.step in episode.steps:
            return
        if episode.purpose not in OFFLINE and row.driver is not Driver.RESET:
            self.env_steps += 1
            self.weights_version = row.weights_version
        if row.ending is Ending.ABORTED:
            self._drop(row.id)
            return
        steps = self.steps
        while not steps.free:
            self._evict()
        if row.id in self._gone:
            return
        slot = episode.steps[row.step] = steps.free.pop()
        finite = np.isfinite(row.action).all() and np.isfinite(row.reward or 0.0)
        self.refused_rows += not finite
        steps.action[slot] = row.action
        self._rewards.recorded(episode, row, slot)
        steps.mask[slot] = row.ending is not Ending.TERMINATED
        steps.human[slot] = row.driver.is_human
        trusted = row.driver is not Driver.RESET and row.ending is not Ending.STALE
        steps.usable[slot] = trusted and finite
        steps.toggle[slot] = self._reversed_gripper(episode, row)
        steps.follow[slot], steps.before_takeover[slot], steps.return_to_go[slot] = -1, False, 0.0
        self._connect(episode, row, slot)
        if row.ending is not None:
            episode.last, episode.goes_on = row.step, row.ending is not Ending.TERMINATED
            episode.success = row.success
        self._rewards.assign(episode, row.step)
        for number, column in ((row.frame, steps.frame), (row.next_frame, steps.after)):
            column[slot] = episode.frames.get(number, awaited(number))
            episode.readers.setdefault(number, []).append(row.step)
        self._offer(episode, slot)
        if row.ending is not None:
            episode.over = True
            self._rewards.judge_all(episode)  # how it ended may say what the other steps are worth
            self._offer_all(row.id)
            self._over.ended(row.id, episode.purpose, row.ending, bool(row.success))

    def _connect(self, episode: Episode, row: Step, slot: int) -> None:
        """Note at the steps before that this one follows, or that a person took over."""
        before = episode.steps.get(row.step - 1)
        if before is None:
            episode.segment = row.segment
            return
        if row.segment == episode.segment:
            self.steps.follow[before] = slot
        elif row.driver.is_human and not self.steps.human[before]:
            self._charge(episode, row.step - 1)
        episode.segment = row.segment

    def _charge(self, episode: Episode, number: int) -> None:
        """Note a takeover at the policy's last action: at step `number`, or before it.

        While the arbiter lets the robot stand still, the policy drives with a zero action, which it
        did not choose.
        """
        while (slot := episode.steps.get(number)) is not None and not self.steps.human[slot]:
            if self.steps.action[slot].any():
                self.steps.before_takeover[slot] = True
                return
            number -= 1

    def _reversed_gripper(self, episode: Episode, row: Step) -> bool:
        """True when this step commands the opposite of the last gripper command."""
        if self.spec.action.gripper_width_m(row.action) is None:
            return False
        before, episode.gripper = episode.gripper, 1 if row.action[-1] > 0 else -1
        return before not in (0, episode.gripper)

    def _add_label(self, episode: Episode, row: Label) -> None:
        """Take a model's progress or reward of a frame, or a person's label."""
        assembly, touched = self.view.assembly, []
        if row.kind in (PROGRESS, MODEL_REWARD) and row.step is None:
            self.refused_rows += 1
            return
        if row.kind == PROGRESS and row.author == assembly.progress_by:
            touched += self._rewards.add_progress(episode, row)
        if row.kind == MODEL_REWARD and row.author == assembly.rewards_by:
            touched += self._rewards.add_worth(episode, row)
            self._changed.add(row.id)
        for number in touched:
            self._offer(episode, episode.steps[number])
        if row.kind in FOLDED:
            self._rewards.hear(episode, row)
            self._offer_all(row.id)

    # --- views -----------------------------------------------------------------------------------

    def _offer_all(self, key: EpisodeId) -> None:
        """Offer every step of an episode whose rewards were judged anew."""
        episode = self.episodes[key]
        for slot in episode.steps.values():
            self._offer(episode, slot)
        self._changed.add(key)

    def _offer(self, episode: Episode, slot: int) -> None:
        """Enter a step into the views where it belongs now, and take it out of the others."""
        ready = self.steps.is_complete(slot)
        if ready and self.view.assembly.shaping:
            ready = bool(self._ready(slot))
        offline = episode.purpose in OFFLINE
        ready = ready and not (self.view.demo_only and offline and episode.failed)
        if not ready or (self.view.decisions and not self._is_decision(slot)):
            self._online.discard(slot)
            self._demo.discard(slot)
            return
        if not offline and self._online.add(slot):
            self._recent[self._recent_count % len(self._recent)] = slot
            self._recent_count += 1
        own = self.view.own_successes and episode.alone
        if self.steps.human[slot] or own or episode.purpose == "data":
            self._demo.add(slot)
        else:
            self._demo.discard(slot)

    def _is_decision(self, slot: int) -> bool:
        """Whether the policy chose the base policy's noise at this step."""
        age = self.frames.columns[BASE_AGE][int(self.steps.frame[slot])]
        return not self.steps.human[slot] and float(age[0]) == 0.0

    # --- forgetting ------------------------------------------------------------------------------

    def _evict(self) -> None:
        """Forget the oldest practice episode; without one, the oldest demonstration or data.

        The newest practice of each actor goes last: it may still run, and its later steps would be
        refused.
        """
        practice = [k for k, e in self.episodes.items() if e.purpose not in OFFLINE]
        newest = {(k.run, k.actor): k for k in practice}.values()
        offline = (k for k, e in self.episodes.items() if e.purpose in OFFLINE)
        old = next((k for k in practice if k not in newest), None)
        self._drop(old or next(offline, None) or practice[0])

    def _drop(self, key: EpisodeId) -> None:
        episode = self.episodes.pop(key)
        self._gone.add(key)
        for slot in episode.steps.values():
            self._online.discard(slot)
            self._demo.discard(slot)
        self.steps.free.extend(episode.steps.values())
        self.frames.free.extend(episode.frames.values())
