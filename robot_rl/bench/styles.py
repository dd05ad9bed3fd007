"""Two people with two ways of doing `pick_insert`: are they told apart, and does it pay?

Both are the task's expert, who succeeds alone. One goes around on the right, quickly; the other
around on the left, at half the speed, and looks for a moment before each grip. Neither way is
wrong. The first gives a few demonstrations, the base; then both demonstrate in turn. Policies are
cloned from all that, and from what `robot-rl filter --compatible` leaves of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import STORE
from robot_rl.geometry import rotate_inverse
from robot_rl.operate.scripted import ScriptedOperator, ScriptedOperatorConfig
from robot_rl.ports import Expert
from robot_rl.reward.compatible.train import driven, judge_each_other
from robot_rl.reward.metrics import auc
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import make_rig
from robot_rl.run.parts import Discard, Still, session_of
from robot_rl.run.train import train
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import Store
from robot_rl.tasks.pick_insert import PickInsertTask
from robot_rl.types import RobotState

TASK = "pick_insert"
EPISODES = {"base": 10, "again": 10, "other": 20}  # the first person's, theirs again, the other's
FEW = 4  # of the other's, among the first person's, where episodes judge each other
UPDATES = 5000
NEAR_M, FAR_M = 0.03, 0.07  # of the next goal: straight to it, and all the way aside


@dataclass(frozen=True, slots=True)
class Style:
    """A way of driving. side: 1 = around on the left, -1 = on the right, 0 = straight.

    speed: share of the expert's; looks: ticks without motion before the fingers close or open.
    """

    side: float = 0.0
    speed: float = 1.0
    looks: int = 0


BASE, OTHER = Style(side=-1.0), Style(side=1.0, speed=0.5, looks=6)


class StyledExpert:
    """The task's expert, who drives in a style."""

    def __init__(self, task: PickInsertTask, style: Style, skill: float) -> None:
        self._task, self._style, self._expert = task, style, task.expert(skill)

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode."""
        self._expert.reset(rng)
        self._gripper, self._looking = 1.0, 0

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [7]."""
        task, style = self._task, self._style
        action = self._expert.act(state)
        if action[-1] != self._gripper and self._looking < style.looks:
            self._looking += 1
            return np.array((*np.zeros(len(action) - 1), self._gripper), np.float32)
        if action[-1] != self._gripper:
            self._gripper, self._looking = float(action[-1]), 0
        way = task.cube_to_pocket(state)
        if not task.holds_cube(state):
            way = state.objects["cube"].position_m - state.tcp_in_base.position_m
        if self._gripper > 0.0 and task.in_pocket(state):
            way = np.zeros(3)
        left = np.array((-way[1], way[0], 0.0)) / max(float(np.hypot(*way[:2])), 1e-6)
        share = np.clip((np.hypot(*way[:2]) - NEAR_M) / (FAR_M - NEAR_M), 0.0, 1.0)
        aside = rotate_inverse(state.tcp_in_base.quaternion_xyzw, style.side * share * left)
        action[:3] += aside
        action[:-1] = np.clip(action[:-1], -1.0, 1.0) * style.speed
        return action


class StyledOperator(ScriptedOperator):
    """The scripted person with a style."""

    def __init__(self, task: Any, style: Style, skill: float) -> None:
        super().__init__(ScriptedOperatorConfig(intervene=False), task)
        self._expert: Expert = StyledExpert(task, style, skill)


def record(style: Style, episodes: int, run_dir: Path, seed: int, skill: float = 0.9) -> Path:
    """Demonstrations in a style, in a run folder of their own; those that failed are not kept."""
    words = [f"experiment={TASK}", "runtime=lockstep", f"seed={seed}", f"run_dir={run_dir}"]
    experiment = Experiment.compose([*words, f"train.demos={episodes}", "task.max_steps=250"])
    experiment.save()
    task: Any = experiment.task
    with Store(run_dir / STORE, spec=experiment.spec, reserve_bytes=0) as store:
        rig: Any = make_rig(
            experiment,
            Still(experiment.spec.action.size),
            record=store.append,
            operator=StyledOperator(task, style, skill),
        )
        session = session_of(experiment, rig.loop, rig.reset, metrics=Discard(), store=store)
        session.demos()
    return run_dir


def bench(
    *, folder: Path, seeds: int, progress: Callable[[int, int], object]
) -> dict[str, list[float]]:
    """The whole comparison, in a folder of its own; returns figure -> one number for each seed.

    auc: how often an episode of the other is less compatible than one of the first; auc_nameless:
    the same without a base, with a few episodes of the other among those of the first; kept_again,
    kept_other: share of their episodes that the filter keeps; all, filtered: of 100 evaluation
    episodes of the clone, those that succeeded.
    """
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        progress(seed, seeds)
        for name, value in _compared(folder / f"s{seed}", seed).items():
            found.setdefault(name, []).append(value)
    progress(seeds, seeds)
    return found


def _compared(folder: Path, seed: int) -> dict[str, float]:
    """The figures of one seed."""
    runs = {
        name: record(OTHER if name == "other" else BASE, count, folder / name, 100 * seed + i)
        for i, (name, count) in enumerate(EPISODES.items())
    }
    mixed = Experiment.compose([f"experiment={TASK}", f"run_dir={folder / 'mixed'}"]).save()
    with Store(mixed / STORE, spec=Experiment.load(mixed).spec, reserve_bytes=0) as store:
        for run in runs.values():
            import_dataset(store, str(run), Experiment.load(mixed).spec)
    figures = {"all": _cloned(folder / "all", mixed, seed)}
    words = [str(mixed), "--compatible", str(runs["base"]), "--write"]
    command = [sys.executable, "-m", "robot_rl.cli.main", "filter", *words]
    subprocess.run([*command, "--json", str(folder / "filter.json")], check=True)
    told = json.loads((folder / "filter.json").read_text())["list"]
    value = {name: [x["compatible"] for x in told if x["run"] == name] for name in runs}
    figures["auc"] = auc([-x for x in value["other"]], [-x for x in value["again"]])
    for name in ("again", "other"):
        figures[f"kept_{name}"] = float(np.mean([not x["below"] for x in told if x["run"] == name]))
    figures["auc_nameless"] = _nameless(mixed)
    return figures | {"filtered": _cloned(folder / "filtered", mixed, seed)}


def _nameless(mixed: Path) -> float:
    """`auc` where nobody knows who drove, and episodes judge each other, `FEW` of them the other's.

    Other episodes are judged by an ensemble that may have seen the other's, too.
    """
    with Store(mixed / STORE) as store:
        assert store.spec is not None
        episodes, spec = list(driven(store, store.spec)), store.spec
    others = [e for e in episodes if e.who == "other"][:FEW]
    firsts = [e for e in episodes if e.who != "other"]
    judged = judge_each_other([replace(e, who="") for e in (*firsts, *others)], spec)
    far = [-one.mean for one in judged]
    return auc(far[len(firsts) :], far[: len(firsts)])


def _cloned(run_dir: Path, dataset: Path, seed: int) -> float:
    """Of 100 evaluation episodes of a clone, those that succeeded."""
    words = [
        *(f"experiment={TASK}", "algo=bc", f"train.dataset={dataset}", "train.demos=0"),
        *("train.max_env_steps=0", f"learner.pretrain_updates={UPDATES}", "train.video=false"),
        *(
            "algo.hidden=[128,128]",
            "algo.batch_size=128",
            "train.stochastic_eval_episodes=0",
            "runtime=lockstep",
        ),
        *(f"seed={seed}", f"run_dir={run_dir}"),
    ]
    return train(Experiment.compose(words))["deterministic"]["successes"]
