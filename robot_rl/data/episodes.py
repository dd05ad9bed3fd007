"""Episodes to export: chosen, reviewed, and read from the store with their frames.

What people said afterwards (`store.review`) is applied here, once for all formats. Left out are
episodes that still run, have no steps, or were removed here once the learner had them, and, unless
asked for: evaluation, aborted and excluded episodes, and trimmed steps.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from robot_rl.errors import ConfigError, StoreError, did_you_mean
from robot_rl.spec import Spec
from robot_rl.store.labels import Review, review
from robot_rl.store.store import Store
from robot_rl.store.summary import EpisodeRecord
from robot_rl.types import Ending, EpisodeId, EpisodeStart, Event, Frame, Label, Step

log = logging.getLogger(__name__)

INCLUDE = ("eval", "aborted", "excluded", "trimmed")
"""What is left out unless it is asked for."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """An episode to export.

    steps: how many are kept; ending: as recorded; review: what people said and still holds;
    is_cut: whether steps at its end are left out.
    """

    start: EpisodeStart
    steps: int
    ending: Ending
    review: Review
    is_cut: bool = False

    @property
    def outcome(self) -> Ending:
        """How it ends in an export, with what people said."""
        if self.is_cut:
            return Ending.TRUNCATED
        return Ending.TERMINATED if self.review.success else self.ending

    @property
    def not_learned_from(self) -> int:
        """Steps that are exported, although they are left out of training (`robot-rl filter`)."""
        last = self.review.first + self.steps - 1
        return sum(self.review.first <= step <= last for step in self.review.left_out)


@dataclass(frozen=True, slots=True)
class Episode:
    """A reviewed episode.

    steps: those kept, by index, the last one with an ending; frames: number -> frame, those that
    the steps name and the store has; events, labels: of what is kept, and of the whole episode,
    also labels that were applied.
    """

    start: EpisodeStart
    steps: list[Step]
    frames: dict[int, Frame]
    events: list[Event]
    labels: list[Label]


@dataclass(frozen=True, slots=True)
class Piece:
    """Steps of one episode without a gap: frames[i] is before steps[i], frames[-1] after all."""

    start: EpisodeStart
    steps: list[Step]
    frames: list[Frame]


def spec_of(store: Store) -> Spec:
    """The contract with which a store was recorded. Raises `StoreError` when it holds none."""
    if store.spec is None:
        raise StoreError(
            f"{store.path.name} says nothing about its observations and actions",
            expected="the spec that every run saves in its store",
            got="a store without one",
            fix="give the store of a run",
        )
    return store.spec


def choose(store: Store, include: Collection[str] = ()) -> list[Chosen]:
    """Return the episodes to export, in commit order. include: words of `INCLUDE`.

    Raises:
        ConfigError: an unknown word in `include`.
        StoreError: no episode is left.
    """
    for word in set(include) - set(INCLUDE):
        raise ConfigError(
            f"'{word}' cannot be included",
            expected=f"some of {', '.join(INCLUDE)}",
            got=word,
            fix=did_you_mean(word, INCLUDE),
        )
    starts = {start.id: start for start in store.episodes()}
    left_out: Counter[str] = Counter()
    chosen: list[Chosen] = []
    for record in store.episode_summaries():
        said = _what_holds(review(store.labels(record.id)), include)
        why = _left_out(record, said, include)
        left_out[why] += 1
        if not why and record.ending is not None:
            kept = _kept_steps(record, said)
            is_cut = said.last is not None and said.last < record.steps - 1
            chosen.append(Chosen(starts[record.id], kept, record.ending, said, is_cut))
    reasons = ", ".join(f"{n} {why}" for why, n in sorted(left_out.items()) if why)
    if not chosen:
        raise StoreError(
            "there is no episode to export",
            expected="at least one finished episode that is neither excluded nor an evaluation",
            got=f"{len(starts)} episodes: {reasons or 'none was recorded'}",
            fix=f"record some, take a review back, or --include {' '.join(INCLUDE)}",
        )
    if reasons:
        log.info("%d episodes; left out: %s", len(chosen), reasons)
    return chosen


def read(store: Store, chosen: Chosen) -> Episode:
    """Read one chosen episode, with what was said about it applied to its steps."""
    id_, said = chosen.start.id, chosen.review
    recorded = store.steps(id_)
    steps = [
        replace(s, reward=said.rewards.get(s.step, s.reward))
        for s in recorded
        if said.keeps(s.step)
    ]
    if steps:
        last, trimmed = steps[-1], steps[-1].step != recorded[-1].step
        last = replace(last, ending=Ending.TRUNCATED if trimmed else chosen.ending)
        if said.neutral:  # neither: whatever was recorded about success does not count
            last = replace(last, success=None, reward=said.rewards.get(last.step))
        steps[-1] = last if said.success is None else _judged(last, said.success, trimmed)
    named = {n for s in steps for n in (s.frame, s.next_frame)}
    return Episode(
        start=chosen.start,
        steps=steps,
        frames={f.frame: f for f in store.frames(id_) if f.frame in named},
        events=[e for e in store.events(id_) if _is_within(said, e.step)],
        labels=[x for x in store.labels(id_) if x.step is None or _is_within(said, x.step)],
    )


def read_whole(store: Store, id_: EpisodeId) -> Episode:
    """Read one episode to look at: all its steps, also excluded and trimmed ones.

    Raises:
        StoreError: there is no such episode, it still runs, or it has no steps here.
    """
    start = next((s for s in store.episodes(id_.run, id_.actor) if s.id == id_), None)
    ending = store.ending(id_)
    if start is None or ending is None:
        raise StoreError(
            "only an episode that has ended can be exported",
            expected="an episode of the store, with an ending",
            got=f"episode {id_.episode}, "
            + ("which still runs" if start else "which is not there"),
            fix="wait until it has ended",
        )
    said = _what_holds(review(store.labels(id_)), INCLUDE)
    episode = read(store, Chosen(start, 0, ending, said))
    if not episode.steps or not episode.frames:
        raise StoreError(
            "this episode has no steps to export",
            expected="an episode with steps",
            got=f"episode {id_.episode} without any",
            fix="choose another one",
        )
    return episode


def unbroken(episode: Episode) -> list[Piece]:
    """Cut an episode at its gaps, for formats that look steps up by position.

    A step whose frame is not in the store is left out; a piece that a gap ends is TRUNCATED,
    because the episode went on.
    """
    pieces = [_piece(episode, steps) for steps in _chains(episode)]
    missing = episode.steps[-1].step - episode.steps[0].step + 1 if episode.steps else 0
    missing -= sum(len(piece.steps) for piece in pieces)
    if len(pieces) > 1 or missing:
        log.warning(
            "episode %d has gaps (%d steps are missing): it becomes %d episodes",
            episode.start.id.episode,
            missing,
            len(pieces),
        )
    return pieces


def fingerprint(chosen: Sequence[Chosen]) -> str:
    """Digest of what is exported; it changes when an episode or a review is added.

    Older versions exported neutral episodes as recorded: their exports are not gone on with.
    """
    lines = [
        f"{c.start.id} {c.steps} {c.ending} {c.review}" + " unknown" * c.review.neutral
        for c in chosen
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _judged(last: Step, success: bool, trimmed: bool) -> Step:
    """The last step after a person's label, as in the replay: success pays 1 and terminates."""
    if trimmed:  # the step that the label was about is not exported
        return replace(last, success=success)
    ending = Ending.TERMINATED if success else last.ending
    return replace(last, success=success, reward=float(success), ending=ending)


def _is_within(said: Review, step: int) -> bool:
    """Whether what stands at a step belongs to what is kept; -1 stands before all of them."""
    return (said.first == 0 or said.first <= step) and (said.last is None or step <= said.last)


def _what_holds(said: Review, include: Collection[str]) -> Review:
    if "excluded" in include:
        said = replace(said, excluded=False)
    return replace(said, first=0, last=None) if "trimmed" in include else said


def _left_out(record: EpisodeRecord, said: Review, include: Collection[str]) -> str:
    """Why an episode is not exported; "" if it is."""
    if record.ending is None:
        return "still running"
    if record.removed:
        return "only at the learner"
    if record.purpose == "eval" and "eval" not in include:
        return "eval"
    if record.ending is Ending.ABORTED and "aborted" not in include:
        return "aborted"
    if said.excluded:
        return "excluded"
    return "" if _kept_steps(record, said) > 0 else "without steps"


def _kept_steps(record: EpisodeRecord, said: Review) -> int:
    last = record.steps - 1 if said.last is None else min(said.last, record.steps - 1)
    return last - said.first + 1


def _chains(episode: Episode) -> Iterator[list[Step]]:
    """Yield the longest chains of steps in which each begins where the one before ended."""
    chain: list[Step] = []
    for step in episode.steps:
        if step.frame not in episode.frames or step.next_frame not in episode.frames:
            continue
        if chain and (step.step, step.frame) != (chain[-1].step + 1, chain[-1].next_frame):
            yield chain
            chain = []
        chain.append(step)
    if chain:
        yield chain


def _piece(episode: Episode, steps: list[Step]) -> Piece:
    last = replace(steps[-1], ending=steps[-1].ending or Ending.TRUNCATED)
    numbers = [s.frame for s in steps] + [last.next_frame]
    return Piece(episode.start, [*steps[:-1], last], [episode.frames[n] for n in numbers])
