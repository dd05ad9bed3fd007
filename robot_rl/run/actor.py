"""The actor process: control loop, store and link of one robot, in real time.

Started again after any kill, it reads its own store and goes on with the next episode of the same
phase. The loop's thread never touches the disk or the network: rows go to the writer's queue, the
link has its own thread, weights are adopted between two steps.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.config.run_folder import ACTOR_STORE, LINK, METRICS, POLICY
from robot_rl.control.session import Others
from robot_rl.errors import LinkError, RobotRLError
from robot_rl.learn.metrics import MetricSink
from robot_rl.link.auth import keys_for
from robot_rl.link.client import LinkClient
from robot_rl.policy.runtime import load_policy
from robot_rl.ports import ActorPorts, ResetPlan
from robot_rl.run.dump import write_dump
from robot_rl.run.parts import policy_of, scene_log, session_of, take_dataset
from robot_rl.run.pause import is_paused
from robot_rl.run.robot_side import Starts, loop_on
from robot_rl.run.train import finish, refuse_nothing
from robot_rl.store.store import Store
from robot_rl.store.writer import StoreWriter
from robot_rl.types import EpisodeStart, Step

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

FIRST_WEIGHTS_S = 120.0  # how long to wait for a learner that is still starting
LEARNER_S = 1.0  # how long to wait for the word of a learner that runs; without one, time is lost
BACKLOG_STEPS = 20  # two seconds at 10 Hz: what is on its way to the learner and back, and no more
BACKLOG_ROWS = 3 * BACKLOG_STEPS  # a step, its frame, and what is said of it


class Actor:
    """Wires one robot's loop to its store, link and session."""

    def __init__(
        self,
        experiment: Experiment,
        ports: ActorPorts,
        run_dir: Path,
        *,
        demos_only: bool = False,
    ) -> None:
        self.experiment, self.ports, self.run_dir = experiment, ports, run_dir
        self._demos_only = demos_only
        task, spec = experiment.task, experiment.spec
        self.store = Store(run_dir / ACTOR_STORE, spec=spec)
        self.store.recover(experiment.run_name, experiment.actor)
        self.policy = policy_of(experiment, real_time=experiment.runtime == "ros")
        take_dataset(experiment, self.store, self.policy)
        scenes = scene_log(experiment)
        self.writer = StoreWriter(self.store, after=scenes.flush)
        link = experiment.link
        read_keys = partial(
            keys_for, link, experiment.home, experiment.key_name, experiment.key_names
        )
        self.link = LinkClient(
            link,
            read_keys(),
            spec,
            run_dir / ACTOR_STORE,
            run=experiment.run_name,
            actor=experiment.actor,
            pairing=read_keys if link.paired else None,
            status_file=run_dir / LINK if link.paired else None,
        )
        self._backlog_updates = BACKLOG_STEPS * experiment.learner.utd
        self._adopted_s, self._refused = time.monotonic(), ""
        self.metrics = MetricSink(run_dir / METRICS)
        self.loop = loop_on(
            experiment,
            ports,
            self.policy,
            self.writer.put,
            experiment.reward.open(task),
            on_step=self._on_step,
            on_frame=scenes.saw,
        )
        self._starts = Starts(ports, self.loop)
        self.session = session_of(
            experiment,
            self.loop,
            self._reset,
            metrics=self.metrics,
            store=self.store,
            before_episode=self._between,
            figures=self._figures,
            on_stuck=self._retry,
            stopping=ports.stopping,
            paused=partial(is_paused, experiment.home),
            others=self._others,
            free_from=self.link.next_episode,
        )
        self._updates_seen = -1
        ports.time_waits_for("learner", self._learner_keeps_up, self._learner_is_at_work)

    def run(self) -> int:
        """Demonstrations, then practice and evaluation; returns the process exit code."""
        gc.disable()
        self.link.start()
        self.link.next_episode(LEARNER_S)  # before a number is used
        try:
            session = self.session
            session.demos()
            if self._demos_only:
                return 0
            self._hand_over()
            self._await_weights()
            if session.progress.mastered:
                self._take_back()
            session.practice()
            self.link.tell(mastered=session.progress.mastered)
            if not self.ports.stopping():
                finish(session, self.run_dir, runtime=self.experiment.runtime)
        finally:
            gc.enable()
            with contextlib.ExitStack() as stack:  # each of them, whatever the others raise
                stack.callback(self.policy.close)
                stack.callback(self.store.close)
                stack.callback(self.link.stop)
                stack.callback(self.writer.close)
        return 0

    def _between(self) -> None:
        """Between episodes: what must never happen in a tick."""
        gc.collect()
        if self.policy.refused is not None:
            log.error("%s; they drive no more", self.policy.problem)
            self.writer.flush()
            try:
                write_dump(self.store, self.run_dir, self.policy.problem, self.policy.refused)
            except (OSError, RobotRLError) as error:  # the steps are in the store all the same
                log.error("the last steps of the policy are not written down: %s", error)

    def _retry(self, error: RobotRLError) -> bool:
        """Try a start again that failed; a policy that was frozen waits for other weights."""
        if self.session.purpose == "train" or self.policy.refused is not None:
            self._adopt()
        return self._starts.retry(error)

    def _figures(self) -> dict[str, float]:
        """Ages and queues for each episode's metric line; queues of rows not yet at the learner."""
        link = self.link.status()
        return {
            "weights/staleness_s": time.monotonic() - self._adopted_s,
            "link/queue": float(link["pending_rows"]),
            "link/connected": float(link["connected"]),
            "store/lag": float(self.writer.lag()),
            **self.ports.figures(),
        }

    def _others(self) -> Others:
        """What the learner last said of the whole run; nothing in a run with one arm."""
        if not self.experiment.arm:
            return Others()
        learner = self.link.status()["learner"]
        steps, mastered = learner.get("env_steps", 0), learner.get("mastered", False)
        return Others(int(steps), bool(mastered))

    def _learner_keeps_up(self) -> bool:
        """Whether the learner has nearly done the updates that the steps so far pay for.

        Nobody waits for a learner that is not connected: rows wait in the store, the robot goes on.
        """
        link = self.link.status()
        learner = link["learner"]
        if not link["connected"] or "updates_owed" not in learner:
            return True
        rows = link["pending_rows"] + self.writer.lag()
        return rows <= BACKLOG_ROWS and learner["updates_owed"] <= self._backlog_updates

    def _learner_is_at_work(self) -> bool:
        """Whether it has done more updates than when this was asked last."""
        before = self._updates_seen
        self._updates_seen = self.link.status()["learner"].get("updates", before)
        return self._updates_seen != before

    def _on_step(self, _step: Step) -> None:
        """Between two steps of practice: adopt newer weights if they are here."""
        if self.session.purpose == "train":  # an evaluation judges one policy throughout
            self._adopt()

    def _adopt(self) -> None:
        weights = self.link.newest_weights()
        # "other", not "newer": a learner that went back to a checkpoint goes on counting from there
        if weights is not None and weights.version != self.policy.version:
            if weights.sha256 == self._refused:
                return
            try:
                self.policy.load(weights)
            except RobotRLError as error:  # the ones in use stay; the next may be better
                self._refused = weights.sha256
                log.error("the learner's weights are not adopted: %s", error)
                return
            self._adopted_s = time.monotonic()

    def _hand_over(self) -> None:
        """Tell the learner, once it has them, that the demonstrations are complete."""
        self.writer.flush()
        while not self.link.drain(1.0) and not self.ports.stopping():
            self.link.raise_if_refused()
            self._starts.pause(0.05)
        self.link.tell(demonstrated=True)

    def _await_weights(self) -> None:
        """Wait for a first policy, a pretrained one where the run has pretraining.

        If the learner refused the handshake, its error is raised here. So is that of a run that
        was to learn from demonstrations alone, of which none is usable.
        """
        wanted = 0
        train = self.experiment.train
        if self.session.progress.demos or train.dataset or (self.experiment.arm and train.demos):
            wanted = self.experiment.learner.pretrain_updates
        if not wanted:
            refuse_nothing(self.experiment, 0)
        before, deadline_s = -1, time.monotonic() + FIRST_WEIGHTS_S
        while not self.ports.stopping():
            self.link.raise_if_refused()
            self._adopt()
            learner = self.link.status()["learner"]
            if learner.get("demonstrated") and not learner.get("demo_rows", 1):
                refuse_nothing(self.experiment, 0)
                wanted = 0  # practice alone teaches it
            behind = learner.get("published_updates", -1) < wanted
            behind |= self.policy.version < learner.get("published_version", 0)
            if self.policy.version >= 0 and not (wanted and behind):
                return
            done = learner.get("updates", 0)
            if done != before or not learner.get("demonstrated", True):  # others still show it
                before, deadline_s = done, time.monotonic() + FIRST_WEIGHTS_S
            if self.experiment.link.paired and not self.link.status()["connected"]:
                deadline_s = time.monotonic() + FIRST_WEIGHTS_S  # the other machine may come late
            if time.monotonic() > deadline_s:
                raise LinkError(
                    "no weights from the learner",
                    expected=f"first weights, or one more update, within {FIRST_WEIGHTS_S:.0f} s",
                    got=str(self.link.status()),
                    fix="start the learner (`robot-rl learner`), check host, port and keys",
                )
            self._starts.pause(0.05)

    def _take_back(self) -> None:
        """Take the policy that has passed the exam, as `finish` has saved it: it is evaluated.

        The learner's newest is another one, as it may have learned since.
        """
        if not (self.run_dir / POLICY).is_file():  # killed before it was saved
            return
        try:
            self.policy.load(load_policy(self.run_dir, self.experiment.spec))
        except RobotRLError as error:
            log.error("the learner's newest policy is evaluated: %s", error)

    def _reset(self, plan: ResetPlan, start: EpisodeStart) -> None:
        """Announce, arm, go to the start; practice waits while the learner refuses the link."""
        if start.purpose == "train":
            self.link.raise_if_refused()
        self._starts(plan, start)
