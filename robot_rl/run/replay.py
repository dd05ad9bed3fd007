"""`robot-rl replay`: recorded episodes once more, through the gate, in the simulator.

The start is drawn again from the seeds of run and episode; then every *executed* action is sent in
its control tick, as `ControlLoop` sent it: as a delta on the pose measured now. An episode recorded
in lockstep comes out the same to the last bit, but after a clipped command only nearly so: what the
gate sends then may lie a little outside the range of an action, and is stored as the nearest
action. Over ROS 2 a command reached the arm a little later and the arm had driven to its start, and
a real arm is not the simulated one: then the replay tells how far the two come apart.

The store is only read.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE, STORE, run_name
from robot_rl.data.import_store import ACTOR as IMPORTED
from robot_rl.errors import ConfigError, StoreError, did_you_mean
from robot_rl.operate.scripted import NoOperator
from robot_rl.run.experiment import Experiment
from robot_rl.run.film import film
from robot_rl.run.lockstep import Rig, make_rig
from robot_rl.run.parts import Still, forget, simulated_task
from robot_rl.run.scene import in_scene
from robot_rl.spec import IMAGE, Spec, diff
from robot_rl.store.dataset import find_store, open_store
from robot_rl.store.store import Store
from robot_rl.store.summary import EpisodeRecord
from robot_rl.tasks.common import SimTask
from robot_rl.types import EpisodeStart, Frame, Outcome, RobotState, Step, Verdict

log = logging.getLogger(__name__)

STORES = (ACTOR_STORE, STORE, LEARNER_STORE)  # the newest episode is in the actor's own first
LENGTH = re.compile(r"([\d.]+) (mm|m)(?![\w/])")  # unit of a state entry: "50 mm", not "0.1 m/s"


@dataclass(frozen=True, slots=True)
class Ruler:
    """How far two state vectors are apart.

    entry: the position that is compared, by its distance in mm; "" = all entries, by the largest
    difference in units of the observation. scale: what one unit of `part` counts.
    """

    entry: str
    part: slice
    scale: float

    @property
    def unit(self) -> str:
        """The unit of what `apart` returns; "" means units of the observation."""
        return "mm" if self.entry else ""

    def apart(self, a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
        """Distance between two state vectors."""
        off = (a[self.part].astype(np.float64) - b[self.part]) * self.scale
        return float(np.linalg.norm(off) if self.entry else np.abs(off).max())


@dataclass(frozen=True, slots=True)
class Recording:
    """A stored episode: frames[k] is before steps[k], the last one after all of them."""

    start: EpisodeStart
    record: EpisodeRecord
    steps: list[Step]
    frames: list[Frame]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of one episode.

    purpose, seed, ending: as recorded. success: the task's predicate on the last state; before:
    what was recorded, None = nobody said. outcomes, outcomes_before: verdict -> steps, now and as
    recorded. held: why the gate held first, "" = never. entry, unit: see `Ruler`; off: distance to
    the recorded state at the start and after each step.
    """

    run: str
    actor: str
    episode: int
    purpose: str
    seed: int
    ending: str
    success: bool
    before: bool | None
    outcomes: dict[str, int]
    outcomes_before: dict[str, int]
    held: str
    entry: str
    unit: str
    off: list[float]

    @property
    def steps(self) -> int:
        """How many control ticks were played."""
        return len(self.off) - 1

    @property
    def as_recorded(self) -> bool:
        """Whether it ended as recorded; also True where nobody said how it ended then."""
        return self.before in (None, self.success)

    def as_dict(self) -> dict[str, Any]:
        """The fields and properties, and start, largest and last distance, for --json."""
        ends = {"off_start": self.off[0], "off_max": max(self.off), "off_final": self.off[-1]}
        return asdict(self) | ends | {"steps": self.steps, "as_recorded": self.as_recorded}


def replay(
    run_dir: Path,
    *,
    numbers: Sequence[int] = (),
    every: bool = False,
    actor: str = "",
    video: Path | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    scene: Sequence[str] = (),
) -> list[Replayed]:
    """Play episodes of a run again.

    Args:
        run_dir: of the run.
        numbers: of the episodes; empty = the newest that has ended.
        every: all that have ended, instead.
        actor: whose episodes, where a store holds those of several robots; "" = any.
        video: an mp4 (H.264) to write, all episodes one after the other.
        progress: called with (steps done, steps in all).
        scene: `task.randomize=...` and `task.ranges=...` in the place of the run's own.

    Raises:
        ConfigError: not a run, its task has no simulated arm, or no such episode.
        StoreError: nothing recorded, a store of another spec, or an episode that has not ended or
            has gaps.
        SetupError: the simulator, or OpenGL for the video, is missing.
    """
    experiment = in_scene(Experiment.load(run_dir), scene)
    task: Any = simulated_task(experiment)
    with open_store(_store_of(run_dir)) as store:
        _check_spec(store, experiment.spec)
        chosen = choose(store, run_name(run_dir), numbers, every=every, actor=actor)
        total, ticks = sum(record.steps for record in chosen), itertools.count(1)
        replayed: list[Replayed] = []
        still = Still(task.spec.action.size)
        rig: Any = make_rig(experiment, still, record=forget, operator=NoOperator(task))
        rig.draws = None  # the run keeps what was drawn when it was recorded
        rate_hz = task.spec.control_hz
        arms = {arm.actor: arm for arm in experiment.arms}
        with film(rig, video, rate_hz) if video else nullcontext() as made:

            def on_tick() -> None:
                if made is not None:
                    made.show()
                progress(next(ticks), total)

            for record in chosen:
                recording = read(store, record)
                if recording.start.limits_hash != experiment.limits.hash:
                    log.warning("episode %d was recorded under other limits", record.id.episode)
                arm = arms.get(record.id.actor, experiment)
                if arm is not experiment and isinstance(arm.task, SimTask):
                    rig.robot.vary(arm.task.drawn_ranges)  # each arm of a run has its own draws
                replayed.append(play(rig, recording, arm.draws_seed, on_tick))
                if made is not None:
                    made.pause()
    return replayed


def _store_of(run_dir: Path) -> Path:
    """The actor's store; the learner's, if it is here and the actor's has removed episodes."""
    found = find_store(run_dir, STORES) or run_dir
    with open_store(found) as store:
        whole = None if not store.removed_to() else find_store(run_dir, (LEARNER_STORE,))
    return whole or found


def choose(
    store: Store, run: str, numbers: Sequence[int] = (), *, every: bool = False, actor: str = ""
) -> list[EpisodeRecord]:
    """Episodes that can be played: those with these numbers, all, or the newest one.

    Data of other runs (`train.dataset`) is left out, and so is what was generated or imported: its
    starts come from another run's seed, or from none. run: name of the run; a folder from before
    run.json had it, renamed since, holds others only.

    Raises:
        ConfigError: no such episode, or several robots have one with this number.
        StoreError: the episode has not ended, or no episode has; or all of them are such data.
    """
    every_one = store.episode_summaries()
    recorded = [r for r in every_one if r.purpose != "data" and r.id.actor != IMPORTED]
    if every_one and not recorded:
        raise StoreError(
            "imported or generated data is not replayed",
            expected="episodes that this run has recorded: its seed says where each began",
            got=f"{len(every_one)} episodes of other runs or recorders, and none of its own",
            fix="replay the run that recorded them; robot-rl review shows what was recorded",
        )
    recorded = [r for r in recorded if r.id.run == run] or recorded
    actors = {r.id.actor for r in recorded}
    if actor and actor not in actors:
        raise ConfigError(
            f"nothing was recorded by '{actor}'",
            expected="the name of an actor of this run",
            got=actor,
            fix=did_you_mean(actor, actors),
        )
    recorded = [r for r in recorded if actor in ("", r.id.actor)]
    finished = [r for r in recorded if r.ending is not None and r.steps and not r.removed]
    if not finished:
        raise StoreError(
            "there is no episode to replay",
            expected="an episode that has ended",
            got=f"{len(recorded)} episodes, none of which has ended",
            fix="wait for the end of the first one, or record some: robot-rl record",
        )
    if every:
        return finished
    return [_find(recorded, finished, n) for n in numbers] or finished[-1:]


def read(store: Store, record: EpisodeRecord) -> Recording:
    """Read an episode.

    Raises:
        StoreError: a step or a frame of it is missing.
    """
    id_ = record.id
    start = next(s for s in store.episodes(id_.run, id_.actor) if s.id == id_)
    steps, found = store.steps(id_), {f.frame: f for f in store.frames(id_)}
    wanted = [*(s.frame for s in steps), steps[-1].next_frame]
    gaps = [f"step {i}" for i, s in enumerate(steps) if s.step != i][:1]
    gaps += [f"frame {n}" for n in wanted if n not in found][:1]
    if gaps:
        raise StoreError(
            f"episode {id_.episode} has gaps",
            expected=f"every step and frame of it in {store.path.name}",
            got=f"no {' and no '.join(gaps)}",
            fix="replay another episode, or one from the store of the actor that recorded it",
        )
    return Recording(start, record, steps, [found[n] for n in wanted])


def play(
    rig: Rig, recording: Recording, run_seed: int, on_tick: Callable[[], None] = lambda: None
) -> Replayed:
    """Play one recording on a lockstep rig of its task; `on_tick` is called after each tick.

    run_seed: of the run that recorded it (`Session.episode` draws starts from both seeds).
    """
    robot, start, record = rig.robot, recording.start, recording.record
    task = rig.loop.task
    ruler = ruler_of(task.spec)
    apart: list[float] = []
    verdicts: list[Verdict] = []
    played = states_of(rig, recording, run_seed)
    for frame, (state, verdict) in zip(recording.frames, played, strict=True):
        apart.append(ruler.apart(state, frame.observation["state"]))
        if verdict is not None:
            verdicts.append(verdict)
            on_tick()
    return Replayed(
        run=start.id.run,
        actor=start.id.actor,
        episode=start.id.episode,
        purpose=start.purpose,
        seed=start.seed,
        ending=str(record.ending),
        success=bool(task.success(robot.read())),
        before=record.success,
        outcomes=_count(v.outcome for v in verdicts),
        outcomes_before=_count(s.outcome for s in recording.steps),
        held=next((v.reason for v in verdicts if v.outcome is Outcome.HOLD), ""),
        entry=ruler.entry,
        unit=ruler.unit,
        off=apart,
    )


def states_of(
    rig: Rig, recording: Recording, run_seed: int, measured: Sequence[RobotState] = ()
) -> Iterator[tuple[NDArray[np.float32], Verdict | None]]:
    """Play one recording: the state vector of its start, and after each tick with the verdict.

    measured: then, at each frame; an action is a delta on it. Empty = on what is measured now.

    Pictures are not compared: the recorded ones are passed on, and nothing has to be drawn.
    """
    loop, robot, start = rig.loop, rig.robot, recording.start
    task, period_s = loop.task, 1.0 / loop.task.spec.control_hz

    def observed(frame: Frame) -> NDArray[np.float32]:
        pictures = {name: frame.observation[IMAGE + name] for name in task.spec.cameras}
        return task.observe(robot.read(), pictures)["state"]

    rig.reset(task.sample_reset(np.random.default_rng((run_seed, start.seed))), start)
    tick_s = loop.clock.now_s()
    yield observed(recording.frames[0]), None
    for number, (step, frame) in enumerate(zip(recording.steps, recording.frames[1:], strict=True)):
        state = robot.read()
        on = measured[number] if measured else state
        command = loop.next_command(step.action, step.driver, on)
        verdict = rig.gate.request(command, state)
        robot.apply(verdict.command)
        tick_s += period_s
        loop.clock.sleep_until_s(tick_s)
        yield observed(frame), verdict


def ruler_of(spec: Spec) -> Ruler:
    """The first position in the state vector, else all of the vector."""
    for name, size, unit in spec.state_layout:
        length = LENGTH.match(unit)
        if length and size == 3:
            scale = float(length[1]) * (1000.0 if length[2] == "m" else 1.0)
            return Ruler(name, spec.state_slices[name], scale)
    return Ruler("", slice(None), 1.0)


def _count(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Steps per verdict, including verdicts that did not occur."""
    found = Counter(outcomes)
    return {outcome.value: found[outcome] for outcome in Outcome}


def _check_spec(store: Store, spec: Spec) -> None:
    saved = store.spec.as_dict() if store.spec else {}
    lines = diff(saved, spec.as_dict())
    if lines:
        raise StoreError(
            f"{store.path.name} was recorded with another task than the one of this run",
            expected="the observations and actions that config.yaml stands for",
            got="; ".join(lines),
            fix="put the store back into the folder of the run that recorded it",
        )


def _find(
    recorded: Sequence[EpisodeRecord], finished: Sequence[EpisodeRecord], number: int
) -> EpisodeRecord:
    """The episode with this number."""
    found = [r for r in recorded if r.id.episode == number]
    exist = _ranges(r.id.episode for r in finished)
    if not found:
        raise ConfigError(
            f"there is no episode {number}",
            expected=f"one of {exist}",
            got=str(number),
            fix="choose one of these, or --all",
        )
    if len(found) > 1:
        raise ConfigError(
            f"several robots have an episode {number}",
            expected="one robot",
            got=", ".join(r.id.actor for r in found),
            fix=f"add --actor {found[0].id.actor}",
        )
    if found[0].removed:
        raise StoreError(
            f"the steps of episode {number} were removed from the actor's store",
            expected=f"one that is here: {exist}",
            got="one that only the learner's store has",
            fix="replay it in the run's folder on the learner's machine",
        )
    if found[0] not in finished:
        raise StoreError(
            f"episode {number} has not ended" if found[0].steps else f"episode {number} is empty",
            expected=f"one that has ended: {exist}",
            got=f"{found[0].steps} steps, and it still runs or was cut short",
            fix="wait for its end; of a run that died, train with the same run_dir closes it",
        )
    return found[0]


def _ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 5 -> "0-2, 5"."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans)
