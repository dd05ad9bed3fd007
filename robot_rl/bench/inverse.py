"""Do demonstrations whose actions were inferred teach as much as demonstrations with actions?

Of a scripted person's demonstrations a fifth keeps its actions. The others go through what a user
would do with the recordings of another system: they are exported, lose their actions and all that
another program would not know, and are imported with `robot-rl import --without-actions`, by a
model of the fifth. Compared are policies from four sets of the same demonstrations:

    all        with all actions
    few        the fifth alone
    inverse    the fifth, and the others with inferred actions
    guided     the fifth, and the others as guiding by hand records them: with the motion that was
               measured in the place of what was asked for
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from robot_rl.bench.choice import some_of
from robot_rl.bench.cloning import cloned, demonstrated, mixed
from robot_rl.config.provenance import git_state
from robot_rl.config.run_folder import STORE
from robot_rl.data import lerobot_format as fmt
from robot_rl.data.episodes import choose
from robot_rl.data.folder import IDENTITY
from robot_rl.data.import_store import SUMMARY
from robot_rl.data.lerobot_write import WriteOptions, write_lerobot
from robot_rl.errors import ConfigError
from robot_rl.operate.scripted import ScriptedOperator, ScriptedOperatorConfig
from robot_rl.ports import OperatorInput
from robot_rl.run.experiment import Experiment
from robot_rl.run.train import train
from robot_rl.store.store import Store
from robot_rl.types import RobotState

TASK = "peg_insert"
DEMONSTRATIONS = {"pick_insert": 60}  # of a longer task; 25 of the others
SHARE = 5  # one of so many keeps its actions
SKILL = 0.9  # of the hand
SETS = ("all", "few", "inverse", "guided")
PARTS = ("clone", "rl")
PRACTICE_STEPS = 4000  # at most; an exam that is passed ends it
OURS = ("action", "robot_rl.")  # features that another program's recording lacks


class GuidedOperator(ScriptedOperator):
    """The scripted person, recorded as one who guides the arm by hand."""

    def poll(self, state: RobotState) -> OperatorInput:
        """See `ScriptedOperator`."""
        return replace(super().poll(state), guided=True)


def bench(
    *,
    folder: Path,
    seeds: int,
    progress: Callable[[int, int], object],
    task: str = TASK,
    only: str = "",
) -> dict[str, list[Any]]:
    """The comparison, in a folder of its own; returns figure -> one value for each seed.

    known: of the motion, in held-out episodes of the fifth; wrong: mean distance of an inferred
    action from the true one, as a share of what actions differ from their mean (0 = the same).
    clone/SET: of 100 evaluation episodes of the clone of a set, those that succeeded. rl/SET: the
    same after practice that nobody corrects, with the set as demonstrations (RLPD), and the steps
    after which an exam was passed, 0 = none was. practised: as known and wrong, where
    the model has also learned from the practice of rl/few. What is finished is kept in
    `folder`/figures.jsonl, and a repeated call of the same commit goes on there.

    Args:
        only: some of `PARTS`, separated by commas; "" = all.

    Raises:
        ConfigError: an unknown part, or `folder` has figures of another commit.
    """
    parts = some_of(only, PARTS, "part")
    rows = [(part, name) for part in parts for name in (SETS if part == "clone" else SETS[:3])]
    kept, found = _Kept(folder / "figures.jsonl"), dict[str, list[Any]]()
    for done, (seed, (part, name)) in enumerate(product(range(seeds), rows)):
        progress(done, seeds * len(rows))
        place = folder / f"{task}_s{seed}"
        figures = dict(kept.get((task, seed, "sets"), partial(_sets, place, task, seed)))
        measure = partial(_measured, place, task, seed, part, name)
        result = kept.get((task, seed, part, name), measure)
        figures[f"{part}/{name}"] = result
        if (part, name) == ("rl", "few"):
            runs = [place / "with", place / "rl_few"]
            again = partial(_inferred, place, task, runs)
            figures["practised"] = kept.get((task, seed, "practised"), again)[1]
        for key, value in figures.items():
            found.setdefault(key, [None] * seeds)[seed] = value
    progress(seeds * len(rows), seeds * len(rows))
    return found


class _Kept:
    """Figures in a file, one a line, each with the commit that it is of."""

    def __init__(self, path: Path) -> None:
        self._path, self._commit = path, git_state().get("commit")
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.is_file() else []
        self._known: dict[tuple[Any, ...], Any] = {}
        for key, value, *commit in map(json.loads, lines):
            if commit != [self._commit]:
                raise ConfigError(
                    f"'{path}' has figures of another commit, which would be told as today's",
                    expected=f"figures of {self._commit or 'no commit'}",
                    got=f"{key} of {commit[0] if commit else 'a commit that was not kept'}",
                    fix="--out with a new folder, or go on with that commit",
                )
            self._known[tuple(key)] = value

    def get(self, key: Sequence[Any], make: Callable[[], Any]) -> Any:
        """The figure of this key, made if it is not there."""
        if tuple(key) not in self._known:
            value = self._known[tuple(key)] = make()
            with self._path.open("a") as file:
                file.write(json.dumps([list(key), value, self._commit]) + "\n")
        return self._known[tuple(key)]


def _sets(folder: Path, task: str, seed: int) -> dict[str, Any]:
    """Make the four sets of one seed; return how well the actions were inferred."""
    shutil.rmtree(folder, ignore_errors=True)
    count = DEMONSTRATIONS.get(task, 25)
    few, more = count // SHARE, count - count // SHARE
    known = record(task, few, folder / "with", 10 * seed)
    others = record(task, more, folder / "others", 10 * seed + 1)
    guided = record(task, more, folder / "others_guided", 10 * seed + 1, guided=True)
    strip(others, folder / "dataset")
    inferred, figures = _inferred(folder, task, [known])
    groups = {"all": [others], "few": [], "inverse": [Path(inferred)], "guided": [guided]}
    for name, more in groups.items():
        mixed([f"experiment={task}"], [known, *more], folder / f"set_{name}", only_successes=True)
    return figures


def _inferred(folder: Path, task: str, runs: Sequence[Path]) -> tuple[str, dict[str, float]]:
    """Import the data set without actions; runs: to learn from."""
    out = folder / f"inferred_{len(runs)}"
    shutil.rmtree(out, ignore_errors=True)
    words = [str(folder / "dataset"), "--out", str(out), f"experiment={task}", "--without-actions"]
    words += [word for run in runs for word in ("--inverse", str(run))]
    command = [sys.executable, "-m", "robot_rl.cli.main", "import", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    known = json.loads((out / SUMMARY).read_text())["inverse"]["motion"]
    return str(out), {"known": known, "wrong": _wrong(folder / "others", out)}


def _measured(folder: Path, task: str, seed: int, part: str, name: str) -> Any:
    """A policy from one of the sets."""
    run = folder / f"{part}_{name}"
    shutil.rmtree(run, ignore_errors=True)  # of a call that was interrupted
    if part == "clone":
        return cloned([f"experiment={task}"], run, folder / f"set_{name}", seed)
    return practised(task, run, folder / f"set_{name}", seed)


def record(task: str, episodes: int, run_dir: Path, seed: int, *, guided: bool = False) -> Path:
    """Demonstrations of the scripted person; of the same seed the same motions, guided or not."""
    kind = GuidedOperator if guided else ScriptedOperator
    config = ScriptedOperatorConfig(intervene=False, skill=SKILL)
    words = [f"experiment={task}", f"seed={seed}", f"train.demos={episodes}"]
    return demonstrated(lambda task: kind(config, task), words, run_dir)


def strip(run: Path, out: Path) -> Path:
    """Export a run, and take out of the dataset what a recording of another system lacks."""
    with Store(run / STORE) as store:
        write_lerobot(store, choose(store), out, WriteOptions())
    for path in (out / IDENTITY, *out.glob(fmt.LAST.split("/", 1)[0] + "/*/*.parquet")):
        path.unlink()
    info = json.loads((out / fmt.INFO).read_text())
    info["features"] = {k: v for k, v in info["features"].items() if not k.startswith(OURS)}
    (out / fmt.INFO).write_text(json.dumps(info))
    for path in out.glob("data/*/*.parquet"):
        table = pq.ParquetFile(path).read()
        pq.write_table(
            table.select([c for c in table.column_names if not c.startswith(OURS)]), path
        )
    return out


def _wrong(true: Path, inferred: Path) -> float:
    """See `bench`; episodes are in the same order, and the inferred ones lack the last step."""
    with Store(true / STORE) as a, Store(inferred / STORE) as b:
        pairs = [
            (step.action, said.action)
            for x, y in zip(choose(a), b.episodes(), strict=True)
            for step, said in zip(a.steps(x.start.id), b.steps(y.id), strict=False)
        ]
    was, said = (np.array(column) for column in zip(*pairs, strict=True))
    off = np.linalg.norm(said - was, axis=-1).mean()
    return float(off / np.linalg.norm(was - was.mean(0), axis=-1).mean())


def practised(task: str, run_dir: Path, dataset: Path, seed: int) -> list[float]:
    """Evaluation successes of 100 after practice with corrections; steps to mastery, 0 = never."""
    words = [
        *(f"experiment={task}", f"train.dataset={dataset}", "train.demos=0"),
        *(f"train.max_env_steps={PRACTICE_STEPS}", "train.max_minutes=60", "train.video=false"),
        *("operator.intervene=false", "learner.utd=4", "train.stochastic_eval_episodes=0"),
        *("runtime=lockstep", f"seed={seed}", f"run_dir={run_dir}"),
    ]
    result = train(Experiment.compose(words))
    return [result["deterministic"]["successes"], result["mastered_steps"]]
