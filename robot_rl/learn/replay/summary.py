"""What the newest episodes were like, for `learn.diagnostics`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.learn.replay.storage import OFFLINE, Episode, Steps
from robot_rl.types import Ending, EpisodeId

RECENT_EPISODES = 50  # of each purpose in a summary: some ten minutes of practice on an arm
AT_ONCE_STEPS = 3  # a reward that ends an episode this early was there before anything was done


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeCounts:
    """Counts among the newest `RECENT_EPISODES` episodes that are over and still in the replay.

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
    others; returns: what they and all later steps of their episode are worth, discounted.
    """

    practice: EpisodeCounts = EpisodeCounts()
    demos: EpisodeCounts = EpisodeCounts()
    data: EpisodeCounts = EpisodeCounts()
    reward: tuple[float, float] = (0.0, 0.0)
    running: tuple[float, float] = (0.0, 0.0)
    ending: tuple[float, float] = (0.0, 0.0)
    returns: tuple[float, float] = (0.0, 0.0)


class Recent:
    """The newest episodes that are over, of each purpose."""

    def __init__(self, steps: Steps, episodes: Mapping[EpisodeId, Episode]) -> None:
        self._steps, self._episodes = steps, episodes
        self._over: dict[str, deque[tuple[EpisodeId, Ending, bool]]] = {}

    def ended(self, id_: EpisodeId, purpose: str, ending: Ending, success: bool) -> None:
        """Note that an episode is over."""
        kind = purpose if purpose in OFFLINE else "train"
        self._over.setdefault(kind, deque(maxlen=RECENT_EPISODES)).append((id_, ending, success))

    def summary(self) -> ReplaySummary:
        """Return counts and rewards; takes 1 to 2 ms, whatever the capacity."""
        steps = self._steps
        parts = [self._count(purpose) for purpose in ("train", *OFFLINE)]
        slots = np.concatenate([slots for _, slots in parts])
        slots = slots[steps.labelled[slots] & steps.usable[slots]]
        reward, goes_on = steps.reward[slots], steps.mask[slots] > 0.0
        return ReplaySummary(
            practice=parts[0][0],
            demos=parts[1][0],
            data=parts[2][0],
            reward=_span(reward),
            running=_span(reward[goes_on]),
            ending=_span(reward[~goes_on]),
            returns=_span(steps.return_to_go[slots]),
        )

    def _count(self, purpose: str) -> tuple[EpisodeCounts, NDArray[np.int64]]:
        """Return counts over the newest episodes of a purpose, and the slots of their steps."""
        counts: Counter[str] = Counter()
        everything = [np.empty(0, np.int64)]
        for key, ending, success in self._over.get(purpose, ()):
            episode = self._episodes.get(key)
            if episode is None:
                continue
            slots = np.fromiter(episode.steps.values(), np.int64)
            labelled, toggled = self._steps.labelled[slots], self._steps.toggle[slots] > 0.0
            rewarded = success or bool((labelled & (self._steps.reward[slots] > 0.0)).any())
            if purpose == "train":
                toggled &= ~self._steps.human[slots]
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
