"""`robot-rl record`: demonstrations into a run's store, without learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import ACTOR_STORE, STORE
from robot_rl.control.session import ACTOR, SessionProgress, restore_progress
from robot_rl.errors import ConfigError
from robot_rl.run.at_work import at_work
from robot_rl.run.lockstep import recorded_session
from robot_rl.run.parts import policy_of
from robot_rl.run.pause import end_pause
from robot_rl.store.store import Store

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

Watch = Callable[[dict[str, Any]], None]


def record(experiment: Experiment, watch: Watch = lambda _stats: None) -> dict[str, Any]:
    """Record `train.demos` successful demonstrations; `train` with the same run_dir goes on.

    With runtime=ros whoever `operator=...` names shows the task: a person, or the script.

    Raises:
        SetupError: rclpy is missing.
        RobotRLError: the demonstrator keeps failing, or the graph cannot be kept alive.
    """
    if experiment.actors and experiment.runtime != "ros":
        raise ConfigError(
            "one simulated arm records the demonstrations of a lockstep run",
            expected="no actors, or runtime=ros",
            got=f"actors={','.join(experiment.actors)}",
            fix="record without actors; train.dataset=RUN gives the episodes to several arms",
        )
    with at_work(experiment.save(), "record"):
        end_pause(experiment.run_dir)  # who starts it wants it to go on
        return _record(experiment, watch)


def _record(experiment: Experiment, watch: Watch) -> dict[str, Any]:
    run_dir = experiment.run_dir
    if experiment.runtime == "ros":
        done = _recorded(experiment)
        if any(arm.demos < experiment.train.demos for arm in done):  # else no arm has to start
            from robot_rl.run.graph import record_ros

            record_ros(experiment, watch)
            done = _recorded(experiment)
        return {
            "successes": sum(arm.demos for arm in done),
            "episodes": sum(arm.next_episode for arm in done),
        }
    with Store(run_dir / STORE, spec=experiment.spec) as store:
        store.recover(experiment.run_name, ACTOR)
        policy = policy_of(experiment)
        with recorded_session(experiment, policy, store, on_episode=watch) as session:
            session.demos()
    return {"successes": session.progress.demos, "episodes": session.progress.next_episode}


def _recorded(experiment: Experiment) -> list[SessionProgress]:
    """What each arm of a run over ROS 2 has recorded."""
    found = []
    for arm in experiment.arms:
        path = arm.run_dir / ACTOR_STORE
        if path.is_file():
            with Store(path) as store:
                found.append(restore_progress(store, arm.run_name, arm.actor))
        else:
            found.append(SessionProgress())
    return found
