"""The four ROS 2 message types of an export as CDR bytes (XCDR1, little-endian), with schemas.

Each type has its definition as a bag keeps it, and a function that makes the bytes of one message.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

_HEADER = b"\x00\x01\x00\x00"  # plain CDR, little-endian, no options
_RULE = "=" * 80 + "\n"

STRING = "std_msgs/msg/String"
FLOAT32 = "std_msgs/msg/Float32"
ARRAY = "std_msgs/msg/Float32MultiArray"
IMAGE = "sensor_msgs/msg/CompressedImage"

SCHEMAS = {
    STRING: "string data\n",
    FLOAT32: "float32 data\n",
    ARRAY: "std_msgs/MultiArrayLayout layout\nfloat32[] data\n"
    + f"{_RULE}MSG: std_msgs/MultiArrayLayout\n"
    + "std_msgs/MultiArrayDimension[] dim\nuint32 data_offset\n"
    + f"{_RULE}MSG: std_msgs/MultiArrayDimension\nstring label\nuint32 size\nuint32 stride\n",
    IMAGE: "std_msgs/Header header\nstring format\nuint8[] data\n"
    + f"{_RULE}MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    + f"{_RULE}MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n",
}
"""Type -> its definition and those of the types inside (schema encoding `ros2msg`)."""


def string_message(text: str) -> bytes:
    """std_msgs/msg/String."""
    return _Body().text(text).message()


def float_message(value: float) -> bytes:
    """std_msgs/msg/Float32."""
    return _Body().number("f", value).message()


def array_message(values: NDArray[np.float32], label: str) -> bytes:
    """std_msgs/msg/Float32MultiArray of one dimension; label: what its entries are."""
    body = _Body().number("I", 1).text(label)
    for size in (len(values), len(values), 0):  # size, stride, data_offset
        body.number("I", size)
    return body.octets(values.astype("<f4").tobytes(), len(values)).message()


def image_message(stamp_ns: int, frame_id: str, kind: str, data: bytes) -> bytes:
    """sensor_msgs/msg/CompressedImage; kind: "jpeg" or "png"."""
    seconds, nanoseconds = divmod(stamp_ns, 10**9)
    body = _Body().number("i", seconds).number("I", nanoseconds)
    return body.text(frame_id).text(kind).octets(data, len(data)).message()


class _Body:
    """Bytes of a message; every number starts at a multiple of its size."""

    def __init__(self) -> None:
        self._data = bytearray()

    def number(self, kind: str, value: float) -> _Body:
        size = struct.calcsize(kind)
        self._data += bytes(-len(self._data) % size)
        self._data += struct.pack(f"<{kind}", value)
        return self

    def text(self, text: str) -> _Body:
        data = text.encode() + b"\0"
        return self.octets(data, len(data))

    def octets(self, data: bytes, count: int) -> _Body:
        """A sequence of `count` elements of at most 4 bytes each."""
        self.number("I", count)
        self._data += data
        return self

    def message(self) -> bytes:
        return _HEADER + bytes(self._data)
