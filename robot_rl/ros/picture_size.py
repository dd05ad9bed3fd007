"""How large a compressed picture says it is, read before a decoder takes memory for it."""

from __future__ import annotations

import struct

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG"  # how such files begin
MOST_PIXELS = 1 << 25  # of one picture: four times 4K
_ALONE = (0x00, 0x01, *range(0xD0, 0xDA))  # JPEG markers without a length
_SIZES = tuple(set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC})  # those that begin a frame
_SCAN = 0xDA


def pixels_of(data: bytes) -> int:
    """Pixels that a JPEG or PNG says it has; 0 = it is neither, not whole, or has no size."""
    if data.startswith(PNG):
        return _of_png(data)
    return _of_jpeg(data) if data.startswith(JPEG) else 0


def _of_png(data: bytes) -> int:
    """The same for a PNG; 0 if a chunk says it is longer than the file: OpenCV believes it."""
    at = 8
    while at + 12 <= len(data):  # length, kind, CRC
        at += 12 + int.from_bytes(data[at : at + 4], "big")
    if at > len(data) or data[12:16] != b"IHDR" or len(data) < 33:
        return 0
    width, height = struct.unpack_from(">II", data, 16)
    return width * height


def _of_jpeg(data: bytes) -> int:
    """The same for a JPEG: its segments up to the first scan, as libjpeg walks through them."""
    most, at = 0, 2
    while (at := data.find(b"\xff", at)) >= 0 and at + 9 <= len(data):
        kind = data[at + 1]
        if kind == 0xFF:  # fill
            at += 1
        elif kind in _ALONE:
            at += 2
        elif kind == _SCAN:
            break
        else:
            length, _, height, width = struct.unpack_from(">HBHH", data, at + 2)
            if kind in _SIZES:
                most = max(most, width * height)
            at += 2 + length
    return most
