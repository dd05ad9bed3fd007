"""One episode as a Rerun recording (.rrd): cameras, curves and texts over the robot's time.

Timelines: `step`, and `time` as measured, seconds on the clock of the run. Entities:
image/<camera>, state, action, policy_action, reward, driver, outcome, ending, event, label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import rerun as rr  # pyright: ignore[reportMissingImports]
import rerun.blueprint as rrb  # pyright: ignore[reportMissingImports]
from numpy.typing import NDArray

from robot_rl.data.episodes import Episode
from robot_rl.data.names import action_names, image_keys, state_names, vector_keys
from robot_rl.data.video import encode_still
from robot_rl.spec import Spec

APPLICATION = "robot-rl"


def rerun_file(episode: Episode, spec: Spec) -> bytes:
    """The whole recording of one episode."""
    id_ = episode.start.id
    recording = rr.RecordingStream(APPLICATION, recording_id=f"{id_.run}-{id_.actor}-{id_.episode}")
    memory = recording.memory_recording()
    recording.send_recording_name(f"{id_.run} episode {id_.episode} ({episode.start.purpose})")
    recording.send_blueprint(_blueprint(spec))
    _send_frames(recording, episode, spec)
    _send_steps(recording, episode, spec)
    _send_words(recording, episode)
    return memory.drain_as_bytes() or b""


def _send_frames(recording: rr.RecordingStream, episode: Episode, spec: Spec) -> None:
    frames = [episode.frames[n] for n in sorted(episode.frames)]
    first = episode.steps[0].step - episode.steps[0].frame  # from frame to step numbers
    when = _times([f.frame + first for f in frames], [f.stamp_ns for f in frames])
    for key in image_keys(spec):
        pictures = [encode_still(f.observation[key], "jpeg") for f in frames]
        kinds = ["image/jpeg"] * len(pictures)
        columns = rr.EncodedImage.columns(blob=pictures, media_type=kinds)
        recording.send_columns(key, when, columns)
    for key in vector_keys(spec):
        entries = state_names(spec) if key == "state" else None
        values = np.stack([f.observation[key].ravel() for f in frames])
        _send_curves(recording, key, when, values, entries)


def _send_steps(recording: rr.RecordingStream, episode: Episode, spec: Spec) -> None:
    steps = episode.steps
    when = _times([s.step for s in steps], [s.stamp_ns for s in steps])
    entries = action_names(spec)
    _send_curves(recording, "action", when, np.stack([s.action for s in steps]), entries)
    proposed = np.stack([s.policy_action for s in steps])
    _send_curves(recording, "policy_action", when, proposed, entries)
    labelled = [s for s in steps if s.reward is not None]
    if labelled:
        at = _times([s.step for s in labelled], [s.stamp_ns for s in labelled])
        rewards = np.array([[s.reward] for s in labelled], np.float64)
        _send_curves(recording, "reward", at, rewards, ["reward"])
    for name, texts in {
        "driver": [s.driver.value for s in steps],
        "outcome": [f"{s.outcome.value} {s.reason}".strip() for s in steps],
    }.items():
        recording.send_columns(name, when, rr.TextLog.columns(text=texts))
    _log_text(recording, "ending", steps[-1].step, steps[-1].stamp_ns, str(steps[-1].ending))


def _send_words(recording: rr.RecordingStream, episode: Episode) -> None:
    """Events and labels; a label stands at its step, because it was given later."""
    stamps_ns = {number: frame.stamp_ns for number, frame in episode.frames.items()}
    stamps_ns |= {step.step: step.stamp_ns for step in episode.steps}  # some labels are of frames
    last = episode.steps[-1]
    for event in episode.events:
        text = f"{event.name} {event.detail}".strip()
        _log_text(recording, "event", event.step, event.stamp_ns, text)
    for said in episode.labels:
        step = last.step if said.step is None else said.step
        if step not in stamps_ns:
            continue
        text = f"{said.kind} {said.value:g} by {said.author} ({said.source})"
        _log_text(recording, "label", step, stamps_ns[step], text)


def _send_curves(
    recording: rr.RecordingStream,
    entity: str,
    when: Sequence[rr.TimeColumn],
    values: NDArray[np.floating],
    entries: list[str] | None,
) -> None:
    """values [N, D]: one curve per entry."""
    if entries:
        recording.log(entity, rr.SeriesLines(names=entries), static=True)
    columns = rr.Scalars.columns(scalars=values.ravel())
    recording.send_columns(entity, when, columns.partition([values.shape[1]] * len(values)))


def _log_text(
    recording: rr.RecordingStream, entity: str, step: int, stamp_ns: int, text: str
) -> None:
    when = _times([step], [stamp_ns])
    recording.send_columns(entity, when, rr.TextLog.columns(text=[text]))


def _times(steps: Sequence[int], stamps_ns: Sequence[int]) -> list[rr.TimeColumn]:
    measured = np.array(stamps_ns, "timedelta64[ns]")
    return [rr.TimeColumn("step", sequence=steps), rr.TimeColumn("time", duration=measured)]


def _blueprint(spec: Spec) -> rrb.Blueprint:
    """Cameras beside curves, texts below."""
    cameras = [rrb.Spatial2DView(origin=key, name=key) for key in image_keys(spec)]
    origins = [*vector_keys(spec), "action", "reward"]
    curves = rrb.Vertical(*(rrb.TimeSeriesView(origin=o, name=o) for o in origins))
    words = rrb.TextLogView(origin="/", name="words")
    top = rrb.Horizontal(rrb.Vertical(*cameras), curves) if cameras else curves
    return rrb.Blueprint(rrb.Vertical(top, words, row_shares=[3, 1]))
