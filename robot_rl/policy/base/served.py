"""A base policy in a process of its own: `robot-rl serve-policy RUN`, `base=served`.

A large policy can run on the GPU machine, in its own environment, and several robots can ask it.
ZeroMQ with CURVE, keys and allow-list as on the link (`link.auth`): the server is `policy`, a robot
`actor` or `actor-<name>`. A request is [number, verb, body], the answer [number, "ok", body] or
[number, "error", text]; tensors travel in `store.codec` records, everything is batched.

    describe   {}                                    -> JSON {protocol, spec, chunk, ..., policy?}
    sample     {observation entries [B, ...],
                "noise" [B, ...]? }                  -> {"chunk": float32 [B, H, A]}

Nothing is kept between requests: there is no episode to reset, and a request may be asked again.
"""

from __future__ import annotations

import json
import logging
import shlex
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import zmq
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError, LinkError, RobotRLError
from robot_rl.link.auth import (
    Keys,
    ensure_keys,
    guard,
    listen,
    load_keys,
    role_of,
)
from robot_rl.link.config import LinkConfig
from robot_rl.policy.base.mapping import RefusedError, RemoteConfig, answer_of
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.spec import PROTOCOL_VERSION, Spec, diff
from robot_rl.store.codec import decode_tensors, encode_tensors
from robot_rl.types import Observation

log = logging.getLogger(__name__)

PORT = 5598
NAMES = ("policy", "actor")
MAX_BYTES = 64 << 20
MAX_BATCH = 256
NOISE = "noise"
NUMBER = struct.Struct("<Q")


@runtime_checkable
class BatchPolicy(Protocol):
    """What can be served; `policy.base.own`, `policy.base.lerobot.LeRobotBase`."""

    spec: BaseSpec

    def sample_many(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Chunks [B, H, A] for observations with a leading batch axis."""
        ...


def key_folder(run: Path | str) -> Path:
    """Where a policy that stays on this machine keeps its keys; made if absent."""
    return ensure_keys(Path(run) / "policy_keys", NAMES)


@runtime_checkable
class Describes(Protocol):
    """A policy that says what it was trained on, for whoever checks whether it fits."""

    def description(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        ...


class PolicyServer:
    """Answers until `close`; use from one thread.

    Args:
        keys: of `policy`; the actors whose public keys lie beside them are let in.
        where: host and port (0 = a free one, see `port`); never a wildcard.

    Raises:
        LinkError: the port is taken.
    """

    def __init__(self, policy: BatchPolicy, spec: Spec, keys: Keys, where: LinkConfig) -> None:
        self._policy, self._spec = policy, spec
        self._allowed = {k for k, name in keys.peers.items() if role_of(name) == "actor"}
        self._context = zmq.Context()
        self._guard = guard(self._context, self)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger, self._socket.maxmsgsize = 0, MAX_BYTES
        self._socket.rcvhwm = self._socket.sndhwm = 16  # an asker waits for one answer at a time
        try:
            self.port = listen(self._socket, where, keys, "--port, and base.port")
        except LinkError:
            self.close()
            raise

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a public key (Z85) may come in; pyzmq asks."""
        return key in self._allowed

    def poll(self, timeout_ms: int) -> bool:
        """Answer one request if one comes in time. Never raises for what a peer says."""
        if not self._socket.poll(timeout_ms):
            return False
        routing, *parts = self._socket.recv_multipart()
        number = parts[0] if parts else b""
        try:
            if len(parts) != 3 or len(number) != NUMBER.size:
                raise LinkError(
                    "not a request", expected="[number, verb, body]", got=str(len(parts))
                )
            answer = [b"ok", self._answer(parts[1], parts[2])]
        except RobotRLError as error:
            log.warning("refused a request: %s", error.summary)
            answer = [b"error", str(error).encode()[:2000]]
        except Exception as error:  # e.g. a batch that does not fit: the other robots go on
            log.exception("a request failed")
            answer = [b"error", repr(error).encode()[:2000]]
        self._socket.send_multipart([routing, number, *answer])
        return True

    def close(self) -> None:
        """Close the sockets."""
        self._socket.close(linger=0)
        self._guard.stop()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, verb: bytes, body: bytes) -> bytes:
        verbs: Mapping[bytes, Callable[[bytes], bytes]] = {
            b"describe": self._describe,
            b"sample": self._sample,
        }
        if verb not in verbs:
            raise LinkError("unknown verb", expected="describe or sample", got=repr(verb)[:40])
        return verbs[verb](body)

    def _describe(self, _body: bytes) -> bytes:
        policy, base = self._policy, self._policy.spec
        return json.dumps(
            {
                "protocol": PROTOCOL_VERSION,
                "spec": self._spec.as_dict(),
                "chunk": base.chunk,
                "action_size": base.action_size,
                "noise_shape": base.noise_shape,
                "policy": policy.description() if isinstance(policy, Describes) else {},
            }
        ).encode()

    def _sample(self, body: bytes) -> bytes:
        tensors = decode_tensors(body)
        noise = tensors.pop(NOISE, None)
        sizes = {len(v) if v.ndim else 0 for v in tensors.values()}
        if len(sizes) != 1 or not 0 < (count := sizes.pop()) <= MAX_BATCH:
            raise LinkError(
                "not a batch",
                expected=f"the same leading size everywhere, 1..{MAX_BATCH}",
                got=str({k: list(v.shape) for k, v in tensors.items()})[:200],
            )
        for index in range(count):
            self._spec.check({k: v[index] for k, v in tensors.items()})
        want = (count, *(self._policy.spec.noise_shape or ()))
        if noise is not None and (noise.shape != want or noise.dtype != np.float32):
            raise LinkError("bad noise", expected=f"float32 {list(want)}", got=str(noise.shape))
        return encode_tensors({"chunk": self._policy.sample_many(tensors, noise)})


def serve(server: PolicyServer, stop: threading.Event) -> None:
    """Answer until `stop`."""
    while not stop.is_set():
        server.poll(50)


class ServedBase:
    """`BasePolicy` in another process. A socket that missed an answer is replaced."""

    def __init__(self, config: ServedConfig, spec: Spec, keys: Keys) -> None:
        self._config, self._keys, self._spec = config, keys, spec
        self._number = 0
        self._socket: zmq.Socket[bytes] | None = None
        self.spec = BaseSpec(0, spec.action.size)
        self.description: dict[str, Any] = {}  # what the policy was trained on, if it says so
        self.describe()

    @answer_of("the policy server")
    def describe(self) -> None:
        """Ask the server what it serves, and check that it fits this task.

        Raises:
            LinkError: no answer, another protocol, or a policy for something else.
        """
        said = json.loads(self._ask(b"describe", b""))
        lines = diff(self._spec.as_dict(), said.get("spec", {}))
        if said.get("protocol") != PROTOCOL_VERSION or lines:
            raise RefusedError(
                "the served policy is for something else",
                expected=f"protocol {PROTOCOL_VERSION} and this task's observation and action",
                got="; ".join(lines)[:600] or repr(said)[:200],
                fix="serve a run of the same task settings, with the same robot-rl version",
            )
        shape = said["noise_shape"]
        noise_shape = None if shape is None else tuple(int(n) for n in shape)
        self.spec = BaseSpec(int(said["chunk"]), int(said["action_size"]), noise_shape)
        policy = said.get("policy")
        self.description = policy if isinstance(policy, dict) else {}

    def reset(self) -> None:
        """Make sure that the server is there; it has nothing to forget."""
        self.describe()

    @answer_of("the policy server")
    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `BasePolicy`."""
        batch = {k: observation[k][None] for k in self._spec.observation}
        if noise is not None:
            batch[NOISE] = np.asarray(noise, np.float32)[None]
        answer = decode_tensors(self._ask(b"sample", encode_tensors(batch)))
        chunk = answer.get("chunk", np.zeros(0, np.float32))
        if chunk.ndim != 3:
            raise LinkError("the policy server's answer is no chunk", got=str(list(chunk.shape)))
        return chunk[0]

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def _ask(self, verb: bytes, body: bytes) -> bytes:
        config, socket = self._config, self._socket
        if socket is None:
            socket = zmq.Context.instance().socket(zmq.DEALER)
            socket.linger, socket.maxmsgsize, socket.immediate = 0, MAX_BYTES, True
            socket.curve_serverkey = self._keys.public_of("policy")
            socket.curve_publickey, socket.curve_secretkey = self._keys.public, self._keys.secret
            socket.sndtimeo = round(config.timeout_s * 1e3)
            socket.connect(f"tcp://{config.host}:{config.port or PORT}")
            self._socket = socket
        self._number += 1
        try:
            socket.send_multipart([NUMBER.pack(self._number), verb, body])
            while True:
                if not socket.poll(round(config.timeout_s * 1e3)):
                    raise zmq.Again
                number, status, answer = socket.recv_multipart()
                if number == NUMBER.pack(self._number):  # an older answer came too late
                    break
        except (zmq.Again, ValueError) as error:
            self.close()
            raise LinkError(
                "the policy server does not answer",
                expected=f"an answer to {verb.decode()} within {config.timeout_s} s from "
                f"{config.host}:{config.port or PORT}",
                got="silence" if isinstance(error, zmq.Again) else str(error),
                fix="start it (robot-rl serve-policy RUN); its keys and ours must be of one folder",
            ) from error
        if status != b"ok":
            raise RefusedError(
                "the policy server refuses",
                expected="ok",
                got=answer.decode(errors="replace")[:400],
                fix="read its message; serve a policy for this task",
            )
        return answer


@register("base", "served")
@dataclass(frozen=True, kw_only=True)
class ServedConfig(RemoteConfig):
    """A policy served by `robot-rl serve-policy`: same observation and action, nothing to map."""

    run: str = ""  # the served run, when it is on this machine: its keys are used
    folder: str = ""  # of keys, when it is not (`robot-rl keys`)
    name: str = "actor"  # whose key this robot has

    def open(self, spec: Spec, seed: int) -> ServedBase:
        """See `BaseConfig`."""
        loopback = LinkConfig(host=self.host).is_loopback
        if not self.folder and not (self.run and loopback):
            raise ConfigError(
                "base=served needs keys",
                expected="base.run=RUN for a server on this machine, else base.folder=KEYS",
                got=f"host={self.host}, run={self.run!r}, folder={self.folder!r}",
                fix="on this machine base.run=RUN, which robot-rl serve-policy was given; "
                "else `robot-rl keys FOLDER`, and copy policy.public and the actor's pair",
            )
        if not self.folder and not Path(self.run).is_dir():
            raise ConfigError(
                f"base.run={self.run} is no folder",
                expected="the folder that robot-rl serve-policy was given",
                got="nothing there",
                fix="check the path; this has to run first: robot-rl serve-policy "
                + shlex.quote(str(self.run)),
            )
        folder = Path(self.folder).expanduser() if self.folder else key_folder(self.run)
        return ServedBase(self, spec, load_keys(folder, self.name))
