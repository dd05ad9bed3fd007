"""Who drove which episode, what a person did in their shift, and the newest episodes at a glance.

A step says that a person drove, not who. The console knows who has the seat, so it says so beside
the episode, as a label of that person (`store.labels.DROVE`) whose value is the number of steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from robot_rl.console.notes import Notes
from robot_rl.console.records import Records
from robot_rl.errors import StoreError
from robot_rl.store.labels import DROVE
from robot_rl.types import EpisodeId, Label

log = logging.getLogger(__name__)

NEWEST = 3  # episodes looked at: the one that runs, and those that ended since the last look
_NEWEST = f"""
SELECT e.run, e.actor, e.episode, r.human_steps, r.ending IS NOT NULL OR r.aborted
FROM episodes AS e JOIN results AS r
ON r.run=e.run AND r.actor=e.actor AND r.episode=e.episode
ORDER BY e.seq DESC LIMIT {NEWEST}
"""


class Shift:
    """Counts the human steps of the newest episodes for whoever is in the seat.

    driver: who has the seat now, as the author of labels; "" for nobody. `look` is called a few
    times a second.
    """

    def __init__(self, records: Records, driver: Callable[[], str]) -> None:
        self._records, self._driver = records, driver
        self._seen: dict[EpisodeId, int] | None = None
        self._drove: dict[EpisodeId, dict[str, int]] = {}

    def look(self) -> None:
        """Take in what was driven since the last look; say it of episodes that have ended.

        Raises:
            StoreError: nothing has been recorded yet.
        """
        driver, found = self._driver(), self._records.store.select(_NEWEST)
        rows = [(EpisodeId(*row[:3]), row[3], bool(row[4])) for row in found]
        before = self._seen  # None: a console that starts now does not know who drove before
        self._seen = {id_: steps for id_, steps, _ in rows}
        for id_, steps, over in rows:
            new = 0 if before is None else steps - before.get(id_, 0)
            if driver and new > 0:
                counts = self._drove.setdefault(id_, {})
                counts[driver] = counts.get(driver, 0) + new
            if over and id_ in self._drove:
                self._say(id_, self._drove.pop(id_))

    def _say(self, id_: EpisodeId, counts: dict[str, int]) -> None:
        try:
            for author, steps in counts.items():
                self._records.say(id_, DROVE, steps, author)
        except StoreError as error:  # a full disk: the steps themselves say that a person drove
            log.warning("who drove episode %d is not stored: %s", id_.episode, error)


def strip(episodes: Sequence[Mapping[str, Any]], notes: Notes, last: int) -> list[dict[str, Any]]:
    """The newest `last` of `Records.episodes`, oldest first, with their notes."""
    said = notes.read()
    return [{**e, "notes": said.get(_key(e), [])} for e in reversed(episodes[:last])]


def _key(row: Mapping[str, Any]) -> EpisodeId:
    return EpisodeId(row["run"], row["actor"], row["episode"])


def _succeeded(row: Mapping[str, Any]) -> bool:
    """Whether it came to success: a person's word, or what was recorded (as in `outcome.js`)."""
    said = row["review"]["success"]
    return bool(row["success"] if said is None else said)


def totals(
    drove: Iterable[Label], episodes: Iterable[Mapping[str, Any]], author: str, since_ns: int
) -> dict[str, float]:
    """What a person did since a moment, in ns since 1970, by the labels `DROVE` of a run.

    episodes: in which they drove; successes of these; steps that they drove.
    """
    own = [x for x in drove if x.author == author and x.stamp_ns >= since_ns]
    ended = {_key(e): e for e in episodes}
    won = [x for x in own if _succeeded(ended[x.id])]
    return {
        "episodes": len(own),
        "successes": len(won),
        "steps": sum(x.value for x in own),
    }
