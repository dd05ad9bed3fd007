"""One episode of a LeRobotDataset as rows of a store.

What our own export wrote in `robot_rl.*` is taken as it was. Other datasets say less: their steps
are demonstrations, the frame after the last step repeats the one before, and an episode is
TERMINATED only where `next.done` comes with a success or a reward: above zero, or whatever it is if
`next.truncated` says that no limit ended the episode. Without either nobody knows what the end was
worth, and it is TRUNCATED.

Without actions, N frames are N - 1 steps: nothing says what the arm did after the last one. The
last step gets what was said of the last frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from robot_rl.data import lerobot_format as fmt
from robot_rl.data.import_store import own_actions
from robot_rl.data.lerobot_read import LeRobotDataset
from robot_rl.data.names import image_keys
from robot_rl.data.video import decode_still, resized
from robot_rl.errors import SpecError, StoreError
from robot_rl.spec import Spec
from robot_rl.types import (
    Driver,
    Ending,
    EpisodeId,
    EpisodeStart,
    Frame,
    Observation,
    Outcome,
    Row,
    Step,
)

Word = TypeVar("Word", bound=StrEnum)

ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How a foreign dataset is to be understood.

    mapping: their feature -> our observation entry or "action"; entries that it does not name have
    the names of our own export. ignore_names: entries of state and action mean the same in the same
    order, whatever their names. success: "", "last" (every episode succeeds at its end), or who
    judges. actions: False = none are read, and the steps get zeros (`data.without_actions`).
    """

    mapping: Mapping[str, str] = field(default_factory=dict)
    ignore_names: bool = False
    success: str = ""
    actions: bool = True


class EpisodeReader:
    """Reads episodes of `dataset`; names: our entry -> their feature."""

    def __init__(
        self, dataset: LeRobotDataset, spec: Spec, names: Mapping[str, str], options: ImportOptions
    ) -> None:
        self._dataset, self._spec, self._names, self._options = dataset, spec, names, options
        self._images = image_keys(spec)
        known = [n for n in ("robot_rl.policy_action", *fmt.STEP) if n in dataset.features]
        vectors = [names[key] for key in names if key not in self._images]
        self._columns = [*dict.fromkeys([*vectors, *known, "frame_index"])]

    def rows(self, id_: EpisodeId) -> list[Row]:
        """Header, N + 1 frames and N steps of an episode, by its number.

        Raises:
            SpecError: an action outside [-1, 1]; without actions, an episode of a single frame.
            StoreError: the dataset is damaged.
        """
        number = id_.episode
        columns = self._dataset.columns(number, self._columns)
        kept = self._dataset.last(number) or {}
        frames = self._frames(id_, number, columns)
        if self._options.actions or self._keeps_last(kept):
            frames.append(self._last_frame(frames[-1], kept))
        if len(frames) < 2:
            raise SpecError(
                f"nothing happens in episode {number} of the dataset",
                expected="two frames or more: an action is inferred from what it led to",
                got="one frame",
                fix="leave this episode out of the dataset",
            )
        start = EpisodeStart(
            id=id_,
            purpose="demo",
            task=self._spec.task,
            spec_hash=self._spec.hash,
            limits_hash=kept.get("limits_hash", ""),
            seed=kept.get("seed", 0),
            stamp_ns=kept.get("start_stamp_ns", 0),
        )
        return [start, *frames, *self._steps(frames, columns, kept)]

    def _frames(self, id_: EpisodeId, number: int, columns: Mapping[str, Any]) -> list[Frame]:
        """The frame of every step."""
        entries: dict[str, Sequence[Any]] = {}
        for key, tensor in self._spec.observation.items():
            name = self._names[key]
            if key in self._images:
                entries[key] = self._dataset.images(number, name, *tensor.shape[:2])
            else:
                entries[key] = columns[name].reshape(-1, *tensor.shape).astype(tensor.dtype)
        stamps_ns = _stamps_ns(columns, self._spec.control_hz)
        return [
            Frame(id_, k, stamp_ns, {key: values[k] for key, values in entries.items()})
            for k, stamp_ns in enumerate(stamps_ns)
        ]

    def _last_frame(self, before: Frame, kept: Mapping[str, Any]) -> Frame:
        """The frame after the last step, if our export kept it; else the one before, repeated."""
        period_ns = round(1e9 / self._spec.control_hz)
        stamp_ns = kept.get("t_measured_ns", before.stamp_ns + period_ns)
        observation = before.observation
        if self._keeps_last(kept):
            observation = self._kept_observation(kept)
        return Frame(before.id, before.frame + 1, stamp_ns, observation)

    def _keeps_last(self, kept: Mapping[str, Any]) -> bool:
        """Whether our export kept the frame after the last step."""
        return all(self._names[key] in kept for key in self._spec.observation)

    def _kept_observation(self, kept: Mapping[str, Any]) -> Observation:
        found: Observation = {}
        for key, tensor in self._spec.observation.items():
            value = kept[self._names[key]]
            if key in self._images:
                found[key] = resized(decode_still(value), *tensor.shape[:2])
            else:
                found[key] = np.array(value, tensor.dtype).reshape(tensor.shape)
        return found

    def _steps(
        self, frames: Sequence[Frame], columns: Mapping[str, Any], kept: Mapping[str, Any]
    ) -> list[Step]:
        count = len(frames) - 1
        actions = self._actions(columns, frames[0].id.episode)
        proposed = columns.get("robot_rl.policy_action", np.zeros_like(actions))
        said_of = self._rewards(columns, len(actions))
        rewards = [*said_of[: count - 1], said_of[-1]]
        ending, success = self._end(columns, rewards, kept)
        said = {name: columns.get(f"robot_rl.{name}") for name in _DEFAULTS}
        steps = []
        for k in range(count):
            own = {n: _DEFAULTS[n] if v is None else v[k] for n, v in said.items()}
            over = k == count - 1
            steps.append(
                Step(
                    id=frames[k].id,
                    step=k,
                    frame=k,
                    next_frame=k + 1,
                    segment=int(own["segment"]),
                    driver=_word(Driver, own["driver"]),
                    action=actions[k],
                    policy_action=np.asarray(proposed[k], np.float32),
                    outcome=_word(Outcome, own["outcome"]),
                    reason=own["reason"],
                    reward=rewards[k],
                    ending=ending if over else None,
                    success=success if over else None,
                    weights_version=int(own["weights_version"]),
                    stamp_ns=frames[k].stamp_ns,
                )
            )
        return steps

    def _actions(self, columns: Mapping[str, Any], episode: int) -> NDArray[np.float32]:
        """[N, A] in [-1, 1]."""
        if not self._options.actions:
            return np.zeros((len(columns["frame_index"]), self._spec.action.size), np.float32)
        ours = isinstance(self._dataset.identity.get("spec"), dict)
        return own_actions(self._spec, columns[self._names[ACTION]], episode, ours=ours)

    def _rewards(self, columns: Mapping[str, Any], count: int) -> list[float | None]:
        """One per step; None = unlabelled."""
        if self._options.success == "last":
            return [*[0.0] * (count - 1), 1.0]
        values = columns.get("robot_rl.reward", columns.get("next.reward"))
        if values is None:
            return [None] * count
        labelled = columns.get("robot_rl.labelled", np.isfinite(values))
        return [float(r) if said else None for r, said in zip(values, labelled, strict=True)]

    def _end(
        self, columns: Mapping[str, Any], rewards: Sequence[float | None], kept: Mapping[str, Any]
    ) -> tuple[Ending, bool | None]:
        """Why the episode ended, and whether it succeeded."""
        if self._options.success == "last":
            return Ending.TERMINATED, True
        last = {name: columns[name][-1] for name in _END if name in columns}
        won = bool(last.get("next.success", False))
        if "robot_rl.ending" in last:
            word = kept.get("success", "yes" if won else "")
            return _word(Ending, last["robot_rl.ending"]), {"yes": True, "no": False}.get(word)
        earned = won or (rewards[-1] or 0.0) > 0.0
        done = bool(last.get("next.done", False))
        judged = "next.success" in columns or "next.reward" in columns
        limit = not judged or bool(last.get("next.truncated", not earned))
        ending = Ending.TERMINATED if done and not limit else Ending.TRUNCATED
        return ending, won if "next.success" in last else (True if earned and done else None)


_END = ("next.done", "next.truncated", "next.success", "robot_rl.ending")
_DEFAULTS: dict[str, Any] = {
    "segment": 0,
    "driver": Driver.DEMO.value,
    "outcome": Outcome.PASS.value,
    "reason": "",
    "weights_version": -1,
}
"""What is assumed of a step that another program recorded."""


def _stamps_ns(columns: Mapping[str, Any], control_hz: float) -> list[int]:
    measured = columns.get("robot_rl.t_measured_ns")
    if measured is not None:
        return [int(t) for t in measured]
    return [round(k * 1e9 / control_hz) for k in range(len(columns["frame_index"]))]


def _word(kind: type[Word], text: str) -> Word:
    try:
        return kind(text)
    except ValueError as error:
        raise StoreError(
            "the dataset holds a word that is none of ours",
            expected=", ".join(kind),
            got=repr(text),
            fix="import it with the robot-rl version that exported it",
        ) from error
