"""One episode as an MCAP file with ROS 2 messages: opens in Foxglove and with `ros2 bag`.

    /robot_rl/image/<camera>/compressed    CompressedImage     what the camera saw, jpeg
    /robot_rl/<entry>                      Float32MultiArray   other observations, e.g. state
    /robot_rl/action, policy_action        Float32MultiArray   executed; what the policy proposed
    /robot_rl/reward                       Float32             of labelled steps
    /robot_rl/driver, outcome, ending      String              who drove, what the gate did, the end
    /robot_rl/event, label                 String              JSON

Log and publish time are the measured stamps. A label is given later, but stands at its step, or at
the last one if it is about the whole episode; its own time is in the text.
"""

from __future__ import annotations

import io
import json
from operator import itemgetter
from typing import Any

from mcap.writer import Writer

from robot_rl import __version__
from robot_rl.data import cdr
from robot_rl.data.episodes import Episode
from robot_rl.data.names import action_names, image_keys, state_names
from robot_rl.data.video import encode_still
from robot_rl.spec import Spec
from robot_rl.types import Frame, Step

ROOT = "/robot_rl/"


def mcap_file(episode: Episode, spec: Spec) -> bytes:
    """The whole file of one episode."""
    buffer = io.BytesIO()
    writer = Writer(buffer)  # chunks, zstd, CRC of each chunk
    writer.start(profile="ros2", library=f"robot-rl {__version__}")
    writer.add_metadata("robot_rl", _about(episode, spec))
    bag = _Bag(writer)
    for frame in episode.frames.values():
        _add_frame(bag, frame, spec)
    for step in episode.steps:
        _add_step(bag, step, spec)
    _add_words(bag, episode)
    bag.write()
    writer.finish()
    return buffer.getvalue()


class _Bag:
    """Gathers messages, and writes them in the order of time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._messages: list[tuple[int, str, str, bytes]] = []

    def add(self, topic: str, kind: str, stamp_ns: int, data: bytes) -> None:
        """Take one message; `topic` below `ROOT`. MCAP knows no time before zero."""
        self._messages.append((max(stamp_ns, 0), topic, kind, data))

    def write(self) -> None:
        """Write what was gathered."""
        kinds = {topic: kind for _, topic, kind, _ in self._messages}
        schemas = {kind: self._schema(kind) for kind in sorted(set(kinds.values()))}
        channels = {
            topic: self._writer.register_channel(ROOT + topic, "cdr", schemas[kind])
            for topic, kind in sorted(kinds.items())
        }
        counts = dict.fromkeys(kinds, 0)
        for stamp_ns, topic, _, data in sorted(self._messages, key=itemgetter(0)):
            counts[topic] += 1
            number = counts[topic]
            self._writer.add_message(channels[topic], stamp_ns, data, stamp_ns, number)

    def _schema(self, kind: str) -> int:
        return self._writer.register_schema(kind, "ros2msg", cdr.SCHEMAS[kind].encode())


def _add_frame(bag: _Bag, frame: Frame, spec: Spec) -> None:
    cameras = image_keys(spec)
    for key, value in frame.observation.items():
        if key in cameras:
            picture = encode_still(value, "jpeg")
            data = cdr.image_message(frame.stamp_ns, key.rpartition("/")[2], "jpeg", picture)
            bag.add(f"{key}/compressed", cdr.IMAGE, frame.stamp_ns, data)
        else:
            label = _label(state_names(spec), key) if key == "state" else key
            data = cdr.array_message(value.ravel(), label)
            bag.add(key, cdr.ARRAY, frame.stamp_ns, data)


def _add_step(bag: _Bag, step: Step, spec: Spec) -> None:
    label = _label(action_names(spec), "action")
    for topic, action in (("action", step.action), ("policy_action", step.policy_action)):
        bag.add(topic, cdr.ARRAY, step.stamp_ns, cdr.array_message(action, label))
    if step.reward is not None:
        bag.add("reward", cdr.FLOAT32, step.stamp_ns, cdr.float_message(step.reward))
    outcome = f"{step.outcome.value}: {step.reason}" if step.reason else step.outcome.value
    texts = {"driver": step.driver.value, "outcome": outcome}
    if step.ending is not None:
        texts["ending"] = step.ending.value
    for topic, text in texts.items():
        bag.add(topic, cdr.STRING, step.stamp_ns, cdr.string_message(text))


def _add_words(bag: _Bag, episode: Episode) -> None:
    """Events and labels, each as a JSON object."""
    for event in episode.events:
        text = json.dumps({"name": event.name, "detail": event.detail, "step": event.step})
        bag.add("event", cdr.STRING, event.stamp_ns, cdr.string_message(text))
    stamps_ns = {number: frame.stamp_ns for number, frame in episode.frames.items()}
    stamps_ns |= {step.step: step.stamp_ns for step in episode.steps}  # some labels are of frames
    for said in episode.labels:
        fields = ("kind", "value", "step", "source", "author", "stamp_ns")
        text = json.dumps({name: getattr(said, name) for name in fields})
        at_ns = episode.steps[-1].stamp_ns if said.step is None else stamps_ns.get(said.step)
        if at_ns is not None:  # else its step is not in the bag
            bag.add("label", cdr.STRING, at_ns, cdr.string_message(text))


def _label(entries: list[str] | None, name: str) -> str:
    return ",".join(entries) if entries else name


def _about(episode: Episode, spec: Spec) -> dict[str, str]:
    start, last = episode.start, episode.steps[-1]
    about: dict[str, Any] = {
        "run": start.id.run,
        "actor": start.id.actor,
        "episode": start.id.episode,
        "purpose": start.purpose,
        "task": start.task,
        "seed": start.seed,
        "stamp_ns": start.stamp_ns,
        "ending": last.ending.value if last.ending else "",
        "success": {None: "", True: "yes", False: "no"}[last.success],
        "spec": json.dumps(spec.as_dict()),
    }
    return {key: str(value) for key, value in about.items()}
