"""Checkpoints that are complete or absent: safetensors and a manifest with hashes.

    checkpoints/000042/tensors.safetensors   every tensor that the next update depends on
    checkpoints/000042/manifest.json         spec, counters, random state, SHA-256 of the tensors
                                             and of the manifest itself

A folder is written under a temporary name, flushed to the disk, then renamed. Numbers only grow, so
nothing is ever overwritten. A checkpoint that cannot be trusted, in which any bit has changed that
means something, stays there for a person to check.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from robot_rl.errors import CheckpointError
from robot_rl.nets.tensor_file import read_tensors
from robot_rl.system import plain_json
from robot_rl.system.files import sync_folder, write_synced

log = logging.getLogger(__name__)

FORMAT = 2  # bump when the layout of the folder changes
UNSEALED = 1  # the format before: its manifest has no hash of its own
SEAL = "manifest_sha256"
TENSORS, MANIFEST = "tensors.safetensors", "manifest.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint in memory. `facts` can be written as JSON: counters, random state, a hash."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    spec_hash: str
    score: float | None = None  # success in [0, 1] if evaluated; the best checkpoint is kept


class CheckpointFolder:
    """The checkpoints of one run: the newest `keep`, and the one with the best score."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self._keep = folder, keep
        self._scores: dict[Path, float | None] = {}  # checkpoints known to be good

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write the next checkpoint, then remove those that are no longer needed.

        Raises:
            CheckpointError: writing failed; earlier checkpoints are untouched.
        """
        number = max((int(p.name) for p in self.paths()), default=0) + 1
        path = self.folder / f"{number:06d}"
        partial = self.folder / f".{number:06d}.partial"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            data = safetensors.torch.save(checkpoint.tensors)
            write_synced(partial / TENSORS, data)
            write_synced(partial / MANIFEST, _manifest(checkpoint, data))
            sync_folder(partial)
            partial.rename(path)
            sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"cannot write checkpoint {path}",
                expected="a writable disk with room",
                got=str(error),
                fix="free space; training goes on, and the earlier checkpoints are intact",
            ) from error
        self._scores[path] = checkpoint.score
        self._prune()
        return path

    def load(self, spec_hash: str, plain_spec: str = "") -> Checkpoint | None:
        """Return the newest checkpoint that can be trusted; None when there is none at all.

        plain_spec: the spec's hash without the entries of a base policy; a checkpoint that names
        the same plain hash is trusted, too.

        Raises:
            CheckpointError: there are checkpoints, and none of them is usable.
        """
        problem: CheckpointError | None = None
        found: Checkpoint | None = None
        for path in reversed(self.paths()):
            try:
                checkpoint = read_checkpoint(path, spec_hash, plain_spec)
            except CheckpointError as error:
                log.error("checkpoint %s is left aside\n%s", path.name, error)
                problem = error
                continue
            self._scores[path] = checkpoint.score
            found = found or checkpoint
        if found is None and problem is not None:
            raise problem
        return found

    def paths(self) -> list[Path]:
        """The checkpoints, oldest first, whether they can be trusted or not."""
        found = self.folder.glob("[0-9]*")
        return sorted(p for p in found if p.is_dir() and p.name.isdigit())

    def _prune(self) -> None:
        """Remove good checkpoints, except the newest `keep` and the best; leave unusable ones."""
        known = sorted(self._scores)
        scored = [p for p in known if self._scores[p] is not None]
        best = max(scored, key=lambda p: (self._scores[p] or 0.0, p), default=None)
        for path in known[: -self._keep]:
            if path != best:
                shutil.rmtree(path, ignore_errors=True)
                del self._scores[path]


def read_checkpoint(path: Path, spec_hash: str = "", plain_spec: str = "") -> Checkpoint:
    """Read one checkpoint folder and check it; `plain_spec` as in `CheckpointFolder.load`.

    spec_hash: "" = of whatever spec it is.

    Raises:
        CheckpointError: missing, truncated, altered, or of another spec.
    """
    try:
        manifest = plain_json.loads((path / MANIFEST).read_text())
        data = (path / TENSORS).read_bytes()
        found = {k: manifest[k] for k in ("format", "spec_hash", "sha256")}
        facts, score = dict(manifest["facts"]), manifest["score"]
        seal = "" if found["format"] == UNSEALED else manifest.pop(SEAL)
        if score is not None and not math.isfinite(score):
            raise ValueError(f"score {score}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _broken(path, "a readable manifest and tensors", repr(error)) from error
    if found["format"] == UNSEALED:
        log.warning("checkpoint %s is of an older version, which did not seal it", path.name)
    elif seal != _seal(manifest):
        raise _broken(path, f"{SEAL} {_seal(manifest)}", repr(seal))
    if not spec_hash or (plain_spec and facts.get("plain_spec") == plain_spec):
        spec_hash = found["spec_hash"]
    known = found["format"] if found["format"] == UNSEALED else FORMAT
    want = {"format": known, "spec_hash": spec_hash, "sha256": hashlib.sha256(data).hexdigest()}
    if found != want:
        raise _broken(path, str(want), str(found))
    try:
        return Checkpoint(read_tensors(data), facts, spec_hash, score)
    except ValueError as error:
        raise _broken(path, f"{TENSORS}: a safetensors image", str(error)) from error


def _seal(manifest: Mapping[str, object]) -> str:
    """SHA-256 of a manifest without its seal."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _broken(path: Path, expected: str, got: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {path} cannot be used",
        expected=expected,
        got=got,
        fix="use an earlier checkpoint of this run; move this one away if you do not need it",
    )


def _manifest(checkpoint: Checkpoint, data: bytes) -> bytes:
    fields: Mapping[str, object] = {
        "format": FORMAT,
        "spec_hash": checkpoint.spec_hash,
        "sha256": hashlib.sha256(data).hexdigest(),
        "score": checkpoint.score,
        "facts": checkpoint.facts,
    }
    plain = json.loads(json.dumps(fields))  # as it will be read: keys are text, tuples are lists
    return json.dumps(plain | {SEAL: _seal(plain)}, indent=1).encode()
