"""Stand-ins for other people's policy servers, which speak the exact wire format.

They are written from the servers' own sources, not with our packing code: an error in that would
otherwise agree with itself. Each answers with a chunk that it can be recognised by, and keeps what
it heard as raw as it came. Told what its policy `wants`, it refuses other observations in the words
of the real server.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import msgpack
import numpy as np
import zmq
from numpy.typing import NDArray

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

    def __init__(self, wants: dict[str, int] | None = None, chunk: NDArray = CHUNK) -> None:
        self.port, self.heard = 0, []
        self.answer: Any = None  # None = the proper one; else sent as it is
        self.delay_s = 0.0
        self.wants = wants  # name -> how long a state is, 0 = a picture, -1 = words; None = no care
        self.chunk = chunk

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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

    metadata: dict[str, Any] = {"action_dim": 8, "config": "test"}  # noqa: RUF012

    def start(self) -> None:
        from websockets.sync.server import serve

        self._server = serve(
            self._talk,
            "127.0.0.1",
            0,
            compression=None,
            max_size=None,
            process_request=lambda line, request: (
                line.respond(200, "OK\n") if request.path == "/healthz" else None
            ),
        )
        self.port = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _talk(self, line: Any) -> None:
        line.send(msgpack.packb(self.metadata))
        for message in line:
            time.sleep(self.delay_s)
            self.heard.append(msgpack.unpackb(message, strict_map_key=False))
            if self.answer is not None:
                line.send(self.answer)
                if isinstance(self.answer, str):
                    line.close(1011)
                    return
                continue
            if refused := self._refused(self.heard[-1]):
                line.send(f"Traceback (most recent call last):\n  ...\n{refused}\n")
                line.close(1011)
                return
            reply = {
                "state": openpi_array(np.zeros(8, np.float32)),
                "actions": openpi_array(self.chunk.astype(np.float64)),
                "policy_timing": {"infer_ms": 12.5},
                "server_timing": {"infer_ms": 13.0},
            }
            line.send(msgpack.packb(reply))

    def _refused(self, heard: dict[str, Any]) -> str:
        """As libero_policy.py, transforms.py (Normalize, TokenizePrompt) raise it."""
        for name, size in (self.wants or {}).items():
            if name not in heard:
                return "ValueError: Prompt is required" if size < 0 else f"KeyError: '{name}'"
            got = heard[name][b"shape"][-1] if size > 0 else 0
            if 0 < size < got:  # a shorter state is padded without a word
                return (
                    "ValueError: operands could not be broadcast together with shapes "
                    f"({got},) ({size},) "
                )
        return ""

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

    frames = 1
    representation = "DELTA"

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
            if request["endpoint"] == "get_modality_config":
                self._socket.send(msgpack.packb(self._modalities()))
                continue
            if request["endpoint"] != "get_action":
                self._socket.send(msgpack.packb({"status": "ok"}))
                continue
            self.heard.append(request)
            if self.answer is not None:
                self._socket.send(self.answer)
                continue
            if refused := self._refused(request["data"]["observation"]):
                self._socket.send(msgpack.packb({"error": refused}))
                continue
            parts = {
                "arm": self.array(self.chunk[None, :, :6]),
                "hand": self.array(self.chunk[None, :, 6:]),
                "other": self.array(np.zeros((1, len(self.chunk), 3))),
            }
            self._socket.send(msgpack.packb([parts, {}]))

    def _modalities(self) -> dict[str, Any]:
        """ModalityConfig as `to_json_serializable` makes it."""

        def config(keys: list[str], frames: int, actions: Any = None) -> dict[str, Any]:
            values = {
                "delta_indices": list(range(frames)),
                "modality_keys": keys,
                "sin_cos_embedding_keys": None,
                "mean_std_embedding_keys": None,
                "action_configs": actions,
            }
            return {"__ModalityConfig_class__": True, "as_json": values}

        wants = self.wants or {"video.front": 0, "state.arm": 4, "language.task": -1}
        found = {
            kind: config([n.partition(".")[2] for n in wants if n.startswith(kind)], self.frames)
            for kind in ("video", "state", "language")
        }
        rep = {"rep": self.representation, "type": "NON_EEF", "format": "DEFAULT"}
        actions = [rep | {"state_key": None}] * 2 if self.representation else None
        return found | {"action": config(["arm", "hand"], len(self.chunk), actions)}

    def _refused(self, observation: dict[str, Any]) -> str:
        """As gr00t_policy.py's check_observation and normalize_values_minmax raise it."""
        for name, size in (self.wants or {}).items():
            kind, _, key = name.partition(".")
            if key not in observation[kind]:
                return f"'{key}'"
            if size > 0:
                got = np.load(io.BytesIO(observation[kind][key]["as_npy"])).shape[-1]
                if got != size:
                    return (
                        f"operands could not be broadcast together with shapes (1,{got}) ({size},) "
                    )
        return ""

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
                proper = json.dumps(
                    json.dumps([list(map(float, row)) for row in stand_in.chunk])
                ).encode()
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
