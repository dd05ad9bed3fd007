"""`robot-rl eval RUN1 RUN2 ... --on robot`: which policy is better; nobody sees which one drives.

Blind: in which order the policies drive is drawn from a secret, whose hash is told before the first
episode and which is told after the last. Paired: each start is used by every policy; a picture of
the scene at the first helps the person to restore it for the others.

The secret lies in the folder, so that a comparison survives kill -9. It keeps anybody from seeing
the order by chance, not from looking it up.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import SCENE_PICTURES
from robot_rl.control.session import ACTOR, EVAL_SEED, EXAM_RETRIES
from robot_rl.control.wrapped import Wrapped
from robot_rl.errors import ConfigError, RobotRLError, SpecError
from robot_rl.ports import ResetPlan
from robot_rl.report.tally import Ledger
from robot_rl.run.at_work import alone_in
from robot_rl.run.deploy import (
    install_policy,
    loaded_policy,
    read_plan,
    refuse_other_plan,
    write_plan,
)
from robot_rl.run.experiment import Experiment
from robot_rl.run.rounds import Recording, Rounds, Side, Watch, lockstep_side, robot_side
from robot_rl.run.sealed import commitment_of, order_of, sealed_secret
from robot_rl.store.cycles import ROUND, Cycle
from robot_rl.store.daily import DailyStore
from robot_rl.system.files import write_picture
from robot_rl.types import EpisodeId, EpisodeStart, Weights

if TYPE_CHECKING:
    from robot_rl.policy.runtime import PolicyRuntime
    from robot_rl.ports import ActorPorts

log = logging.getLogger(__name__)

COMPARE = "compare"  # kind of plan
POLICIES = "policies"  # folder: one folder for each policy, in the order of the command
BLIND = ("weights/",)  # figures that would tell which policy drives
WHO = "did the robot succeed? Label the newest episode: success, failure, or neutral (run it again)"


@dataclass(frozen=True, kw_only=True)
class ComparePlan:
    """What a comparison is to do: so many starts, each by all policies.

    runs: the trained runs; commitment: SHA-256 of the secret.
    """

    kind: str = COMPARE
    runs: tuple[str, ...] = ()
    episodes: int = 20
    commitment: str = ""

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.episodes < 1 or not self.runs:
            raise ValueError("a comparison needs runs and at least one start")


def compare(
    experiments: Sequence[Experiment],
    policies: Sequence[Weights],
    runs: Sequence[Path],
    episodes: int,
    watch: Watch = lambda _line: None,
    *,
    now_s: Callable[[], float] = time.time,
    stopping: Callable[[], str] = lambda: "",
) -> Path:
    """Let the policies of some runs drive from the same starts; returns the folder.

    Args:
        experiments: of each run on this robot side, all with the folder as run_dir.
        policies: of each run.
        watch, now_s, stopping: see `deploy`.

    Raises:
        RobotRLError: see the message; the same command goes on where it stopped.
    """
    _refuse_unlike(experiments, policies, runs)
    first = experiments[0]
    first.check()
    folder = first.save()
    refuse_other_plan(folder, COMPARE)
    with alone_in(folder):
        for index, (experiment, weights) in enumerate(zip(experiments, policies, strict=True)):
            own = dataclasses.replace(experiment, run_dir=folder / POLICIES / str(index))
            own.save()
            install_policy(own, weights)
        secret = sealed_secret(folder)
        plan = ComparePlan(
            runs=tuple(str(run) for run in runs),
            episodes=episodes,
            commitment=commitment_of(secret),
        )
        write_plan(folder, asdict(plan))
        with DailyStore(folder, first.spec, now_s=now_s) as store:
            store.turn()
        if first.runtime == "ros":
            from robot_rl.run.graph import deploy_ros

            deploy_ros(first, watch)
        else:
            _in_lockstep(first, plan, watch, now_s, stopping)
    return folder


def _refuse_unlike(
    experiments: Sequence[Experiment], policies: Sequence[Weights], runs: Sequence[Path]
) -> None:
    first, *others = experiments
    for other, run in zip(others, runs[1:], strict=True):
        if other.task.name != first.task.name or other.spec.hash != first.spec.hash:
            from robot_rl.spec import diff

            lines = diff(first.spec.as_dict(), other.spec.as_dict())
            raise SpecError(
                f"{runs[0]} and {run} cannot be compared: they learned different things",
                expected="the same task, observation and actions",
                got=f"{first.task.name}, {other.task.name}"
                + "".join(f"\n    {line}" for line in lines),
                fix="compare runs of one task with the same cameras",
            )
        if _task_section(other) != _task_section(first):
            raise SpecError(
                f"{runs[0]} and {run} cannot be compared: their tasks differ",
                expected=json.dumps(_task_section(first)),
                got=json.dumps(_task_section(other)),
                fix="give the values on which they differ as words: task.max_steps=...",
            )
    for i, weights in enumerate(policies):
        for j in range(i):
            if weights.sha256 == policies[j].sha256:
                raise ConfigError(
                    f"{runs[j]} and {runs[i]} hold the same policy",
                    expected="different policies",
                    got=f"twice SHA-256 {weights.sha256[:12]}",
                    fix="leave one of them out",
                )


def _task_section(experiment: Experiment) -> dict[str, Any]:
    return experiment.plain_section("task")


def _in_lockstep(
    experiment: Experiment,
    plan: ComparePlan,
    watch: Watch,
    now_s: Callable[[], float],
    stopping: Callable[[], str],
) -> None:
    drivers = _load(experiment, plan)
    with ExitStack() as stack:
        recording = Recording(experiment, now_s=now_s)
        stack.callback(recording.close)
        pictures = Pictures(experiment)
        side = stack.enter_context(
            lockstep_side(experiment, drivers[0], recording, pictures.take, stopping)
        )
        pictures.side = side
        Comparison(
            experiment, side, recording, plan, drivers=drivers, pictures=pictures, watch=watch
        ).run()


def compare_on_ports(experiment: Experiment, ports: ActorPorts) -> None:
    """The actor's part of a comparison over ROS 2."""
    given = read_plan(experiment.run_dir)
    plan = ComparePlan(**{**given, "runs": tuple(given["runs"])})
    drivers = _load(experiment, plan, real_time=True)
    with ExitStack() as stack:
        recording = Recording(experiment, background=True)
        stack.callback(recording.close)
        for driver in drivers:
            stack.callback(driver.close)
        pictures = Pictures(experiment)
        side = robot_side(experiment, ports, drivers[0], recording, pictures.take)
        pictures.side = side
        Comparison(experiment, side, recording, plan, drivers=drivers, pictures=pictures).run()


def _load(experiment: Experiment, plan: ComparePlan, *, real_time: bool = False) -> list[Nameless]:
    folders = [experiment.run_dir / POLICIES / str(i) for i in range(len(plan.runs))]
    loaded = [loaded_policy(Experiment.load(f), real_time=real_time) for f in folders]
    return [Nameless(policy) for policy in loaded]


class Nameless(Wrapped):
    """A policy whose version is not told: every row of a comparison says 0."""

    def __init__(self, policy: PolicyRuntime) -> None:
        super().__init__(policy)
        self._close = policy.close

    @property
    def version(self) -> int:
        """0, whatever drives."""
        return 0

    def close(self) -> None:
        """Close the schedule of a base policy."""
        self._close()


class Pictures:
    """A picture of each start, taken before its first episode; the page shows it for the others."""

    def __init__(self, experiment: Experiment) -> None:
        self._folder = experiment.run_dir / SCENE_PICTURES
        self.side: Side | None = None  # whose cameras
        self.start = ""  # name of the start that is being prepared

    def name(self, index: int) -> str:
        """Name of a start, as in the files' names."""
        return f"start-{index:03d}"

    def has(self, index: int) -> bool:
        """Whether there is a picture of this start."""
        return any(self._folder.glob(f"{self.name(index)}-*.jpg"))

    def take(self) -> None:
        """Called when a scene has been prepared: keep how it looks, unless that is known."""
        if self.side is None or not self.start or any(self._folder.glob(f"{self.start}-*.jpg")):
            return
        for camera in self.side.loop.cameras:
            self._folder.mkdir(exist_ok=True)
            _, rgb = camera.read()
            path = self._folder / f"{self.start}-{camera.name}.jpg"
            new = path.with_suffix(".new.jpg")
            write_picture(new, rgb[:, :, ::-1])
            new.replace(path)


class Comparison:
    """Round after round: a start, a policy that nobody names, one episode that counts."""

    def __init__(
        self,
        experiment: Experiment,
        side: Side,
        recording: Recording,
        plan: ComparePlan,
        *,
        drivers: Sequence[Nameless],
        pictures: Pictures,
        watch: Watch = lambda _line: None,
    ) -> None:
        self._side, self._recording, self._plan = side, recording, plan
        self._drivers, self._pictures = drivers, pictures
        self._secret = sealed_secret(experiment.run_dir)
        self._ledger = Ledger(experiment.run_dir, recording.run, ACTOR)
        side = dataclasses.replace(side, reset=self._restore(side.reset))
        self._rounds = Rounds(experiment, side, recording, self._figures, watch)
        self._rounds.told.hidden += BLIND
        self._rounds.session.state = "comparison"
        self._now, self._tries = (0, 0), 0

    def run(self) -> None:
        """Raises `RobotRLError` when nobody can say whether an episode succeeded."""
        try:
            while not self._side.stopping() and (todo := self._next()):
                self._now = todo
                start, slot = todo
                self._pictures.start = self._pictures.name(start)
                which = order_of(self._secret, start, len(self._drivers))[slot]
                self._side.loop.policy = self._drivers[which]
                self._rounds.told.write(0, {}, state="comparison", scene=self._scene())
                summary = self._rounds.one("eval", EVAL_SEED + start)
                self._recording.note(summary.id, summary.steps - 1, ROUND, f"{start}.{slot}")
                self._judge(summary.id)
                self._rounds.told.write(0, {}, state="comparison", scene="")
                self._refuse_endless(todo)
        finally:
            self._rounds.close()
            self._ledger.close()

    def _refuse_endless(self, todo: tuple[int, int]) -> None:
        """Raise `RobotRLError` when a round is begun again and again."""
        self._tries = self._tries + 1 if self._next() == todo else 0
        if self._tries == EXAM_RETRIES:
            raise RobotRLError(
                "a round never comes to an end",
                expected="an episode that is not aborted",
                got=f"{self._tries} in a row that were, or that nobody called success or failure",
                fix="read logs/actor.log; the same command goes on with this round",
            )

    def _next(self) -> tuple[int, int] | None:
        """The first round that has no episode that counts, with a word on its success."""
        self._recording.store.flush()
        done = set(rounds_of(self._ledger.cycles()))
        slots = range(len(self._drivers))
        every = ((i, j) for i in range(self._plan.episodes) for j in slots)
        return next((todo for todo in every if todo not in done), None)

    def _judge(self, id_: EpisodeId) -> None:
        """Have a person say how an episode ended if nothing else tells."""
        while not self._side.stopping():
            self._recording.store.flush()
            cycle = next(c for c in self._ledger.cycles() if c.episode == id_.episode)
            if cycle.success is not None or not cycle.counts or self._neutral(id_):
                return
            if self._side.ask is None:
                raise RobotRLError(
                    "nobody says whether the episode succeeded",
                    expected="a task that can tell, or a person at the robot",
                    got="neither",
                    fix="a reward that judges (reward=classifier), or --on robot with a person",
                )
            self._side.ask(WHO)

    def _neutral(self, id_: EpisodeId) -> bool:
        from robot_rl.store.labels import review

        with self._recording.store.holding(id_) as store:
            return review(store.labels(id_)).neutral

    def _scene(self) -> str:
        """Name of the start's picture, "" while there is none."""
        start, _ = self._now
        return self._pictures.name(start) if self._pictures.has(start) else ""

    def _restore(
        self, reset: Callable[[Any, EpisodeStart], None]
    ) -> Callable[[Any, EpisodeStart], None]:
        """A reset that asks the person for the scene of the first episode from this start."""

        def again(plan: ResetPlan, start: EpisodeStart) -> None:
            if self._now[1] and plan.ask is None:
                names = [*(["the part in the gripper"] if plan.held_in_tcp else []), *plan.objects]
                how = "as in the picture" if self._scene() else "as it was for this start"
                text = f"the scene {how}: {', '.join(names)}" if names else ""
                plan = dataclasses.replace(plan, ask=text)
            reset(plan, start)

        return again

    def _figures(self) -> Mapping[str, Any]:
        """How far it is; nothing about who drives, or how well."""
        done = len(rounds_of(self._ledger.cycles()))
        total = self._plan.episodes * len(self._drivers)
        return {"compare/rounds": done, "compare/of": total, "progress": done / total}


def rounds_of(cycles: Sequence[Cycle]) -> dict[tuple[int, int], Cycle]:
    """(start, slot) -> the last of its episodes that counts and of which success is known."""
    found = {}
    for cycle in cycles:
        if cycle.round and cycle.counts and cycle.success is not None:
            start, _, slot = cycle.round.partition(".")
            found[int(start), int(slot)] = cycle
    return found
