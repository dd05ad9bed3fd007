"""What is said about many episodes at once: strictly read, before anything of it is stored.

{"kind": "exclude", "of": [{"run": ..., "actor": ..., "episodes": [3, 4, 7]}, ...]}, or, to take
that back, "kind": "undo" with a list "values" beside each "episodes": the numbers of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from robot_rl.errors import StoreError
from robot_rl.types import EpisodeId

MOST = 500  # episodes
KINDS = ("exclude", "undo")


def read_batch(said: Mapping[str, Any]) -> tuple[str, dict[EpisodeId, float]]:
    """(kind, value of each episode).

    Raises:
        StoreError: it is not of that form, names an episode twice, or has more than `MOST`.
    """
    kind, groups = said.get("kind"), said.get("of")
    if kind not in KINDS or not isinstance(groups, list):
        raise _bad(f"kind {str(kind)[:40]!r}, of: {type(groups).__name__}")
    found: dict[EpisodeId, float] = {}
    for group in groups[: MOST + 1]:
        for id_, value in _group(group, kind):
            if id_ in found:
                raise _bad(f"episode {id_.episode} twice")
            found[id_] = value
            if len(found) > MOST:
                raise _bad(f"more than {MOST} episodes")
    if not found:
        raise _bad("no episode")
    return str(kind), found


def grouped(values: Mapping[EpisodeId, int]) -> list[dict[str, Any]]:
    """The numbers of labels in the form that `read_batch` takes."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for id_, value in values.items():
        empty: dict[str, Any] = {"run": id_.run, "actor": id_.actor, "episodes": [], "values": []}
        group = groups.setdefault((id_.run, id_.actor), empty)
        group["episodes"].append(id_.episode)
        group["values"].append(value)
    return list(groups.values())


def _group(group: Any, kind: str) -> Iterator[tuple[EpisodeId, float]]:
    if not isinstance(group, dict):
        raise _bad(type(group).__name__)
    run, actor, numbers = group.get("run"), group.get("actor"), _whole(group.get("episodes"))
    if not isinstance(run, str) or not isinstance(actor, str) or numbers is None:
        raise _bad("a group without run, actor or whole numbers of episodes")
    values = _whole(group.get("values")) if kind == "undo" else [1] * len(numbers)
    if values is None or len(values) != len(numbers):
        raise _bad("an undo without the number of each label")
    for number, value in zip(numbers, values, strict=True):
        yield EpisodeId(run, actor, number), float(value)


def _whole(values: Any) -> list[int] | None:
    """The numbers, if all are whole and may be an episode's or a label's; None otherwise."""
    whole = isinstance(values, list) and all(type(v) is int and 0 <= v < 2**31 for v in values)
    return values if whole else None


def _bad(got: str) -> StoreError:
    return StoreError(
        "this says nothing about several episodes",
        expected=f"kind: {' or '.join(KINDS)}, of 1 to {MOST} episodes, each once",
        got=got,
        fix="choose fewer episodes, or reload the page",
    )
