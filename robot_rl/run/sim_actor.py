"""A simulated actor: one arm of a lockstep run that feeds a learner process over the link.

`python -m robot_rl.run.sim_actor RUN/arms/NAME`. Simulator, gate and loop are those of a lockstep
run, store and link those of a run over ROS 2: so several of them teach one learner, on this machine
or on others. Its simulated time waits for the learner as time over ROS 2 does
(`Actor._learner_keeps_up`), and, with `pace_hz`, for the wall clock.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from robot_rl.ports import ActorPorts, Clock, ResetPlan
from robot_rl.run.actor import Actor
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import Rig, make_rig
from robot_rl.run.parts import Still, forget
from robot_rl.run.robot_side import Starts
from robot_rl.system.supervised import exit_code, orphaned, supervisor_pid
from robot_rl.types import EpisodeStart

log = logging.getLogger(__name__)

LOOK_S = 0.002  # wall; between two looks whether the learner has caught up


class PacedClock:
    """A simulator's clock that waits: for whoever must keep up, and for the wall clock.

    Args:
        clock: the simulator's; sleeping steps it.
        period_s: of the control loop, simulated.
        pace_hz: control periods per second of wall time; 0 = as fast as they are computed.
        stopping: nobody is waited for when it says why to stop.
    """

    def __init__(
        self, clock: Clock, period_s: float, pace_hz: float, stopping: Callable[[], str]
    ) -> None:
        self._clock, self._stopping = clock, stopping
        self._ratio = 1.0 / (period_s * pace_hz) if pace_hz else 0.0  # wall seconds per simulated
        self._ready: dict[str, Callable[[], bool]] = {}
        self._began_s = clock.now_s(), time.monotonic()

    def now_s(self) -> float:
        """Seconds on the simulator's clock."""
        return self._clock.now_s()

    def wait_for(
        self, who: str, ready: Callable[[], bool], _at_work: Callable[[], bool] = lambda: False
    ) -> None:
        """Let no time pass while `ready` is false."""
        self._ready[who] = ready

    def sleep_until_s(self, deadline_s: float) -> None:
        """Step the simulator to the deadline; return when everybody has kept up."""
        before_s = self._clock.now_s()
        self._clock.sleep_until_s(deadline_s)
        while not (all(ready() for ready in self._ready.values()) or self._stopping()):
            time.sleep(LOOK_S)
        if self._ratio:
            self._keep_pace(before_s)

    def _keep_pace(self, before_s: float) -> None:
        simulated_s, wall_s = self._began_s
        now_s = self._clock.now_s()
        due_s = wall_s + (now_s - simulated_s) * self._ratio
        late_s = time.monotonic() - due_s
        if late_s > (now_s - before_s) * self._ratio:  # never run after time that was lost
            self._began_s = now_s, time.monotonic()
        elif late_s < 0.0:
            time.sleep(-late_s)


class WallStarts(Starts):
    """Starts that wait in wall time: a learner at work needs it, and nobody the simulator's."""

    def pause(self, for_s: float) -> None:
        """Wait."""
        time.sleep(for_s)


class SimulatedActor(Actor):
    """An actor whose arm is put at the start of an episode instead of going there."""

    def __init__(
        self,
        experiment: Experiment,
        run_dir: Path,
        stopping: Callable[[], str],
        first_episode: int = 0,
    ) -> None:
        still = Still(experiment.task.spec.action.size)
        rig = make_rig(experiment, still, record=forget)
        assert isinstance(rig, Rig)  # `Experiment.check` refuses an environment without an arm
        self._rig, loop = rig, rig.loop
        period_s = 1.0 / experiment.task.spec.control_hz
        clock = PacedClock(loop.clock, period_s, experiment.pace_hz, stopping)
        ports = ActorPorts(
            robot=loop.robot,
            cameras=loop.cameras,
            gate=loop.gate,
            clock=clock,
            operator=loop.operator,
            place_objects=rig.robot.reset,
            ask=lambda _words: None,  # nobody is there, and every scene is in order
            announce=lambda _start: None,
            time_waits_for=clock.wait_for,
            figures=dict,
            stopping=stopping,
        )
        super().__init__(experiment, ports, run_dir)
        self._starts = WallStarts(ports, self.loop)
        progress = self.session.progress
        progress.next_episode = max(progress.next_episode, first_episode)

    def _reset(self, plan: ResetPlan, start: EpisodeStart) -> None:
        """Put arm and objects at the start; practice waits while the learner refuses the link."""
        if start.purpose == "train":
            self.link.raise_if_refused()
        self._rig.robot.reset(plan)
        self._rig.gate.reset()
        self._rig.gate.arm(self.loop.lease)


def run(run_dir: Path, first_episode: int = 0) -> int:
    """Act until the session has ended, or until SIGTERM or SIGINT. Returns the exit code.

    first_episode: the store of an earlier life is lost; its episodes, at the learner, keep theirs.

    Raises:
        RobotRLError: wrong configuration, keys or store; no learner.
    """
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: asked.append(n))
    supervisor = supervisor_pid() or os.getppid()

    def stopping() -> str:
        return "asked to stop" if asked or orphaned(supervisor) else ""

    actor = SimulatedActor(Experiment.load(run_dir), run_dir, stopping, first_episode)
    gc.freeze()  # as the nodes do (ros.runtime): else each episode begins with half a second of it
    return actor.run()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit code."""
    folder, *first = argv or sys.argv[1:]
    return exit_code(lambda: run(Path(folder), *map(int, first)))


if __name__ == "__main__":
    raise SystemExit(main())
