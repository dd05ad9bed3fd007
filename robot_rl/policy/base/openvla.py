"""Base policies behind the HTTP servers of OpenVLA and OpenVLA-OFT (`vla-scripts/deploy.py`).

Wire format: POST /act with JSON in which an array is {__numpy__: base64, dtype, shape}. OpenVLA
takes {image, instruction, unnorm_key?} and answers one action; OFT takes {full_image, wrist_image?,
state?, instruction} and answers a list of actions. A failure is the word "error" with status 200.
Deterministic: there is no noise to choose.
"""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError, LinkError
from robot_rl.policy.base.mapping import Actions, ForeignServerConfig, Inputs, answer_of, numbers
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.spec import Spec
from robot_rl.types import Observation

PORT = 8000  # OpenVLA's; OFT's is 8777
MAX_BYTES = 1 << 20


class OpenVlaBase:
    """A client; one request, one connection."""

    def __init__(self, config: OpenVlaConfig, spec: Spec) -> None:
        self._config = config
        self._inputs, self._actions = Inputs(config, spec), Actions(config, spec.action.size)
        self.spec = BaseSpec(config.chunk * config.repeat, spec.action.size)

    def reset(self) -> None:
        """Do nothing: the server has no memory, and no cheap request to test it with."""

    @answer_of("the OpenVLA server")
    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `BasePolicy`; `noise` cannot be sent."""
        assert noise is None
        question = self._inputs(observation)
        if self._config.unnorm_key:
            question["unnorm_key"] = self._config.unnorm_key
        answer = self._ask(json.dumps(question, default=_as_json))
        if isinstance(answer, str):  # both servers may encode their answer twice
            try:
                answer = json.loads(answer, object_hook=_from_json)
            except ValueError as error:
                raise LinkError(
                    "the OpenVLA server reports an error",
                    expected="actions",
                    got=answer[:200],
                    fix="read the server's log; compare base.inputs with what it takes",
                ) from error
        one = (
            isinstance(answer, np.ndarray | list) and np.ndim(answer[0] if len(answer) else 0) == 0
        )
        return self._actions([answer] if one else answer)[: self._config.chunk].repeat(
            self._config.repeat, 0
        )

    def close(self) -> None:
        """Nothing stays open."""

    def _ask(self, body: str) -> Any:
        config = self._config
        line = http.client.HTTPConnection(
            config.host, config.port or PORT, timeout=config.timeout_s
        )
        try:
            line.request("POST", "/act", body, {"Content-Type": "application/json"})
            got = line.getresponse()
            text = got.read(MAX_BYTES + 1)
            if got.status != http.client.OK or len(text) > MAX_BYTES:
                raise OSError(f"status {got.status}, {len(text)} bytes")
            return json.loads(text, object_hook=_from_json)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise LinkError(
                "the OpenVLA server does not answer",
                expected=f"actions from http://{config.host}:{config.port or PORT}/act",
                got=f"{type(error).__name__}: {error}"[:200],
                fix="start it (vla-scripts/deploy.py), check base.host and base.port",
            ) from error
        finally:
            line.close()


@register("base", "openvla")
@dataclass(frozen=True, kw_only=True)
class OpenVlaConfig(ForeignServerConfig):
    """Where the server is. inputs: {image: image/front, instruction: prompt}, or OFT's
    {full_image: ..., wrist_image: ..., state: state, instruction: prompt}.
    """

    chunk: int = 1  # OFT: 8 for LIBERO, 25 for ALOHA
    repeat: int = 1  # ticks per action; a chunk must last longer than an answer takes
    unnorm_key: str = ""

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if min(self.chunk, self.repeat) < 1:
            raise ValueError("chunk and repeat must be at least 1")

    def open(self, spec: Spec, seed: int) -> OpenVlaBase:
        """See `BaseConfig`."""
        if "instruction" not in self.inputs:
            raise ConfigError(
                "base=openvla has to be told what to send",
                expected="base.inputs with at least a picture and 'instruction: prompt'",
                got=str(self.inputs),
                fix="see docs/bases.md",
            )
        return OpenVlaBase(self, spec)


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = base64.b64encode(value.tobytes()).decode()
        return {"__numpy__": data, "dtype": value.dtype.str, "shape": value.shape}
    raise TypeError(f"cannot send a {type(value).__name__}")


def _from_json(entry: dict[str, Any]) -> Any:
    if "__numpy__" in entry:
        data = base64.b64decode(entry["__numpy__"], validate=True)
        return numbers(data, entry["dtype"], entry["shape"])
    return entry
