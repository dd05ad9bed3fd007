"""CLIP as transformers loads it: unit embeddings of pictures and of texts, on the CPU."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from robot_rl.errors import CheckpointError, ConfigError, SetupError

BATCH = 32  # pictures at a time
REVISION = re.compile(r"[0-9a-f]{40}")
WEIGHTS = "model.safetensors"
DECIDES = (WEIGHTS, "config.json", "preprocessor_config.json", "processor_config.json")
"""Files on which the numbers depend; a folder has the third, the fourth or both."""


class ClipNet:
    """CLIP from a folder, or from the hub at one commit; only safetensors are read.

    Args:
        where: a folder in transformers' layout, or org/name.
        revision: of the hub, 40 hex digits.
        sha256: file -> digest that the file must have; None = any.

    Raises:
        ConfigError: `where` is no folder, and no commit is given.
        SetupError: transformers is not installed.
        CheckpointError: there is no usable CLIP, or its digests differ.
    """

    def __init__(
        self, where: str, revision: str = "", sha256: Mapping[str, str] | None = None
    ) -> None:
        local = Path(where).expanduser()
        here = bool(where) and local.is_dir()
        if not here and not (where and REVISION.fullmatch(revision)):
            raise ConfigError(
                "CLIP has to stay the same, and this one may change or is not there",
                expected="--clip FOLDER, or --clip org/name --revision <40 hex digits>",
                got=f"clip {where!r}, which is no folder here; revision {revision!r}",
                fix="put the weights into that folder, or name a commit of the hub",
            )
        self.where, self.revision = (str(local.resolve()), "") if here else (where, revision)
        library = _transformers()
        try:
            folder = local if here else _fetched(where, revision)
            self.sha256 = {n: _digest(folder / n) for n in DECIDES if (folder / n).is_file()}
            if WEIGHTS not in self.sha256:
                raise FileNotFoundError(f"no {WEIGHTS}")
            if sha256 is not None and dict(sha256) != self.sha256:
                changed = {n for n, _ in set(sha256.items()) ^ set(self.sha256.items())}
                raise ValueError(f"another {', '.join(sorted(changed))} (sha256) than before")
            self._model, told = library.CLIPModel.from_pretrained(
                folder, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
            if told["missing_keys"]:  # they would be drawn at random
                raise ValueError(f"{WEIGHTS} lacks {', '.join(sorted(told['missing_keys'])[:4])}")
            self._words = library.CLIPTokenizer.from_pretrained(folder, local_files_only=True)
            # Pillow's: the same numbers with and without torchvision; named so since transformers 5
            pictures = getattr(library, "CLIPImageProcessorPil", None) or library.CLIPImageProcessor
            self._pictures = pictures.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # whatever their loaders throw: this is not what they expect
            raise CheckpointError(
                f"no usable CLIP in {where}",
                expected=f"config.json, {WEIGHTS}, preprocessor_config.json and the tokenizer's "
                "files" + ("" if sha256 is None else ", as when the model was made"),
                got=f"{type(error).__name__}: {error}"[:400],
                fix="put the weights there, or: robot-rl reward clip RUN ... --out FOLDER again",
            ) from error
        self._model = self._model.float().eval()  # some are stored as float16

    @torch.no_grad()
    def look(self, pictures: NDArray[np.uint8]) -> Tensor:
        """Unit embeddings, float64 [T, D], of RGB pictures uint8 [T, H, W, 3]."""
        found = []
        for at in range(0, len(pictures), BATCH):
            some = list(pictures[at : at + BATCH])
            seen = self._pictures(some, return_tensors="pt", input_data_format="channels_last")
            found.append(_unit(self._model.get_image_features(pixel_values=seen["pixel_values"])))
        return torch.cat(found)

    @torch.no_grad()
    def read(self, text: str) -> Tensor:
        """Unit embedding, float64 [D], of a text. Raises `ConfigError`: it is empty or too long."""
        words = self._words(text.strip(), return_tensors="pt")
        count, most = words["input_ids"].shape[1], self._model.config.text_config
        if not text.strip() or count > most.max_position_embeddings:
            raise ConfigError(
                "CLIP needs a sentence for the goal and one for the baseline",
                expected=f"1 to {most.max_position_embeddings} tokens",
                got=repr(text) if not text.strip() else f"{count} tokens: {text[:60]!r}...",
                fix="--task 'the red cube is lifted by a robot gripper' "
                "--baseline 'a robot arm above a table'",
            )
        return _unit(self._model.get_text_features(**words))[0]


def _transformers() -> Any:
    """Import transformers; raises `SetupError` if it cannot be imported."""
    try:
        library = import_module("transformers")
        library.CLIPModel  # it imports what it needs only now  # noqa: B018
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision made for another torch
        raise SetupError(
            "CLIP needs the package 'transformers'",
            expected="from transformers import CLIPModel works",
            got=str(error.__cause__ or error),
            fix=f"pip install 'robot-rl[clip]'; a torchvision must fit torch {torch.__version__}",
        ) from error
    return library


def _fetched(name: str, revision: str) -> Path:
    """The folder in the hub's cache; files that are there already are not fetched again."""
    hub, wanted = import_module("huggingface_hub"), ["*.json", "merges.txt", WEIGHTS]
    return Path(hub.snapshot_download(name, revision=revision, allow_patterns=wanted))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unit(output: Any) -> Tensor:
    """Unit vectors; since transformers 5 features come as an output object, before as a tensor."""
    return normalize(getattr(output, "pooler_output", output).double(), dim=-1)
