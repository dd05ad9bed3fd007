"""Cases of the cameras: frozen, unplugged, slow."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.bench.faults.case import (
    Case,
    Context,
    Figure,
    Limit,
    Measured,
    NotHereError,
    known,
    spread,
)
from robot_rl.bench.faults.driving import alone, commands, newest_episode, until_moving
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.bench.faults.worlds import RunWorld, supervised
from robot_rl.config.run_folder import ACTOR_STORE
from robot_rl.store.store import Store
from robot_rl.types import Ending, Frame

if TYPE_CHECKING:
    from robot_rl.bench.faults.stopwatch import Stopwatch
    from robot_rl.ros.topics import Topic
    from robot_rl.run.experiment import Experiment

CAMERA = "wrist"
FROZEN = ("freeze", "stale", "drop")  # faults of the double: new stamps, the old one, no picture
LATEST_S = 0.35  # after the last new picture no step begins: an age of 0.18 s, a tick, and the way
TRIES = 4  # of a slow camera, until enough steps are seen
SLOW_HZ = 8.0
SLOW_S = 3.5  # wall; how long the camera is slow
AWAY_S = (3.0, 12.0)  # wall; how long the camera is unplugged, at least and at most
FILM = (64, 48, 30)  # width, height, pictures per second
FILM_S, LAST_S = 0.5, 1.0  # its length; wall, until what was being played has arrived


@contextmanager
def pictures(experiment: Experiment) -> Iterator[tuple[Topic, Stopwatch]]:
    """The camera's topic, and a stopwatch that hears it."""
    from robot_rl.bench.faults.stopwatch import Stopwatch
    from robot_rl.ros.cameras import image_topic
    from robot_rl.ros.graph import IMAGE_PROFILE

    topic = image_topic(CAMERA, experiment.graph_cameras[CAMERA])
    domain_id = experiment.ros.domain_id
    with Stopwatch(domain_id, {}, heard=(topic,), profile=IMAGE_PROFILE) as watch:
        wait_for(lambda: len(watch.heard[topic.name]) > 2, 30.0, "pictures")
        yield topic, watch


# --- 22: the same picture again and again --------------------------------------------------------


def frozen(context: Context) -> Measured:
    """One picture again and again, with its stamp or with new ones; or no picture at all."""
    world, took_ms, late_steps, unmarked = context.world(), [], 0, 0
    assert isinstance(world, RunWorld)
    kinds = set[str]()
    for i in context.trials():
        world.until_policy()
        time.sleep(0.5)
        with pictures(world.experiment) as (topic, watch):
            until_moving(world)
            running = newest_episode(world)
            try:
                with alone(world):
                    kind = FROZEN[i % len(FROZEN)]
                    world.stopwatch.fault(**{kind: [topic.name]})
                    time.sleep(2 * LATEST_S)
                    froze_s = _newest_s(watch.since(topic, 0.0))
                    asked_s = [at_s for at_s, _ in commands(world, froze_s)]
                    last_s = max(asked_s, default=math.nan)
                    took_ms.append(context.timed(1e3 * (last_s - froze_s)))
                    kinds |= set() if math.isnan(last_s) else {kind}
                    day_s = time.time() - time.monotonic()
            finally:
                world.stopwatch.fault()
        world.until_policy()
        with Store(world.run_dir / ACTOR_STORE) as store:
            ended = next(e for e in store.episode_summaries() if e.id == running)
            stamps_s = [1e-9 * step.stamp_ns - day_s for step in store.steps(running)]
        late_steps += sum(stamp_s > froze_s + LATEST_S for stamp_s in stamps_s)
        unmarked += ended.ending is not Ending.STALE
    return Measured.of(
        spread("time to the policy's last command", known(took_ms), "ms"),
        Figure("steps with an old picture", late_steps, ""),
        Figure("episodes not marked as stale", unmarked, ""),
        Figure("kinds injected", len(kinds), f"of {len(FROZEN)}"),
        n=len(known(took_ms)),
    )


def _newest_s(pictures: list[tuple[float, Any]]) -> float:
    """When the last picture that differs from the one before it had arrived."""
    pairs = pairwise(pictures)
    return [at_s for (_, old), (at_s, new) in pairs if new.data != old.data][-1]


# --- 23: a camera is unplugged and comes back ----------------------------------------------------


def unplugged(context: Context) -> Measured:
    """The node of a camera whose device vanishes and returns; a film stands in for the device."""
    from robot_rl.ros.graph import free_domain
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.graph import graph_of, need_ros

    need_ros()
    film = context.folder / "camera.avi"
    _write_film(film)
    width, height, _ = FILM
    words = [f"cameras.{CAMERA}.{key}={value}" for key, value in
             {"name": "uvc", "device": film, "width": width, "height": height}.items()]  # fmt: skip
    experiment = Experiment.compose(
        ["task=reach", f"task.images=[{CAMERA}]", *words, "ros=real", "runtime=ros",
         "operator=none", f"ros.domain_id={free_domain()}", f"run_dir={context.folder}/run"]
    )  # fmt: skip
    experiment.save()
    alone = tuple(spec for spec in graph_of(experiment) if spec.kind == "camera")
    back_s, away = list[float](), 0
    with supervised(alone, experiment) as supervisor, pictures(experiment) as (topic, watch):
        pid = supervisor.pids()
        for _ in context.trials():
            film.rename(gone := film.with_suffix(".gone"))
            gone_s = time.monotonic() + FILM_S + LAST_S
            short_s, most_s = AWAY_S
            time.sleep(context.rng.uniform(short_s, most_s) if context.is_full else short_s)
            away += len(watch.since(topic, gone_s))
            returned_s = time.monotonic()
            gone.rename(film)
            again = wait_for(partial(watch.since, topic, returned_s), 30.0, "pictures again")
            back_s.append(again[0][0] - returned_s)
            watch.forget()
        restarted = supervisor.pids() != pid
    return Measured.of(
        spread("time until pictures come again", back_s, "s"),
        Figure("pictures while it was away", away, ""),
        Figure("processes started again", float(restarted), ""),
        n=len(back_s),
    )


def _write_film(path: Path) -> None:
    """A short film: its end is the loss of a camera, and the node looks again."""
    try:
        import cv2
    except ImportError as error:
        raise NotHereError("OpenCV is not installed", fix="pip install 'robot-rl[sim]'") from error
    width, height, rate_hz = FILM
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), rate_hz, (width, height))
    for i in range(round(FILM_S * rate_hz)):
        writer.write(np.full((height, width, 3), 5 * i, np.uint8))
    writer.release()


# --- 24: a camera becomes slow -------------------------------------------------------------------


def slow(context: Context) -> Measured:
    """At 8 pictures per second: which picture is in each step, and which should be."""
    world, errors, ages_ms = context.world(), [], []
    assert isinstance(world, RunWorld)
    for i in context.trials(context.case.full // round(SLOW_S * SLOW_HZ), at_least=TRIES):
        if i and context.left_s < 0.0 and len(known(errors)) >= context.case.least:
            break
        world.until_policy()
        for frame, sent in _slow_steps(world):
            found = _behind(frame, sent)
            errors.append(math.nan if found is None else float(found[0]))
            ages_ms += [] if found is None else [1e3 * found[1]]
        world.stopwatch.forget()
    return Measured.of(
        Figure("pictures behind the newest, max", max(known(errors), default=math.nan), ""),
        Figure("steps whose picture was not heard", _share(errors), "%"),
        spread("age of the picture in a step", ages_ms, "ms"),
        n=len(known(errors)),
    )


def _share(errors: list[float]) -> float:
    """Percent of the steps whose picture we did not hear: best effort may lose one on its way."""
    return 100.0 * sum(map(math.isnan, errors)) / max(len(errors), 1)


def _slow_steps(world: RunWorld) -> Iterator[tuple[Frame, list[tuple[float, Any]]]]:
    """Frames of some seconds with a slow camera, each with all pictures of that time.

    Pictures are told by (stamp, what the network sees of them).
    """
    from robot_rl.ros import convert

    config = world.experiment.graph_cameras[CAMERA]
    view = config.view(world.experiment.task.spec.picture_size(CAMERA))
    with pictures(world.experiment) as (topic, watch):
        until_moving(world)
        try:
            world.stopwatch.fault(slow_hz={topic.name: SLOW_HZ})
            slow_s = time.time() + 0.5
            time.sleep(SLOW_S)
            until_s = time.time() - 0.2  # what is later may not be in the store yet
        finally:
            world.stopwatch.fault()
        sent = [(convert.from_stamp(m.header.stamp), view.of(convert.picture_from(m)))
                for _, m in watch.since(topic, 0.0)]  # fmt: skip
    with Store(world.run_dir / ACTOR_STORE) as store:
        newest = store.episode_summaries()[-2:]  # a slow camera may have ended one
        frames = [frame for episode in newest for frame in store.frames(episode.id)]
    yield from ((frame, sent) for frame in frames if slow_s < 1e-9 * frame.stamp_ns < until_s)


def _behind(frame: Frame, sent: list[tuple[float, Any]]) -> tuple[int, float] | None:
    """How many pictures, taken before a frame, are newer than the one in it, and its age in s.

    None: the picture in the frame was not heard.
    """
    stamp_s = 1e-9 * frame.stamp_ns
    seen = frame.observation[f"image/{CAMERA}"]
    before = [(at_s, rgb) for at_s, rgb in sent if at_s <= stamp_s]
    for behind, (at_s, rgb) in enumerate(reversed(before)):
        if np.array_equal(rgb, seen):
            return behind, stamp_s - at_s
    return (0, 0.0) if any(np.array_equal(rgb, seen) for _, rgb in sent) else None


CASES = (
    Case(
        number=22,
        name="camera_frozen",
        title="camera frozen",
        injection="while the policy drives, the camera sends the same picture, with new stamps or "
        "its old one, or none",
        promise="the policy's last command comes within 200 ms, the episode ends as stale, and no "
        "step with an old picture is learned from",
        limits=(
            Limit("time to the policy's last command, p99", "ms", at_most=200.0),
            Limit("steps with an old picture", "", at_most=0.0),
            Limit("episodes not marked as stale", "", at_most=0.0),
        ),
        fails_if="a loop that takes the newest picture drives on; one that looks at its stamp only "
        "does so with new stamps",
        full=50,
        measure=frozen,
        world="run",
    ),
    Case(
        number=23,
        name="camera_unplugged",
        title="camera unplugged, comes back",
        injection="the device vanishes for seconds and returns",
        promise="no pictures meanwhile, pictures within 3 s of its return, and nothing is started "
        "again",
        limits=(
            Limit("pictures while it was away", "", at_most=0.0),
            Limit("time until pictures come again, max", "s", at_most=3.0),
            Limit("processes started again", "", at_most=0.0),
        ),
        fails_if="a node that opens its camera once, or ends when it is gone, never sends again; "
        "one that repeats its last picture sends what nobody sees",
        full=20,
        measure=unplugged,
        weight=2.0,
    ),
    Case(
        number=24,
        name="camera_slow",
        title="camera slow, 8 pictures per second in place of 30",
        injection="the camera sends at most 8 pictures per second",
        promise="each step has the newest picture that was taken before it, or the one before that",
        limits=(
            Limit("pictures behind the newest, max", "", at_most=1.0),
            Limit("steps whose picture was not heard", "%", at_most=20.0),
        ),
        fails_if="a reader that queues pictures falls behind by one in each tick",
        full=1000,
        least=20,
        measure=slow,
        world="run",
        weight=2.0,
    ),
)
