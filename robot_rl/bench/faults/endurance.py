"""`robot-rl bench endurance`: two long runs, and what is lost, doubled or grows in them.

    found = bench(60.0, Path("runs/endurance"))
    failed(found)

`soak_lockstep` trains at full speed while its processes are killed; `soak_graph` runs the whole
ROS 2 graph with the operator's page open. Rows are compared by `soak_rows`, memory is judged by
`soak_memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.bench.choice import some_of
from robot_rl.bench.faults.soak_memory import GROWS, UNDECIDED
from robot_rl.errors import ConfigError

PARTS = ("lockstep", "graph")
MINUTES = {"lockstep": 60.0, "graph": 45.0}
HELD = ("memory", "descriptors", "threads")
NONE_OF = (
    *("rows_lost", "rows_doubled", "rows_foreign", "rows_that_differ"),
    *("kills_after_which_rows_were_wrong", "processes_that_ended", "stores_damaged"),
)

Progress = Callable[[int, int], object]
"""Called with (done, total), in seconds."""


def bench(
    out: Path,
    *,
    minutes: float | None = None,
    only: str = "",
    progress: Progress = lambda _done, _total: None,
) -> dict[str, dict[str, Any]]:
    """Run the parts named in `only` ("" = both), one after the other; part -> figures.

    out: gets the run folders; minutes: of each part, None = `MINUTES`.

    Raises:
        ConfigError: an unknown part, or no time.
        SetupError: no ROS 2 (of `graph`).
        RobotRLError: a run does not start, or does not go on.
    """
    chosen = parts(only, minutes)
    lengths = {name: MINUTES[name] if minutes is None else minutes for name in chosen}
    total, before = round(60 * sum(lengths.values())), 0.0
    found = {}
    for name, length in lengths.items():
        folder = fresh(out, name)

        def tell(passed_s: float, before: float = before) -> None:
            progress(min(round(before + passed_s), total), total)

        if name == "lockstep":
            from robot_rl.bench.faults import soak_lockstep

            found[name] = soak_lockstep.soak(length, folder, tell)
        else:
            from robot_rl.bench.faults import soak_graph

            found[name] = soak_graph.soak(length, folder, tell)
        before += 60 * length
    return found


def parts(only: str, minutes: float | None) -> list[str]:
    """The parts that are named. Raises `ConfigError`."""
    chosen = some_of(only, PARTS, "part")
    if minutes is not None and not 0.0 < minutes < 10_000.0:
        raise ConfigError(
            "an endurance run needs time",
            expected="--minutes N, more than 0",
            got=f"{minutes:g}",
            fix="leave --minutes out: it has a default",
        )
    return chosen


def fresh(out: Path, name: str) -> Path:
    """A folder that is not there yet: NAME-1, NAME-2 ..."""
    number = 1
    while (folder := (out / f"{name}-{number}").resolve()).exists():
        number += 1
    return folder


def failed(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong, in words; [] when nothing is. What is not decided is not wrong."""
    said = []
    for part, figures in found.items():
        said += [f"{part}: {name} {figures[name]}" for name in NONE_OF if figures.get(name)]
        for process, held in figures["processes"].items():
            said += [f"{part}: {x} of {process}: {GROWS}" for x in HELD if held[x] == GROWS]
        if figures.get("page_heap", {}).get("memory") == GROWS:
            said.append(f"{part}: the page's heap: {GROWS}")
    return said


def text(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The figures as lines for a terminal."""
    lines: list[str] = []
    for part, figures in found.items():
        lines += ["", part]
        plain = {k: v for k, v in figures.items() if isinstance(v, int | float | str)}
        lines += [f"  {name:<44} {_number(value):>14}" for name, value in plain.items()]
        lines += [f"  {said}" for said in figures.get("wrong", ())]
        lines += ["", *_table(figures["processes"], figures.get("page_heap", {}))]
    wrong = failed(found)
    held = [h[x] for f in found.values() for h in f["processes"].values() for x in HELD]
    undecided = sum(verdict == UNDECIDED for verdict in held)
    rest = f", {undecided} of {len(held)} verdicts not decided" if undecided else ""
    return [*lines, "", *(wrong or [f"nothing lost, nothing doubled, nothing grows{rest}"])]


def _number(value: float | str) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _table(processes: Mapping[str, Mapping[str, Any]], heap: Mapping[str, Any]) -> list[str]:
    rows: list[Sequence[str]] = [
        ("process", "lives", "minutes", "RSS MB", "MB/h (95 %)", "memory", "descriptors", "threads")
    ]
    slope = "{mb_per_h:+.2f} ({mb_per_h_low:+.2f} to {mb_per_h_high:+.2f})"
    for name, held in processes.items():
        rows.append((
            name, str(held["lives"]), f"{held['minutes']:.0f}", f"{held['mb']:.1f}",
            slope.format(**held), held["memory"],
            *(_count(held, of) for of in ("descriptors", "threads")),
        ))  # fmt: skip
    if heap:
        rows.append(("page's heap", "", "", f"{heap['mb']:.1f}", slope.format(**heap),
                     heap["memory"], "", ""))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)) for row in rows]


def _count(held: Mapping[str, Any], of: str) -> str:
    return f"{held[f'{of}_first']:.0f} to {held[f'{of}_last']:.0f}, {held[of]}"
