"""What actor and learner say to each other: messages of one frame layout, strict decoding.

Frame (little-endian)::

    4 s   magic "RRL1"
    u16   LINK_VERSION           both ends must agree; this header never changes shape
    u8    kind                   key of `MESSAGES`
    u8    zero
    u64   sequence               counted by who asks; a reply repeats the number of its request
    u32   body length
    u32   CRC-32 of all other bytes
    ...   body: msgpack list of the message's fields

    actor: HELLO      learner: WELCOME | REFUSED
           ROWS                ACK (after the commit) | REFUSED
           GET_WEIGHTS         WEIGHTS (newer than the number asked for) | NO_WEIGHTS
           STATUS              STATUS

Two machines that are being paired (`link.pairing`) use the same frames, under a one-time key:

    robot: OFFER      learner: ACCEPTED | REFUSED
           PAIRED              PAIRED
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from robot_rl.errors import CodecError, LinkError
from robot_rl.store.codec import pack, unpack
from robot_rl.store.rows import TABLES, FlatRow, Key, RowKind, check_values, is_key
from robot_rl.types import Weights

MAGIC = b"RRL1"
LINK_VERSION = 2  # bump when a message changes shape
MAX_ITEMS = 4096  # rows or keys in one message
MAX_DEPTH = 8  # a spec has 4 levels
HEADER = struct.Struct("<4sHBBQII")
_CHECKED = struct.Struct("<4sHBBQI")
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of an actor: who it is and what it will send.

    run, actor: identity of its rows; newest: identity of the newest row that a learner has
    acknowledged, () = none.
    """

    role: str
    spec_hash: str
    spec: Mapping[str, Any]  # sent whole so that a refusal can say what differs
    run: str
    actor: str
    newest: Key


@dataclass(frozen=True, slots=True)
class Welcome:
    """The learner agrees.

    session: random word per learner process; weights_version: -1 = none; next_episode: first number
    that it knows no episode of this actor by; has_newest: False = it has lost rows that it had
    acknowledged, and needs all of them again.
    """

    session: str
    weights_version: int
    next_episode: int
    has_newest: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal and its reason. code: one of `REFUSALS`; diff: lines `path: mine -> theirs`."""

    code: str
    reason: str
    diff: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of rows in commit order; stored in one transaction."""

    rows: tuple[FlatRow, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    """These identities are dealt with; `new` of them were not known before.

    left_out: those of them that are not stored, because another row has the identity.
    """

    keys: tuple[Key, ...]
    new: int
    left_out: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class GetWeights:
    """Ask for weights with a version above `newer_than`; the reply is `types.Weights`."""

    newer_than: int


@dataclass(frozen=True, slots=True)
class NoWeights:
    """Nothing newer; `newest` is the version the learner has (-1: none)."""

    newest: int


@dataclass(frozen=True, slots=True)
class Status:
    """Figures of the sender, both ways; also the heartbeat."""

    values: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Offer:
    """A run that the robot's machine offers to the learner's.

    run: name of its folder; version: of robot-rl; config: every value in force; actors: name of
    each actor's key -> public key (Z85).
    """

    run: str
    version: str
    config: Mapping[str, Any]
    config_hash: str
    spec: Mapping[str, Any]
    actors: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The learner's machine has taken the run. learner: its public key (Z85); machine: its name."""

    learner: str
    machine: str


@dataclass(frozen=True, slots=True)
class Paired:
    """The robot's machine has kept the learner's key; the answer repeats it."""

    learner: str


Message = (
    Hello
    | Welcome
    | Refused
    | Rows
    | Ack
    | GetWeights
    | Weights
    | NoWeights
    | Status
    | Offer
    | Accepted
    | Paired
)

REFUSALS = {
    "protocol": "another robot-rl version",
    "spec": "another observation or action spec",
    "role": "this key may not say that",
    "identity": "this key may not bring rows of another actor",
    "hello": "say HELLO first (the learner was restarted)",
    "rows": "a row does not fit the spec",
    "store": "the learner's store cannot take rows now",
    "pairing": "the learner's machine cannot take this run",
}


def encode(message: Message, sequence: int = 0) -> bytes:
    """Message -> frame. Raises `CodecError` when a field cannot be written."""
    kind = _KINDS[type(message)]
    body = pack([getattr(message, field.name) for field in fields(message)])
    checked = _CHECKED.pack(MAGIC, LINK_VERSION, kind, 0, sequence, len(body))
    crc = zlib.crc32(body, zlib.crc32(checked))
    return b"".join((checked, struct.pack("<I", crc), body))


def decode(data: bytes | memoryview) -> tuple[int, Message]:
    """Frame -> (sequence, message). The socket has bounded the length already (MAXMSGSIZE).

    Raises:
        CodecError: anything but one whole, undamaged frame with valid fields.
        LinkError: an undamaged header of another protocol version.
    """
    view = memoryview(data)
    if len(view) < HEADER.size:
        raise _bad(f">= {HEADER.size} bytes", f"{len(view)}")
    magic, protocol, kind, zero, sequence, length, crc = HEADER.unpack_from(view)
    if magic != MAGIC or zero != 0 or length != len(view) - HEADER.size:
        raise _bad("a frame of this protocol", f"{bytes(view[:8])!r}, {len(view)} bytes")
    if zlib.crc32(view[HEADER.size :], zlib.crc32(view[: _CHECKED.size])) != crc:
        raise _bad("a matching CRC-32", "a damaged frame")
    if protocol != LINK_VERSION:
        raise LinkError(
            "actor and learner speak different protocol versions",
            expected=str(LINK_VERSION),
            got=str(protocol),
            fix="install the same robot-rl version on both machines",
        )
    if kind not in MESSAGES:
        raise _bad("a known message kind", str(kind))
    cls, checks = MESSAGES[kind]
    values = unpack(view[HEADER.size :], max_items=MAX_ITEMS)
    if type(values) is not tuple or len(values) != len(checks):
        raise _bad(f"{len(checks)} fields of {cls.__name__}", type(values).__name__)
    return sequence, cls(*(check(v) for check, v in zip(checks, values, strict=True)))


# -- field checks: plain value in, typed value out, CodecError otherwise ---------------------------


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _bad("text", type(value).__name__)
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or not -1 <= value < 2**63:
        raise _bad("an integer >= -1", repr(value)[:40])
    return value


def _blob(value: Any) -> bytes:
    if type(value) is not bytes:
        raise _bad("bytes", type(value).__name__)
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if type(value) is not tuple:
        raise _bad("a list of text", type(value).__name__)
    return tuple(_text(v) for v in value)


def _mapping(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _bad("a map", type(value).__name__)
    return _plain(value, MAX_DEPTH)


def _plain(value: Any, depth: int) -> Any:
    """Maps with text keys, lists (msgpack gave tuples) and scalars: the form of `Spec.as_dict`."""
    if depth == 0:
        raise _bad(f"at most {MAX_DEPTH} levels", "more")
    if type(value) is dict:
        return {_text(k): _plain(v, depth - 1) for k, v in value.items()}
    if type(value) is tuple:
        return [_plain(v, depth - 1) for v in value]
    return value


def _scalars(value: Any) -> dict[str, Scalar]:
    mapping = _mapping(value)
    if not all(v is None or type(v) in (str, int, float, bool) for v in mapping.values()):
        raise _bad("a map of scalars", "something nested")
    return mapping


def _rows(value: Any) -> tuple[FlatRow, ...]:
    if type(value) is not tuple:
        raise _bad("a list of rows", type(value).__name__)
    return tuple(_row(v) for v in value)


def _row(value: Any) -> FlatRow:
    if type(value) is not tuple or len(value) != 2 or type(value[1]) is not tuple:
        raise _bad("[kind, values]", type(value).__name__)
    flat = FlatRow(_kind(value[0]), value[1])
    check_values(flat)
    return flat


def _kind(value: Any) -> RowKind:
    if type(value) is not int or not 0 <= value < len(RowKind):
        raise _bad("a row kind", repr(value)[:40])
    return RowKind(value)


def _keys(value: Any) -> tuple[Key, ...]:
    if type(value) is not tuple:
        raise _bad("a list of row identities", type(value).__name__)
    return tuple(_key(v) for v in value)


def _key(value: Any) -> Key:
    if type(value) is not tuple or not 4 <= len(value) <= 6:
        raise _bad("a row identity", type(value).__name__)
    kind = _kind(value[0])
    if not is_key(kind, value[1:]):
        raise _bad(f"the identity of a row of {TABLES[kind].name}", repr(value)[:80])
    return value


def _key_or_none(value: Any) -> Key:
    return _key(value) if value != () else ()


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _bad("true or false", type(value).__name__)
    return value


MESSAGES: dict[int, tuple[type, tuple[Callable[[Any], Any], ...]]] = {
    1: (Hello, (_text, _text, _mapping, _text, _text, _key_or_none)),
    2: (Welcome, (_text, _integer, _integer, _boolean)),
    3: (Refused, (_text, _text, _texts)),
    4: (Rows, (_rows,)),
    5: (Ack, (_keys, _integer, _keys)),
    6: (GetWeights, (_integer,)),
    7: (Weights, (_integer, _text, _blob)),
    8: (NoWeights, (_integer,)),
    9: (Status, (_scalars,)),
    10: (Offer, (_text, _text, _mapping, _text, _mapping, _scalars)),
    11: (Accepted, (_text, _text)),
    12: (Paired, (_text,)),
}
"""kind -> message and a check per field; the numbers are on the wire and never reused."""

_KINDS = {cls: kind for kind, (cls, _) in MESSAGES.items()}


def _bad(expected: str, got: str) -> CodecError:
    return CodecError(
        "not a valid link message",
        expected=expected,
        got=got,
        fix="run the same robot-rl version on both sides",
    )
