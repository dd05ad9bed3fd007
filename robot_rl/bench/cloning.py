"""What benchmarks of demonstrations share: recording them, and cloning them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import STORE
from robot_rl.ports import InputDevice, Task
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import make_rig
from robot_rl.run.parts import Discard, Still, session_of
from robot_rl.run.train import train
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import Store

UPDATES = 5000


def demonstrated(
    person: Callable[[Task], InputDevice], words: Sequence[str], run_dir: Path
) -> Path:
    """Demonstrations of a person, in a run folder of their own; words: of the experiment."""
    experiment = Experiment.compose([*words, "runtime=lockstep", f"run_dir={run_dir}"])
    experiment.save()
    with Store(run_dir / STORE, spec=experiment.spec, reserve_bytes=0) as store:
        rig: Any = make_rig(
            experiment,
            Still(experiment.spec.action.size),
            record=store.append,
            operator=person(experiment.task),
        )
        session = session_of(experiment, rig.loop, rig.reset, metrics=Discard(), store=store)
        session.demos()
    return run_dir


def mixed(
    words: Sequence[str], runs: Sequence[Path], run_dir: Path, *, only_successes: bool = False
) -> Path:
    """The episodes of several runs, in the folder of a run; words: of the experiment."""
    experiment = Experiment.compose([*words, f"run_dir={run_dir}"])
    experiment.save()
    with Store(run_dir / STORE, spec=experiment.spec, reserve_bytes=0) as store:
        for run in runs:
            import_dataset(store, str(run), experiment.spec, only_successes=only_successes)
    return run_dir


def cloned(words: Sequence[str], run_dir: Path, dataset: Path, seed: int) -> float:
    """Of 100 evaluation episodes of a clone, those that succeeded; words: of the experiment."""
    words = [
        *(*words, "algo=bc", f"train.dataset={dataset}", "train.demos=0"),
        *("train.max_env_steps=0", f"learner.pretrain_updates={UPDATES}", "train.video=false"),
        *("algo.hidden=[128,128]", "algo.batch_size=128", "train.stochastic_eval_episodes=0"),
        *("runtime=lockstep", f"seed={seed}", f"run_dir={run_dir}"),
    ]
    return train(Experiment.compose(words))["deterministic"]["successes"]
