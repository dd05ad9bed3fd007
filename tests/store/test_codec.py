"""The codec gives back what it was given, or raises CodecError: whatever the bytes are."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robot_rl.errors import CodecError
from robot_rl.store.codec import DTYPES, MAGIC, CodecLimits, decode_tensors, encode_tensors, unpack

SAMPLE = {
    "state": np.arange(24, dtype=np.float32),
    "image/wrist": np.arange(48, dtype=np.uint8).reshape(4, 4, 3),
    "flag": np.array([True, False]),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float64),
}

tensors = st.dictionaries(
    st.text(min_size=1, max_size=12).filter(lambda s: s.isprintable()),
    st.sampled_from(sorted(DTYPES)).flatmap(
        lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
    ),
    max_size=5,
)


def framed(header: object, body: bytes) -> bytes:
    """A record with a right length and CRC around any header and body."""
    head = header if isinstance(header, bytes) else msgpack.packb(header)
    start = struct.pack("<4sII", MAGIC, len(head), len(body))
    crc = zlib.crc32(body, zlib.crc32(head, zlib.crc32(start)))
    return start + struct.pack("<I", crc) + head + body


def test_framed_is_the_format_so_the_fuzzers_reach_the_inside() -> None:
    head = [[k, v.dtype.name, list(v.shape)] for k, v in SAMPLE.items()]
    assert framed(head, b"".join(v.tobytes() for v in SAMPLE.values())) == encode_tensors(SAMPLE)


@given(tensors)
@settings(max_examples=150)
def test_round_trip_keeps_names_order_types_shapes_and_bits(given: dict[str, np.ndarray]) -> None:
    back = decode_tensors(encode_tensors(given))
    assert list(back) == list(given)
    for name, array in given.items():
        assert back[name].dtype == array.dtype and back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()
        assert back[name].flags.writeable and back[name].flags.owndata


def test_encoding_is_deterministic_and_copies_strided_arrays() -> None:
    strided = np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2]
    assert encode_tensors({"a": strided}) == encode_tensors({"a": strided.copy()})
    assert encode_tensors(SAMPLE) == encode_tensors(SAMPLE)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, np.float16),
        np.zeros(2, np.complex64),
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, ">f4"),
        np.zeros((1,) * 7, np.uint8),
    ],
)
def test_encode_refuses_what_decode_would_refuse(array: np.ndarray) -> None:
    with pytest.raises(CodecError):
        encode_tensors({"a": array})


@pytest.mark.parametrize(
    "header, body",
    [
        ([["a", "object", [1]]], b"12345678"),
        ([["a", "float32", [2]]], b"1234"),
        ([["a", "float32", [-1]]], b""),
        ([["a", "uint8", [1]], ["a", "uint8", [1]]], b"12"),
        ([["", "uint8", [1]]], b"1"),
        ([["a", "uint8", [1.0]]], b"1"),
        ([["a", "uint8", [True]]], b"1"),
        ([["a", "uint8", 1]], b"1"),
        ([["a" * 65, "uint8", [1]]], b"1"),
        ([["a", "uint8", [0, 2**26, 2**26]]], b""),
        ([["a", "bool", [1]]], b"\x02"),
        ([["a", "uint8", [1] * 7]], b"1"),
        ([[f"a{i}", "uint8", [0]] for i in range(65)], b""),
        ({"a": 1}, b""),
        (b"\xc1", b""),
        (b"\xdd\xff\xff\xff\xff", b""),  # an array that claims 4 G entries
        (msgpack.packb([]) + b"\x00", b""),
        (msgpack.packb(msgpack.ExtType(1, b"x")), b""),
        (msgpack.packb(msgpack.Timestamp(1)), b""),
    ],
)
def test_a_header_that_lies_is_refused(header: object, body: bytes) -> None:
    with pytest.raises(CodecError):
        decode_tensors(framed(header, body))


def test_claimed_sizes_are_refused_before_memory_is_taken() -> None:
    huge = framed([["a", "uint8", [60 << 20]]], b"")
    over = struct.pack("<4sIII", MAGIC, 0, 2**32 - 1, 0)
    tracemalloc.start()
    for record in (huge, over):
        with pytest.raises(CodecError):
            decode_tensors(record)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    with pytest.raises(CodecError, match="body <= 10 bytes"):
        decode_tensors(encode_tensors(SAMPLE), CodecLimits(body_bytes=10))


def test_every_bit_flip_and_every_cut_is_detected() -> None:
    record = encode_tensors(SAMPLE)
    for bit in range(8 * len(record)):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CodecError):
            decode_tensors(bytes(flipped))
    for length in range(len(record)):
        with pytest.raises(CodecError):
            decode_tensors(record[:length])
    with pytest.raises(CodecError):
        decode_tensors(record + b"\x00")


def test_fuzz_never_anything_but_codec_error() -> None:
    """210,000 inputs: random bytes, mutated records, and mutated headers with a repaired CRC."""
    rng = np.random.default_rng(1)
    record = encode_tensors(SAMPLE)
    head_bytes = struct.unpack_from("<4sII", record)[1]
    head, body = record[16 : 16 + head_bytes], record[16 + head_bytes :]
    accepted = 0
    for round_ in range(70_000):
        noise = rng.bytes(int(rng.integers(0, 64)))
        mutated = bytearray(record)
        for position in rng.integers(0, len(record), int(rng.integers(1, 6))):
            mutated[position] = round_ * 31 % 256
        inside = bytearray(head)
        for position in rng.integers(0, len(head), int(rng.integers(1, 4))):
            inside[position] = int(rng.integers(0, 256))
        for candidate in (
            MAGIC * (round_ % 2) + noise,
            bytes(mutated),
            framed(bytes(inside), body),
        ):
            try:
                decoded = decode_tensors(candidate)
            except CodecError:
                continue
            accepted += 1  # e.g. another letter in a name: valid, and consistent
            assert sum(a.nbytes for a in decoded.values()) == len(body)
    assert 0 < accepted < 70_000  # the repaired records do get through to the inner checks


def test_unpack_never_anything_but_codec_error() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30_000):
        try:
            unpack(rng.bytes(int(rng.integers(0, 24))))
        except CodecError:
            continue
    with pytest.raises(CodecError):
        unpack(b"\x91" * 100_000)  # nested beyond any depth
