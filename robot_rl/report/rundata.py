"""Reads a run folder: config, provenance, metrics, evaluation, video. Nothing is required."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import ARMS, AT_WORK, DEPLOYMENT, EVALUATION, METRICS, RUN
from robot_rl.config.yaml_file import read_yaml
from robot_rl.control.work import BEGAN, RUNS, number
from robot_rl.data.import_store import SUMMARY
from robot_rl.system import plain_json

log = logging.getLogger(__name__)

FIRST_SUCCESS = "first_success.png"
PLACES = ("time_s", "env_steps")  # where a metric line belongs; numbers, if it has them
EVALUATIONS = {"deterministic": "evaluation", "stochastic": "evaluation with noise"}
"""Kind of evaluation -> `state` of its episodes' metric lines; an evaluation goes in this order."""
HOME = ("lockstep", "ros", "", None)
"""`evaluated_in` of an evaluation in the scene that was learned in; else that says what differs."""

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One metric over the run: env_steps, time_s and value, float64 [N] each, in time order."""

    env_steps: F64
    time_s: F64
    value: F64


@dataclass(frozen=True)
class RunData:
    """A run as the report sees it. `rows` are the metric lines, in time order."""

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    video: bytes = b""
    going: bool = False  # it has not ended
    first_success: bytes = b""  # PNG: the first episode that the policy solved alone
    deployment: Mapping[str, Any] = field(default_factory=dict)  # deploy.json
    deployed_in: Path = Path()  # its folder
    imported: Mapping[str, Any] = field(default_factory=dict)  # import.json of its data set
    begun: frozenset[float] = frozenset()  # when processes began to work on it (s)

    @property
    def keys(self) -> list[str]:
        """Every numeric metric key that occurs."""
        return sorted({k for row in self.rows for k, v in row.items() if _is_number(v)})

    def series(self, key: str) -> Series | None:
        """The curve of `key`; None when it never occurs. NaN and infinity are left out.

        So are figures of practice episodes that were aborted: they say nothing about the policy.
        """
        practice = key.startswith("episode/")
        picked = [
            r
            for r in self.rows
            if _is_number(r.get(key)) and not (practice and r.get("episode/aborted"))
        ]
        if not picked:
            return None
        table = np.array(
            [(r.get("env_steps", 0.0), r.get("time_s", 0.0), r[key]) for r in picked], np.float64
        )
        return Series(table[:, 0], table[:, 1], table[:, 2])

    def episodes(self) -> list[Mapping[str, Any]]:
        """Metric lines of practice episodes, aborted ones too."""
        return [r for r in self.rows if _is_number(r.get("episode/success"))]

    def counted(self) -> list[Mapping[str, Any]]:
        """Practice episodes that say something about the policy: those that were not aborted."""
        return [r for r in self.episodes() if not r.get("episode/aborted")]

    def learned_from(self) -> list[Mapping[str, Any]]:
        """Practice episodes before the evaluation; without one, all of them."""
        until = self.evaluation.get("env_steps", math.inf)
        return [r for r in self.episodes() if r.get("env_steps", 0) <= until]

    def by_arm(self) -> dict[str, list[Mapping[str, Any]]]:
        """Practice episodes of each of several arms; empty where there is one."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.rows:
            if "arm" in row:
                found.setdefault(row["arm"], []).append(row)
        return {n: [r for r in rows if "episode/success" in r] for n, rows in found.items()}

    def total(self, key: str) -> float:
        """Sum of a per-episode metric; 0.0 when it never occurs."""
        return float(sum(r[key] for r in self.rows if _is_number(r.get(key))))

    def last(self, key: str) -> float | None:
        """Newest value of a metric."""
        series = self.series(key)
        return None if series is None else float(series.value[-1])


def read_run(folder: Path) -> RunData:
    """Read whatever is there; that a killed run has less is no error."""
    config: Any = {}
    if (folder / "config.yaml").is_file():
        config = read_yaml(folder / "config.yaml") or {}
        if not isinstance(config, dict):
            raise ValueError("config.yaml holds no keys with values")
    dataset = str((config.get("train") or {}).get("dataset") or "")
    deployed = folder if (folder / DEPLOYMENT).is_file() else folder / "deploy"
    rows = [row for path in sorted(folder.glob("*.jsonl")) for row in _read_lines(path)]
    for path in sorted((folder / ARMS).glob(f"*/{METRICS}")):
        for row in _read_lines(path):
            row["arm"] = path.parent.name
            rows.append(row)
    return RunData(
        folder=folder,
        config=config,
        record=_read_json(folder / RUN),
        rows=tuple(sorted(rows, key=lambda r: r.get("time_s", 0.0))),
        evaluation=_read_json(folder / EVALUATION) or _so_far(rows),
        video=_read_bytes(folder / "eval.mp4"),
        first_success=_read_bytes(folder / FIRST_SUCCESS),
        deployment=_read_json(deployed / DEPLOYMENT),
        deployed_in=deployed,
        imported=_read_json(Path(dataset) / SUMMARY) if dataset else {},
        begun=_begun(folder, rows),
    )


def _begun(folder: Path, rows: Iterable[Mapping[str, Any]]) -> frozenset[float]:
    """When processes began to work: their first lines say it, and who works there now."""
    told = [_read_json(folder / f"{verb}{AT_WORK}").get(BEGAN) for verb in RUNS]
    told += [row[BEGAN] for row in rows if BEGAN in row]
    return frozenset(began_s for x in told if (began_s := number(x)) is not None)


def evaluated(rows: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """Episodes of one kind of evaluation: of each arm its newest attempt, without aborted ones."""
    states = list(EVALUATIONS.values())
    states = states[: states.index(EVALUATIONS[kind]) + 1]
    lines = [r for r in rows if r.get("state") in states]
    arms = [str(r.get("arm")) for r in lines]
    begun = {arm: i for i, arm in enumerate(arms) if lines[i].get("eval_episode/number") == 1}
    return [
        r
        for i, (r, arm) in enumerate(zip(lines, arms, strict=True))
        if i >= begun.get(arm, 0) and r["state"] == states[-1] and not r.get("eval_episode/aborted")
    ]


def _so_far(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """An evaluation that still runs, or was cut short, from the lines of its episodes."""
    result: dict[str, Any] = {}
    for kind in EVALUATIONS:
        picked = evaluated(rows, kind)
        won = [r for r in picked if r.get("eval_episode/success")]
        times = [float(r.get("eval_episode/duration_s", 0.0)) for r in won]
        if picked:
            result[kind] = {
                "successes": len(won),
                "episodes": len(picked),
                "cycle_time_s_mean": float(np.mean(times)) if times else None,
            }
            result["env_steps"] = max(r.get("env_steps", 0) for r in picked)
    return result


def _read_bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        data = plain_json.loads(path.read_text())
    except ValueError:
        log.warning("%s is not JSON; left out of the report", path.name)
        return {}
    return data if isinstance(data, dict) else {}


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Parse JSON lines; unreadable ones are skipped, e.g. a last one that a kill has torn."""
    skipped = 0
    with path.open(errors="replace") as file:
        for line in file:
            try:
                row = plain_json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict) and all(_is_number(row.get(key, 0)) for key in PLACES):
                yield {sys.intern(key): value for key, value in row.items()}
            else:
                skipped += 1
    if skipped:
        log.warning("%s: %d unreadable lines skipped", path.name, skipped)


def _is_number(value: Any) -> bool:
    """Whether it is a finite number; an integer beyond float64 is none."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False
