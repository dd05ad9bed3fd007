"""MCAP: what a bag reader finds, and what ROS makes of it."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from mcap.reader import make_reader

from robot_rl.data import cdr
from robot_rl.data.episodes import choose, read
from robot_rl.data.mcap_write import mcap_file
from robot_rl.data.per_episode import LIST, write_episodes
from robot_rl.data.video import decode_still
from robot_rl.errors import StoreError
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Event, Label
from tests.support.data_samples import files, made_spec, made_store

SPEC = made_spec(((16, 24), (8, 8)))


@pytest.fixture
def store(tmp_path: Path):
    with made_store(tmp_path / "s.sqlite", SPEC, [5, 3]) as opened:
        id_ = EpisodeId("made", "arm", 0)
        opened.append([Event(id_, 0, 2, "takeover", "device=pad", 300_000_000)])
        opened.append([Label(id_, 0, 1, "reward", 0.5, "person", "ada", 10**18)])
        yield opened


def export(store: Store, out: Path) -> dict[str, int]:
    return write_episodes(store, choose(store), out, kind="mcap", encode=mcap_file)


def test_a_reader_finds_every_message_at_its_measured_time(store: Store, tmp_path: Path) -> None:
    assert export(store, tmp_path / "out") == {"episodes": 2, "steps": 8}
    episode = read(store, choose(store)[0])
    with (tmp_path / "out" / "episode-000000.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        assert reader.get_header().profile == "ros2"
        found = list(reader.iter_messages())
        about = next(reader.iter_metadata()).metadata
    assert {s.encoding for s, _, _ in found if s} == {"ros2msg"}
    assert {c.message_encoding for _, c, _ in found} == {"cdr"}
    times = {topic: [m.log_time for _, c, m in found if c.topic == topic] for topic in TOPICS}
    frames = [f.stamp_ns for f in episode.frames.values()]
    assert times["/robot_rl/state"] == times["/robot_rl/image/cam1/compressed"] == frames
    assert times["/robot_rl/action"] == [s.stamp_ns for s in episode.steps]
    assert times["/robot_rl/label"] == [episode.steps[1].stamp_ns], "at its step, not when said"
    assert [m.log_time for _, _, m in found] == sorted(m.log_time for _, _, m in found)
    labelled = [s for s in episode.steps if s.reward is not None]
    assert len(times["/robot_rl/reward"]) == len(labelled) < 6
    assert about["episode"] == "0" and json.loads(about["spec"])["task"] == "stack"
    listed = json.loads((tmp_path / "out" / LIST).read_text())
    assert [row["file"] for row in listed] == ["episode-000000.mcap", "episode-000001.mcap"]


TOPICS = {
    "/robot_rl/image/cam0/compressed": cdr.IMAGE,
    "/robot_rl/image/cam1/compressed": cdr.IMAGE,
    "/robot_rl/state": cdr.ARRAY,
    "/robot_rl/action": cdr.ARRAY,
    "/robot_rl/policy_action": cdr.ARRAY,
    "/robot_rl/reward": cdr.FLOAT32,
    "/robot_rl/driver": cdr.STRING,
    "/robot_rl/outcome": cdr.STRING,
    "/robot_rl/ending": cdr.STRING,
    "/robot_rl/event": cdr.STRING,
    "/robot_rl/label": cdr.STRING,
}


def test_the_list_and_the_bags_say_the_same_of_the_end(store: Store, tmp_path: Path) -> None:
    """With what people said: one is cut, the other succeeds; and nothing is told of cut steps."""
    first, second = (s.id for s in store.episodes())
    words = [(first, 1, 2, "keep_to", 1.0), (first, 2, 4, "shows", 1.0)]
    words += [(first, 3, None, "success", 0.0), (second, 0, None, "success", 1.0)]
    store.append([Label(i, n, step, k, v, "person", "ada", n) for i, n, step, k, v in words])
    out = tmp_path / "out"
    export(store, out)
    listed = json.loads((out / LIST).read_text())
    assert [row["ending"] for row in listed] == ["truncated", "terminated"]
    kinds: list[str] = []
    for row in listed:
        with (out / row["file"]).open("rb") as file:
            reader = make_reader(file)
            found = [m for _, c, m in reader.iter_messages() if c.topic == "/robot_rl/label"]
            about = next(reader.iter_metadata()).metadata
        assert about["ending"] == row["ending"]
        kinds += [k for k in ("keep_to", "shows", "success") for m in found if k.encode() in m.data]
    assert kinds == ["keep_to", "success", "success"]


def test_topics_have_the_types_that_the_documentation_names(store: Store, tmp_path: Path) -> None:
    export(store, tmp_path / "out")
    with (tmp_path / "out" / "episode-000000.mcap").open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    kinds = {c.topic: summary.schemas[c.schema_id].name for c in summary.channels.values()}
    assert kinds == TOPICS
    assert all(chunk.compression == "zstd" for chunk in summary.chunk_indexes)


def test_numbers_in_cdr_begin_at_multiples_of_their_size() -> None:
    data = cdr.array_message(np.array([1.5, -2.0], np.float32), "dx")
    assert data[:4] == b"\x00\x01\x00\x00"
    body = struct.pack("<II", 1, 3) + b"dx\0" + b"\0" + struct.pack("<III", 2, 2, 0)
    assert data[4:] == body + struct.pack("<Iff", 2, 1.5, -2.0)
    assert (
        cdr.string_message("ü") == b"\x00\x01\x00\x00" + struct.pack("<I", 3) + "ü".encode() + b"\0"
    )


def test_the_same_call_goes_on_and_files_stay(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = tmp_path / "out", []

    def failing(*args: object) -> bytes:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return mcap_file(*args)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        write_episodes(store, choose(store), out, kind="mcap", encode=failing)
    assert LIST not in files(out)
    before = (out / "episode-000000.mcap").stat().st_mtime_ns
    assert export(store, out)["episodes"] == 2
    assert (out / "episode-000000.mcap").stat().st_mtime_ns == before
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(StoreError, match="the disk is full"):
        export(store, tmp_path / "full")


@pytest.mark.ros
def test_ros_deserialises_every_message(store: Store) -> None:
    serialization = pytest.importorskip("rclpy.serialization")
    from sensor_msgs.msg import CompressedImage
    from std_msgs.msg import Float32, Float32MultiArray, String

    kinds = {
        cdr.IMAGE: CompressedImage,
        cdr.ARRAY: Float32MultiArray,
        cdr.FLOAT32: Float32,
        cdr.STRING: String,
    }
    episode = read(store, choose(store)[0])
    found: dict[str, list] = {topic: [] for topic in TOPICS}
    for schema, channel, message in make_reader(
        io.BytesIO(mcap_file(episode, SPEC))
    ).iter_messages():
        assert schema is not None
        kind = kinds[schema.name]
        value = serialization.deserialize_message(message.data, kind)
        again = serialization.serialize_message(value)
        assert len(again) == len(message.data), "as ROS writes it, but for what is in the gaps"
        found[channel.topic].append(value)
    assert all(found.values())
    for step, message in zip(episode.steps, found["/robot_rl/action"], strict=True):
        assert np.array_equal(np.array(message.data, np.float32), step.action)
        assert message.layout.dim[0].label == "dx,dy,dz,rx,ry,rz"
    first = episode.frames[0]
    image = found["/robot_rl/image/cam0/compressed"][0]
    assert image.header.stamp.sec * 10**9 + image.header.stamp.nanosec == first.stamp_ns
    assert (image.header.frame_id, image.format) == ("cam0", "jpeg")
    shown = decode_still(bytes(image.data)).astype(float)
    assert np.abs(shown - first.observation["image/cam0"]).max() < 6
    assert found["/robot_rl/ending"][0].data == "terminated"
    assert json.loads(found["/robot_rl/event"][0].data)["name"] == "takeover"
