"""The pairing string: what was encoded is decoded, and everything else is one readable error."""

from __future__ import annotations

import string
import struct

import numpy as np
import pytest
import zmq

from robot_rl.errors import LinkError
from robot_rl.link.invitation import PREFIX, Invitation, new_invitation, read_invitation
from robot_rl.spec import PROTOCOL_VERSION

ROBOT, _ = zmq.curve_keypair()
GIVEN = new_invitation("10.0.0.9", 5597, "0123456789abcdef", ROBOT)
TEXT = GIVEN.encode()


def test_round_trip_and_a_string_that_fits_a_line_of_a_chat() -> None:
    back = read_invitation(TEXT)
    assert back == GIVEN and back.robot == ROBOT and back.secret == GIVEN.secret
    assert len(TEXT) < 140 and TEXT.startswith(PREFIX)
    for host in ("gpu-box", "gpu.lab.example.org", "127.0.0.2"):
        one = new_invitation(host, 1, "00" * 8, ROBOT)
        assert read_invitation(one.encode()) == one
    assert new_invitation("10.0.0.9", 5597, "00" * 8, ROBOT).secret != GIVEN.secret


def test_the_secret_is_in_no_text_but_the_string() -> None:
    secret = GIVEN.secret.decode()
    assert secret not in repr(GIVEN) and secret not in GIVEN.mark and GIVEN.mark not in TEXT


@pytest.mark.parametrize("wrap", ["\n{}\n", '"{}"', "`{}`", " {} "])
def test_quotes_and_line_breaks_of_whatever_carried_it_do_no_harm(wrap: str) -> None:
    assert read_invitation(wrap.format(TEXT[:60] + "\n  " + TEXT[60:])) == GIVEN


def test_every_mistyped_character_is_noticed() -> None:
    for place in range(len(PREFIX), len(TEXT)):
        for other in (string.ascii_letters[place % 52], "-", "0"):
            if other == TEXT[place]:
                continue
            try:
                read = read_invitation(TEXT[:place] + other + TEXT[place + 1 :])
            except LinkError as error:
                assert "pairing string" in error.summary
            else:
                assert read == GIVEN  # the last character has bits that mean nothing


@pytest.mark.parametrize("cut", [6, 40, 100, -1])
def test_a_part_is_missing(cut: int) -> None:
    with pytest.raises(LinkError, match=r"(?s)mistyped, or a part.*robot-rl pair RUN"):
        read_invitation(TEXT[:cut])
    with pytest.raises(LinkError, match="mistyped"):
        read_invitation(TEXT + TEXT)


@pytest.mark.parametrize(
    "text", ["", "hello", "rrl:abc", "runs/reach/x", "x" * 5000, "rrl1:" * 500]
)
def test_something_else_is_said_to_be_no_pairing_string(text: str) -> None:
    with pytest.raises(LinkError, match="this is no pairing string"):
        read_invitation(text)


def test_a_string_of_another_version_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LinkError, match=r"(?s)another robot-rl version.*rrl1.*rrl2.*same robot-rl"):
        read_invitation(TEXT.replace("rrl1:", "rrl2:"))
    monkeypatch.setattr("robot_rl.link.invitation.PROTOCOL_VERSION", PROTOCOL_VERSION + 1)
    newer = GIVEN.encode()
    monkeypatch.undo()
    with pytest.raises(LinkError, match=f"(?s)another robot-rl version.*{PROTOCOL_VERSION + 1}"):
        read_invitation(newer)


def test_an_address_that_is_none_is_refused() -> None:
    for host in ("10.0.0.9;x", "", "a b", "-x", "::1"):
        one = Invitation(host=host, port=1, spec_hash="00" * 8, robot=ROBOT, secret=GIVEN.secret)
        with pytest.raises(LinkError, match="pairing string"):
            read_invitation(one.encode())


def test_fuzz_never_anything_but_our_error() -> None:
    """30,000 inputs: noise, mutated strings, and mutated bytes under a right checksum."""
    import base64

    from robot_rl.link import invitation

    rng = np.random.default_rng(3)
    letters = np.array(list(string.ascii_letters + string.digits + "-_=:\n é"))
    data = base64.urlsafe_b64decode(TEXT[5:] + "=" * (-len(TEXT[5:]) % 4))[:-4]
    for _ in range(10_000):
        noise = PREFIX + "".join(rng.choice(letters, int(rng.integers(0, 200))))
        changed = list(TEXT)
        for place in rng.integers(0, len(TEXT), 3):
            changed[place] = str(rng.choice(letters))
        body = bytearray(data[: int(rng.integers(0, len(data) + 1))])
        if body:
            body[int(rng.integers(len(body)))] = int(rng.integers(256))
        sealed = bytes(body) + invitation._check(bytes(body))
        repaired = PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")
        for candidate in (noise, "".join(changed), repaired):
            try:
                found = read_invitation(candidate)
            except LinkError:
                continue
            assert read_invitation(found.encode()) == found
    assert struct.calcsize(">HH8s32s32s") == 76
