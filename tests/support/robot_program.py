"""The robot's side of a run on two machines, without ROS: the real loop, store, link and pairing.

    python -m tests.support.robot_program RUN key=value ...

The arm is kinematic (`tests.support.fakes`), the clock is the wall's, the policy is the run's own
network, loaded from what the learner sends. "pair STRING" is printed first. Then, on standard
input, "phase NAME" begins a phase, and "end" stops the robot, waits for the last acknowledgement
and prints one line of JSON: for each phase ticks, percentiles of the control period in wall time,
most rows that waited, weights adopted.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import ACTOR_STORE, LINK
from robot_rl.control.arbiter import Arbiter
from robot_rl.control.loop import ControlLoop
from robot_rl.link.auth import keys_for
from robot_rl.link.client import LinkClient
from robot_rl.reward.predicate import PredicateReward
from robot_rl.run.experiment import Experiment
from robot_rl.run.pairing import invite
from robot_rl.run.parts import policy_of
from robot_rl.store.store import Store
from robot_rl.store.writer import StoreWriter
from robot_rl.system.clock import WallClock
from robot_rl.types import EpisodeId, EpisodeStart, Frame, RobotState, Step
from tests.support.fakes import FakeGate, FakeOperator, FakeRobot

ACTOR = "actor-0"


@dataclass
class Phase:
    """What happened in one phase."""

    starts_s: list[float] = field(default_factory=list)  # of ticks; NaN between episodes
    most_waiting: int = 0
    versions: set[int] = field(default_factory=set)
    round_trip_ms: float | None = None

    def figures(self) -> dict[str, Any]:
        """For the report."""
        period = np.diff(np.array(self.starts_s)) * 1e3
        period = period[np.isfinite(period)]
        p50, p99 = np.percentile(period, (50, 99)) if len(period) else (0.0, 0.0)
        return {
            "ticks": len(period),
            "period_ms_p50": round(float(p50), 2),
            "period_ms_p99": round(float(p99), 2),
            "period_ms_max": round(float(period.max(initial=0.0)), 2),
            "most_rows_waiting": self.most_waiting,
            "round_trip_ms": self.round_trip_ms,
            "weights": len(self.versions),
        }


class FakeCamera:
    """Noise, as hard to compress as it gets."""

    def __init__(self, name: str, size: tuple[int, int]) -> None:
        self.name = name
        self._pictures = np.random.default_rng(0).integers(0, 256, (16, *size, 3), dtype=np.uint8)
        self._next = 0

    def read(self) -> tuple[float, NDArray[np.uint8]]:
        self._next += 1
        return time.monotonic(), self._pictures[self._next % 16]


class RobotProgram:
    """One robot that practises for as long as it may."""

    def __init__(self, run: Path, words: list[str]) -> None:
        self.experiment = Experiment.compose([*words, f"run_dir={run}"])
        self.experiment.save()
        self.run, self.phases, self.phase = run, {}, Phase()
        self.ending = False
        spec, link, task = self.experiment.spec, self.experiment.link, self.experiment.task
        self.store = Store(run / ACTOR_STORE, spec=spec, reserve_bytes=0)
        self.writer = StoreWriter(self.store)
        self.policy = policy_of(self.experiment, real_time=True)
        self.inviter = invite(self.experiment)
        read = partial(keys_for, link, run, link.actor_key)
        self.link = LinkClient(
            link,
            read(),
            spec,
            self.store.path,
            run=run.name,
            pairing=read,
            status_file=run / LINK,
        )
        clock: Any = WallClock()
        self.robot = FakeRobot(clock, task.sample_reset(np.random.default_rng(0)))
        still = np.zeros(spec.action.size, np.float32)
        self.loop = ControlLoop(
            task=task,
            robot=self.robot,
            cameras=[FakeCamera(n, spec.picture_size(n)) for n in spec.cameras],
            gate=FakeGate(),
            clock=clock,
            policy=self.policy,
            operator=FakeOperator(lambda _tick: self.policy.version < 0, still),
            arbiter=Arbiter(self.experiment.arbiter, spec.action.size),
            reward=PredicateReward(task),
            record=self.writer.put,
            lease="test",
            on_frame=self._on_frame,
            on_step=self._on_step,
            stopping=lambda: "the end" if self.ending else "",
        )

    def _on_frame(self, _frame: Frame, _state: RobotState) -> None:
        self.phase.starts_s.append(time.perf_counter())

    def _on_step(self, _step: Step) -> None:
        weights, status = self.link.newest_weights(), self.link.status()
        if weights is not None and weights.version != self.policy.version:
            self.policy.load(weights)
            self.phase.versions.add(weights.version)
        self.phase.most_waiting = max(self.phase.most_waiting, status["pending_rows"])
        self.phase.round_trip_ms = status["round_trip_ms"] or self.phase.round_trip_ms

    def practise(self) -> None:
        """Episode after episode, until the end; until there is a policy, a person stands still."""
        spec, rng, number = self.experiment.spec, np.random.default_rng(1), 0
        gc.disable()  # as the actor does
        while not self.ending:
            plan = self.experiment.task.sample_reset(rng)
            self.robot.tcp, self.robot.objects = plan.tcp_in_base, plan.objects
            id = EpisodeId(self.run.name, ACTOR, number)
            self.loop.run_episode(EpisodeStart(id, "train", "reach", spec.hash, "", number, 0))
            self.phase.starts_s.append(float("nan"))
            gc.collect()
            number += 1

    def listen(self) -> None:
        """What standard input says."""
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "phase":
                self.phase = self.phases[rest[0]] = Phase()
            else:
                break
        self.ending = True

    def main(self) -> None:
        """Run to the end and print the report."""
        with self.inviter:
            say(f"pair {self.inviter.invitation.encode()}")
            self.link.start()
            threading.Thread(target=self.listen, daemon=True).start()
            self.practise()
            self.writer.close()
            drained = self.link.drain(120.0)
        self.link.stop()
        status = self.link.status()
        report = {"phases": {n: p.figures() for n, p in self.phases.items()}}
        report |= {"drained": drained, "rows": self.store.last_seq()}
        report |= {"refused": status["refused"], "learner": status["learner"]}
        say(json.dumps(report))
        self.store.close()


def say(line: str) -> None:
    """One line for the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    RobotProgram(Path(sys.argv[1]), sys.argv[2:]).main()
