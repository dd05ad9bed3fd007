"""Steps that a program leaves out of training, by labels that can be taken back."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Label

KIND, UNDO = "leave_out", "undo"


def leave_out(
    store: Store, found: Mapping[EpisodeId, Collection[int]], author: str
) -> tuple[int, int]:
    """Label these steps of each episode, and take back the author's labels of its other steps.

    Returns (steps newly left out, earlier ones taken back).
    """
    added = taken = 0
    for id_, steps in found.items():
        said = {x.label: x for x in store.labels(id_) if x.author == author}
        undone = {round(x.value) for x in said.values() if x.kind == UNDO}
        before = {x.step: n for n, x in said.items() if x.kind == KIND and n not in undone}
        new = [s for s in steps if s not in before]
        old = [n for s, n in before.items() if s not in steps]
        words = [(KIND, step, 1.0) for step in new] + [(UNDO, None, float(n)) for n in old]
        first = store.next_label(id_, author)
        store.append(
            Label(id_, first + i, step, kind, value, author, author, time.time_ns())
            for i, (kind, step, value) in enumerate(words)
        )
        added, taken = added + len(new), taken + len(old)
    return added, taken


def take_back(store: Store, author: str) -> int:
    """Take all of the author's labels back; returns how many steps that is."""
    return leave_out(store, {s.id: () for s in store.episodes()}, author)[1]
