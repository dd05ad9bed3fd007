"""From the sections of an experiment to the parts of a run: policy, learner, session, scenes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.loop import Policy
from robot_rl.control.session import Session, SessionLoop
from robot_rl.errors import ConfigError
from robot_rl.ports import BringsSimulator, Task
from robot_rl.store.dataset import Annotator, import_dataset
from robot_rl.store.scenes import SCENES, SceneLog
from robot_rl.store.store import Store
from robot_rl.tasks.common import SimTask
from robot_rl.tasks.gym import GymTask
from robot_rl.types import EpisodeStart, Observation, Row

if TYPE_CHECKING:
    from robot_rl.learn.learner import Learner
    from robot_rl.policy.runtime import PolicyRuntime
    from robot_rl.run.experiment import Experiment


def policy_of(experiment: Experiment, *, real_time: bool = False) -> PolicyRuntime:
    """The policy that drives, with the base policy that it builds on. Imports torch.

    real_time: a slow base is asked beside the loop; on a simulated clock it is waited for.

    Raises:
        CheckpointError, ConfigError: the base is not there, or does not fit.
    """
    from robot_rl.policy.runtime import PolicyRuntime

    base = None
    if experiment.planner is not None:
        from robot_rl.policy.base.schedule import schedule_of

        base = schedule_of(
            experiment.planner, experiment.task.spec, experiment.draws_seed, real_time=real_time
        )
    return PolicyRuntime(experiment.algorithm, experiment.spec, experiment.draws_seed, base)


def learner_of(
    experiment: Experiment, store: Store, trouble: Callable[[], str] = lambda: ""
) -> Learner:
    """The learner of a run, on its store; trouble: of `reward.beside`. Imports torch.

    Raises:
        RobotRLError: see `Experiment.check`; or the store or a checkpoint is another run's.
    """
    from robot_rl.learn.learner import Learner

    assembly, scorers = experiment.reward.shaped_by(store, experiment.spec)
    return Learner(
        experiment.learner,
        experiment.algorithm,
        experiment.spec,
        store,
        run_dir=experiment.run_dir,
        seed=experiment.seed,
        mirror=experiment.mirror_signs,
        assembly=assembly,
        scorers=scorers,
        trouble=trouble,
    )


def session_of(
    experiment: Experiment,
    loop: SessionLoop,
    reset: Callable[[Any, EpisodeStart], None],
    **hooks: Any,
) -> Session:
    """The session of a run; hooks: see `Session`."""
    return Session(
        loop,
        reset,
        experiment.own_train,
        run=experiment.run_name,
        actor=experiment.actor,
        arms=max(1, len(experiment.actors)),
        seed=experiment.draws_seed,
        spec=experiment.spec,
        limits_hash="" if isinstance(loop.task, GymTask) else experiment.limits.hash,
        **hooks,
    )


def take_dataset(experiment: Experiment, store: Store, policy: Annotator) -> None:
    """Copy what `train.dataset` names into the store of a run; see `import_dataset`."""
    train = experiment.own_train
    if train.dataset:
        import_dataset(
            store,
            train.dataset,
            experiment.task.spec,
            policy,
            only_successes=train.dataset_successes,
        )


def simulated_task(experiment: Experiment) -> Task:
    """The run's task, one with a simulated arm.

    Raises:
        ConfigError: the task has none.
    """
    task = experiment.task
    if isinstance(task, SimTask | BringsSimulator):
        return task
    raise ConfigError(
        f"task '{task.name}' has no simulated arm",
        expected="a scene (robot_rl.tasks.common.SimTask), or a simulator of its own: simulate()",
        got=type(task).__name__,
        fix="docs/tasks.md shows both; a real arm needs neither: runtime=ros ros=real",
    )


def scene_log(experiment: Experiment) -> SceneLog:
    """The log of a run's scenes; it stays empty unless the run is of a simulated arm."""
    has_scene = experiment.is_simulated and not isinstance(experiment.task, GymTask)
    return SceneLog(experiment.run_dir / SCENES if has_scene else None)


class Discard:
    """`Metrics` that keeps nothing."""

    def write(self, env_steps: int, values: dict[str, float], **text: str) -> None:
        """Drop the line."""


class Still(Policy):
    """The policy of a loop that somebody else drives: it asks for no motion."""

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def version(self) -> int:
        """-1: there are no weights."""
        return -1

    def act(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        """Return an action [size] of zeros."""
        return np.zeros(self._size, np.float32)


def forget(_rows: list[Row]) -> None:
    """`Record` of a session that leaves the store alone."""
