"""How large a compressed picture says it is, read before a decoder takes memory for it."""

from __future__ import annotations

import struct

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG"  # how such files begin
MOST_PIXELS = 1 << 25  # of one picture: four times 4K
_ALONE = (0x00, 0x01, *range(0xD0, 0xDA))  # JPEG markers without a length
_SIZES = tuple(set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC})  # those that begin a frame
_SCAN = 0xDA


def pixels_of(data: bytes) -> int:
    """Pixels of a JPEG or PNG by its head, the most that is said; 0 = neither, or no size."""
    if data.startswith(PNG):
        width, height = struct.unpack_from(">II", data, 16) if len(data) >= 24 else (0, 0)
        return width * height
    return _of_jpeg(data) if data.startswith(JPEG) else 0


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
