"""Cases of whoever is not welcome at the learner's port: damaged and hostile bytes, wrong keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured
from robot_rl.bench.faults.messages import EXAMPLES, framed
from robot_rl.bench.faults.pair import CONFIG, SPEC, pair, peer
from robot_rl.errors import CodecError
from robot_rl.link import answers
from robot_rl.link.answers import MAX_STRIKES
from robot_rl.link.auth import load_keys, make_keys
from robot_rl.link.frames import HEADER, GetWeights, Hello, Message, Status, decode, encode
from robot_rl.types import ONLY_ACTOR

PICKLE = b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."
BATCH = 500  # frames between two looks at the time
HELLO = Hello("actor", SPEC.hash, SPEC.as_dict(), "run", ONLY_ACTOR, ())


# --- 14: a bit flips -----------------------------------------------------------------------------


def flipped(context: Context) -> Measured:
    """One bit of a frame is flipped."""
    known, rng, accepted, n = [encode(m, k) for k, m in enumerate(EXAMPLES)], context.rng, 0, 0
    for _ in context.trials(context.case.full // BATCH, at_least=4):
        for k in range(BATCH):
            frame = bytearray(known[k % len(known)])
            bit = int(rng.integers(8 * len(frame)))
            frame[bit // 8] ^= 1 << bit % 8
            accepted += _raises(bytes(frame)) is None
        n += BATCH
    return Measured.of(Figure("flips that were not noticed", accepted, ""), n=n)


def _raises(frame: bytes) -> Exception | None:
    """What the decoder raises, None when it takes the frame."""
    try:
        decode(frame)
    except Exception as error:  # whatever comes out of it is what we look for
        return error
    return None


# --- 15: hostile bytes ---------------------------------------------------------------------------


def hostile(context: Context) -> Measured:
    """Noise, cut and mutated frames, pickles; and a peer that sends such, and too much."""
    known, rng, other, n = [encode(m, k) for k, m in enumerate(EXAMPLES)], context.rng, 0, 0
    for _ in context.trials(context.case.full // BATCH, at_least=4):
        raised = [_raises(_hostile(known, rng, k)) for k in range(BATCH)]
        other += sum(e is not None and not isinstance(e, CodecError) for e in raised)
        n += BATCH
    large = pair(context.folder / "large", start=False)
    with large as both, peer(both) as (say, socket), counted() as decoded:
        socket.send(b"x" * (CONFIG.max_message_bytes + 1))
        later = any(say(GetWeights(-1), 2.0) for _ in range(10))  # a good frame gets through
        oversize = sum(size > CONFIG.max_message_bytes for size in decoded) if later else np.nan
    with pair(context.folder / "ban", start=False) as both, peer(both) as (say, _):
        for k in range(MAX_STRIKES):
            say((PICKLE, b"", b"RRL1" + bytes(40))[k % 3], 0.02)
        strikes = both.server.peers()["actor"].strikes
        with counted() as decoded:
            say(Status({}), 0.1)
            heard = len(decoded)
    return Measured.of(
        Figure("anything but our error", other, ""),
        Figure("oversize frames that were decoded", oversize, ""),
        Figure("strikes", strikes, ""),
        Figure("frames of an ignored peer that were decoded", heard, ""),
        n=n,
    )


def _hostile(known: list[bytes], rng: np.random.Generator, k: int) -> bytes:
    record, kind = known[k % len(known)], k % 4
    if kind == 0:
        return b"RRL1" + rng.bytes(30)
    if kind == 1:
        return record[: int(rng.integers(0, len(record)))]
    body = bytearray(record[HEADER.size :] if kind == 2 else PICKLE)
    for position in rng.integers(0, len(body), int(rng.integers(1, 4))):
        body[position] = int(rng.integers(0, 256))
    return framed(record[6] if k % 3 else int(rng.integers(0, 12)), bytes(body))


@contextmanager
def counted() -> Iterator[list[int]]:
    """The sizes of the frames that reach a learner's decoder meanwhile."""
    sizes: list[int] = []

    def count(data: bytes) -> tuple[int, Message]:
        sizes.append(len(data))
        return decode(data)

    answers.decode = count
    try:
        yield sizes
    finally:
        answers.decode = decode


# --- 16: wrong keys ------------------------------------------------------------------------------


def wrong_key(context: Context) -> Measured:
    """Peers without a key, with a stranger's, and with a stolen public key."""
    import zmq

    decoded_frames, welcomed = 0, 0
    n = 0
    with pair(context.folder, start=False) as both, counted() as decoded:
        known = load_keys(context.folder / "keys", "actor")
        make_keys(context.folder / "strangers", ("learner", "actor"))
        stranger = load_keys(context.folder / "strangers", "actor")
        right = known.public_of("learner")
        intruders = (
            (None, None, right),
            (stranger.public, stranger.secret, right),
            (known.public, stranger.secret, right),
            (known.public, known.secret, stranger.public),
        )
        for i in context.trials():
            public, secret, learner_key = intruders[i % len(intruders)]
            with zmq.Context() as zmq_context, zmq_context.socket(zmq.DEALER) as socket:
                socket.linger, socket.sndtimeo = 0, 100
                if public is not None:
                    socket.curve_publickey, socket.curve_secretkey = public, secret
                    socket.curve_serverkey = learner_key
                socket.connect(f"tcp://127.0.0.1:{both.server.port}")
                with suppress(zmq.Again):  # refused before it could speak: it would wait for ever
                    socket.send(encode(HELLO))
                both.serve(0.1)
                welcomed += bool(socket.poll(0))
            n += 1
        decoded_frames = len(decoded)
        with peer(both):  # the right key gets in: the learner does serve
            served = len(decoded) - decoded_frames
    return Measured.of(
        Figure("frames that reached the decoder", decoded_frames, ""),
        Figure("answers to intruders", welcomed, ""),
        Figure("frames of the right key", served, ""),
        n=n,
    )


CASES = (
    Case(
        number=14,
        name="flipped",
        title="bit flip in a frame",
        injection="one random bit of a frame is flipped, of every kind of message",
        promise="every flip is noticed",
        limits=(Limit("flips that were not noticed", "", at_most=0.0),),
        fails_if="a decoder without a checksum accepts a flip in a number",
        full=100_000,
        least=2000,
        measure=flipped,
        weight=0.5,
    ),
    Case(
        number=15,
        name="hostile",
        title="oversize, malformed and pickled bytes",
        injection="noise, cut frames, mutated bodies and pickles with a right checksum; a peer "
        "that sends them, and a frame beyond the limit",
        promise="nothing but our own error, nothing oversize is decoded, and the peer is ignored "
        f"after {MAX_STRIKES}",
        limits=(
            Limit("anything but our error", "", at_most=0.0),
            Limit("oversize frames that were decoded", "", at_most=0.0),
            Limit("strikes", "", at_least=float(MAX_STRIKES)),
            Limit("frames of an ignored peer that were decoded", "", at_most=0.0),
        ),
        fails_if="a decoder that trusts a length or a type raises something else; a learner that "
        "counts nothing goes on decoding",
        full=10_000_000,
        least=2000,
        measure=hostile,
    ),
    Case(
        number=16,
        name="wrong_key",
        title="wrong or missing key",
        injection="peers without a key, with a stranger's, with a stolen public one, and with "
        "another learner's",
        promise="no frame of theirs reaches the decoder",
        limits=(
            Limit("frames that reached the decoder", "", at_most=0.0),
            Limit("answers to intruders", "", at_most=0.0),
            Limit("frames of the right key", "", at_least=1.0),
        ),
        fails_if="a learner without CURVE or without a list of keys decodes their first words",
        full=400,
        least=4,
        measure=wrong_key,
    ),
)
