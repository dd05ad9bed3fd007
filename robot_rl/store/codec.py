"""THE codec: named tensors <-> bytes, for store blobs and link messages. No pickle anywhere.

Record layout (little-endian)::

    4 s   magic "RRT1"
    u32   header length          checked against `CodecLimits` before anything is allocated
    u32   body length
    u32   CRC-32 of all other bytes
    ...   header: msgpack list of [name, dtype, [dim, ...]]
    ...   body: the raw C-contiguous buffers, in header order

Encoding is deterministic: equal tensors in equal order give equal bytes. Decoding is strict: a
record is valid as a whole or raises `CodecError`, whatever the bytes are (the tests fuzz this).
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import msgpack
import numpy as np

from robot_rl.errors import CodecError
from robot_rl.system.bounded_msgpack import unpacked

MAGIC = b"RRT1"
DTYPES = {n: np.dtype(n) for n in ("float32", "float64", "uint8", "int64", "int32", "bool")}
"""The only element types that cross a disk or a wire."""

_PREFIX = struct.Struct("<4sIII")
_CHECKED = struct.Struct("<4sII")  # the part of the prefix that the CRC covers
_FIX = "the writer and the reader must run the same robot-rl version; check for damage on disk"

if sys.byteorder != "little":  # raw buffers are written as they lie in memory
    raise ImportError("robot-rl's codec needs a little-endian machine")


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecLimits:
    """What a decoder accepts; checked before allocation."""

    tensors: int = 64  # an observation has about 2-10
    dims: int = 6  # a batch of image stacks has 5
    name_bytes: int = 64
    header_bytes: int = 8192  # 64 tensors with 64-byte names
    body_bytes: int = 64 << 20  # ten 1080p RGB images


LIMITS = CodecLimits()


def encode_tensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Pack named tensors into one record.

    Raises:
        CodecError: a dtype outside `DTYPES`, or more than `LIMITS` allows (nothing is written that
            a reader would refuse).
    """
    header, buffers = [], []
    for name, tensor in tensors.items():
        array = np.asarray(tensor, order="C")
        if array.dtype.name not in DTYPES or not array.dtype.isnative:
            raise CodecError(
                f"tensor '{name}' has a type that is never stored or sent",
                expected=", ".join(DTYPES),
                got=str(array.dtype),
                fix="convert it first, e.g. .astype(np.float32)",
            )
        header.append([name, array.dtype.name, list(array.shape)])
        buffers.append(array.data if array.size else b"")
    head = pack(header)
    body = b"".join(buffers)
    _declared(head, len(body), LIMITS)
    checked = _CHECKED.pack(MAGIC, len(head), len(body))
    crc = zlib.crc32(body, zlib.crc32(head, zlib.crc32(checked)))
    return b"".join((checked, struct.pack("<I", crc), head, body))


def decode_tensors(data: bytes | memoryview, limits: CodecLimits = LIMITS) -> dict[str, np.ndarray]:
    """Unpack a record into owned, writable arrays.

    Raises:
        CodecError: the bytes are anything but one whole, undamaged record within `limits`.
    """
    view = memoryview(data)
    if len(view) < _PREFIX.size:
        raise _bad(f"a record of >= {_PREFIX.size} bytes", f"{len(view)} bytes")
    magic, head_bytes, body_bytes, crc = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise _bad(f"magic {MAGIC!r}", repr(magic))
    if head_bytes > limits.header_bytes or body_bytes > limits.body_bytes:
        raise _bad(
            f"header <= {limits.header_bytes} and body <= {limits.body_bytes} bytes",
            f"{head_bytes} and {body_bytes}",
        )
    if len(view) != _PREFIX.size + head_bytes + body_bytes:
        raise _bad(f"{_PREFIX.size + head_bytes + body_bytes} bytes", f"{len(view)} bytes")
    if zlib.crc32(view[_PREFIX.size :], zlib.crc32(view[: _CHECKED.size])) != crc:
        raise _bad("a matching CRC-32", "a damaged record")
    start = _PREFIX.size + head_bytes
    tensors: dict[str, np.ndarray] = {}
    for name, dtype, shape in _declared(bytes(view[_PREFIX.size : start]), body_bytes, limits):
        count = math.prod(shape)
        array = np.frombuffer(view, dtype, count, start).reshape(shape)
        if dtype == np.bool_ and count and array.view(np.uint8).max() > 1:
            raise _bad("0 or 1 in a bool tensor", "another byte")
        tensors[name] = array.copy()  # owned: a view would pin a whole message, and be read-only
        start += count * dtype.itemsize
    return tensors


def pack(value: Any) -> bytes:
    """msgpack of plain scalars, strings, bytes, lists and dicts.

    Raises:
        CodecError: something else is inside.
    """
    try:
        return cast(bytes, msgpack.packb(value, use_bin_type=True))
    except (TypeError, ValueError, OverflowError) as error:
        raise CodecError(
            "a value cannot be written as msgpack",
            expected="None, bool, 64-bit int, float, str, bytes, list, dict with str keys",
            got=str(error),
            fix="convert it to plain Python values first",
        ) from error


def unpack(data: bytes | memoryview, *, max_items: int = 1024) -> Any:
    """Inverse of `pack`; lists come back as tuples. No extension types, keys are str or bytes.

    Raises:
        CodecError: not exactly one msgpack value, a container with more than `max_items`, or more
            than `system.bounded_msgpack` allows in all.
    """
    try:
        return unpacked(
            data,
            max_items=max_items,
            raw=False,
            use_list=False,
            strict_map_key=True,
            max_str_len=1 << 20,
            max_bin_len=len(data),
        )
    except ValueError as error:
        raise _bad("one msgpack value within limits", f"{type(error).__name__}: {error}") from error


@lru_cache(maxsize=64)  # the records of a run have two headers, and reading one takes longest
def _declared(
    head: bytes, body_bytes: int, limits: CodecLimits
) -> tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]:
    """Read and check a header: unique names, known dtypes, shapes that fill the body exactly."""
    entries = unpack(head, max_items=max(limits.tensors, limits.dims))
    if len(head) > limits.header_bytes or type(entries) is not tuple:
        raise _bad(f"a header list within {limits.header_bytes} bytes", f"{len(head)} bytes")
    if len(entries) > limits.tensors:
        raise _bad(f"at most {limits.tensors} tensors", str(len(entries)))
    declared = [_entry(entry, limits) for entry in entries]
    if len({name for name, _, _ in declared}) != len(declared):
        raise _bad("each tensor name once", "a repeated name")
    total = sum(math.prod(shape) * dtype.itemsize for _, dtype, shape in declared)
    if total != body_bytes or total > limits.body_bytes:
        raise _bad(f"{total} bytes, at most {limits.body_bytes}", f"a body of {body_bytes} bytes")
    return tuple(declared)


def _entry(entry: Any, limits: CodecLimits) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """Check one header entry [name, dtype, shape]."""
    if type(entry) is not tuple or len(entry) != 3:
        raise _bad("[name, dtype, shape]", repr(entry)[:80])
    name, dtype, shape = entry
    if type(name) is not str or not 0 < len(name.encode()) <= limits.name_bytes:
        raise _bad(f"a tensor name of 1 to {limits.name_bytes} bytes", repr(name)[:80])
    if type(dtype) is not str or dtype not in DTYPES:
        raise _bad(f"dtype in {', '.join(DTYPES)}", repr(dtype)[:80])
    if type(shape) is not tuple or len(shape) > limits.dims:
        raise _bad(f"a shape of at most {limits.dims} dims", repr(shape)[:80])
    if not all(type(n) is int and 0 <= n <= limits.body_bytes for n in shape):
        raise _bad(f"dims in 0..{limits.body_bytes}", repr(shape)[:80])
    if math.prod(n or 1 for n in shape) > limits.body_bytes:  # (0, huge, huge) is refused too
        raise _bad(f"at most {limits.body_bytes} elements", repr(shape)[:80])
    return name, DTYPES[dtype], shape


def _bad(expected: str, got: str) -> CodecError:
    return CodecError("not a valid record", expected=expected, got=got, fix=_FIX)
