"""Base policies behind openpi's websocket server (pi0, pi0-FAST, pi0.5; `scripts/serve_policy.py`).

Wire format (openpi-client 0.1): one websocket, binary msgpack maps. The server speaks first: a map
that describes it. Then in turns: an observation, an answer with "actions" [H, D]. Arrays are maps
with *byte* keys {__ndarray__, data, dtype, shape}. An error is a text frame, and the end of the
connection. The protocol has no batches, no reset and no noise.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
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
    plain,
)
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.spec import Spec
from robot_rl.system import bounded_msgpack
from robot_rl.types import Observation

PORT = 8000
MAX_BYTES = 64 << 20  # of an answer; a chunk has a few kilobytes
CLOSE_S = 0.2  # how long closing may take: a server that hangs does not answer this either


class OpenpiBase:
    """A client; it connects again when it has to."""

    def __init__(self, config: OpenpiConfig, spec: Spec) -> None:
        self._config = config
        self.inputs, self._actions = Inputs(config, spec), Actions(config, spec.action.size)
        self._key = api_key(config.key, config.host)
        self._line: Any = None
        self._open = contextlib.ExitStack()
        self.spec = BaseSpec(config.chunk, spec.action.size)
        self.metadata: dict[str, Any] = {}

    def reset(self) -> None:
        """Connect, so that a missing server is noticed; the protocol has no reset."""
        self._connect()

    @answer_of("the openpi server")
    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `BasePolicy`; `noise` cannot be sent."""
        assert noise is None
        return self._actions(self.answer(observation)["actions"])[: self._config.chunk]

    @answer_of("the openpi server")
    def answer(self, observation: Observation) -> dict[Any, Any]:
        """The server's answer as it is; it has "actions" [H, D]. Raises as `sample`."""
        self._connect()
        try:
            self._line.send(packed(self.inputs(observation)))
            answer = self._line.recv(timeout=self._config.timeout_s)
        except Exception as error:
            self.close()
            raise _silent(self._config, error) from error
        if isinstance(answer, str):
            self.close()
            raise RefusedError(
                "the openpi server reports an error",
                expected="actions",
                got=answer.strip().splitlines()[-1][:200] if answer.strip() else "(empty)",
                fix="compare base.inputs with the observation keys of the server's config",
            )
        found = unpacked(answer)
        if not isinstance(found, dict) or "actions" not in found:
            raise _malformed(f"keys {sorted(map(str, found))}" if isinstance(found, dict) else "")
        return found

    def close(self) -> None:
        """Hang up."""
        self._line = None
        with contextlib.suppress(Exception):
            self._open.close()

    def _connect(self) -> None:
        if self._line is not None:
            return
        from websockets.exceptions import InvalidHandshake
        from websockets.sync.client import connect

        config = self._config
        headers = {"Authorization": f"Api-Key {self._key}"} if self._key else None
        try:
            line = connect(
                f"ws://{config.host}:{config.port or PORT}",
                compression=None,
                max_size=MAX_BYTES,
                open_timeout=config.timeout_s,
                close_timeout=CLOSE_S,
                additional_headers=headers,
                proxy=None,
            )
            self._line = self._open.enter_context(line)
            first = self._line.recv(timeout=config.timeout_s)
        except InvalidHandshake as error:
            self.close()
            raise _malformed(f"no websocket: {error}"[:200]) from error
        except Exception as error:
            self.close()
            raise _silent(config, error) from error
        described = unpacked(first) if isinstance(first, bytes) else None
        if not isinstance(described, dict):
            self.close()
            raise _malformed("no description of the server")
        self.metadata = {str(k): v for k, v in described.items()}


@register("base", "openpi")
@dataclass(frozen=True, kw_only=True)
class OpenpiConfig(ForeignServerConfig):
    """Where the server is; `inputs` as its training config names them, e.g. for DROID

    {observation/exterior_image_1_left: image/front, observation/wrist_image_left: image/wrist,
     observation/joint_position: state.joints, prompt: prompt}
    """

    key: str = ""  # name of a key that this machine has for this host (`config.api_key`)
    image_size: int = 224

    def open(self, spec: Spec, seed: int) -> OpenpiBase:
        """See `BaseConfig`."""
        if not self.chunk or not self.inputs:
            raise ConfigError(
                "base=openpi has to be told what the policy was trained on",
                expected="base.inputs, base.chunk (LIBERO: 10, DROID: 15, ALOHA: 50)",
                got=f"chunk={self.chunk}, inputs={self.inputs}",
                fix="see docs/bases.md",
            )
        return OpenpiBase(self, spec)


def packed(entries: dict[str, Any]) -> bytes:
    """An observation in openpi's msgpack."""
    return bytes(msgpack.packb(entries, default=_pack_array) or b"")


def unpacked(data: bytes) -> Any:
    """A map of openpi's msgpack.

    Raises:
        LinkError: the bytes are no map, or hold arrays that are not plain numbers.
    """
    try:
        return bounded_msgpack.unpacked(data, convert=_unpack_array, strict_map_key=False)
    except (ValueError, MemoryError) as error:
        raise _malformed(f"{type(error).__name__}: {error}") from error


def _pack_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        check_numbers(value)
        return {
            b"__ndarray__": True,
            b"data": value.tobytes(),
            b"dtype": value.dtype.str,
            b"shape": value.shape,
        }
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"cannot send a {type(value).__name__}")


def _unpack_array(entry: dict[Any, Any]) -> Any:
    if b"__ndarray__" in entry:
        return numbers(entry[b"data"], entry[b"dtype"], entry[b"shape"])
    if b"__npgeneric__" in entry:
        return np.asarray(entry[b"data"], plain(entry[b"dtype"]))[()]
    return entry


def _silent(config: OpenpiConfig, error: Exception) -> LinkError:
    return LinkError(
        "the openpi server does not answer",
        expected=f"a server at ws://{config.host}:{config.port or PORT}",
        got=f"{type(error).__name__}: {error}"[:200],
        fix="start it (openpi: scripts/serve_policy.py), check base.host and base.port",
    )


def _malformed(got: str) -> LinkError:
    return LinkError(
        "the openpi server speaks another protocol",
        expected="msgpack maps, the first describing the server, answers with 'actions'",
        got=got,
        fix="check base.port; another program may listen there",
    )
