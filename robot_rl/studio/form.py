"""The form for a new run, made from the dataclasses of the configuration.

Names, types and defaults are those of the fields; what is said about a field is the comment beside
it in the source, which is where this project says what a value means.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import textwrap
import tokenize
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from robot_rl.config.compose import config_dir, groups, options
from robot_rl.run.engines import MUJOCO
from robot_rl.run.experiment import GROUPS, RUNTIMES, Experiment

FIRST = ("train", "task", "operator", "algo", "learner", "reward")
"""The sections that people change most; the others follow in the order of the configuration."""
CHOSEN = ("task", "robot", "operator", "algo", "reward", "base", "ros")
"""Groups of which another file may be chosen."""
TOP = (("seed", "draws, starts and the first weights"), ("runtime", "one process, or ROS 2 nodes"))


def experiments(extra_dir: Path | None = None) -> list[dict[str, str]]:
    """Names of the experiments, each with the first comment of its file."""
    return [
        {"name": name, "about": _about(name, extra_dir)}
        for name in options("experiment", extra_dir)
    ]


def _about(name: str, extra_dir: Path | None) -> str:
    for folder in (extra_dir, config_dir()):
        path = folder / "experiment" / f"{name}.yaml" if folder else None
        if path is not None and path.is_file():
            lines = path.read_text(errors="replace").splitlines()[:12]
            said = [x[2:] for x in lines if x.startswith("# ") and "@package" not in x]
            return " ".join(said)[:300]
    return ""


def form(words: list[str], extra_dir: Path | None = None) -> dict[str, Any]:
    """Every value that is in force under these words, section by section.

    Raises:
        ConfigError, SetupError: as `Experiment.compose` and `section`.
    """
    experiment = Experiment.compose(words, extra_dir)
    order = [*FIRST, *(name for name in GROUPS if name not in FIRST)]
    known = set(groups(extra_dir))
    return {
        "top": [
            {"key": "seed", "kind": "int", "value": experiment.seed, "about": TOP[0][1]},
            {"key": "runtime", "kind": "choice", "options": list(RUNTIMES),
             "value": experiment.runtime, "about": TOP[1][1]},
            *([] if experiment.sim == MUJOCO else [
                {"key": "sim", "kind": "text", "value": experiment.sim, "about": "the engine"}]),
        ],
        "sections": [_section(experiment, name, known, extra_dir) for name in order],
    }  # fmt: skip


def _section(
    experiment: Experiment, name: str, known: set[str], extra_dir: Path | None
) -> dict[str, Any]:
    built = experiment.section(name)
    cls = type(built) if dataclasses.is_dataclass(built) else None
    choice = None
    if name in CHOSEN and name in known:
        now = str((experiment.config.get(name) or {}).get("name", ""))
        choice = {"value": now, "options": options(name, extra_dir)}
    return {
        "name": name,
        "about": _first_sentence(cls),
        "choice": choice,
        "fields": [] if cls is None else _fields(cls, experiment.plain_section(name), f"{name}."),
    }


def _fields(cls: type, values: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    try:
        hints = typing.get_type_hints(cls)
    except NameError:  # a type that only a checker imports
        hints = {}
    said = comments(cls)
    found = []
    for field in dataclasses.fields(cls):
        if not field.init or field.name not in values:
            continue
        hint, value = hints.get(field.name, Any), values[field.name]
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            found += _fields(typing.cast(type, hint), value, f"{prefix}{field.name}.")
            continue
        kind, choices = _kind(hint, value)
        found.append(
            {
                "key": f"{prefix}{field.name}",
                "kind": kind,
                "options": choices,
                "value": value,
                "about": said.get(field.name, ""),
            }
        )
    return found


def _kind(hint: Any, value: Any) -> tuple[str, list[str]]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "choice", [str(item.value) for item in hint]
    for cls, kind in ((bool, "flag"), (int, "int"), (float, "float"), (str, "text")):
        if hint is cls or type(value) is cls:
            return kind, []
    return "value", []


@functools.cache
def comments(cls: type) -> Mapping[str, str]:
    """Field -> the comment beside it in the source, also in the classes that it inherits from.

    A comment that goes on in the next line is joined; a field without one is left out.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _comments(typing.cast(type, base))
    return found


def _comments(cls: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    found: dict[str, str] = {}
    name, expects = "", True  # the field that a comment belongs to; whether a line begins
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if expects and token.start[1] <= 4:  # of what follows, not of the field above
                name = ""
            elif name:
                found[name] = f"{found.get(name, '')} {token.string.lstrip('# ')}".strip()
        elif token.type == tokenize.NAME and expects:
            name, expects = token.string if token.start[1] == 4 else "", False
        elif token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            expects = True
        elif token.type == tokenize.NL and token.line.strip() == "":
            name = ""
    return {key: text for key, text in found.items() if key in inspect.get_annotations(cls)}


def _first_sentence(cls: type | None) -> str:
    text = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split()) if cls else ""
    return "" if text.startswith(f"{getattr(cls, '__name__', '')}(") else text[:300]
