"""Link messages: what is decoded is what was encoded, or CodecError / LinkError."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from robot_rl.bench.faults.messages import EXAMPLES, FLATS, framed
from robot_rl.errors import CodecError, LinkError
from robot_rl.link.frames import (
    HEADER,
    LINK_VERSION,
    MAX_ITEMS,
    MESSAGES,
    Message,
    decode,
    encode,
)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_round_trip(message: Message) -> None:
    sequence, back = decode(encode(message, 2**40))
    assert sequence == 2**40 and back == message


def test_every_message_has_an_example() -> None:
    assert {type(m) for m in EXAMPLES} == {cls for cls, _ in MESSAGES.values()}


def test_another_protocol_version_is_said_plainly() -> None:
    with pytest.raises(LinkError, match="same robot-rl version"):
        decode(framed(1, b"\x90", protocol=LINK_VERSION + 1))


@pytest.mark.parametrize(
    "kind, fields",
    [
        (99, []),
        (2, ["session"]),
        (2, ["session", 1, 2]),
        (2, {"a": 1}),
        (2, [b"session", 1]),
        (2, ["session", True]),
        (2, ["session", -2]),
        (3, ["code", "reason", [1]]),
        (4, [[[9, []]]]),
        (4, [[[0, ["run", "actor", 0]]]]),
        (4, [[[2, [*FLATS[2].values[:-1], 5]]]]),
        (4, [[[True, list(FLATS[0].values)]]]),
        (5, [[[1, "run", "a"]], 0]),
        (5, [[[1, "run", "a", 0, None]], 0]),
        (7, [1, "sha", "text"]),
        (9, [{"nested": {"a": 1}}]),
        (9, [{"list": [1]}]),
        (1, ["actor", "hash", {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}]),
        (1, ["actor", "hash", {}, "run", "actor", [0, "run", "actor", 2**63]]),
        (1, ["actor", "hash", {}, "run", "actor", [2, "run", "actor", 0, -1]]),
        (5, [[[1, "run", "a", 0, 2**63]], 0, []]),
        (6, [2**63]),
        (10, ["run", "0.1", {"a": 1}, "ab", {}, {"actor": {"nested": 1}}]),
        (10, ["run", "0.1", {1: 1}, "ab", {}, {}]),
        (10, ["run", "0.1", [], "ab", {}, {}]),
        (11, ["key", 1]),
        (12, [b"key"]),
    ],
)
def test_fields_that_do_not_fit_are_refused(kind: int, fields: object) -> None:
    with pytest.raises(CodecError):
        decode(framed(kind, msgpack.packb(fields)))


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(CodecError):
        decode(framed(5, msgpack.packb([[[1, "run", "a", 0, k] for k in range(MAX_ITEMS + 1)], 0])))


def test_all_of_100_000_bit_flips_are_detected() -> None:
    rng = np.random.default_rng(4)
    records = [encode(m, k) for k, m in enumerate(EXAMPLES)]
    for _ in range(100_000 // len(records) + 1):
        for record in records:
            bit = int(rng.integers(0, 8 * len(record)))
            flipped = bytearray(record)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CodecError):
                decode(flipped)  # type: ignore[arg-type]


def test_fuzz_never_anything_but_our_errors() -> None:
    """120,000 inputs: noise, cut and mutated frames, and mutated bodies with a repaired CRC."""
    rng = np.random.default_rng(5)
    records = [encode(m) for m in EXAMPLES]
    accepted = 0
    for round_ in range(40_000):
        record = records[round_ % len(records)]
        body = bytearray(record[HEADER.size :])
        for position in rng.integers(0, len(body), int(rng.integers(1, 4))):
            body[position] = int(rng.integers(0, 256))
        cut = record[: int(rng.integers(0, len(record)))]
        kind = record[6] if round_ % 3 else int(rng.integers(0, 12))
        for candidate in (b"RRL1" + rng.bytes(30), cut, framed(kind, bytes(body))):
            try:
                sequence, message = decode(candidate)
            except CodecError:
                continue
            accepted += 1
            encode(message, sequence)  # what was accepted is a message of ours
    assert 0 < accepted < 40_000


def test_random_msgpack_bodies_never_raise_anything_else() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20_000):
        body = b"\x91" + rng.bytes(int(rng.integers(1, 20)))
        try:
            decode(framed(int(rng.integers(1, 10)), body))
        except CodecError:
            continue
    pickled = (
        b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93."
    )
    with pytest.raises(CodecError):
        decode(pickled)
    with pytest.raises(CodecError):
        decode(framed(4, pickled))
