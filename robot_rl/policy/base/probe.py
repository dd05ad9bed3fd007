"""What each server says about its policy, and how it is asked: for `robot-rl base check`.

A probe finds out which inputs the policy wants, proposes ours for those that `base.inputs` leaves
out, and asks. openpi's server says nothing about inputs; but it answers an observation without one
of them with a KeyError that names it, so the observation grows until it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import LinkError
from robot_rl.policy.base.fit import (
    Finding,
    failed,
    fits,
    input_finding,
    missing,
    not_shown,
    source_of,
    unsaid,
    wrong,
)
from robot_rl.policy.base.groot import GrootBase, GrootConfig, Modality
from robot_rl.policy.base.mapping import PROMPT, ForeignConfig, RefusedError, answer_of
from robot_rl.policy.base.openpi import OpenpiBase, OpenpiConfig
from robot_rl.policy.base.served import ServedBase, ServedConfig
from robot_rl.spec import IMAGE, PROTOCOL_VERSION, Spec
from robot_rl.types import Observation

KEY_ERROR = re.compile(r"KeyError: '([^']{1,80})'$")
LENGTHS = re.compile(r"broadcast together with shapes \((?:\d+,)*(\d+),?\) \((?:\d+,)*(\d+),?\)")
MOST_INPUTS = 16  # that are found out one by one
SCALES_ITSELF = ("smolvla", "pi0", "pi05")  # LeRobot policies that bring pictures to their own size


class Probe(Protocol):
    """One server. The methods are called in this order.

    Attributes:
        config: what was configured, with what was found out.
        representation: of each number of an action, as `fit.action_findings` takes it.
    """

    config: Any
    representation: Sequence[str]

    @property
    def said(self) -> Mapping[str, Any]:
        """What the server says of itself."""
        ...

    def server(self) -> Iterator[Finding]:
        """Connect, and look at what the server says. Raises `RobotRLError`."""
        ...

    def inputs(self, observation: Observation) -> Iterator[Finding]:
        """What the policy wants to see; with a finding that does not fit it cannot be asked."""
        ...

    def ask(self, observation: Observation) -> NDArray[np.float64]:
        """One answer [H, D], in the policy's own units. Raises `RobotRLError`."""
        ...

    def words(self, length: int) -> list[str]:
        """What `robot-rl train` has to be told beyond what was given; answers have `length`."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


def example(spec: Spec, rng: np.random.Generator) -> Observation:
    """An observation as a robot at rest in the middle might make it; the pictures are noise."""
    return {
        name: rng.integers(0, 256, tensor.shape, np.uint8)
        if name.startswith(IMAGE)
        else np.zeros(tensor.shape, np.float32)
        for name, tensor in spec.observation.items()
    }


class OpenpiProbe:
    """openpi: a map that describes the server, often empty; actions in the units of the data."""

    representation: Sequence[str] = ()

    def __init__(self, config: OpenpiConfig, spec: Spec) -> None:
        self.config, self._given, self._spec = config, dict(config.inputs), spec
        if config.prompt and PROMPT not in config.inputs.values():
            self.config = replace(config, inputs={**config.inputs, "prompt": PROMPT})
        self._base = OpenpiBase(self.config, spec)

    @property
    def said(self) -> Mapping[str, Any]:
        """See `Probe`."""
        return self._base.metadata

    def server(self) -> Iterator[Finding]:
        """See `Probe`."""
        self._base.reset()
        words = ", ".join(f"{k}={v}" for k, v in self.said.items())[:200]
        yield fits("server", f"openpi's websocket; says of itself: {words or 'nothing'}")

    def inputs(self, observation: Observation) -> Iterator[Finding]:
        """See `Probe`."""
        refused = ""
        for _ in range(MOST_INPUTS):
            try:
                self._base.answer(observation)
            except RefusedError as error:
                refused = error.got
                named = KEY_ERROR.search(refused)
                key = named.group(1) if named else ""
                if not key and "Prompt is required" in refused:
                    key = "prompt"
                source = source_of(key, self._spec) if key else ""
                if not key or key in self.config.inputs or not source:
                    break
                self._use({**self.config.inputs, key: source})
                continue
            refused = ""
            break
        for key, source in self.config.inputs.items():
            yield _mapped(key, source, self.config, self._given, self._spec)
        if refused:
            yield self._refused(refused, observation)
        else:
            yield from not_shown(self.config.inputs.values(), self._spec)

    def _refused(self, got: str, observation: Observation) -> Finding:
        named = KEY_ERROR.search(got)
        if named and named.group(1) not in self.config.inputs:
            return missing(named.group(1), self._spec)
        sent = {
            key: list(np.shape(value))
            for key, value in self._base.inputs(observation).items()
            if not isinstance(value, str)
        }
        return refusal(f"it refuses what was sent: {sent}", got)

    def _use(self, inputs: dict[str, str]) -> None:
        self._base.close()
        self.config = replace(self.config, inputs=inputs)
        metadata = self._base.metadata
        self._base = OpenpiBase(self.config, self._spec)
        self._base.metadata = metadata

    def ask(self, observation: Observation) -> NDArray[np.float64]:
        """See `Probe`."""
        return plain_chunk(self._base.answer(observation)["actions"])

    def words(self, length: int) -> list[str]:
        """See `Probe`."""
        return _mapping_words(self.config, self._given, length)

    def close(self) -> None:
        """See `Probe`."""
        self._base.close()


class GrootProbe:
    """GR00T: its modality config names every input, and may say what its actions are."""

    def __init__(self, config: GrootConfig, spec: Spec) -> None:
        self.config, self._spec = config, spec
        self._given, self._actions_given = dict(config.inputs), config.actions
        self._base = GrootBase(config, spec)
        self._modalities: dict[str, Modality] = {}
        self.said: Mapping[str, Any] = {}
        self.representation: Sequence[str] = ()

    def server(self) -> Iterator[Finding]:
        """See `Probe`."""
        self._base.reset()
        self._modalities = self._base.modalities()
        words = "; ".join(f"{kind} {', '.join(m.keys)}" for kind, m in self._modalities.items())
        yield fits("server", f"GR00T's ZeroMQ; its policy: {words}")

    def inputs(self, observation: Observation) -> Iterator[Finding]:
        """See `Probe`."""
        inputs = dict(self._given)
        for kind in ("video", "state", "language"):
            modality = self._modalities.get(kind, Modality((), 1))
            for name in modality.keys:
                key = f"{kind}.{name}"
                source = inputs.get(key) or self._source(kind, name, len(modality.keys) == 1)
                if not source:
                    yield missing(key, self._spec)
                    continue
                inputs[key] = source
                yield _mapped(key, source, self.config, self._given, self._spec)
                if kind != "language" and modality.frames > 1:
                    yield wrong(
                        "camera" if kind == "video" else "state",
                        f"{key} is looked at over {modality.frames} frames",
                        expected="policies that look at one frame",
                        got=str(modality.frames),
                        fix="train it with delta_indices=[0]",
                    )
        known = [f"{kind}.{name}" for kind, m in self._modalities.items() for name in m.keys]
        for key in self._given.keys() - set(known):
            yield wrong(
                "server",
                f"base.inputs names '{key}', which its policy does not know",
                expected=", ".join(known),
                got=key,
                fix="leave it out of base.inputs",
            )
        yield from not_shown(inputs.values(), self._spec)
        action = self._modalities["action"]
        actions = self._actions_given or action.keys
        for name in set(actions) - set(action.keys):
            yield wrong(
                "action",
                f"base.actions names '{name}', which its policy does not have",
                expected=", ".join(action.keys),
                got=name,
                fix=f"base.actions=[{','.join(action.keys)}]",
            )
        self._base.close()
        self.config = replace(self.config, inputs=inputs, actions=tuple(actions))
        self._base = GrootBase(self.config, self._spec)

    def _source(self, kind: str, name: str, alone: bool) -> str:
        """What an input probably means; a state of one key is all of ours."""
        if kind == "language":
            return PROMPT
        if kind == "video":
            return source_of(f"image {name}", self._spec)
        return source_of(name, self._spec) or (source_of("state", self._spec) if alone else "")

    def ask(self, observation: Observation) -> NDArray[np.float64]:
        """See `Probe`."""
        answer = self._base.answer(observation)
        parts = [answer[name] for name in self.config.actions if name in answer]
        if len(parts) != len(self.config.actions):
            raise LinkError(
                "the GR00T server's answer lacks an action key",
                expected=", ".join(self.config.actions),
                got=", ".join(answer),
                fix="check base.actions",
            )
        modality = self._modalities["action"]
        kinds = dict(zip(modality.keys, modality.representation, strict=False))
        self.representation = [
            kinds.get(name, "")
            for name in self.config.actions
            for _ in range(answer[name].shape[-1])
        ]
        return plain_chunk(np.concatenate(parts, -1))

    def words(self, length: int) -> list[str]:
        """See `Probe`."""
        actions = [] if self._actions_given else [f"base.actions=[{','.join(self.config.actions)}]"]
        return _mapping_words(self.config, self._given, length) + actions

    def close(self) -> None:
        """See `Probe`."""
        self._base.close()


class ServedProbe:
    """`robot-rl serve-policy` with a LeRobot policy: it maps inputs and units on its side."""

    representation: Sequence[str] = ()

    def __init__(self, config: ServedConfig, spec: Spec, wanted: str) -> None:
        self._spec, self._wanted, self._opened = spec, wanted, config
        self.config = ForeignConfig(execute=config.execute, ahead=config.ahead, blend=config.blend)
        self._base: ServedBase | None = None
        self.said: Mapping[str, Any] = {}

    def server(self) -> Iterator[Finding]:
        """See `Probe`."""
        try:
            self._base = self._opened.open(self._spec, 0)
        except RefusedError as error:
            yield failed("server", error)
            return
        self.said = self._base.description
        if self.said.get("low"):  # it brings the units to ours
            size = self._spec.action.size
            self.config = replace(self.config, low=(-1.0,) * size, high=(1.0,) * size)
        kind, noise = str(self.said.get("type", "")), self._base.spec.noise_shape
        words = "which takes noise (algo=dsrl_sac can choose it)" if noise else "without noise"
        said = f"robot-rl serve-policy, protocol {PROTOCOL_VERSION}: {kind or 'a policy'}, {words}"
        if self._wanted == "smolvla" and kind != "smolvla":
            yield wrong(
                "server",
                said,
                expected="a SmolVLA, which says so",
                got=kind or "a policy that does not say what it is",
                fix="robot-rl base check lerobot, if that is the policy that you mean",
            )
        elif not kind:
            yield unsaid(
                "server", said, "serve a LeRobot policy with base=lerobot base.path=FOLDER"
            )
        else:
            yield fits("server", said)

    def inputs(self, observation: Observation) -> Iterator[Finding]:
        """See `Probe`."""
        with answer_of("the policy server"):
            yield from list(self._inputs())

    def _inputs(self) -> Iterator[Finding]:
        shown = self.said.get("inputs", {})
        for key, entry in shown.items():
            yield input_finding(
                str(key),
                str(entry["from"]),
                self._spec,
                shape=[int(n) for n in entry["shape"]],
                prompt=str(self.said.get("prompt", "")),
                image_size=int(self.said.get("image_size", 0)),
                rescales=self.said.get("type") in SCALES_ITSELF,
            )
        if shown:
            yield from not_shown([str(entry["from"]) for entry in shown.values()], self._spec)

    def ask(self, observation: Observation) -> NDArray[np.float64]:
        """See `Probe`."""
        assert self._base is not None
        return plain_chunk(self._base.sample(observation))

    def words(self, length: int) -> list[str]:
        """See `Probe`."""
        return []

    def close(self) -> None:
        """See `Probe`."""
        if self._base is not None:
            self._base.close()


def refusal(said: str, got: str) -> Finding:
    """The server says that what was sent is wrong; numpy's words name two lengths of a state."""
    lengths = LENGTHS.search(got)
    if lengths:
        return wrong(
            "state",
            said,
            expected=f"a state of {lengths.group(2)} numbers",
            got=f"{lengths.group(1)} ({got})",
            fix="name a part of that length in base.inputs, or train the policy on this state",
        )
    return wrong(
        "server",
        said,
        expected="actions",
        got=got,
        fix="read its terminal; compare base.inputs with what the policy was trained on",
    )


def plain_chunk(answer: Any) -> NDArray[np.float64]:
    """Numbers [H, D], which need not be finite. Raises `LinkError`."""
    try:
        chunk = np.asarray(answer, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_chunk(repr(answer)[:80]) from error
    if chunk.ndim != 2 or not chunk.size:
        raise _no_chunk(str(list(chunk.shape)))
    return chunk


def _no_chunk(got: str) -> LinkError:
    return LinkError(
        "the server's answer is no chunk of actions",
        expected="numbers [H, D]: H actions of D numbers",
        got=got,
        fix="check that this is the server of a policy for one arm",
    )


def _mapped(
    key: str, source: str, config: ForeignConfig, given: Mapping[str, str], spec: Spec
) -> Finding:
    """An input that `base.inputs` maps; given: those that a person has mapped."""
    return input_finding(
        key,
        source,
        spec,
        prompt=config.prompt,
        image_size=config.image_size,
        guessed=key not in given and source != PROMPT,
    )


def _mapping_words(config: ForeignConfig, given: Mapping[str, str], length: int) -> list[str]:
    words = [] if config.chunk else [f"base.chunk={length}"]
    if dict(config.inputs) != dict(given):
        pairs = ", ".join(f"{theirs}: {ours}" for theirs, ours in config.inputs.items())
        words.append(f"base.inputs={{{pairs}}}")
    return words
