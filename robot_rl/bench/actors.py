"""`robot-rl bench actors`: rows per second of several simulated actors at one learner.

The processes are those of `robot-rl train runtime=lockstep actors=N`: each actor with simulator,
gate, policy, store and link of its own, and a learner that commits their rows. The learner makes no
gradient updates here, because simulated time would wait for them, and the figures would be its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from robot_rl.config.run_folder import LEARNER_STORE
from robot_rl.console.address import HOST
from robot_rl.errors import RobotRLError
from robot_rl.ros.supervise import Supervisor
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import learner_spec, sim_actor_spec
from robot_rl.store.store import Store
from robot_rl.system.ports import probe

PACE_HZ = 10.0
START_S = 120.0  # until every actor's rows arrive
SETTLE_S = 2.0
CASES = (  # name, actors, pace_hz
    ("paced_1", 1, PACE_HZ),
    ("paced_4", 4, PACE_HZ),
    ("unpaced_1", 1, 0.0),
    ("unpaced_2", 2, 0.0),
)
TARGETS = {"paced_4/times_rows_of_one": 3.6, "unpaced_2/times_rows_of_one": 1.6}
"""The least that a figure may be."""


def bench(seconds: float) -> dict[str, Any]:
    """Rows per second at the learner for each of `CASES`, measured for `seconds`, on two cores."""
    figures: dict[str, Any] = {}
    with _two_cores() as cores:
        figures["cores"] = cores
        for name, actors, pace_hz in CASES:
            figures[f"{name}/rows_per_s"] = rows_per_s(actors, pace_hz, seconds)
    for many, one in (("paced_4", "paced_1"), ("unpaced_2", "unpaced_1")):
        ratio = figures[f"{many}/rows_per_s"] / figures[f"{one}/rows_per_s"]
        figures[f"{many}/times_rows_of_one"] = ratio
    return figures


@contextmanager
def _two_cores() -> Iterator[int]:
    """Keep this process and those that it starts on two cores; yields how many it has."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield len(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, before)


def rows_per_s(actors: int, pace_hz: float, seconds: float) -> float:
    """Rows per second that several simulated actors bring to one learner.

    Raises:
        RobotRLError: they do not start.
    """
    with tempfile.TemporaryDirectory(prefix="robot-rl-actors-") as folder:
        experiment = Experiment.compose(
            [
                "experiment=reach",
                "runtime=lockstep",
                "operator=none",
                f"actors={actors}",
                f"pace_hz={pace_hz}",
                f"link.port={probe(HOST, 0)}",
                "learner.min_steps=1000000000",
                "train.demos=0",
                "train.max_env_steps=1000000000",
                "train.min_env_steps=1000000000",
                "train.max_minutes=60",
                f"run_dir={folder}/run",
            ]
        )
        run_dir = experiment.save()
        arms = [sim_actor_spec(arm.run_dir, arm.arm) for arm in experiment.arms]
        with Supervisor((learner_spec(run_dir, released=True), *arms), run_dir) as running:
            _await_all(experiment, running)
            time.sleep(SETTLE_S)
            with Store(run_dir / LEARNER_STORE) as store:
                before, began_s = store.last_seq(), time.monotonic()
                time.sleep(seconds)
                return (store.last_seq() - before) / (time.monotonic() - began_s)


def _await_all(experiment: Experiment, running: Supervisor) -> None:
    """Wait until the learner has rows of each actor."""
    path, deadline_s = experiment.run_dir / LEARNER_STORE, time.monotonic() + START_S
    expected = {arm.actor for arm in experiment.arms}
    while time.monotonic() < deadline_s:
        running.poll()
        time.sleep(0.2)
        if not path.is_file():
            continue
        with Store(path) as store:
            if {start.id.actor for start in store.episodes()} == expected:
                return
    raise RobotRLError(
        "the actors do not start",
        expected=f"rows of {', '.join(sorted(expected))} within {START_S:.0f} s",
        got=f"logs in {experiment.run_dir / 'logs'}",
        fix="robot-rl doctor checks this machine",
    )
