"""Every error this package raises on purpose.

A message says three things: what was *expected*, what was *got*, and *how to fix* it. Raise with
`expected=`, `got=`, `fix=` so that no message forgets one of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RobotRLError(Exception):
    """Base of the family; `str()` is one readable block: summary, expected, got, fix."""

    def __init__(self, summary: str, *, expected: str = "", got: str = "", fix: str = "") -> None:
        self.summary, self.expected, self.got, self.fix = summary, expected, got, fix
        lines = [summary]
        lines += [f"  expected: {expected}"] if expected else []
        lines += [f"  got:      {got}"] if got else []
        lines += [f"  fix:      {fix}"] if fix else []
        super().__init__("\n".join(lines))


class ConfigError(RobotRLError):
    """A configuration key or value is wrong."""


class UnknownNameError(ConfigError):
    """Nothing of this name is registered: mistyped, or its package is not imported here."""


class SpecError(RobotRLError):
    """Two sides disagree on observations, actions or rates, or an array does not match its spec."""


class SafetyError(RobotRLError):
    """A limits file is not physically sensible, or a safety request is not allowed now."""


class StoreError(RobotRLError):
    """The step store cannot be opened, written or trusted (full disk, other schema, corruption)."""


class ReadOnlyError(StoreError):
    """A store needs to write before it can be read, and its folder cannot be written."""


class ConflictError(StoreError):
    """Two different rows claim one identity: a run and actor name are in use twice."""


class CodecError(RobotRLError):
    """Bytes or values are not a valid record: wrong magic, checksum, type, shape, or too large."""


class LinkError(RobotRLError):
    """The actor-learner link refused, timed out, or received a malformed message."""


class CheckpointError(RobotRLError):
    """A checkpoint is missing, truncated, or belongs to another spec."""


class SetupError(RobotRLError):
    """Something the machine needs is missing (GL, ROS 2, an extra, a port, a key)."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `"did you mean 'x'? known: a, b, c"` for an unknown `word`."""
    options = sorted(known)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}known: {', '.join(options) or '(none)'}"
