"""The learner process: it serves the link, keeps a store, and does what updates the budget allows.

It shares nothing with the actor but the link. Killed at any moment, it continues from its own store
and newest checkpoint; meanwhile the robot goes on with the weights it has. Under
`torchrun -m robot_rl.run.learner RUN` several processes are one learner (`learn.ranks`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from robot_rl.config.run_folder import LEARNER_STORE
from robot_rl.learn import ranks
from robot_rl.learn.learner import Learner
from robot_rl.link.auth import keys_for
from robot_rl.link.server import LinkServer
from robot_rl.run.experiment import Experiment, TrainConfig
from robot_rl.run.pairing import listening
from robot_rl.run.parts import learner_of
from robot_rl.store.store import Store
from robot_rl.system import priority
from robot_rl.system.audit import audit_into
from robot_rl.system.supervised import exit_code, orphaned, supervisor_pid

log = logging.getLogger(__name__)

TURN_S = 0.1  # of learning: rows, weights and a stop signal never wait much longer
IDLE_MS = 20
ORPHAN_S = 0.5  # between two looks at whether the supervisor is there, while loading
DEMONSTRATED = "demonstrated"  # what the actor says when all demonstrations and data are here
MASTERED = "mastered"  # what an actor says after its exam, and the learner to the others
SAVE_EVERY_S = 60.0  # a kill costs at most this much learning; the data is in the store anyway


def run(run_dir: Path) -> None:
    """Serve and learn until it is told to end; saves a checkpoint on the way out.

    A signal tells it: SIGTERM, SIGINT, or SIGHUP (its terminal is closed; not under nohup). Or its
    supervisor has ended; started by hand it has none.

    Raises:
        RobotRLError: port in use, wrong keys, store or checkpoints of another run.
    """
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda n, _: stop.append(n))
    supervisor = supervisor_pid()
    audit_into(run_dir)
    experiment = Experiment.load(run_dir)
    priority.keep_apart(priority.LEARNER, experiment.learner.threads)
    spec = experiment.spec
    ranks.join()
    try:
        with Store(run_dir / LEARNER_STORE, spec=spec) as store, ExitStack() as stack:
            server = None
            if ranks.rank() == 0:
                link = replace(experiment.link, host=listening(experiment.link, run_dir))
                keys = keys_for(link, run_dir, "learner", experiment.key_names)
                server = stack.enter_context(LinkServer(link, keys, spec, store, experiment.roster))
            trouble = stack.enter_context(experiment.reward.beside(store))
            learner = learner_of(experiment, store, trouble)
            stack.callback(learner.close)
            with _no_longer_than(supervisor):
                learner.load()
                learner.ingest()
            learner.may_pretrain = _demonstrated(store, experiment.train)
            arms = max(1, len(experiment.actors))
            try:
                saved_s = time.monotonic()
                # never outlive the supervisor
                while ranks.agree(not stop and not orphaned(supervisor)):
                    turn(learner, server, arms)
                    due = learner.updates and time.monotonic() - saved_s > SAVE_EVERY_S
                    if ranks.agree(bool(due)):
                        learner.save_or_warn()
                        saved_s = time.monotonic()
            finally:
                if learner.updates:
                    learner.save_or_warn()
    finally:
        ranks.leave()


@contextmanager
def _no_longer_than(supervisor: int | None) -> Iterator[None]:
    """End this process at once when the supervisor is gone: loading may take minutes.

    The port would be held meanwhile. What is on the disk stays whole, as after a kill.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(ORPHAN_S):
            if orphaned(supervisor):
                os._exit(1)

    threading.Thread(target=watch, name="orphan", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _demonstrated(store: Store, train: TrainConfig) -> bool:
    """Whether the store holds all data for pretraining; if not, the actor says so when it does."""
    shown = [e for e in store.episode_summaries() if e.purpose == "demo" and e.success]
    return not train.dataset and len(shown) >= train.demos


def turn(learner: Learner, server: LinkServer | None, arms: int = 1) -> int:
    """Take what has arrived, learn a little, offer the newest weights. Returns updates done.

    server: None on every rank but the first, which decides how much is learned. arms: how many
    have to say that their demonstrations are complete.
    """
    if server is not None:
        server.poll(0 if learner.updates_due() else IDLE_MS)
        learner.ingest()
        learner.may_pretrain |= sum(map(bool, server.told(DEMONSTRATED))) >= arms
    due = learner.updates_due()  # after ingesting: a row may take the only data away
    due = ranks.agree(min(due, max(1, int(learner.updates_per_s * TURN_S))))
    if server is None:
        learner.ingest()  # after the first rank: it has committed what it counted
    done = learner.update(due) if due else 0
    if server is not None:
        server.publish(learner.weights())
        said = {DEMONSTRATED: learner.may_pretrain, MASTERED: any(server.told(MASTERED))}
        server.set_status({**learner.status(), **said})
    return done


def main(argv: Sequence[str] | Path | None = None) -> int:
    """Entry point: `python -m robot_rl.run.learner RUN`. Returns the exit code."""
    run_dir = argv if isinstance(argv, Path) else Path((argv or sys.argv[1:])[0])
    return exit_code(lambda: run(run_dir))


if __name__ == "__main__":
    raise SystemExit(main())
