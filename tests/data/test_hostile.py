"""Datasets of strangers: pictures that open ports or files, and sizes that nobody has room for."""

from __future__ import annotations

import json
import struct
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robot_rl.data.episodes import choose
from robot_rl.data.lerobot_read import LeRobotDataset
from robot_rl.data.lerobot_write import WriteOptions, write_lerobot
from robot_rl.data.video import decode_still, encode_still, read_video
from robot_rl.errors import StoreError
from tests.support.data_samples import made_spec, made_store

SPEC = made_spec(((16, 24),))
VIDEO = "videos/observation.images.cam0/chunk-000/file-000.mp4"
PORT = 47_114
SDP = (
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    f"m=video {PORT} RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n"
)
HLS = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{secret}\n#EXT-X-ENDLIST\n"
CONCAT = "ffconcat version 1.0\nfile '{secret}'\n"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><image href='file://{secret}'/></svg>"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """An export of ours."""
    with made_store(tmp_path / "source.sqlite", SPEC, [5, 3]) as store:
        write_lerobot(store, choose(store), tmp_path / "dataset", WriteOptions())
    return tmp_path / "dataset"


def udp_ports() -> set[int]:
    """Ports on which somebody on this machine listens."""
    found = set()
    for name in ("udp", "udp6"):
        path = Path("/proc/net") / name
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        found |= {int(line.split()[1].rpartition(":")[2], 16) for line in lines}
    return found


class Watch:
    """Sees the port of `SDP` opened while something is read."""

    def __enter__(self) -> Watch:
        self.seen, self._going = False, True
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while self._going:
            self.seen |= PORT in udp_ports()
            time.sleep(0.002)

    def __exit__(self, *_: object) -> None:
        self._going = False
        self._thread.join()


@pytest.mark.parametrize("text", [SDP, HLS, CONCAT, SVG])
def test_a_picture_or_a_video_opens_neither_a_port_nor_a_file(tmp_path: Path, text: str) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(encode_still(np.zeros((16, 16, 3), np.uint8), "png"))
    data = text.replace("{secret}", str(secret)).encode()
    path = tmp_path / "v.mp4"
    path.write_bytes(data)
    with Watch() as watch:
        began_s = time.monotonic()
        with pytest.raises(StoreError):
            decode_still(data)
        with pytest.raises(StoreError):
            read_video(path, 0.0, 1, 10)
    assert not watch.seen and time.monotonic() - began_s < 2.0


def png(width: int, height: int) -> bytes:
    """A PNG that says it is so large."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(b"\x00" * 4096))
    return b"\x89PNG\r\n\x1a\n" + head + rows + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    """A JPEG that says it is so large."""
    data = bytearray(encode_still(np.zeros((16, 16, 3), np.uint8), "jpeg"))
    at = next(i for i in range(len(data)) if data[i : i + 2] in (b"\xff\xc0", b"\xff\xc1"))
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.mark.parametrize("data", [png(60_000, 60_000), png(2**31 - 1, 1), jpeg(65_000, 65_000)])
def test_a_picture_is_not_larger_than_anybody_records(data: bytes) -> None:
    with pytest.raises(StoreError, match="cannot be decoded"):
        decode_still(data)


def changed(root: Path, **values: Any) -> None:
    """Other values in info.json."""
    path = root / "meta" / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def with_row(root: Path, **values: Any) -> None:
    """Other values in the first row about the episodes."""
    (path,) = (root / "meta" / "episodes").glob("*/*.parquet")
    rows = pq.read_table(path).to_pylist()
    rows[0] |= values
    pq.write_table(pa.Table.from_pylist(rows), path)


def read_all(root: Path) -> None:
    """Read everything of a dataset."""
    dataset = LeRobotDataset(root)
    for number in range(len(dataset.lengths)):
        dataset.columns(number, ["action"])
        dataset.images(number, "observation.images.cam0", 16, 24)


def test_the_dataset_as_it_is_can_be_read(dataset: Path) -> None:
    read_all(dataset)


HUGE = 10**11


@pytest.mark.parametrize(
    "row",
    [
        {"length": HUGE, "dataset_to_index": HUGE},
        {"length": -1, "dataset_to_index": -1},
        {"length": 5.0},
        {"length": None},
        {"videos/observation.images.cam0/from_timestamp": float("nan")},
        {"videos/observation.images.cam0/from_timestamp": 1e300},
        {"videos/observation.images.cam0/from_timestamp": None},
    ],
)
def test_lengths_and_times_are_checked_before_there_is_room_for_them(
    dataset: Path, row: dict[str, Any]
) -> None:
    with_row(dataset, **row)
    if row.get("length") == HUGE:
        changed(dataset, total_frames=HUGE + 3)
    with pytest.raises(StoreError):
        read_all(dataset)


@pytest.mark.parametrize(
    "values",
    [
        {"data_path": "data/{chunk_index:99999999999}.parquet"},
        {"data_path": "data/{chunk_index.__class__.__mro__}"},
        {"data_path": "data/{chunk_index!r:>9999999}"},
        {"data_path": "x" * 100_000},
        {"video_path": "videos/{video_key:99999999999}.mp4"},
        {"video_path": 7},
        {"fps": float("inf")},
        {"fps": float("nan")},
        {"features": {"action": {"dtype": "float32", "shape": [HUGE, HUGE]}}},
        {"features": {"action": {"dtype": "float32", "shape": "ab"}}},
        {"features": {"action": {"dtype": "float32", "shape": [-1]}}},
        {"features": {"action": 7}},
        {"features": {"action": {"dtype": [], "shape": [1]}}},
    ],
)
def test_an_odd_info_is_refused(dataset: Path, values: dict[str, Any]) -> None:
    changed(dataset, **values)
    with pytest.raises(StoreError):
        read_all(dataset)


@pytest.mark.parametrize("text", ["[" * 100_000, "7", "", "{" + " " * (65 << 20)])
def test_a_json_without_end_is_refused(dataset: Path, text: str) -> None:
    (dataset / "meta" / "info.json").write_text(text)
    with pytest.raises(StoreError):
        read_all(dataset)


def test_a_value_that_is_said_once_and_meant_a_million_times_is_refused(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robot_rl.data.lerobot_read.MAX_FILE_BYTES", 1 << 20)
    path = dataset / "data/chunk-000/file-000.parquet"
    words = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["x" * 10_000])
    pq.write_table(pa.table({"task": words}), path)  # a gigabyte
    assert path.stat().st_size < 1 << 16
    with pytest.raises(StoreError, match=r"is damaged(.|\n)*bytes unpacked"):
        read_all(dataset)


def test_a_file_that_unpacks_to_more_than_there_is_room_for_is_refused(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robot_rl.data.lerobot_read.MAX_FILE_BYTES", 1 << 20)
    path = dataset / "data/chunk-000/file-000.parquet"
    bomb = pa.table({"episode_index": np.zeros(4_000_000, np.int64)})
    pq.write_table(bomb, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(StoreError, match="is damaged"):
        read_all(dataset)
