"""What a deployment counts, episode by episode, read from a store without its observations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from robot_rl.store.labels import FOLDED, review
from robot_rl.store.store import EPISODE_ABORTED, Store
from robot_rl.store.summary import HUMAN
from robot_rl.types import Ending, Label

ENDED = "ended"  # event: why the episode ended, in words
CONTINUED = "continued"  # event: a person has said that it goes on after failures in a row
ROUND = "round"  # event: which round of a comparison this was
TAKEOVER = "takeover"  # event of the loop
NOTED = (ENDED, CONTINUED, ROUND, TAKEOVER, EPISODE_ABORTED)

_OF = "run=? AND actor=? AND episode>=?"
# the last step is found by its number: it says how the episode ended
_CYCLES = f"""
WITH sums AS (
  SELECT episode AS number, count(*) AS steps, sum(driver IN ({HUMAN})) AS human,
    max(stamp_ns) - min(stamp_ns) AS lasted_ns, max(step) AS last
  FROM steps WHERE {_OF} GROUP BY episode
)
SELECT e.episode, e.purpose, e.seed, e.stamp_ns, sums.steps, sums.human, sums.lasted_ns,
  s.ending, s.success
FROM episodes AS e LEFT JOIN sums ON sums.number=e.episode
LEFT JOIN steps AS s
  ON s.run=e.run AND s.actor=e.actor AND s.episode=e.episode AND s.step=sums.last
WHERE e.run=? AND e.actor=? AND e.episode>=? ORDER BY e.episode
"""
_EVENTS = f"""
SELECT episode, name, detail FROM events
WHERE {_OF} AND name IN ({", ".join("?" * len(NOTED))}) ORDER BY episode, event
"""
_LABELS = f"""
SELECT episode, label, author, step, kind, value, source, stamp_ns FROM labels
WHERE {_OF} AND kind IN ({", ".join("?" * len(FOLDED))}) ORDER BY seq
"""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One episode.

    steps, human_steps: all, and those that a person drove; lasted_s: from its first step to the end
    of its last; ending: None while it runs; success: the newest word, None = nobody has said;
    continued: before the next one a person has said that it goes on; round: of a comparison, "".
    """

    episode: int
    purpose: str
    seed: int
    stamp_ns: int
    steps: int
    human_steps: int
    lasted_s: float
    ending: Ending | None
    success: bool | None
    reason: str
    takeovers: int
    continued: bool
    round: str

    @property
    def counts(self) -> bool:
        """Whether it says something about the policy: it was neither aborted nor stale."""
        return self.ending in (Ending.TERMINATED, Ending.TRUNCATED)


def read_cycles(store: Store, run: str, actor: str, since: int = 0) -> list[Cycle]:
    """The episodes of a run from number `since` on, in their order.

    Raises:
        StoreError: the file is damaged.
    """
    key = (run, actor, since)
    period_s = 1.0 / store.spec.control_hz if store.spec else 0.0
    events: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for number, name, detail in store.select(_EVENTS, (*key, *NOTED)):
        events[number].append((name, detail))
    said: dict[int, list[Label]] = defaultdict(list)
    for number, label, author, step, kind, value, source, stamp_ns in store.select(
        _LABELS, (*key, *FOLDED)
    ):
        id_ = (run, actor, number)
        said[number].append(Label(id_, label, step, kind, value, source, author, stamp_ns))  # type: ignore[arg-type]
    found = []
    for number, purpose, seed, stamp_ns, steps, human, lasted_ns, ending, success in store.select(
        _CYCLES, (*key, *key)
    ):
        told = events.get(number, [])
        names = [name for name, _ in told]
        ended = None if ending is None else Ending(ending)
        if ended is None and (EPISODE_ABORTED in names or ENDED in names):
            ended = Ending.ABORTED
        found.append(
            Cycle(
                episode=number,
                purpose=purpose,
                seed=seed,
                stamp_ns=stamp_ns,
                steps=steps or 0,
                human_steps=human or 0,
                lasted_s=(lasted_ns or 0) / 1e9 + period_s * bool(steps),
                ending=ended,
                success=review(said[number]).outcome(None if success is None else bool(success)),
                reason=next((d for n, d in told if n in (ENDED, EPISODE_ABORTED)), ""),
                takeovers=names.count(TAKEOVER),
                continued=CONTINUED in names,
                round=next((d for n, d in told if n == ROUND), ""),
            )
        )
    return found
