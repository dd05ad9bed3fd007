"""Base policies behind Isaac-GR00T's ZeroMQ server (N1.x, `gr00t/policy/server_client.py`).

Wire format: REQ/REP, msgpack maps {endpoint, data, api_token?}; arrays are maps
{__ndarray_class__, as_npy} with the bytes of a .npy file. `get_action` takes {observation,
options}, where an observation is {video: {key: uint8 [B, T, H, W, 3]}, state: {key: float32
[B, T, D]}, language: {key: [[str]]}}, and answers [{key: float32 [B, H, D]}, info]; an error is
{error: text}. Also `ping`, `reset` and
`get_modality_config`, which answers {video | state | language | action: {__ModalityConfig_class__,
as_json: {delta_indices, modality_keys, action_configs?}}}. Plain TCP without keys: loopback, or a
tunnel.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import zmq
from numpy.typing import NDArray

from robot_rl.config.api_key import api_key
from robot_rl.config.registry import register
from robot_rl.errors import ConfigError, LinkError
from robot_rl.policy.base.mapping import (
    Actions,
    ForeignServerConfig,
    Inputs,
    RefusedError,
    answer_of,
    check_numbers,
    numbers,
)
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.spec import Spec
from robot_rl.system import bounded_msgpack
from robot_rl.types import Observation

PORT = 5555
MAX_BYTES = 64 << 20
KINDS = ("video", "state", "language")  # the name of each of their inputs begins with one of these


@dataclass(frozen=True, slots=True)
class Modality:
    """One entry of the server's modality config.

    frames: of each key that the policy looks at, or actions in a chunk.
    representation: of each action key: "ABSOLUTE", "RELATIVE" (to the state, in training; the
        server answers absolute values) or "DELTA"; () = the server does not say.
    """

    keys: tuple[str, ...]
    frames: int
    representation: tuple[str, ...] = ()


def _modality(said: Any) -> Modality:
    """Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
    values = said["as_json"]
    keys, actions = values["modality_keys"], values.get("action_configs") or []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise TypeError("modality_keys")
    kinds = tuple(str(action["rep"]).upper() for action in actions)
    if kinds and len(kinds) != len(keys):
        raise ValueError("action_configs")
    return Modality(tuple(keys), len(values["delta_indices"]), kinds)


class GrootBase:
    """A client. A REQ socket that missed an answer cannot be used again: it is replaced."""

    def __init__(self, config: GrootConfig, spec: Spec) -> None:
        self._config = config
        self._inputs, self._actions = Inputs(config, spec), Actions(config, spec.action.size)
        self._key = api_key(config.key, config.host)
        self._socket: zmq.Socket[bytes] | None = None
        self.spec = BaseSpec(config.chunk, spec.action.size)

    @answer_of("the GR00T server")
    def reset(self) -> None:
        """Tell the server that an episode begins."""
        self._ask("reset", {"options": None})

    @answer_of("the GR00T server")
    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `BasePolicy`; `noise` cannot be sent."""
        assert noise is None
        answer = self.answer(observation)
        try:
            chunk = np.concatenate([answer[key] for key in self._config.actions], -1)
        except (KeyError, ValueError) as error:
            got = {key: list(part.shape) for key, part in answer.items()}
            raise _malformed(
                f"[1, H, D] for {', '.join(self._config.actions)}", str(got)
            ) from error
        return self._actions(chunk)[: self._config.chunk]

    @answer_of("the GR00T server")
    def answer(self, observation: Observation) -> dict[str, NDArray[np.float32]]:
        """The server's answer: [H, D] of each of its action keys. Raises as `sample`."""
        theirs: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for name, value in self._inputs(observation).items():
            kind, _, key = name.partition(".")
            theirs[kind][key] = [[value]] if isinstance(value, str) else value[None, None]
        answer = self._ask("get_action", {"observation": theirs, "options": None})
        actions = answer[0] if isinstance(answer, list) and answer else None
        if not isinstance(actions, dict):
            raise _malformed("[actions, info]", repr(answer)[:80])
        try:
            parts = {str(key): np.asarray(part, np.float32) for key, part in actions.items()}
            return {key: part.reshape(*part.shape[:2], -1)[0] for key, part in parts.items()}
        except (ValueError, TypeError, IndexError) as error:
            got = {str(k): list(np.shape(v)) for k, v in actions.items()}
            raise _malformed("[1, H, D] of each action key", str(got)) from error

    @answer_of("the GR00T server")
    def modalities(self) -> dict[str, Modality]:
        """What the policy was trained on: of "video", "state", "language" and "action".

        Raises:
            LinkError: the server does not answer, or does not say that.
        """
        answer = self._ask("get_modality_config", {})
        try:
            found = {str(kind): _modality(said) for kind, said in answer.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _malformed("a modality config", repr(answer)[:120]) from error
        if "action" not in found:
            raise _malformed("a modality config with 'action'", str(sorted(found)))
        return found

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def _ask(self, endpoint: str, data: dict[str, Any]) -> Any:
        config, socket = self._config, self._socket
        if socket is None:
            socket = self._socket = zmq.Context.instance().socket(zmq.REQ)
            socket.linger, socket.maxmsgsize = 0, MAX_BYTES
            socket.connect(f"tcp://{config.host}:{config.port or PORT}")
        token = {"api_token": self._key} if self._key else {}
        socket.send(packed({"endpoint": endpoint, "data": data, **token}))
        if not socket.poll(round(config.timeout_s * 1e3)):
            self.close()
            raise LinkError(
                "the GR00T server does not answer",
                expected=f"an answer to {endpoint} within {config.timeout_s} s",
                got="silence",
                fix=f"start it; check base.host={config.host} and base.port={config.port or PORT}",
            )
        answer = unpacked(socket.recv())
        if isinstance(answer, dict) and "error" in answer:
            raise RefusedError(
                "the GR00T server reports an error",
                expected="actions",
                got=str(answer["error"])[:200],
                fix="compare base.inputs with the server's modality config",
            )
        return answer


@register("base", "groot")
@dataclass(frozen=True, kw_only=True)
class GrootConfig(ForeignServerConfig):
    """Where the server is. inputs: e.g. {video.front: image/front, state.arm: state.joints,
    language.task: prompt}; actions: which of its action keys make up a chunk, in this order.
    """

    actions: tuple[str, ...] = ()
    key: str = ""  # name of a key that this machine has for this host (`config.api_key`)

    def open(self, spec: Spec, seed: int) -> GrootBase:
        """See `BaseConfig`."""
        wrong = [name for name in self.inputs if name.partition(".")[0] not in KINDS]
        if wrong or not (self.chunk and self.inputs and self.actions):
            raise ConfigError(
                "base=groot has to be told what the policy was trained on",
                expected="base.chunk, base.actions, and base.inputs that begin with video., state. "
                "or language.",
                got=f"chunk={self.chunk}, actions={list(self.actions)}, inputs={self.inputs}",
                fix="its server tells with the endpoint get_modality_config; see docs/bases.md",
            )
        return GrootBase(self, spec)


def packed(message: Any) -> bytes:
    """A message in GR00T's msgpack."""
    return bytes(msgpack.packb(message, default=_pack_array) or b"")


def unpacked(data: bytes) -> Any:
    """A message of GR00T's msgpack.

    Raises:
        LinkError: the bytes are no message, or hold arrays that are not plain numbers.
    """
    try:
        return bounded_msgpack.unpacked(data, convert=_unpack_array)
    except (ValueError, MemoryError) as error:
        raise _malformed("msgpack", f"{type(error).__name__}: {error}"[:200]) from error


def _pack_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        check_numbers(value)
        file = io.BytesIO()
        np.lib.format.write_array(file, value)
        return {"__ndarray_class__": True, "as_npy": file.getvalue()}
    raise TypeError(f"cannot send a {type(value).__name__}")


def _unpack_array(entry: dict[Any, Any]) -> Any:
    if "__ndarray_class__" in entry:
        return _read_npy(entry["as_npy"])
    return entry


def _read_npy(data: bytes) -> NDArray:
    """The array of a .npy file: its shape is compared with its bytes before anything is taken.

    Raises:
        ValueError, TypeError: it is no such file, or no plain numbers.
    """
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f".npy of version {version}")
    shape, columns_first, kind = np.lib.format.read_array_header_1_0(file, max_header_size=4096)
    body = data[file.tell() :]
    return (
        numbers(body, kind.str, shape[::-1]).T if columns_first else numbers(body, kind.str, shape)
    )


def _malformed(expected: str, got: str) -> LinkError:
    return LinkError(
        "the GR00T server speaks another protocol",
        expected=expected,
        got=got,
        fix="check base.port and base.actions",
    )
