"""Base policies behind other people's servers, against stand-ins that speak the exact wire format.

The stand-ins are written from the servers' own sources, not with our packing code: an error in that
would otherwise agree with itself. Each answers with a chunk that it can be recognised by; what went
over the wire is checked as raw as it came.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import numpy as np
import pytest
import zmq
from numpy.typing import NDArray

from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError, LinkError, RobotRLError, SpecError
from robot_rl.link.auth import load_keys, make_keys
from robot_rl.link.config import LinkConfig
from robot_rl.policy.base import groot, openpi, openvla, served
from robot_rl.policy.base.mapping import padded
from robot_rl.policy.base.schedule import AsyncSchedule, ChunkSchedule, schedule_of
from robot_rl.policy.base.spec import BasePolicy, BaseSpec
from robot_rl.run.serve_policy import serve_run
from robot_rl.spec import ActionSpec, Spec, TensorSpec

SPEC = Spec(
    "fake",
    10.0,
    {
        "state": TensorSpec((5,), "float32"),
        "image/front": TensorSpec((12, 16, 3), "uint8"),
    },
    ActionSpec(0.01, 0.1, gripper=True),
    (("joints", 4, "rad"), ("gripper", 1, "m")),
)
OBSERVATION = {
    "state": np.array([0.1, 0.2, 0.3, 0.4, 0.9], np.float32),
    "image/front": np.arange(12 * 16 * 3, dtype=np.uint8).reshape(12, 16, 3),
}
HORIZON = 5
CHUNK = np.linspace(-0.9, 0.9, HORIZON * 8).reshape(HORIZON, 8).astype(np.float32)
COLUMNS = (0, 1, 2, 3, 4, 5, 7)  # theirs has one number more than ours
OURS = CHUNK[:, COLUMNS]


class StandIn:
    """A server in a thread. answer: what it says next; heard: what it was asked."""

    def __init__(self) -> None:
        self.port, self.heard = 0, []
        self.answer: Any = None  # None = the proper one; else sent as it is
        self.delay_s = 0.0

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


# -- openpi: src/openpi/serving/websocket_policy_server.py, packages/openpi-client/msgpack_numpy.py


def openpi_array(array: NDArray) -> dict[bytes, Any]:
    return {
        b"__ndarray__": True,
        b"data": array.tobytes(),
        b"dtype": array.dtype.str,
        b"shape": array.shape,
    }


class Openpi(StandIn):
    """Describes itself, then answers; an error is a text frame and the end."""

    words: ClassVar[dict[str, Any]] = {
        "name": "openpi",
        "chunk": HORIZON,
        "inputs": {
            "observation/image": "image/front",
            "observation/state": "state",
            "observation/joint_position": "state.joints",
            "prompt": "prompt",
        },
        "image_size": 16,
        "columns": COLUMNS,
        "prompt": "pick up the peg",
    }
    garbage = (
        b"\xc1",
        b"\x80",
        "Traceback: KeyError 'observation/wrist_image'",
        b"\x93\x01\x02\x03",
    )

    def start(self) -> None:
        from websockets.sync.server import serve

        self._server = serve(self._talk, "127.0.0.1", 0, compression=None, max_size=None)
        self.port = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _talk(self, line: Any) -> None:
        line.send(msgpack.packb({"action_dim": 8, "config": "test"}))
        for message in line:
            time.sleep(self.delay_s)
            self.heard.append(msgpack.unpackb(message, strict_map_key=False))
            if self.answer is not None:
                line.send(self.answer)
                if isinstance(self.answer, str):
                    line.close(1011)
                    return
                continue
            reply = {
                "state": openpi_array(np.zeros(8, np.float32)),
                "actions": openpi_array(CHUNK.astype(np.float64)),
                "policy_timing": {"infer_ms": 12.5},
                "server_timing": {"infer_ms": 13.0},
            }
            line.send(msgpack.packb(reply))

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()

    def check(self) -> None:
        (heard,) = self.heard
        assert sorted(heard) == sorted(self.words["inputs"])
        image = heard["observation/image"]
        assert image[b"__ndarray__"] is True and image[b"dtype"] == "|u1"
        assert list(image[b"shape"]) == [16, 16, 3]
        pixels = np.frombuffer(image[b"data"], np.uint8).reshape(16, 16, 3)
        np.testing.assert_array_equal(pixels[2:14], OBSERVATION["image/front"])
        assert not pixels[:2].any() and not pixels[14:].any()
        state = heard["observation/joint_position"]
        assert state[b"dtype"] == "<f4" and list(state[b"shape"]) == [4]
        np.testing.assert_array_equal(
            np.frombuffer(state[b"data"], "<f4"), OBSERVATION["state"][:4]
        )
        assert heard["prompt"] == "pick up the peg"


# -- GR00T: gr00t/policy/server_client.py


class Groot(StandIn):
    """REP socket; arrays as .npy bytes."""

    words: ClassVar[dict[str, Any]] = {
        "name": "groot",
        "chunk": HORIZON,
        "inputs": {
            "video.front": "image/front",
            "state.arm": "state.joints",
            "language.task": "prompt",
        },
        "actions": ("arm", "hand"),
        "columns": COLUMNS,
        "prompt": "pick up the peg",
        "key": "lab",
    }
    garbage = (
        b"\xc1",
        msgpack.packb({"error": "no such modality"}),
        msgpack.packb([{"arm": 3}, {}]),
        msgpack.packb([]),
    )

    def start(self) -> None:
        self._socket = zmq.Context.instance().socket(zmq.REP)
        self._socket.linger = 0
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self._going = True
        self._thread = threading.Thread(target=self._talk)
        self._thread.start()

    @staticmethod
    def array(value: NDArray) -> dict[str, Any]:
        file = io.BytesIO()
        np.save(file, value)
        return {"__ndarray_class__": True, "as_npy": file.getvalue()}

    def _talk(self) -> None:
        while self._going:
            if not self._socket.poll(20):
                continue
            request = msgpack.unpackb(self._socket.recv())
            time.sleep(self.delay_s)
            if request["endpoint"] != "get_action":
                self._socket.send(msgpack.packb({"status": "ok"}))
                continue
            self.heard.append(request)
            if self.answer is not None:
                self._socket.send(self.answer)
                continue
            parts = {
                "arm": self.array(CHUNK[None, :, :6]),
                "hand": self.array(CHUNK[None, :, 6:]),
                "other": self.array(np.zeros((1, HORIZON, 3))),
            }
            self._socket.send(msgpack.packb([parts, {}]))

    def stop(self) -> None:
        self._going = False
        self._thread.join()
        self._socket.close()

    def check(self) -> None:
        (heard,) = self.heard
        assert heard["endpoint"] == "get_action" and heard["api_token"] == "secret"
        observation = heard["data"]["observation"]
        assert observation["language"] == {"task": [["pick up the peg"]]}
        video = np.load(io.BytesIO(observation["video"]["front"]["as_npy"]))
        assert video.shape == (1, 1, 12, 16, 3) and video.dtype == np.uint8
        state = np.load(io.BytesIO(observation["state"]["arm"]["as_npy"]))
        assert state.shape == (1, 1, 4) and state.dtype == np.float32


# -- OpenVLA-OFT: vla-scripts/deploy.py with json_numpy


class OpenVla(StandIn):
    """HTTP; a failure is the word "error"."""

    words: ClassVar[dict[str, Any]] = {
        "name": "openvla",
        "chunk": HORIZON,
        "inputs": {"full_image": "image/front", "state": "state", "instruction": "prompt"},
        "columns": COLUMNS,
        "prompt": "pick up the peg",
    }
    garbage = (b'"error"', b"{}", b"<html>", b'[["a", "b"]]', b"[]")

    def start(self) -> None:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stand_in.heard.append((self.path, json.loads(body)))
                time.sleep(stand_in.delay_s)
                proper = json.dumps(json.dumps([list(map(float, row)) for row in CHUNK])).encode()
                answer = proper if stand_in.answer is None else stand_in.answer
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def check(self) -> None:
        ((path, heard),) = self.heard
        assert path == "/act" and heard["instruction"] == "pick up the peg"
        image = heard["full_image"]
        assert image["dtype"] == "|u1" and image["shape"] == [12, 16, 3]
        assert base64.b64decode(image["__numpy__"]) == OBSERVATION["image/front"].tobytes()


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
        with pytest.raises(LinkError, match="cannot listen"):
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
