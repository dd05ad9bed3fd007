"""A reward model on disk: a network, and the facts without which it means nothing.

    KIND.safetensors    the tensors
    KIND.json           what it looks at, hash, what it was trained on, figures, and more by kind

`robot-rl reward train` makes such a folder; the kinds are in `reward.success.model`,
`reward.progress.model` and `reward.preference.model`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import safetensors.torch
import torch

from robot_rl.config.registry import build
from robot_rl.errors import CheckpointError, ConfigError, LinkError, SpecError
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.policy.runtime import tensors_of
from robot_rl.spec import Spec
from robot_rl.system import plain_json
from robot_rl.system.files import write_synced
from robot_rl.types import Weights

FORMAT = 2
SPARE_BYTES = 16 << 20  # an encoder is told even where there are no pictures, and has no tensors


def check_inputs(title: str, inputs: Mapping[str, tuple[int, ...]], spec: Spec) -> None:
    """Raise `ConfigError` unless a run observes what a model looks at: key -> shape."""
    got = {k: spec.observation[k].shape for k in inputs if k in spec.observation}
    if got != inputs:
        raise ConfigError(
            f"the {title} looks at something else than this run has",
            expected=str(inputs),
            got=str(got or "nothing of it"),
            fix="task.images=[...] task.image_size=N as where it was trained, or train another",
        )


def _check_sizes(sizes: Sequence[int], most_bytes: int) -> None:
    """Raise `ValueError` unless layers of these sizes, one after another, fit into so many bytes.

    So a file cannot name a network far larger than its own tensors: making one takes memory.
    """
    if not all(type(n) is int and n > 0 for n in sizes):
        raise ValueError(f"sizes {list(sizes)}")
    if 4 * sum(a * b for a, b in pairwise(sizes)) > most_bytes + SPARE_BYTES:
        raise ValueError(f"a network of {list(sizes)} in {most_bytes} bytes")


class Stored:
    """What all models of frames have in common on disk: two files, named after the kind."""

    kind: ClassVar[str]
    version: cached_property[str]  # digits of a hash, which tell models apart

    @property
    def author(self) -> str:
        """Author of the labels that this model writes, with its version."""
        return f"{self.kind}-{self.version}"

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether a folder holds a model of this kind."""
        return (folder / f"{cls.kind}.json").is_file()

    def write(
        self, folder: Path, form: int, tensors: dict[str, torch.Tensor], **facts: Any
    ) -> None:
        """Write the two files; form: version of their format."""
        folder.mkdir(parents=True, exist_ok=True)
        data = safetensors.torch.save(tensors)
        write_synced(folder / f"{self.kind}.safetensors", data)
        told = {"format": form, "sha256": hashlib.sha256(data).hexdigest(), **facts}
        write_synced(folder / f"{self.kind}.json", json.dumps(told, indent=2).encode())


@dataclass(frozen=True)
class ScoreModel(Stored):
    """A trained network. figures: on held-out episodes; source: the runs that it learned from.

    A kind adds fields with defaults; they are saved with the rest. net_type: its network, which
    gets those of the added fields that `net_fields` names.
    """

    title: ClassVar[str]
    made_by: ClassVar[str] = ""  # the command, if it is not `robot-rl reward train`
    net_type: ClassVar[Callable[..., Any]]
    net_fields: ClassVar[tuple[str, ...]] = ()

    net: Any  # with shapes, keys, encoder_config, hidden and init, as `nets.picture.PictureNet`
    tensors: dict[str, torch.Tensor]
    figures: dict[str, Any]
    source: tuple[str, ...] = ()

    @classmethod
    def make_net(
        cls,
        spec: Spec,
        encoder: EncoderConfig,
        hidden: tuple[int, ...],
        keys: tuple[str, ...] | None = None,
        **own: Any,
    ) -> Any:
        """Make the network of this kind; own: the kind's own fields, as in `net_fields`."""
        shape = {name: own[name] for name in cls.net_fields}
        return cls.net_type(spec, encoder, hidden, keys=keys, **shape)

    @classmethod
    def own_fields(cls, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Fields that this kind adds, as saved. Raises LookupError, ValueError or TypeError."""
        return {f.name: type(f.default)(facts[f.name]) for f in cls._own()}

    @classmethod
    def _own(cls) -> tuple[Field[Any], ...]:
        return fields(cls)[len(fields(ScoreModel)) :]

    @cached_property
    def version(self) -> str:
        """First 12 hex digits of the tensors' SHA-256, which tell models apart."""
        return hashlib.sha256(safetensors.torch.save(self.tensors)).hexdigest()[:12]

    @property
    def keys(self) -> tuple[str, ...]:
        """Entries of the observation that it looks at."""
        return self.net.keys

    def save(self, folder: Path) -> None:
        """Write the two files."""
        facts = {
            "inputs": {k: list(v) for k, v in self.net.shapes.items()},
            "encoder": asdict(self.net.encoder_config),
            "hidden": list(self.net.hidden),
            **{f.name: getattr(self, f.name) for f in self._own()},
            "source": list(self.source),
            "figures": self.figures,
        }
        self.write(folder, FORMAT, self.tensors, **facts)

    @classmethod
    def load(cls, folder: Path, spec: Spec) -> Self:
        """Read what `save` wrote, for a run that observes the same.

        Raises:
            CheckpointError: the model is not there, or damaged.
            ConfigError: the run observes something else.
        """
        try:
            facts = plain_json.loads((folder / f"{cls.kind}.json").read_text())
            data = (folder / f"{cls.kind}.safetensors").read_bytes()
            inputs = {k: tuple(v) for k, v in facts["inputs"].items()}
            encoder, hidden = build(EncoderConfig, facts["encoder"]), tuple(facts["hidden"])
            digest, source = str(facts["sha256"]), tuple(facts["source"])
            own, figures = cls.own_fields(facts), dict(facts["figures"])
            if facts["format"] != FORMAT:
                raise ValueError(f"format {facts['format']}")
            _check_sizes((*hidden, encoder.latent, encoder.embeddings), len(data))
            _check_sizes(encoder.channels, len(data))
        except (
            OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, ConfigError
        ) as error:  # fmt: skip
            raise cls._unusable(folder, str(error)) from error
        check_inputs(cls.title, inputs, spec)
        try:
            net = cls.make_net(spec, encoder, hidden, tuple(inputs), **own)
            like = net.init(torch.Generator().manual_seed(0))
        except (ValueError, TypeError, RuntimeError) as error:  # sizes that make no network
            raise cls._unusable(folder, str(error)[:200]) from error
        try:
            tensors = tensors_of(Weights(0, digest, data), like)
        except (LinkError, SpecError) as error:
            raise cls._unusable(folder, error.summary) from error
        return cls(net, tensors, figures, source, **own)

    @classmethod
    def _unusable(cls, folder: Path, got: str) -> CheckpointError:
        return CheckpointError(
            f"{folder} is not a {cls.title}",
            expected=f"{cls.kind}.json and {cls.kind}.safetensors in it",
            got=got,
            fix=f"{cls.made_by or f'robot-rl reward train RUN --kind {cls.kind}'} --out FOLDER",
        )
