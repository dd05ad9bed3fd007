"""Rows as typed columns: the one flat form that SQLite keeps and the link sends.

`flatten` turns a `Row` into a `FlatRow` of plain values, `restore` is its strict inverse. The
identity (`key`) of a row is what makes delivery exactly-once: it names the row on every machine,
whatever the order in which rows arrive.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from robot_rl.errors import CodecError
from robot_rl.spec import Spec
from robot_rl.store.codec import decode_tensors, encode_tensors, pack
from robot_rl.types import (
    Driver,
    Ending,
    EpisodeId,
    EpisodeStart,
    Event,
    Frame,
    Label,
    Outcome,
    Row,
    Step,
)

Value = int | float | str | bytes | None
Key = tuple[int | str, ...]
"""(kind, run, actor, episode[, index[, author]]): the identity of a row."""

MAX_TEXT_BYTES = 4096  # names are short; a detail or reason is a line, not a document
MAX_NUMBER = 1e9  # of a reward or a label: what learns from it counts in float32
MAX_BLOB_BYTES = 65 << 20  # one encoded record of the largest body the codec accepts
MAX_FRAME = 2**31  # of a step: replay keeps these numbers in columns of 64 bits, negated at first


class RowKind(IntEnum):
    """Table of a row; the number is on the wire and never reused."""

    EPISODE = 0
    FRAME = 1
    STEP = 2
    EVENT = 3
    LABEL = 4


class FlatRow(NamedTuple):
    """A row as plain column values, in the column order of `TABLES[kind]`."""

    kind: RowKind
    values: tuple[Value, ...]

    @property
    def key(self) -> Key:
        """Identity of this row."""
        return (int(self.kind), *self.values[: TABLES[self.kind].key_size])  # type: ignore[return-value]

    def checksum(self, seq: int) -> int:
        """CRC-32 of the whole row and its place in the commit order."""
        return zlib.crc32(pack([seq, int(self.kind), *self.values]))

    @property
    def size(self) -> int:
        """Approximate bytes on the wire and on disk."""
        return 9 * len(self.values) + sum(
            [len(v) for v in self.values if isinstance(v, bytes | str)]
        )


class Column(NamedTuple):
    """Name, SQLite type (which fixes the Python type), and whether NULL is allowed."""

    name: str
    sql: str
    null: bool = False

    @property
    def python(self) -> type:
        """Type of its values."""
        return _PYTHON[self.sql]


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of row: its columns (the first `key_size` are its identity) and conversions."""

    name: str
    columns: tuple[Column, ...]
    key_size: int
    flatten: Callable[[Any], tuple[Value, ...]]
    restore: Callable[..., Row]


_ID = (Column("run", "TEXT"), Column("actor", "TEXT"), Column("episode", "INTEGER"))
_PYTHON = {"INTEGER": int, "TEXT": str, "REAL": float, "BLOB": bytes}
_LIMITS = {
    int: "of 64 bits; not negative in an identity",
    float: f"finite, at most {MAX_NUMBER:g} either way",
    str: f"at most {MAX_TEXT_BYTES} bytes of UTF-8",
    bytes: f"at most {MAX_BLOB_BYTES} bytes",
}


def flatten(row: Row) -> FlatRow:
    """Turn a row into plain values; copies every array, so the caller may reuse its buffers.

    Raises:
        CodecError: a value has the wrong type, is not finite, or is too large.
    """
    kind = _KINDS[type(row)]
    i = row.id
    flat = FlatRow(kind, (i.run, i.actor, int(i.episode), *TABLES[kind].flatten(row)))
    check_values(flat)
    return flat


def restore(flat: FlatRow) -> Row:
    """Inverse of `flatten`.

    Raises:
        CodecError: the values are not those of a valid row.
    """
    check_values(flat)
    run, actor, episode, *rest = flat.values
    try:
        return TABLES[flat.kind].restore(EpisodeId(run, actor, episode), *rest)  # type: ignore[arg-type]
    except (ValueError, KeyError) as error:  # an unknown enum word, a missing tensor
        raise CodecError(
            f"not a valid {TABLES[flat.kind].name} row",
            expected="known words and tensors",
            got=f"{type(error).__name__}: {error}",
            fix="run the same robot-rl version on both sides",
        ) from error


def check_values(flat: FlatRow) -> None:
    """Check count, types, ranges and sizes of the values.

    Raises:
        CodecError: one of them is wrong.
    """
    table = TABLES[flat.kind]
    if len(flat.values) != len(table.columns):
        raise _bad(table.name, f"{len(table.columns)} values", str(len(flat.values)))
    for index, (column, value) in enumerate(zip(table.columns, flat.values, strict=True)):
        if value is None and column.null:
            continue
        if type(value) is not column.python or not _in_range(value, index < table.key_size):
            raise _bad(
                f"{table.name}.{column.name}",
                f"{column.python.__name__}, {_LIMITS[column.python]}",
                repr(value)[:80],
            )


def is_key(kind: RowKind, values: tuple[Any, ...]) -> bool:
    """Whether these values can be the identity of such a row."""
    table = TABLES[kind]
    types = [column.python for column in table.columns[: table.key_size]]
    return [type(v) for v in values] == types and all(_in_range(v, True) for v in values)


def check_against(row: Row, spec: Spec) -> None:
    """Check a row's tensors against the spec of the run, on both ends, before it is stored.

    Raises:
        SpecError: the observation differs in keys, shapes or dtypes, or holds NaN.
        CodecError: an action has another size than the spec's, or is not finite.
    """
    if isinstance(row, Frame):
        spec.check(row.observation)
    elif isinstance(row, Step):
        for action in (row.action, row.policy_action):
            if action.shape != (spec.action.size,) or not np.isfinite(action).all():
                expected = f"{spec.action.size} finite float32 values"
                raise _bad(f"action of step {row.step}", expected, str(action)[:80])


def _in_range(value: Value, is_key: bool) -> bool:
    if type(value) is int:
        return (0 if is_key else -(2**63)) <= value < 2**63
    if type(value) is float:
        return abs(value) <= MAX_NUMBER  # NaN is not: SQLite would turn it into NULL
    if type(value) is bytes:
        return len(value) <= MAX_BLOB_BYTES
    return _is_text(str(value))


def _is_text(value: str) -> bool:
    if value.isascii():
        return len(value) <= MAX_TEXT_BYTES
    try:
        return len(value.encode()) <= MAX_TEXT_BYTES
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _bad(what: str, expected: str, got: str) -> CodecError:
    return CodecError(
        f"bad value in {what}",
        expected=expected,
        got=got,
        fix="check where the row is made; unlabelled rewards are None, never NaN",
    )


def _flatten_episode(r: EpisodeStart) -> tuple[Value, ...]:
    return (r.purpose, r.task, r.spec_hash, r.limits_hash, int(r.seed), int(r.stamp_ns))


def _flatten_frame(r: Frame) -> tuple[Value, ...]:
    return (int(r.frame), int(r.stamp_ns), encode_tensors(r.observation))


def _restore_frame(id_: EpisodeId, frame: int, stamp_ns: int, blob: bytes) -> Frame:
    return Frame(id_, frame, stamp_ns, decode_tensors(blob))


def _flatten_step(r: Step) -> tuple[Value, ...]:
    actions = {"action": r.action, "policy_action": r.policy_action}
    for name, action in actions.items():
        if np.asarray(action).dtype != np.float32:
            raise _bad(f"step.{name}", "float32", str(np.asarray(action).dtype))
    return (
        int(r.step),
        int(r.frame),
        int(r.next_frame),
        int(r.segment),
        Driver(r.driver).value,
        Outcome(r.outcome).value,
        r.reason,
        None if r.reward is None else float(r.reward),
        None if r.ending is None else Ending(r.ending).value,
        None if r.success is None else int(bool(r.success)),
        int(r.weights_version),
        int(r.stamp_ns),
        encode_tensors(actions),
    )


def _restore_step(id_: EpisodeId, *v: Any) -> Step:
    step, frame, next_frame, segment, driver, outcome, reason, reward, ending = v[:9]
    success, weights_version, stamp_ns, blob = v[9:]
    actions = decode_tensors(blob)
    if success not in (None, 0, 1) or len(actions) != 2:
        raise ValueError("success is 0 or 1; two actions")
    if not (0 <= frame < MAX_FRAME and 0 <= next_frame < MAX_FRAME):
        raise ValueError(f"frames are numbered from 0 to {MAX_FRAME - 1}")
    if any(a.dtype != np.float32 for a in actions.values()):
        raise ValueError("actions are float32")
    return Step(
        id=id_,
        step=step,
        frame=frame,
        next_frame=next_frame,
        segment=segment,
        driver=Driver(driver),
        action=actions["action"],
        policy_action=actions["policy_action"],
        outcome=Outcome(outcome),
        reason=reason,
        reward=reward,
        ending=None if ending is None else Ending(ending),
        success=None if success is None else bool(success),
        weights_version=weights_version,
        stamp_ns=stamp_ns,
    )


def _flatten_event(r: Event) -> tuple[Value, ...]:
    return (int(r.event), int(r.step), r.name, r.detail, int(r.stamp_ns))


def _flatten_label(r: Label) -> tuple[Value, ...]:
    step = None if r.step is None else int(r.step)
    return (int(r.label), r.author, step, r.kind, float(r.value), r.source, int(r.stamp_ns))


def _restore_label(id_: EpisodeId, label: int, author: str, *v: Any) -> Label:
    step, kind, value, source, stamp_ns = v
    return Label(id_, label, step, kind, value, source, author, stamp_ns)


def _columns(*declared: str) -> tuple[Column, ...]:
    """`"step INTEGER"`, `"reward REAL NULL"` ... -> columns, after those of the episode."""
    split = [d.split() for d in declared]
    return (*_ID, *(Column(w[0], w[1], w[-1] == "NULL") for w in split))


TABLES: dict[RowKind, Table] = {
    RowKind.EPISODE: Table(
        "episodes",
        _columns(
            "purpose TEXT",
            "task TEXT",
            "spec_hash TEXT",
            "limits_hash TEXT",
            "seed INTEGER",
            "stamp_ns INTEGER",
        ),
        3,
        _flatten_episode,
        EpisodeStart,
    ),
    RowKind.FRAME: Table(
        "frames",
        _columns("frame INTEGER", "stamp_ns INTEGER", "observation BLOB"),
        4,
        _flatten_frame,
        _restore_frame,
    ),
    RowKind.STEP: Table(
        "steps",
        _columns(
            "step INTEGER",
            "frame INTEGER",
            "next_frame INTEGER",
            "segment INTEGER",
            "driver TEXT",
            "outcome TEXT",
            "reason TEXT",
            "reward REAL NULL",
            "ending TEXT NULL",
            "success INTEGER NULL",
            "weights_version INTEGER",
            "stamp_ns INTEGER",
            "actions BLOB",
        ),
        4,
        _flatten_step,
        _restore_step,
    ),
    RowKind.EVENT: Table(
        "events",
        _columns(
            "event INTEGER",
            "step INTEGER",
            "name TEXT",
            "detail TEXT",
            "stamp_ns INTEGER",
        ),
        4,
        _flatten_event,
        Event,
    ),
    RowKind.LABEL: Table(
        "labels",
        # the author is part of the identity: people and models label one episode on two machines
        _columns(
            "label INTEGER",
            "author TEXT",
            "step INTEGER NULL",
            "kind TEXT",
            "value REAL",
            "source TEXT",
            "stamp_ns INTEGER",
        ),
        5,
        _flatten_label,
        _restore_label,
    ),
}

_KINDS: dict[type, RowKind] = {
    EpisodeStart: RowKind.EPISODE,
    Frame: RowKind.FRAME,
    Step: RowKind.STEP,
    Event: RowKind.EVENT,
    Label: RowKind.LABEL,
}
