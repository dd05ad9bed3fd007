"""Base policies behind other people's servers, against stand-ins that speak the exact wire format.

What went over the wire is checked as raw as it came (`tests.support.policy_servers`).
"""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq
from numpy.typing import NDArray

from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError, LinkError, RobotRLError, SetupError, SpecError
from robot_rl.link.auth import load_keys, make_keys
from robot_rl.link.config import LinkConfig
from robot_rl.policy.base import groot, openpi, openvla, served
from robot_rl.policy.base.mapping import padded
from robot_rl.policy.base.schedule import AsyncSchedule, ChunkSchedule, schedule_of
from robot_rl.policy.base.spec import BasePolicy, BaseSpec
from robot_rl.run.serve_policy import serve_run
from tests.support.policy_servers import (
    CHUNK,
    HORIZON,
    OBSERVATION,
    OURS,
    SPEC,
    Groot,
    Openpi,
    OpenVla,
    StandIn,
)

# -- ours


class Fixed:
    """What our own server serves here."""

    spec = BaseSpec(HORIZON, 7, (HORIZON, 7))

    def sample_many(self, observation: Any, noise: NDArray | None = None) -> NDArray[np.float32]:
        count = len(observation["state"])
        chunk = np.repeat(OURS[None], count, 0)
        return chunk if noise is None else noise


class Own(StandIn):
    """The real server with the real keys."""

    garbage = ()

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder / "keys"
        make_keys(self.folder, served.NAMES)
        self.words = {"name": "served", "folder": str(self.folder)}

    def start(self) -> None:
        keys = load_keys(self.folder, "policy")
        where = LinkConfig(host="127.0.0.1", port=self.port)
        self._stop, ready = threading.Event(), threading.Event()

        def run() -> None:
            with served.PolicyServer(Fixed(), SPEC, keys, where) as server:
                self.port = server.port
                ready.set()
                served.serve(server, self._stop)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert ready.wait(10)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        pass


STAND_INS: dict[str, Callable[[Path], Any]] = {
    "openpi": lambda _: Openpi(),
    "groot": lambda _: Groot(),
    "openvla": lambda _: OpenVla(),
    "served": Own,
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that this machine has for the stand-ins."""
    monkeypatch.setenv("ROBOT_RL_API_KEY_LAB", "127.0.0.1 secret")


@pytest.fixture(params=STAND_INS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "openpi":
        pytest.importorskip("websockets")
    made = STAND_INS[request.param](tmp_path)
    made.start()
    made.stopped = False
    yield made
    if not made.stopped:
        made.stop()


def client(server: Any, **changes: Any) -> BasePolicy:
    words = {**server.words, "port": server.port, "timeout_s": 2.0, **changes}
    return resolve("base", words).open(SPEC, seed=0)


def test_a_chunk_comes_over_the_wire_as_the_server_sends_it(server: Any) -> None:
    pytest.importorskip("cv2")
    base = client(server)
    base.reset()
    chunk = base.sample(OBSERVATION)
    assert base.spec.chunk == HORIZON and base.spec.action_size == 7
    assert chunk.shape == (HORIZON, 7) and chunk.dtype == np.float32
    np.testing.assert_allclose(chunk, OURS, rtol=1e-6)
    server.check()


def test_nonsense_is_an_error_and_the_next_answer_is_good(server: Any) -> None:
    pytest.importorskip("cv2")
    base = client(server)
    for garbage in server.garbage:
        server.answer = garbage
        with pytest.raises(RobotRLError) as error:
            base.sample(OBSERVATION)
        assert error.value.fix, garbage
    server.answer = None
    np.testing.assert_allclose(base.sample(OBSERVATION), OURS, rtol=1e-6)


def test_a_server_that_went_away_is_named_and_found_again(server: Any) -> None:
    pytest.importorskip("cv2")
    base = client(server, timeout_s=0.4)
    base.sample(OBSERVATION)
    port = server.port
    server.stop()
    server.stopped = True
    with pytest.raises(LinkError, match="does not answer"):
        base.sample(OBSERVATION)
    if isinstance(server, Own):  # the others choose their port anew
        server.port = port
        server.start()
        server.stopped = False
        np.testing.assert_allclose(base.sample(OBSERVATION), OURS, rtol=1e-6)


def test_a_server_that_hangs_is_given_up_in_time(server: Any) -> None:
    pytest.importorskip("cv2")
    if isinstance(server, Own):
        pytest.skip("it has no delay to set; the socket's time-out is the same code")
    base = client(server, timeout_s=0.3)
    server.delay_s = 3.0
    began_s = time.monotonic()
    with pytest.raises(LinkError):
        base.sample(OBSERVATION)
    assert time.monotonic() - began_s < 2.8
    time.sleep(3.0)  # its late answer
    server.delay_s = 0.0
    np.testing.assert_allclose(base.sample(OBSERVATION), OURS, rtol=1e-6)


# -- what both sides must agree on -----------------------------------------------------------------


def test_their_units_become_ours(tmp_path: Path) -> None:
    low, high = (-2.0,) * 6 + (0.0,), (2.0,) * 6 + (1.0,)
    server = OpenVla()
    server.start()
    try:
        base = client(server, low=low, high=high)
        got = base.sample(OBSERVATION)
        np.testing.assert_allclose(got[:, :6], OURS[:, :6] / 2.0, rtol=1e-5)
        np.testing.assert_allclose(got[:, 6], OURS[:, 6] * 2.0 - 1.0, rtol=1e-4, atol=1e-6)
    finally:
        server.stop()


def test_one_action_is_repeated_until_the_next_can_be_here() -> None:
    server = OpenVla()
    server.start()
    try:
        server.answer = json.dumps([float(x) for x in CHUNK[0]]).encode()  # OpenVLA, not OFT
        base = client(server, chunk=1, repeat=4)
        np.testing.assert_allclose(base.sample(OBSERVATION), np.repeat(OURS[:1], 4, 0), rtol=1e-6)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"name": "openpi", "chunk": 5, "inputs": {"x": "image/wrist"}}, "not observed"),
        ({"name": "openpi", "inputs": {"x": "state"}}, "trained on"),
        ({"name": "openpi", "chunk": 5, "inputs": {"x": "state"}, "columns": (1, 2)}, "length"),
        ({"name": "groot", "chunk": 5, "inputs": {"front": "state"}, "actions": ("a",)}, "video"),
        ({"name": "openvla", "inputs": {"image": "image/front"}}, "instruction"),
        ({"name": "served"}, "needs keys"),
        ({"name": "served", "run": "runs/x", "host": "10.0.0.1"}, "needs keys"),
        ({"name": "openvla", "low": (0.0,), "high": (0.0,)}, "differ"),
    ],
)
def test_a_base_that_is_told_too_little_says_what_it_needs(words: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        resolve("base", words).open(SPEC, seed=0)


@pytest.mark.parametrize("answer", [b"[[1, 2, 3]]", b"[[NaN, 0, 0, 0, 0, 0, 0, 0]]"])
def test_a_chunk_of_another_width_or_with_nan_never_gets_through(answer: bytes) -> None:
    server = OpenVla()
    server.answer = answer
    server.start()
    try:
        with pytest.raises(SpecError, match="not an action chunk of ours"):
            client(server).sample(OBSERVATION)
    finally:
        server.stop()


def test_an_array_of_objects_is_not_unpacked() -> None:
    evil = {b"__ndarray__": True, b"data": b"x" * 8, b"dtype": "|O", b"shape": [1]}
    with pytest.raises(LinkError):
        openpi.unpacked(msgpack.packb({"actions": evil}))
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(LinkError):
        groot.unpacked(msgpack.packb({"__ndarray_class__": True, "as_npy": file.getvalue()}))
    text = json.dumps(
        {"__numpy__": base64.b64encode(b"x" * 8).decode(), "dtype": "|O", "shape": [1]}
    )
    with pytest.raises(ValueError, match="array"):
        json.loads(text, object_hook=openvla._from_json)


# -- our own server --------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    made = Own(tmp_path)
    made.start()
    yield made
    made.stop()


def test_noise_goes_to_the_server_and_a_batch_comes_back(own: Own) -> None:
    base = client(own)
    assert base.spec.noise_shape == (HORIZON, 7)
    noise = np.random.default_rng(0).normal(size=(HORIZON, 7)).astype(np.float32)
    np.testing.assert_array_equal(base.sample(OBSERVATION, noise), noise)
    with pytest.raises(LinkError, match="bad noise"):
        base.sample(OBSERVATION, noise[:2])


def test_who_has_no_key_there_gets_no_answer(own: Own, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_keys(other, served.NAMES)
    (other / "policy.public").write_bytes((own.folder / "policy.public").read_bytes())
    with pytest.raises(LinkError, match="does not answer"):
        client(own, folder=str(other), timeout_s=0.5)


def test_a_policy_for_another_task_is_refused_before_anything_moves(own: Own) -> None:
    import dataclasses

    other = dataclasses.replace(SPEC, control_hz=20.0)
    words = {**own.words, "port": own.port, "timeout_s": 2.0}
    with pytest.raises(LinkError, match="something else") as error:
        resolve("base", words).open(other, seed=0)
    assert "control_hz" in str(error.value)


def test_nonsense_neither_ends_the_server_nor_gets_an_answer_of_its_own(own: Own) -> None:
    keys = load_keys(own.folder, "actor")
    line = zmq.Context.instance().socket(zmq.DEALER)
    line.linger = 0
    line.curve_serverkey = keys.public_of("policy")
    line.curve_publickey, line.curve_secretkey = keys.public, keys.secret
    line.connect(f"tcp://127.0.0.1:{own.port}")
    try:
        rng = np.random.default_rng(0)
        for parts in (
            [b""],
            [b"x" * 8, b"explode", b""],
            [b"x" * 8, b"sample", b"RRT1"],
            *([rng.bytes(8), b"sample", rng.bytes(int(rng.integers(200)))] for _ in range(50)),
        ):
            line.send_multipart(parts)
            assert line.poll(2000)
            assert line.recv_multipart()[1] == b"error"
    finally:
        line.close()
    np.testing.assert_allclose(client(own).sample(OBSERVATION), OURS, rtol=1e-6)


@pytest.mark.parametrize("error", [MemoryError("batch"), RuntimeError("CUDA out of memory")])
def test_a_policy_that_fails_is_told_and_the_next_asker_is_served(
    own: Own, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> NDArray[np.float32]:
        raise error

    base = client(own)
    with monkeypatch.context() as patch:
        patch.setattr(Fixed, "sample_many", fail)
        with pytest.raises(LinkError, match=str(error)):
            base.sample(OBSERVATION)
    assert "Traceback" in caplog.text
    np.testing.assert_allclose(client(own).sample(OBSERVATION), OURS, rtol=1e-6)


def test_the_served_policy_listens_to_one_address_with_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        serve_run(tmp_path, host="0.0.0.0", port=0, keys=None, stop=threading.Event())
    with pytest.raises(LinkError, match="without its own keys"):
        serve_run(tmp_path, host="10.1.2.3", port=0, keys=None, stop=threading.Event())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        make_keys(tmp_path / "keys", served.NAMES)
        where = LinkConfig(host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(SetupError, match="the port is in use"):
            served.PolicyServer(Fixed(), SPEC, load_keys(tmp_path / "keys", "policy"), where)
        where = LinkConfig(host="203.0.113.7", port=1)
        with pytest.raises(SetupError, match="an IP address of this machine"):
            served.PolicyServer(Fixed(), SPEC, load_keys(tmp_path / "keys", "policy"), where)


def test_pictures_are_scaled_and_padded_never_cropped() -> None:
    pytest.importorskip("cv2")
    tall = np.full((40, 20, 3), 200, np.uint8)
    got = padded(tall, 10)
    assert got.shape == (10, 10, 3)
    assert (got[:, 3:7] == 200).all() and not got[:, :2].any() and not got[:, 8:].any()
    assert padded(got, 10) is got


@pytest.mark.parametrize("real_time", [True, False])
def test_a_base_elsewhere_is_asked_beside_the_loop_where_time_is_real(
    real_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.ServedConfig, "open", lambda self, spec, seed: Fixed())
    made = schedule_of(served.ServedConfig(), SPEC, 0, real_time=real_time)
    assert isinstance(made, AsyncSchedule if real_time else ChunkSchedule)
    made.close()
