"""Episodes of a run for the review page: read from the store, labelled by appending to it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE, SCENE_PICTURES, STORE
from robot_rl.console.batch import grouped, read_batch
from robot_rl.console.compatible import Compatible
from robot_rl.console.exports import file_of
from robot_rl.console.signals import plots, signals_of
from robot_rl.console.starts import MOST_STARTS, Starts
from robot_rl.console.unfinished import still_runs
from robot_rl.data.names import action_names
from robot_rl.errors import StoreError
from robot_rl.spec import Spec
from robot_rl.store.dataset import find_store
from robot_rl.store.labels import (
    ACTION_SPREAD,
    DROVE,
    FOLDED,
    LEARNER_SOURCES,
    PREDICATE,
    PROGRESS,
    SUCCESS_SCORE,
    VLM_SUCCESS,
    Review,
    check_label,
    review,
    standing,
    who_drove,
)
from robot_rl.store.rows import MAX_NUMBER, RowKind
from robot_rl.store.scenes import SCENES, Scenes
from robot_rl.store.store import Store
from robot_rl.store.summary import EpisodeRecord
from robot_rl.system import priority
from robot_rl.types import Ending, EpisodeId, Frame, Label, RobotState

SCENE = "scene"  # the camera of a simulated run without cameras: drawn when somebody looks
STORES = (ACTOR_STORE, STORE)  # of a run over ROS 2; of a lockstep run
KEPT = 4  # episodes whose frames stay in memory while somebody scrubs through them
CLASSIFIER = "classifier"  # source of its scores
START = re.compile(r"start-\d{3,6}")  # name of a start of a comparison
LONGEST_S = 60.0  # what may be labelled at once
DRIVEN = "SELECT DISTINCT run, actor, episode, driver FROM steps WHERE seq > ? AND seq <= ?"


class Records:
    """The store of a run; may not be there yet when the console starts before the run.

    Args:
        mirror: makes the `robot_rl_sim.mirror.Mirror` that draws the scenes of a simulated run;
            None: they are not drawn.
        home: folder of the learner, where it is another than the arm's.
    """

    def __init__(
        self, run_dir: Path, mirror: Callable[[], Any] | None = None, home: Path | None = None
    ) -> None:
        self._run_dir, self._make_mirror, self._home = run_dir, mirror, home or run_dir
        self._store: Store | None = None
        self._learner_store: Store | None = None
        self._frames = lru_cache(maxsize=KEPT)(self._read_frames)
        self._scenes = Scenes(run_dir / SCENES)
        self._artist = ThreadPoolExecutor(1, "scene", initializer=priority.step_back)
        self._aside = ThreadPoolExecutor(1, "starts", initializer=priority.step_back)
        self._mirror: Any = None  # belongs to the artist's thread, as its OpenGL context does
        self._drivers: dict[EpisodeId, frozenset[str]] = {}  # who drove any of its steps
        self._counted: dict[Path, int] = {}  # store -> seq up to which that is known
        self._starts: Starts | None = None
        self._compatible = Compatible(run_dir)
        self._turn = Lock()  # an episode is read once for all cameras; labels are numbered in order

    @property
    def store(self) -> Store:
        """The run's store. Raises `StoreError` while there is none."""
        found = find_store(self._run_dir, STORES)
        if self._store is not None and found is not None:
            found = found.resolve()  # a deployment begins a new file each day
            if found != self._store.path:
                self._store = None  # not closed: another thread may be reading it
        if self._store is None:
            if found is None:
                raise StoreError(
                    "nothing has been recorded yet",
                    expected=" or ".join(STORES) + f" in {self._run_dir}",
                    got="neither",
                    fix="wait until the run has started",
                )
            store = Store(found.resolve())
            if store.spec is None:  # opened before the run has written its spec
                store.close()
                raise StoreError("the run has just begun", expected="its spec", got="none yet")
            self._store = store
        return self._store

    def is_empty(self) -> bool:
        """Whether nothing has been recorded yet."""
        try:
            _ = self.store
        except StoreError:
            return True
        return False

    def drove(self) -> list[Label]:
        """What the console has said of who drove."""
        return self.store.all_labels((DROVE,))

    def _learner_labels(self, read: Callable[[Store], list[Label]]) -> list[Label]:
        """Labels of the models that run beside the learner, in a run over ROS 2."""
        store = self._learners()
        found = [] if store is None else read(store)
        return [x for x in found if x.source in LEARNER_SOURCES]

    def _learners(self) -> Store | None:
        """The learner's store, where it is on this machine."""
        path = self._home / LEARNER_STORE
        if self._learner_store is None and self.store.path.name != LEARNER_STORE and path.is_file():
            self._learner_store = Store(path)
        return self._learner_store

    def _holding(self, id_: EpisodeId) -> Store:
        """The store that has an episode's steps: the learner's, if they were removed here.

        Raises:
            StoreError: they were removed here, and the learner is on another machine.
        """
        first = (RowKind.STEP, id_.run, id_.actor, id_.episode, 0)
        for store in (self.store, self._learners()):
            if store is not None and (not store.removed_to() or store.has(first)):
                return store
        if any(r.id == id_ and r.removed for r in self.store.episode_summaries()):
            raise StoreError(
                "the steps of this episode are not on this machine any more",
                expected="an episode whose steps are here",
                got=f"one that only the learner has: {id_.episode}",
                fix="look at it on the learner's machine: robot-rl review RUN",
            )
        return self.store

    def close(self) -> None:
        """Close the mirror, in the thread that it belongs to."""
        if self._mirror is not None:
            self._artist.submit(self._mirror.close).result()
        self._artist.shutdown()
        self._aside.shutdown()

    def episodes(self) -> list[dict[str, Any]]:
        """All episodes, newest first; without observations."""
        store = self.store
        labels: dict[EpisodeId, list[Label]] = {}
        words = store.all_labels(FOLDED)
        words += self._learner_labels(lambda learner: learner.all_labels((VLM_SUCCESS,)))
        for label in words:
            labels.setdefault(label.id, []).append(label)
        people = who_drove(self.drove())
        reviews = {id_: review(said) for id_, said in labels.items()}
        drivers = self._drivers_of()
        agrees = self._compatible.read()
        truths = {id_: x.value > 0.0 for id_, x in store.last_scores(PREDICATE).items()}
        records = store.episode_summaries()
        running = self._running(records)
        return [
            {
                "run": r.id.run,
                "actor": r.id.actor,
                "episode": r.id.episode,
                "purpose": r.purpose,
                "steps": r.steps,
                "human_steps": r.human_steps,
                "drove": people.get(r.id, {}),
                "ending": None if r.id in running else r.ending or Ending.ABORTED,
                "success": r.success,
                "stamp_ns": r.stamp_ns,
                "review": _verdict(said := reviews.get(r.id, Review())),
                "voices": _voices(said, r.success, truths.get(r.id)),
                "drivers": sorted(drivers.get(r.id, ())),
                "compatible": agrees[r.id][0] if r.id in agrees else None,
                "authors": sorted({x.author for x in standing(labels.get(r.id, ()))}),
            }
            for r in reversed(records)
        ]

    def _running(self, records: Sequence[EpisodeRecord]) -> set[EpisodeId]:
        """The episodes that are being recorded: of each actor its newest, while it works."""
        newest = {(r.id.run, r.id.actor): r for r in records}
        return {
            r.id
            for r in newest.values()
            if r.ending is None and still_runs(self._run_dir, self.store.path, r.stamp_ns / 1e9)
        }

    def _drivers_of(self) -> Mapping[EpisodeId, frozenset[str]]:
        """The drivers of each episode's steps; only what is new since the last call is read."""
        with self._turn:
            for store in filter(None, (self.store, self._learners())):
                last = store.last_seq()
                new = (self._counted.get(store.path, 0), last)
                for run, actor, episode, driver in store.select(DRIVEN, new):
                    id_ = EpisodeId(run, actor, episode)
                    self._drivers[id_] = self._drivers.get(id_, frozenset()) | {driver}
                self._counted[store.path] = last
        return self._drivers

    def episode(self, id_: EpisodeId) -> dict[str, Any]:
        """Steps, events and labels of one episode, and the names of its cameras."""
        store = self.store
        steps = self._holding(id_).steps(id_)
        if not steps and not store.events(id_):
            raise _missing(id_)
        labels, spec = store.labels(id_), store.spec
        labels += self._learner_labels(lambda learner: learner.labels(id_))
        said, end = review(labels), steps[-1] if steps else None
        ends = {
            x.source: x.value > 0.0
            for x in labels
            if end is not None and (x.kind, x.step) == (SUCCESS_SCORE, end.step)
        }
        by = CLASSIFIER if CLASSIFIER in ends else "recorded"
        return {
            "cameras": self._cameras(spec, id_),
            "control_hz": spec.control_hz if spec else None,
            "actions": (spec and action_names(spec)) or [],
            "steps": [
                {
                    "step": s.step,
                    "driver": s.driver,
                    "segment": s.segment,
                    "action": [round(float(a), 3) for a in s.action],
                    "policy_action": [round(float(a), 3) for a in s.policy_action],
                    "outcome": s.outcome,
                    "reason": s.reason,
                    "reward": s.reward,
                    "ending": s.ending,
                    "success": s.success,
                }
                for s in steps
            ],
            "events": [
                {"step": e.step, "name": e.name, "detail": e.detail} for e in store.events(id_)
            ],
            "labels": [
                {"label": x.label, "author": x.author, "kind": x.kind, "value": x.value,
                 "step": x.step, "stamp_ns": x.stamp_ns}
                for x in labels if x.kind in FOLDED
            ],
            "scores": _scores(labels) + self._compatible.curves(id_),
            "review": _verdict(said),
            "inferred": sum(x.kind == ACTION_SPREAD for x in labels),
            "ending": self._ending(id_, store),
            "authors": sorted({x.author for x in standing(x for x in labels if x.kind in FOLDED)}),
            "voices": _voices(said, end.success if end else None, ends.get(PREDICATE), by),
        }  # fmt: skip

    def _ending(self, id_: EpisodeId, store: Store) -> Ending | None:
        if (known := store.ending(id_)) is not None:
            return known
        return None if id_ in self._running(store.episode_summaries()) else Ending.ABORTED

    def _cameras(self, spec: Spec | None, id_: EpisodeId) -> list[str]:
        recorded = sorted(spec.cameras) if spec else []
        return recorded or [SCENE] * self._scenes.has(id_.episode)

    def picture(self, id_: EpisodeId, frame: int, camera: str) -> bytes:
        """A camera's picture in one frame, JPEG.

        Raises:
            StoreError: there is no such picture.
            SetupError: it has to be drawn, and there is no OpenGL.
        """
        if camera == SCENE:
            state = self._scenes.state(id_.episode, frame)
            if state is None or self._make_mirror is None:
                raise _missing(id_, f"frame {frame} of '{camera}'")
            return _jpeg(self._artist.submit(self._draw, state).result())
        found = self._frames_until(id_, frame).get(frame)
        image = None if found is None else found.observation.get(f"image/{camera}")
        if image is None:
            raise _missing(id_, f"frame {frame} of '{camera}'")
        return _jpeg(image)

    def signals(self, id_: EpisodeId, names: Sequence[str]) -> dict[str, Any]:
        """What can be plotted of an episode, and the points of the named signals.

        Raises:
            StoreError: there is no such episode or signal.
        """
        spec = self.store.spec
        assert spec is not None  # `store` says so
        steps = self._holding(id_).steps(id_)
        if not steps:
            raise _missing(id_)
        frames = self._frames_until(id_, steps[-1].next_frame) if names else {}
        return {
            "known": [signal.about() for signal in signals_of(spec).values()],
            "signals": plots(spec, names, steps, frames),
        }

    def starts(self) -> dict[str, Any]:
        """Where the newest episodes started; the first frame of each is read once."""
        return self._aside.submit(self._read_starts).result()

    def _read_starts(self) -> dict[str, Any]:
        store = self.store
        assert store.spec is not None
        if self._starts is None:
            self._starts = Starts(store.spec)
        records = [r for r in store.episode_summaries() if r.steps][-MOST_STARTS:]
        learners = self._learners()
        for r in records:
            if r.id not in self._starts:
                holding = learners if r.removed else store
                first = None if holding is None else holding.frame(r.id, 0)
                own = r.purpose != "data"  # what was imported has other scenes
                scene = self._scenes.state(r.id.episode, 0) if own else None
                self._starts.add(r.id, first, scene)
        return self._starts.told([r.id for r in records])

    def export(self, id_: EpisodeId, kind: str) -> tuple[str, IO[bytes]]:
        """An episode as a file for another viewer: its name, and itself; see `exports.file_of`."""
        return file_of(self._holding(id_), id_, kind)

    def _draw(self, state: RobotState) -> NDArray[np.uint8]:
        """The scene, by the mirror that also draws the console's own picture."""
        if self._mirror is None:
            assert self._make_mirror is not None
            self._mirror = self._make_mirror()
        return self._mirror.picture(state)

    def label(self, said: Mapping[str, Any], author: str) -> dict[str, Any]:
        """Append what a person says about an episode; without "episode": about the newest one.

        With "last_s" instead of "step", each step of the last `last_s` seconds gets the label.

        Raises:
            StoreError: the label makes no sense, or the disk is full; nothing is stored.
        """
        store = self.store
        id_, steps = self._meant(said)
        step, value, last_s = said.get("step"), said.get("value", 1.0), said.get("last_s")
        if (
            not isinstance(value, int | float)
            or not abs(value) <= MAX_NUMBER
            or not (step is None or isinstance(step, int))
        ):
            raise StoreError("a label needs a number", expected="value: number", got=str(said)[:80])
        meant = (step,) if last_s is None else self._last_steps(steps, last_s)
        first = self.say(id_, str(said.get("kind")), float(value), author, meant=meant, steps=steps)
        words = f"{said['kind']} {value:g} of episode {id_.episode}"
        words += "" if last_s is None else f", steps {meant[0]} to {meant[-1]}"
        return {
            "label": first,
            "run": id_.run,
            "actor": id_.actor,
            "episode": id_.episode,
            "said": words,
            "review": _verdict(review(store.labels(id_))),
        }

    def say(
        self,
        id_: EpisodeId,
        kind: str,
        value: float,
        author: str,
        *,
        meant: Sequence[int | None] = (None,),
        steps: int | None = None,
    ) -> int:
        """Append a label for each step that is meant; return the number of the first.

        steps: how many the episode has, for what a person says; None: the console's own word.

        Raises:
            StoreError: the label makes no sense, or the disk is full; nothing is stored.
        """
        store = self.store
        with self._turn:
            first, stamp_ns = store.next_label(id_, author), time.time_ns()
            labels = [  # one stamp for all: they are taken back together
                Label(id_, first + i, which, kind, value, "person", author, stamp_ns)
                for i, which in enumerate(meant)
            ]
            store.append(x if steps is None else _checked(x, steps) for x in labels)
        return first

    def label_many(self, said: Mapping[str, Any], author: str) -> dict[str, Any]:
        """Append one label to each of several episodes, all or none; see `batch.read_batch`.

        The answer has the form of an undo of it: `of`, with the numbers of the labels as "values".

        Raises:
            StoreError: it makes no sense for one of them, or the disk is full; nothing is stored.
        """
        store = self.store
        kind, values = read_batch(said)
        steps = {record.id: record.steps for record in store.episode_summaries()}
        if unknown := next((id_ for id_ in values if id_ not in steps), None):
            raise _missing(unknown)
        with self._turn:
            stamp_ns = time.time_ns()
            labels = [
                Label(
                    id=id_,
                    label=store.next_label(id_, author),
                    step=None,
                    kind=kind,
                    value=value,
                    source="person",
                    author=author,
                    stamp_ns=stamp_ns,
                )
                for id_, value in values.items()
            ]
            store.append(_checked(label, steps[label.id]) for label in labels)
        count = f"{len(labels)} episode{'s' * (len(labels) != 1)}"
        return {"said": f"{kind} of {count}", "of": grouped({x.id: x.label for x in labels})}

    def scene(self, start: str, camera: str) -> bytes:
        """The picture of a camera by which a person restores the scene of a start, JPEG.

        Raises:
            StoreError: there is none.
        """
        spec = self.store.spec
        path = self._run_dir / SCENE_PICTURES / f"{start}-{camera}.jpg"
        known = spec is not None and camera in spec.cameras and START.fullmatch(start)
        if not known or not path.is_file():
            raise StoreError(
                "there is no picture of this start",
                expected="start-NNN, and a camera of the task",
                got=f"{start[:20]}, {camera[:40]}",
                fix="the first episode from a start takes it",
            )
        return path.read_bytes()

    def score(self) -> dict[str, Any] | None:
        """What the run's classifier says now; None without one."""
        found = self.store.newest_score(CLASSIFIER)
        return None if found is None else {"author": found.author, "value": found.value}

    def known(self, said: Mapping[str, Any]) -> EpisodeId:
        """The episode that "run", "actor" and "episode" name. Raises `StoreError`: none."""
        number = said["episode"] if isinstance(said.get("episode"), int) else -1
        id_ = EpisodeId(str(said.get("run")), str(said.get("actor")), number)
        if not self.store.has((RowKind.EPISODE, id_.run, id_.actor, id_.episode)):
            raise _missing(id_)
        return id_

    def _meant(self, said: Mapping[str, Any]) -> tuple[EpisodeId, int]:
        """The episode that `said` is about, and how many steps it has."""
        steps = {record.id: record.steps for record in self.store.episode_summaries()}
        if "episode" in said:
            id_ = self.known(said)
            return id_, steps[id_]
        for id_ in reversed(steps):
            if steps[id_]:
                return id_, steps[id_]
        raise StoreError("there is no episode to label yet", expected="an episode", got="none")

    def _last_steps(self, steps: int, last_s: object) -> Sequence[int]:
        """The steps of the last `last_s` seconds, at least one."""
        spec = self.store.spec
        if spec is None or not isinstance(last_s, int | float) or not 0.0 < last_s <= LONGEST_S:
            raise StoreError(
                "nobody can look back so far",
                expected=f"last_s: seconds, at most {LONGEST_S:g}",
                got=str(last_s)[:80],
            )
        return range(max(0, steps - max(1, round(last_s * spec.control_hz))), steps)

    def _frames_until(self, id_: EpisodeId, last: int) -> dict[int, Frame]:
        """The frames of an episode, read again if it was still running and `last` is not there."""
        with self._turn:
            if last not in self._frames(id_):
                self._frames.cache_clear()
            return self._frames(id_)

    def _read_frames(self, id_: EpisodeId) -> dict[int, Frame]:
        return {frame.frame: frame for frame in self._holding(id_).frames(id_)}


def _checked(label: Label, steps: int) -> Label:
    """As `check_label`; and an undo names a label that is there, not one of its author's next."""
    if label.kind == "undo" and label.value >= label.label:
        raise StoreError(
            "an undo names a label that was never given",
            expected=f"the number of a label of {label.author}",
            got=f"number {label.value:g} of episode {label.id.episode}",
            fix="reload the page",
        )
    return check_label(label, steps)


def _jpeg(rgb: NDArray[np.uint8]) -> bytes:
    _, data = cv2.imencode(".jpg", np.ascontiguousarray(rgb[:, :, ::-1]))
    return data.tobytes()


def _verdict(folded: Review) -> dict[str, Any]:
    return {
        "excluded": folded.excluded,
        "neutral": folded.neutral,
        "success": folded.success,
        "first": folded.first,
        "last": folded.last,
    }


def _voices(
    said: Review, recorded: bool | None, truth: bool | None, by: str = "recorded"
) -> dict[str, bool]:
    """Who says that the episode succeeded, and who that it failed; the most trusted first."""
    voices = {"person": said.success, PREDICATE: truth, by: recorded, "vlm": said.model_success}
    return {who: success for who, success in voices.items() if success is not None}


def _scores(labels: Sequence[Label]) -> list[dict[str, Any]]:
    """The curves of the models' scores: author, kind, and [frame, value] of each point."""
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for x in labels:
        if x.step is not None and x.kind in (SUCCESS_SCORE, PROGRESS):
            frame = x.step + (x.kind == SUCCESS_SCORE)  # a step's score is of the frame it led to
            lines.setdefault((x.author, x.kind), []).append((frame, round(x.value, 3)))
    return [
        {"author": author, "kind": kind, "points": sorted(points)}
        for (author, kind), points in sorted(lines.items())
    ]


def _missing(id_: EpisodeId, what: str = "that episode") -> StoreError:
    return StoreError(
        f"there is no such thing in the store: {what}",
        expected="an episode of the list",
        got=f"{id_.run}/{id_.actor}/{id_.episode}",
        fix="reload the page",
    )
