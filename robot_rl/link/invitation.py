"""The pairing string: what the robot's machine prints, and a person types at the learner's.

    rrl1:<base64url without padding>

    u16    protocol version of the link
    u16    port
    8 s    spec hash of the run
    32 s   public key of the robot's actor
    32 s   one-time secret key, by which both machines know each other while they are paired
    ...    address of the learner's machine as the robot reaches it (ASCII)
    4 s    first bytes of the SHA-256 of all that: a mistyped string is noticed

Whoever has the string and can listen at that address may take the learner's place, once, while the
invitation lasts (SECURITY.md).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85

from robot_rl.errors import LinkError
from robot_rl.link.config import HOST
from robot_rl.spec import PROTOCOL_VERSION

PREFIX = "rrl1:"
CHECK_BYTES = 4
MAX_CHARS = 512
_HEAD = struct.Struct(">HH8s32s32s")
_ASK = "copy the whole line that the robot's machine printed; `robot-rl pair RUN` prints a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """One invitation. Keys are Z85, as ZeroMQ takes them; `secret` is a credential."""

    host: str
    port: int
    spec_hash: str
    robot: bytes
    secret: bytes = field(repr=False)

    @property
    def public(self) -> bytes:
        """The public half of `secret`: what the robot expects at the address."""
        return zmq.curve_public(self.secret)

    @property
    def mark(self) -> str:
        """Names the string without giving it away: for the memory of what was used."""
        return hashlib.sha256(b"used" + self.secret).hexdigest()[:16]

    def encode(self) -> str:
        """The string."""
        head = _HEAD.pack(
            PROTOCOL_VERSION,
            self.port,
            bytes.fromhex(self.spec_hash),
            z85.decode(self.robot),
            z85.decode(self.secret),
        )
        data = head + self.host.encode("ascii")
        text = base64.urlsafe_b64encode(data + _check(data)).decode()
        return PREFIX + text.rstrip("=")


def new_invitation(host: str, port: int, spec_hash: str, robot: bytes) -> Invitation:
    """An invitation with a fresh one-time key."""
    _, secret = zmq.curve_keypair()
    return Invitation(host=host, port=port, spec_hash=spec_hash, robot=robot, secret=secret)


def read_invitation(text: str) -> Invitation:
    """String -> invitation. Line breaks and quotation marks of whatever carried it are dropped.

    Raises:
        LinkError: no pairing string, one of another version, or a damaged one.
    """
    word = re.sub(r"[\s'\"`]", "", text)
    found = re.match(r"rrl(\d+):", word)
    if found is None or len(word) > MAX_CHARS:
        raise LinkError(
            "this is no pairing string",
            expected=f"{PREFIX}... as `robot-rl train link=remote ...` prints it",
            got=f"{word[:12]}... ({len(word)} characters)" if word else "nothing",
            fix=_ASK,
        )
    if found.group() != PREFIX:
        raise _other_version(f"strings {PREFIX}...", f"{found.group()}...")
    data = _bytes(word[len(PREFIX) :])
    if len(data) <= _HEAD.size + CHECK_BYTES or _check(data[:-CHECK_BYTES]) != data[-CHECK_BYTES:]:
        raise LinkError(
            "the pairing string is damaged: mistyped, or a part is missing",
            expected="the string as it was printed (its checksum fits)",
            got=f"{len(word)} characters with another checksum",
            fix=_ASK,
        )
    protocol, port, spec_hash, robot, secret = _HEAD.unpack_from(data)
    if protocol != PROTOCOL_VERSION:
        raise _other_version(f"protocol version {PROTOCOL_VERSION}", str(protocol))
    host = data[_HEAD.size : -CHECK_BYTES].decode("ascii", "replace")
    if not HOST.fullmatch(host):
        raise LinkError(
            "the pairing string names no usable address",
            expected="an IPv4 address or a host name",
            got=repr(host)[:60],
            fix=_ASK,
        )
    return Invitation(
        host=host,
        port=port,
        spec_hash=spec_hash.hex(),
        robot=z85.encode(robot),
        secret=z85.encode(secret),
    )


def _bytes(text: str) -> bytes:
    """Bytes of base64url; nothing for what is none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _check(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:CHECK_BYTES]


def _other_version(expected: str, got: str) -> LinkError:
    return LinkError(
        "the pairing string was made by another robot-rl version",
        expected=f"{expected}, as this machine's robot-rl makes them",
        got=got,
        fix="install the same robot-rl version on both machines (robot-rl --version)",
    )
