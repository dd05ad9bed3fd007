"""Two people who pass a post on two sides in `pick_insert`: are they told apart, and does it pay?

Both are the task's expert, who carries the cube lower than the post is high, and succeed alone: one
passes on the left, the other on the right, and in nothing else do they differ. Who does the mean of
both pushes the post over, and fails. Neither side is the better one. So the comparison has both
directions: of one person's demonstrations the first half is the base, and policies are cloned from
all demonstrations of both, and from what `robot-rl filter --compatible` leaves of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.bench.cloning import cloned, demonstrated, mixed
from robot_rl.config.run_folder import STORE
from robot_rl.geometry import rotate_inverse
from robot_rl.operate.scripted import ScriptedOperator, ScriptedOperatorConfig
from robot_rl.ports import Expert
from robot_rl.reward.compatible_train import driven, judge_each_other
from robot_rl.reward.metrics import auc
from robot_rl.store.store import Store
from robot_rl.tasks.pick_insert import PickInsertExpert, PickInsertTask
from robot_rl.types import RobotState

WORDS = (
    *("experiment=pick_insert", "task.post_m=0.05"),
    *("task.cube_xy_m=0.01", "task.pocket_xy_m=0.01", "task.start_xy_m=0.02"),
)
EPISODES = 40  # in the base, and as many again; of each person
FEW = 4  # of the other's, among the first person's, where episodes judge each other
NEAR_M, FAR_M = 0.06, 0.10  # of the next goal: straight to it, and all the way aside
ASIDE = 2.0  # of a full action: the expert pulls back to the straight line
STYLES = {"left": 1.0, "right": -1.0}  # name -> the side on which they pass; 0 = straight


class LowExpert(PickInsertExpert):
    """Carries the cube lower than the post is high."""

    CARRY_M = 0.022


class StyledExpert:
    """The task's expert, who carries low, and goes around on one side."""

    def __init__(self, task: PickInsertTask, side: float, skill: float) -> None:
        self._task, self._side, self._expert = task, side, LowExpert(task, skill)

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode."""
        self._expert.reset(rng)

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [7]."""
        task = self._task
        action = self._expert.act(state)
        way = task.cube_to_pocket(state)
        if not task.holds_cube(state):
            way = state.objects["cube"].position_m - state.tcp_in_base.position_m
        lifting = task.holds_cube(state) and task.raised_m(state) < LowExpert.CARRY_M / 2
        if lifting or task.in_pocket(state):
            way = np.zeros(3)
        left = np.array((-way[1], way[0], 0.0)) / max(float(np.hypot(*way[:2])), 1e-6)
        share = np.clip((np.hypot(*way[:2]) - NEAR_M) / (FAR_M - NEAR_M), 0.0, 1.0)
        aside = rotate_inverse(state.tcp_in_base.quaternion_xyzw, self._side * share * left)
        action[:3] += ASIDE * aside
        return np.clip(action, -1.0, 1.0)


class StyledOperator(ScriptedOperator):
    """The scripted person who goes around on one side."""

    def __init__(self, task: Any, side: float, skill: float) -> None:
        super().__init__(ScriptedOperatorConfig(intervene=False), task)
        self._expert: Expert = StyledExpert(task, side, skill)


def record(side: float, episodes: int, run_dir: Path, seed: int, skill: float = 0.9) -> Path:
    """Demonstrations on one side, in a run folder of their own."""
    words = [*WORDS, f"seed={seed}", f"train.demos={episodes}"]
    return demonstrated(lambda task: StyledOperator(task, side, skill), words, run_dir)


def bench(
    *, folder: Path, seeds: int, progress: Callable[[int, int], object]
) -> dict[str, list[Any]]:
    """The whole comparison; returns figure -> one number for each seed.

    The runs get a new folder in `folder`: in an old one they would go on, finished as they are, and
    tell what an earlier commit has learned.

    all: of 100 evaluation episodes of the clone of everything, those that succeeded. With PERSON as
    the base: PERSON/filtered, the same of the clone of what the filter leaves; PERSON/auc, how
    often an episode of the other is less compatible than one of PERSON; PERSON/kept, shares of the
    episodes that the filter keeps, of PERSON and of the other; PERSON/auc_nameless: as auc, without
    a base, with a few episodes of the other among those of PERSON, and nobody knows whose they are.
    """
    found: dict[str, list[Any]] = {}
    place = folder / time.strftime("%Y%m%d-%H%M%S")
    place.mkdir(parents=True)
    for seed in range(seeds):
        progress(seed, seeds)
        for name, value in _compared(place / f"s{seed}", seed).items():
            found.setdefault(name, []).append(value)
    progress(seeds, seeds)
    return found


def _compared(folder: Path, seed: int) -> dict[str, Any]:
    """The figures of one seed."""
    runs = {
        f"{who}_{part}": record(side, EPISODES, folder / f"{who}_{part}", 10 * seed + i)
        for who, side in STYLES.items()
        for i, part in enumerate(("base", "again"))
    }
    both = mixed(WORDS, list(runs.values()), folder / "mixed")
    figures: dict[str, Any] = {"all": cloned(WORDS, folder / "all", both, seed)}
    for who in STYLES:
        figures |= {f"{who}/{k}": v for k, v in _filtered(folder, both, who, seed).items()}
    return figures


def _filtered(folder: Path, both: Path, who: str, seed: int) -> dict[str, Any]:
    """The figures with one person's first demonstrations as the base."""
    words = [str(both), "--compatible", str(folder / f"{who}_base"), "--write"]
    command = [sys.executable, "-m", "robot_rl.cli.main", "filter", *words]
    said = folder / f"{who}.json"
    subprocess.run([*command, "--json", str(said)], check=True, stdout=subprocess.DEVNULL)
    told = json.loads(said.read_text())["list"]
    own, others = ([x for x in told if x["run"].startswith(who) is own_] for own_ in (True, False))
    value = [[-x["compatible"] for x in some] for some in (others, own)]
    return {
        "auc": auc(*value),
        "auc_nameless": _nameless(both, who),
        "kept": [float(np.mean([not x["below"] for x in some])) for some in (own, others)],
        "filtered": cloned(WORDS, folder / f"{who}_filtered", both, seed),
    }


def _nameless(both: Path, who: str) -> float:
    """See `bench`."""
    with Store(both / STORE) as store:
        assert store.spec is not None
        episodes, spec = list(driven(store, store.spec)), store.spec
    firsts = [e for e in episodes if e.who.startswith(who)]
    others = [e for e in episodes if not e.who.startswith(who)][:FEW]
    judged = judge_each_other([replace(e, who="") for e in (*firsts, *others)], spec)
    far = [-one.mean for one in judged]
    return auc(far[len(firsts) :], far[: len(firsts)])
