"""A model of frames beside the learner: what it says of every frame of a store becomes a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import distributed

from robot_rl.reward.preference.model import PreferenceModel
from robot_rl.reward.progress.clip import ClipModel
from robot_rl.reward.progress.model import Past, ProgressModel
from robot_rl.store.labels import of_frame
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, EpisodeStart, Frame, Label

ROWS_PER_READ = 2048


class FrameScorer:
    """Writes what a model says of every frame of a store that has no label from it.

    What was recorded before (demonstrations, imported data) is scored like what comes in; after a
    restart, frames that already have a label are left out. Evaluation episodes are not scored. Of
    several processes that are one learner, the first one scores: the others read its labels.
    """

    def __init__(self, store: Store, model: ProgressModel | PreferenceModel | ClipModel) -> None:
        self._store, self._model, self._cursor = store, model, 0
        self._running: dict[EpisodeId, Past] = {}
        self._known = {
            (x.id, x.step) for x in store.all_labels([model.label]) if x.author == model.author
        }

    def turn(self) -> int:
        """Score what has come in; return how many frames were labelled."""
        if distributed.is_initialized() and distributed.get_rank():
            return 0
        done = 0
        while True:
            rows, self._cursor = self._store.rows_since(self._cursor, ROWS_PER_READ)
            if not rows:
                return done
            frames: dict[EpisodeId, list[Frame]] = {}
            for row in rows:
                if isinstance(row, EpisodeStart) and row.purpose != "eval":
                    self._running[row.id] = Past()
                elif isinstance(row, Frame) and row.id in self._running:
                    frames.setdefault(row.id, []).append(row)
            for id_, some in frames.items():
                done += self._score(id_, some)

    def _score(self, id_: EpisodeId, frames: Sequence[Frame]) -> int:
        model = self._model
        if not model.needs_past:
            frames = [f for f in frames if (id_, f.frame) not in self._known]
        if not frames:
            return 0
        seen = {k: np.stack([f.observation[k] for f in frames]) for k in model.keys}
        values = model.curve(seen, self._running[id_])
        labels = [
            self._label(id_, frame, float(value))
            for frame, value in zip(frames, values, strict=True)
            if (id_, frame.frame) not in self._known
        ]
        # imported data may have brought this model's word since, and not equal in every bit
        new = [label for label in labels if not self._store.has(flatten(label).key)]
        self._store.append(new)
        return len(new)

    def _label(self, id_: EpisodeId, frame: Frame, value: float) -> Label:
        model, number = self._model, of_frame(frame.frame)
        return Label(
            id=id_,
            label=number,
            step=frame.frame,
            kind=model.label,
            value=value,
            source=model.kind,
            author=model.author,
            stamp_ns=frame.stamp_ns,
        )
