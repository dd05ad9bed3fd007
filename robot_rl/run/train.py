"""`robot-rl train`: one experiment, in either runtime; ends with eval.json and report.html."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import STORE
from robot_rl.control.session import ACTOR, EVAL_SEED, Session
from robot_rl.errors import ConfigError
from robot_rl.learn.learner import Learner
from robot_rl.nets.cpu import take_cores
from robot_rl.policy.runtime import PolicyRuntime, save_policy
from robot_rl.run.at_work import at_work
from robot_rl.run.evaluate import record_video
from robot_rl.run.evaluations import write_eval
from robot_rl.run.lockstep import recorded_session
from robot_rl.run.parts import learner_of, policy_of, take_dataset
from robot_rl.run.pause import end_pause
from robot_rl.store.store import Store
from robot_rl.types import Step

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

Watch = Callable[[dict[str, Any]], None]
"""Receives the newest figures while training (the dashboard); must be quick."""

UPDATES_SHOWN = 100  # before practice, in a part after which the figures are told


def train(
    experiment: Experiment, watch: Watch = lambda _stats: None, *, ray: str | None = None
) -> dict[str, Any]:
    """Teach `experiment.task`; returns the content of eval.json.

    ray: several simulated actors run on the Ray cluster at this address ("" = this machine).

    Raises:
        ConfigError: Ray is to run something else.
        RobotRLError: see the message; whatever was recorded stays in the run folder, and the same
            command with the same run_dir goes on from there.
    """
    experiment.check()
    if ray is not None and (experiment.runtime != "lockstep" or not experiment.actors):
        raise ConfigError(
            "Ray runs simulated actors only",
            expected="runtime=lockstep actors=N, for --ray",
            got=f"runtime={experiment.runtime} actors={len(experiment.actors) or 'none'}",
            fix="robot-rl train experiment=... runtime=lockstep actors=4 --ray",
        )
    with at_work(experiment.save(), "train"):
        end_pause(experiment.run_dir)  # who starts it wants it to go on
        if experiment.runtime == "ros":
            from robot_rl.run.graph import train_ros

            result = train_ros(experiment, watch)
        elif experiment.actors:
            from robot_rl.run.graph import train_simulated

            result = train_simulated(experiment, watch, ray)
        else:
            result = _train_lockstep(experiment, watch)
        if experiment.train.video:
            record_video(experiment.run_dir, experiment)
    return result


def _train_lockstep(experiment: Experiment, watch: Watch) -> dict[str, Any]:
    run_dir, spec = experiment.run_dir, experiment.spec
    with (
        Store(run_dir / STORE, spec=spec, synchronous="episode") as store,
        experiment.reward.beside(store) as trouble,
    ):
        store.recover(experiment.run_name, ACTOR)
        policy = policy_of(experiment)
        take_dataset(experiment, store, policy)
        learner = learner_of(experiment, store, trouble)
        learner.publish_period_s = 0.0  # publish whenever something was learned: deterministic
        take_cores(experiment.learner.threads)
        learner.load()
        student = _Student(learner, policy)
        with recorded_session(
            experiment,
            policy,
            store,
            on_step=student.on_step,
            on_episode=lambda stats: watch(stats | learner.metrics),
        ) as session:
            session.demos()
            learner.ingest()
            refuse_nothing(experiment, learner.replay.len_demo)
            try:
                student.prepare(watch)
                student.practising = True
                session.practice()
                student.practising = False
            except KeyboardInterrupt:  # what was learned since the newest checkpoint is kept
                learner.save_or_warn()
                raise
            learner.save()
            learner.close()
            result = finish(session, run_dir, runtime="lockstep")
        policy.close()
        return result


def refuse_nothing(experiment: Experiment, usable: int) -> None:
    """Raise where a run is to learn from what is there alone, and no step of it is usable."""
    train, asked = experiment.own_train, experiment.learner.pretrain_updates
    if asked and not train.max_env_steps and not usable:
        raise ConfigError(
            f"there is nothing to learn from in {asked} updates before practice",
            expected="steps of demonstrations or data of which this algorithm makes use",
            got=f"none, with train.demos={train.demos} and train.dataset={train.dataset or 'none'}",
            fix="record demonstrations (train.demos=20), or name a run with successes: "
            "train.dataset=RUN",
        )


def finish(session: Session, run_dir: Path, *, runtime: str) -> dict[str, Any]:
    """Save the policy, evaluate it on held-out starts, write eval.json (whole or not at all).

    Of an evaluation that somebody stops nothing is written, and {} is returned.
    """
    settings, policy, train_s = session.train, session.loop.policy, session.remember()
    session.state = "evaluation"
    if isinstance(policy, PolicyRuntime) and policy.weights is not None:
        save_policy(run_dir, policy.weights, session.spec)
    deterministic = session.evaluate(settings.eval_episodes)
    session.state = "evaluation with noise"
    stochastic = session.evaluate(settings.stochastic_eval_episodes, deterministic=False)
    if session.stopping():
        log.warning("stopped before the evaluation was complete: nothing is written of it")
        return {}
    result = {
        "deterministic": deterministic.as_dict(),
        "stochastic": stochastic.as_dict(),
        "runtime": runtime,
        "env_steps": session.progress.env_steps,
        "train_s": train_s,
        "mastered": session.mastered,
        "mastered_steps": session.progress.mastered_steps,
        "human_steps": session.progress.human_steps,
        "weights_version": session.loop.policy.version,
        "seed": EVAL_SEED,
        "evaluated_in": runtime,
    }
    return write_eval(run_dir, result)


class _Student:
    """Lockstep learning: after each control tick, as many updates as the budget allows."""

    def __init__(self, learner: Learner, policy: PolicyRuntime) -> None:
        self.learner, self.policy, self.practising = learner, policy, False

    def on_step(self, _step: Step) -> None:
        """Learn from the step just recorded, then adopt the newest weights."""
        if self.practising:
            self.learner.ingest()
            self.learn()

    def prepare(self, watch: Watch) -> None:
        """Learn from what is there before practice, in parts: seen on the way, and kept."""
        began_s, done, total = time.monotonic(), 0, self.learner.updates_due()
        while due := self.learner.updates_due():
            done += self.learner.update(min(due, UPDATES_SHOWN))
            left_s = (time.monotonic() - began_s) * max(0, total - done) / max(1, done)
            figures = {"progress": done / total, "time_left_s": left_s}
            watch(
                self.learner.metrics | figures | {"state": f"learning, {done} of {total} updates"}
            )
        watch({"progress": None})
        self.learn()

    def learn(self) -> None:
        """Spend what the update budget allows now."""
        due = self.learner.updates_due()
        if due:
            self.learner.update(due)
        weights = self.learner.weights()
        if weights.version > self.policy.version:
            self.policy.load(weights)
