"""`robot-rl record`: demonstrations into a run's store, without learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from robot_rl.act.policy import PolicyRuntime
from robot_rl.errors import ConfigError
from robot_rl.learn.metrics import MetricSink
from robot_rl.lockstep import make_bench
from robot_rl.session import ACTOR, Session
from robot_rl.store.scenes import scene_log
from robot_rl.store.store import Store

if TYPE_CHECKING:
    from robot_rl.experiment import Experiment


def record(experiment: Experiment) -> dict[str, Any]:
    """Record `train.demos` successful demonstrations; `train` with the same run_dir goes on.

    Raises:
        ConfigError: runtime=ros (demonstrations there are the first phase of `train`).
        RobotRLError: the demonstrator keeps failing.
    """
    if experiment.runtime != "lockstep":
        raise ConfigError(
            "record works in lockstep",
            expected="runtime=lockstep",
            got=f"runtime={experiment.runtime}",
            fix="use robot-rl train runtime=ros: it begins with the demonstrations",
        )
    run_dir = experiment.save()
    metrics = MetricSink(run_dir / "metrics.jsonl")
    with Store(run_dir / "store.sqlite", spec=experiment.spec) as store:
        store.recover(run_dir.name, ACTOR)
        scenes = scene_log(experiment)
        bench = make_bench(
            experiment,
            PolicyRuntime.of(experiment),
            record=store.append,
            on_frame=scenes.saw,
        )
        session = Session(
            bench.loop,
            bench.reset,
            experiment,
            metrics=metrics,
            store=store,
            before_episode=scenes.flush,
        )
        session.demos()
        scenes.flush()
    metrics.close()
    return {"successes": session.progress.demos, "episodes": session.progress.next_episode}
