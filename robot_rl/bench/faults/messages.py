"""Messages of the link, one of each kind, and frames around any body: for whoever damages them."""

from __future__ import annotations

import struct
import zlib

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.link.frames import (
    LINK_VERSION,
    Accepted,
    Ack,
    GetWeights,
    Hello,
    Message,
    NoWeights,
    Offer,
    Paired,
    Refused,
    Rows,
    Status,
    Welcome,
)
from robot_rl.store.rows import flatten
from robot_rl.types import EpisodeId, Label, Weights

SPEC = sample_spec(images=1, image_size=4)
ID = EpisodeId("run", "actor-0", 3)
FLATS = tuple(flatten(r) for r in episode_rows(SPEC, ID, 2))
LABEL = flatten(Label(ID, 0, None, "success", 1.0, "person", "ada", 6))

EXAMPLES: tuple[Message, ...] = (
    Hello("actor", SPEC.hash, SPEC.as_dict(), "run", "actor-0", FLATS[1].key),
    Welcome("ab12", -1, 4, True),
    Refused("spec", "they differ", ("control_hz: 10.0 -> 20.0",)),
    Rows((*FLATS, LABEL)),
    Ack(tuple(f.key for f in (*FLATS, LABEL)), 3, (LABEL.key,)),
    GetWeights(-1),
    Weights(7, "00ff", b"\x00\x01" * 500),
    NoWeights(7),
    Offer(
        "run-1", "0.1", {"seed": 0, "task": {"name": "reach"}}, "ab", SPEC.as_dict(), {"actor": "k"}
    ),
    Accepted("key", "gpu-box"),
    Paired("key"),
    Status({"updates": 5, "utd": 0.5, "phase": "practice", "full": False, "none": None}),
)


def framed(kind: int, body: bytes, protocol: int = LINK_VERSION, sequence: int = 0) -> bytes:
    """A frame with a right length and CRC around any body."""
    start = struct.pack("<4sHBBQI", b"RRL1", protocol, kind, 0, sequence, len(body))
    return start + struct.pack("<I", zlib.crc32(body, zlib.crc32(start))) + body
