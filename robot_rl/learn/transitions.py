"""A batch of transitions as tensors, as actor-critics learn from it. Shapes [B, ...]."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class Moment(NamedTuple):
    """What the networks see of one moment.

    features: the scaled state [B, S]; after `Agent.see` with the encoded images, [B, F].
    images: camera key -> uint8 [B, H, W, C], shifted; empty once they are encoded.
    base: tensors of a base policy in that moment, by name (`ActorNet.base`); empty without one.
    privileged: what only critics see, scaled [B, P]; None where nothing is.
    """

    features: Tensor
    images: dict[str, Tensor]
    base: dict[str, Tensor]
    privileged: Tensor | None = None


class Transitions(NamedTuple):
    """What a `replay.Batch` holds, and what the algorithm drew for it, for all critic steps."""

    now: Moment  # s
    action: Tensor  # a: [B, A], or a chunk [B, h A]
    reward: Tensor  # r: discounted sum over the n steps
    then: Moment  # s'
    mask: Tensor  # m: 0 after a terminal step
    discount: Tensor  # gamma^n
    next_action: Tensor  # a'
    human: Tensor
    toggle: Tensor
    return_to_go: Tensor
    room: Tensor  # [B, 2], see `Batch.room`
    valid: Tensor | None = None  # of chunks: bool [B, h], which actions were carried out so
    weight: Tensor | None = None  # of each row in the critics' loss; None = all count alike

    def part(self, index: int, parts: int) -> Transitions:
        """Return one of equal parts; rows may be fewer than were asked for (`learn.room`)."""
        size = len(self.reward) // parts
        return _rows(self, slice(index * size, (index + 1) * size))


def _rows(value: Any, rows: slice) -> Any:
    """Return the same structure with only these rows of every tensor."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {k: v[rows] for k, v in value.items()}
    if isinstance(value, tuple):
        return type(value)(*(_rows(v, rows) for v in value))
    return value[rows]
