"""Nothing that a server of a policy, or a learner, can say ends the actor's loop."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.errors import CodecError, LinkError, RobotRLError, SpecError
from robot_rl.link.panel import decode
from robot_rl.policy.base import groot, openpi
from robot_rl.policy.base.openvla import OpenVlaConfig
from robot_rl.policy.base.schedule import AsyncSchedule, ChunkSchedule
from robot_rl.policy.base.served import ServedBase, ServedConfig
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.policy.runtime import PolicyRuntime
from robot_rl.run.actor import Actor
from robot_rl.spec import PROTOCOL_VERSION, ActionSpec, Spec, TensorSpec
from robot_rl.store.codec import encode_tensors, unpack
from robot_rl.types import Weights

H, A = 4, 7
SPEC = Spec(
    "odd",
    10.0,
    {"state": TensorSpec((5,), "float32"), "image/front": TensorSpec((8, 8, 3), "uint8")},
    ActionSpec(0.01, 0.1, gripper=True),
)
SEEN = {"state": np.zeros(5, np.float32), "image/front": np.zeros((8, 8, 3), np.uint8)}

# -- how much a message may be in memory -----------------------------------------------------------

MESSAGE_BYTES = 16 << 20
MAX_MB = 80  # the message itself is 16; before there was a bound: 1.2 GB


def list_of(count: int, inner: bytes) -> bytes:
    """A msgpack list of equal values."""
    return b"\xdd" + count.to_bytes(4, "big") + inner * count


def bombs() -> dict[str, bytes]:
    """16 MB of msgpack each, or a few bytes that announce a lot."""
    in_lists = list_of(1000, list_of(1000, list_of(16, b"\x80")))
    return {
        "empty maps": list_of(MESSAGE_BYTES, b"\x80"),
        "empty maps in short lists": in_lists,
        "nothing": list_of(MESSAGE_BYTES, b"\xc0"),
        "numbers": list_of(MESSAGE_BYTES // 9, b"\xcf" + b"\x7f" * 8),
        "lists in lists": b"\x91" * 500 + b"\xc0",
        "lists without end": b"\x91" * 100_000,
        "a length that is not there": b"\xdd\xff\xff\xff\xff",
        "a map that is not there": b"\xdf\xff\xff\xff\xff",
    }


DECODERS: dict[str, tuple[Callable[[bytes], Any], type[RobotRLError]]] = {
    "link and store": (unpack, CodecError),
    "page": (lambda data: decode(data, 1 << 30), LinkError),
    "groot": (groot.unpacked, LinkError),
    "openpi": (openpi.unpacked, LinkError),
}


@pytest.mark.parametrize("bomb", bombs())
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_message_does_not_become_a_hundred_times_as_large(decoder: str, bomb: str) -> None:
    read, error = DECODERS[decoder]
    data = bombs()[bomb]
    tracemalloc.start()
    try:
        with pytest.raises(error):
            read(data)
        most_mb = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert most_mb < MAX_MB


def test_a_full_message_of_rows_still_fits() -> None:
    rows = [[4, list(range(20))] for _ in range(1024)]
    assert len(unpack(msgpack.packb(rows))) == 1024


# -- other people's servers ------------------------------------------------------------------------

NPY = b"\x93NUMPY\x01\x00"


def npy(header: str, body: bytes = b"") -> dict[str, Any]:
    """GR00T's map of an array, with any header."""
    text = header.encode()
    return {
        "__ndarray_class__": True,
        "as_npy": NPY + len(text).to_bytes(2, "little") + text + body,
    }


ODD_NPY = (
    npy("{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,)}"),
    npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
    npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n"),
    npy("{'descr': '<f8', 'fortran_order': 1e999, 'shape': ()}"),
    npy("{'descr': '(', 'fortran_order': False, 'shape': ()}"),
    npy("(" * 3000),
    npy("[" * 60000),
    npy("\x00"),
    {"__ndarray_class__": True, "as_npy": 7},
    {"__ndarray_class__": True},
)
ODD_OPENPI = (
    {b"__ndarray__": True, b"data": b"", b"dtype": "(", b"shape": []},
    {b"__ndarray__": True, b"data": b"", b"dtype": "{'a'", b"shape": []},
    {b"__ndarray__": True, b"data": b"", b"dtype": "<f8", b"shape": [float("inf")]},
    {b"__ndarray__": True, b"data": b"", b"dtype": "<f8", b"shape": [10**11]},
    {b"__ndarray__": True, b"data": b"", b"dtype": "V1", b"shape": 3},
    {b"__ndarray__": True, b"data": None, b"dtype": "<f8", b"shape": [0]},
    {b"__ndarray__": True},
    {b"__npgeneric__": True, b"data": 10**18, b"dtype": "V8"},
    {b"__npgeneric__": True, b"data": "x" * 100, b"dtype": "U1000000000"},
    {b"__npgeneric__": True, b"data": "x", b"dtype": "<f8"},
    {b"__npgeneric__": True, b"data": {}, b"dtype": 3},
)


@pytest.mark.parametrize(
    ("read", "odd"),
    [*((groot.unpacked, x) for x in ODD_NPY), *((openpi.unpacked, x) for x in ODD_OPENPI)],
)
def test_an_odd_array_is_a_link_error(read: Callable[[bytes], Any], odd: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LinkError):
            read(msgpack.packb({"actions": odd}))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


ARRAYS = st.fixed_dictionaries(
    {
        b"__ndarray__": st.booleans(),
        b"data": st.binary(max_size=64) | st.integers(-(2**63), 2**64 - 1) | st.none(),
        b"dtype": st.text(max_size=20) | st.sampled_from(["<f4", "O", "V9", "f8,f8"]),
        b"shape": st.lists(st.integers(-(2**31), 2**40) | st.floats(), max_size=4),
    }
)


@given(ARRAYS | st.recursive(st.none() | st.floats() | st.text(), st.lists))
@settings(max_examples=300)
def test_any_array_of_openpi_is_read_or_a_link_error(value: Any) -> None:
    with contextlib.suppress(LinkError):
        openpi.unpacked(msgpack.packb(value))


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_are_read_or_one_of_our_errors(data: bytes) -> None:
    for read, error in DECODERS.values():
        with contextlib.suppress(error):
            read(data)


ODD_JSON = (
    '{"__numpy__": "", "dtype": "f8", "shape": [Infinity]}',
    '{"__numpy__": "", "dtype": "(", "shape": []}',
    '{"__numpy__": "", "dtype": "f8", "shape": [100000000000]}',
    '{"__numpy__": "é", "dtype": "f8", "shape": []}',
    '{"__numpy__": 7, "dtype": null, "shape": null}',
    "[" * 100_000,
    '"' + "[" * 100_000 + '"',
    "[1e999, 0, 0, 0, 0, 0, 0]",
    "[1e200, 0, 0, 0, 0, 0, 0]",
    f"[{'9' * 400}, 0, 0, 0, 0, 0, 0]",
    "[[[[0]]], 1]",
    "[null, 0, 0, 0, 0, 0, 0]",
    "[NaN, 0, 0, 0, 0, 0, 0]",
    '["0", {}, [], 0, 0, 0, 0]',
    '"error"',
    "{}",
    "[]",
    "null",
    "7",
    "",
)


class Answer:
    """An `http.client` connection whose server says one thing."""

    status, said = 200, b""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def request(self, *_: Any) -> None:
        """Send nothing."""

    def getresponse(self) -> Answer:
        """Itself."""
        return self

    def read(self, _count: int) -> bytes:
        """What is said."""
        return Answer.said

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("text", ODD_JSON)
def test_an_odd_answer_of_openvla_is_one_of_our_errors(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("http.client.HTTPConnection", Answer)
    monkeypatch.setattr(Answer, "said", text.encode())
    words: dict[str, Any] = {"inputs": {"instruction": "prompt"}}
    base = OpenVlaConfig(**words).open(SPEC, 0)
    with pytest.raises((LinkError, SpecError)):
        base.sample(SEEN)


GOOD = {
    "protocol": PROTOCOL_VERSION, "spec": SPEC.as_dict(), "chunk": H, "action_size": A,
    "noise_shape": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        *ODD_JSON,
        json.dumps(GOOD | {"chunk": 1e999}),
        json.dumps(GOOD | {"chunk": None}),
        json.dumps(GOOD | {"noise_shape": 7}),
        json.dumps({k: v for k, v in GOOD.items() if k != "chunk"}),
        json.dumps(GOOD | {"spec": []}),
    ],
)
def test_an_odd_description_of_our_own_server_is_a_link_error(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(ServedBase, "_ask", lambda *_: text.encode())
    with pytest.raises(LinkError):
        ServedBase(ServedConfig(), SPEC, SimpleNamespace())  # type: ignore[arg-type]


# -- the schedule ----------------------------------------------------------------------------------


class Odd:
    """A base that does what it is told to, one thing after the other."""

    def __init__(self, does: list[Any]) -> None:
        self.spec, self._does = BaseSpec(H, A), iter(does)

    def reset(self) -> None:
        """May fail as well."""
        self._next()

    def sample(self, *_: Any) -> Any:
        """The next thing."""
        return self._next()

    def close(self) -> None:
        """Nothing is open."""

    def _next(self) -> Any:
        thing = next(self._does, GOOD_CHUNK)
        if isinstance(thing, type):
            raise thing("odd")
        return thing


GOOD_CHUNK = np.full((H, A), 0.5, np.float32)
THINGS = [
    *(OverflowError, SyntaxError, MemoryError, RecursionError, KeyError, AttributeError, OSError),
    *(AssertionError, StopIteration, UnicodeError, ZeroDivisionError, LinkError, SpecError),
    GOOD_CHUNK * np.float32("nan"),
    GOOD_CHUNK * np.float32("inf"),
    GOOD_CHUNK[:, :3],
    GOOD_CHUNK[:0],
    GOOD_CHUNK.astype(object),
    GOOD_CHUNK.astype("U8"),
    *(None, "chunk", 7, [[0.0]], {}),
    GOOD_CHUNK,
]


@given(st.lists(st.sampled_from(THINGS), max_size=12), st.booleans())
@settings(max_examples=150)
def test_no_base_ends_the_loop(does: list[Any], slow: bool) -> None:
    base = Odd(does)
    made: Any = (
        AsyncSchedule(base, execute=1, ahead=1, first_s=1.0, retry_s=0.0)
        if slow
        else ChunkSchedule(base, execute=1, ahead=1, goes_on=True)
    )
    for _ in range(3):
        made.ready()
        made.begin_episode()
        for _ in range(4):
            action = made.annotate(SEEN)["base/action"]
            assert action.shape == (1, A) and np.isfinite(action).all()
            assert made.problem or (action == 0.5).all()
    made.close()


def test_after_a_failure_there_is_a_pause_and_then_a_policy_again() -> None:
    made = ChunkSchedule(Odd([None, MemoryError]), execute=1, ahead=1, goes_on=True)
    made.begin_episode()
    made.annotate(SEEN)
    assert "MemoryError" not in made.problem and made.ready() == made.problem != ""
    made._not_before_s = time.monotonic()
    assert made.ready() == ""
    made.begin_episode()
    assert (made.annotate(SEEN)["base/action"] == 0.5).all() and not made.problem


# -- weights ---------------------------------------------------------------------------------------


class Net:
    """A network of one layer."""

    observation_keys = ("state",)

    def init(self, _generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Zeros."""
        return {"policy": torch.zeros(3, 5), "bias": torch.zeros(7)}

    def act(self, *_: Any, **__: Any) -> torch.Tensor:
        """Nothing."""
        return torch.zeros(1, 7)


ALGO: Any = SimpleNamespace(make_actor=lambda _spec: Net())


def sent(data: bytes, version: int = 5) -> Weights:
    """Weights as a learner would send them."""
    return Weights(version, hashlib.sha256(data).hexdigest(), data)


def header(text: str, body: bytes = b"") -> bytes:
    """A safetensors image with any header."""
    return len(text).to_bytes(8, "little") + text.encode() + body


GOOD_TENSORS = Net().init(torch.Generator())
ODD_WEIGHTS = (
    safetensors.torch.save({k: v * float("nan") for k, v in GOOD_TENSORS.items()}),
    safetensors.torch.save({k: v + float("inf") for k, v in GOOD_TENSORS.items()}),
    safetensors.torch.save({k: v[:2].clone() for k, v in GOOD_TENSORS.items()}),
    safetensors.torch.save({k: v.long() for k, v in GOOD_TENSORS.items()}),
    safetensors.torch.save({k: v.half() for k, v in GOOD_TENSORS.items()}),
    safetensors.torch.save({k: v.bool() for k, v in GOOD_TENSORS.items()}),
    safetensors.torch.save({"policy": GOOD_TENSORS["policy"]}),
    header('{"policy":{"dtype":"F32","shape":[100000000000],"data_offsets":[0,4]}}', b"abcd"),
    header('{"policy":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', b"abcd"),
    header('{"policy":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]}}', b"abcd"),
    header("[" * 100_000),
    header("{}"),
    b"\xff" * 8,
    b"",
)


def adopting(policy: PolicyRuntime, weights: Weights) -> Any:
    """An actor, as far as it adopts weights."""
    link = SimpleNamespace(newest_weights=lambda: weights)
    return SimpleNamespace(link=link, policy=policy, _adopted_s=0.0, _refused="")


@pytest.mark.parametrize("data", ODD_WEIGHTS)
def test_odd_weights_leave_the_old_ones_in_use_and_the_actor_alive(data: bytes) -> None:
    policy = PolicyRuntime(ALGO, SPEC)
    good = sent(safetensors.torch.save(GOOD_TENSORS), 3)
    policy.load(good)
    with pytest.raises(RobotRLError):
        policy.load(sent(data))
    actor = adopting(policy, sent(data))
    for _ in range(3):  # told once, not looked at again
        Actor._adopt(actor)
    assert policy.version == 3 and policy.weights is good
    assert actor._refused == sent(data).sha256 and actor._adopted_s == 0.0
    better = adopting(policy, sent(safetensors.torch.save(GOOD_TENSORS), 6))
    Actor._adopt(better)
    assert policy.version == 6


@given(st.data())
@settings(max_examples=300)
def test_any_damage_to_weights_is_one_of_our_errors(data: st.DataObject) -> None:
    image = bytearray(safetensors.torch.save(GOOD_TENSORS))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(image)) | st.just(len(image)))
    policy = PolicyRuntime(ALGO, SPEC)
    try:
        policy.load(sent(bytes(image[:cut])))
    except RobotRLError:
        assert policy.version == -1


def test_an_answer_that_is_no_chunk_is_a_link_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServedBase, "_ask", lambda *_: json.dumps(GOOD).encode())
    base = ServedBase(ServedConfig(), SPEC, SimpleNamespace())  # type: ignore[arg-type]
    for body in (encode_tensors({"chunk": np.zeros((0, H, A), np.float32)}), b"", b"RRT1" * 9):
        monkeypatch.setattr(ServedBase, "_ask", lambda *_, body=body: body)
        with pytest.raises(RobotRLError):
            base.sample(SEEN)
