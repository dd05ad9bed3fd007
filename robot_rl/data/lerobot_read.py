"""Read a LeRobotDataset v3.0, checking that every position is what it claims to be.

The format looks everything up by position, so a missing row or file would silently shift the rest.
Here each lookup is compared with the index written beside it. The source is never changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robot_rl.data import lerobot_format as fmt
from robot_rl.data.folder import IDENTITY
from robot_rl.data.video import Image, decode_still, read_video, resized
from robot_rl.errors import StoreError
from robot_rl.system import plain_json

MAX_HZ = 1000.0
MAX_STEPS = 1_000_000  # of one episode: a day at 10 Hz
MAX_ROWS = 100_000_000  # of one file
MAX_FILE_BYTES = 8 << 30  # of one file, unpacked
MAX_JSON_BYTES = 64 << 20
MAX_NUMBERS = 1 << 26  # of one value of a feature
PATTERN = re.compile(r"(?:[^{}]|\{(?:chunk_index|file_index|video_key)(?::0?\dd)?\}){1,300}")
"""Places of files: nothing but these names, and as many digits as one digit says."""


def _is_feature(value: Any) -> bool:
    """Whether a feature of info.json has a type and a shape that an array can have."""
    if not isinstance(value, dict) or not isinstance(value.get("dtype"), str):
        return False
    shape = value.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_DIMS:
        return False
    if not all(type(n) is int and 0 <= n <= MAX_NUMBERS for n in shape):
        return False
    return math.prod(shape) <= MAX_NUMBERS


MAX_DIMS = 6
_WANTED: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    "codebase_version": (str, lambda v: v.startswith("v3.")),  # v2 has other files
    "fps": (int | float, lambda v: 0 < v <= MAX_HZ),
    "features": (dict, lambda v: all(_is_feature(f) for f in v.values())),
    "data_path": (str, lambda v: bool(PATTERN.fullmatch(v))),
}
"""Keys of info.json -> their type, and what else must hold."""

_EPISODE = {"episode_index", "length", "dataset_from_index", "dataset_to_index"}


class LeRobotDataset:
    """A dataset folder, opened and checked; data is read episode by episode.

    Attributes:
        features: name -> dtype, shape, names, as in info.json.
        fps: steps per second.
        lengths: steps of each episode.

    Raises:
        StoreError: no dataset, another version, or its episodes have gaps.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        info = self._info()
        self.fps: float = info["fps"]
        self.features: dict[str, dict[str, Any]] = info["features"]
        self._data, self._video = info["data_path"], info.get("video_path") or fmt.VIDEO
        if not isinstance(self._video, str) or not PATTERN.fullmatch(self._video):
            raise self._gap("a video_path as LeRobot writes it", repr(self._video)[:200])
        self._rows = self._episode_rows(info)
        self.lengths: list[int] = [row["length"] for row in self._rows]
        self._file: tuple[Path, pa.Table] | None = None  # the data file read last
        self.identity = _json(root / IDENTITY) if (root / IDENTITY).is_file() else {}

    def columns(self, episode: int, names: Sequence[str]) -> dict[str, Any]:
        """Values of one episode: arrays [N] or [N, D], lists for text and pictures.

        Raises:
            StoreError: a file or rows are missing or out of order.
        """
        row = self._rows[episode]
        table = self._table(self._path(self._data, row, "data/"))
        for name in {*names, *fmt.AUTOMATIC} - set(table.column_names):
            raise self._gap(f"a column {name}, as info.json says", ", ".join(table.column_names))
        table = _of_episode(table, episode)
        self._check_rows(table, row)
        return {name: self._values(table, name) for name in names}

    def images(self, episode: int, name: str, height: int, width: int) -> list[Image]:
        """Pictures of one camera in one episode, resized. Raises like `columns`."""
        row = self._rows[episode]
        if self.features[name]["dtype"] == "image":
            stills = self.columns(episode, [name])[name]
            return [resized(decode_still(s["bytes"] or b""), height, width) for s in stills]
        path = self._path(self._video, row, f"videos/{name}/", video_key=name)
        start_s = row.get(f"videos/{name}/from_timestamp")
        if not isinstance(start_s, int | float) or not 0.0 <= start_s < MAX_STEPS:
            raise self._gap(f"the time at which {name} begins, in seconds", str(start_s)[:40])
        return read_video(path, start_s, row["length"], self.fps, (height, width))

    def files(self, episode: int, images: Sequence[str]) -> list[Path]:
        """The files that say what is in an episode, with the videos of these cameras."""
        row, about = self._rows[episode], (self.root / "meta" / "episodes").glob("*/*.parquet")
        found = [self.root / fmt.INFO, self.root / IDENTITY, *sorted(about)]
        found += [self._path(self._data, row, "data/"), self._path(fmt.LAST, row, "data/")]
        videos = [name for name in images if self.features[name]["dtype"] == "video"]
        found += [self._path(self._video, row, f"videos/{n}/", video_key=n) for n in videos]
        return [path for path in found if path.is_file()]

    def last(self, episode: int) -> dict[str, Any] | None:
        """What our own export keeps about an episode beside the format; None if it is missing."""
        path = self._path(fmt.LAST, self._rows[episode], "data/")
        if not path.is_file():
            return None
        found = _of_episode(_read_table(path), episode).to_pylist()
        fits = found and found[0].get("length") == self.lengths[episode]
        return found[0] if fits else None

    def _info(self) -> dict[str, Any]:
        path = self.root / fmt.INFO
        if not path.is_file():
            begun = (self.root / IDENTITY).is_file()
            if begun and (kind := _json(self.root / IDENTITY).get("format")) in ("mcap", "rrd"):
                raise StoreError(
                    f"{self.root} is an export for looking at, which is not imported",
                    expected=f"a LeRobotDataset {fmt.VERSION}",
                    got=f"an export of the format {kind}",
                    fix="robot-rl export RUN --to lerobot writes what can be imported",
                )
            raise StoreError(
                f"no dataset in {self.root}",
                expected=f"a LeRobotDataset {fmt.VERSION} with {fmt.INFO}",
                got="an export that is not finished" if begun else "no such file",
                fix="repeat the export: it goes on" if begun else "give the dataset's folder",
            )
        info = _json(path)
        for key, (kind, good) in _WANTED.items():
            value = info.get(key)
            if not isinstance(value, kind) or not good(value):
                raise StoreError(
                    f"{path} is not that of a LeRobotDataset {fmt.VERSION}",
                    expected=f"codebase_version {fmt.VERSION}, fps > 0, features, data_path",
                    got=f"{key}: {value!r}"[:200],
                    fix="convert older datasets with LeRobot's own converter first",
                )
        return info

    def _episode_rows(self, info: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows about the episodes; each must begin where the one before ended."""
        paths = sorted((self.root / "meta" / "episodes").glob("*/*.parquet"))
        rows: list[dict[str, Any]] = []
        for path in paths:
            table = _read_table(path)
            kept = [name for name in table.column_names if not name.startswith("stats/")]
            rows += table.select(kept).to_pylist()
        for name in _EPISODE - (set(rows[0]) if rows else set()):
            raise self._gap(f"episodes with {name}", f"{len(rows)} rows without")
        at = 0
        for number, row in enumerate(rows):
            if not (type(row["length"]) is int and 0 <= row["length"] <= MAX_STEPS):
                raise self._gap(f"0 to {MAX_STEPS} steps in an episode", str(row["length"])[:40])
            place = (row["episode_index"], row["dataset_from_index"], row["dataset_to_index"])
            if place != (number, at, at + row["length"]):
                wanted = (number, at, at + row["length"])
                raise self._gap(f"episode {number} at (episode, from, to) {wanted}", str(place))
            at += row["length"]
        totals = (info.get("total_episodes"), info.get("total_frames"))
        if totals != (len(rows), at) or not rows:
            raise self._gap(f"(episodes, steps) {totals} as in info.json", str((len(rows), at)))
        return rows

    def _check_rows(self, table: pa.Table, row: Mapping[str, Any]) -> None:
        """Check the rows of an episode: all are there, in order, at the rate of the dataset."""
        length = row["length"]
        if len(table) != length:
            raise self._gap(f"{length} rows of episode {row['episode_index']}", str(len(table)))
        wanted = np.arange(length)
        for name, first in (("frame_index", 0), ("index", row["dataset_from_index"])):
            if not np.array_equal(self._values(table, name), wanted + first):
                got = f"{name} out of order in episode {row['episode_index']}"
                raise self._gap(f"{name} {first}, {first + 1} ... without a gap", got)
        late = np.abs(self._values(table, "timestamp") - wanted / self.fps)
        if late.max(initial=0.0) > 0.5 / self.fps:
            got = f"{late.max():.3f} s beside it in episode {row['episode_index']}"
            raise self._gap(f"timestamps every 1/{self.fps} s", got)

    def _path(self, pattern: str, row: Mapping[str, Any], group: str, video_key: str = "") -> Path:
        """File of an episode; a pattern may not lead out of the dataset."""
        try:
            where = {k: row[f"{group}{k}"] for k in ("chunk_index", "file_index")}
            name = PurePosixPath(pattern.format(**where, video_key=video_key))
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            raise self._gap(f"a place of {group} files in {pattern}", repr(error)) from error
        if name.is_absolute() or ".." in name.parts:
            raise self._gap("files inside the dataset", f"a path to {name}")
        return self.root / name

    def _table(self, path: Path) -> pa.Table:
        """Read a data file; consecutive episodes share a file, so the newest one is kept."""
        if self._file is None or self._file[0] != path:
            self._file = (path, _read_table(path))
        return self._file[1]

    def _values(self, table: pa.Table, name: str) -> Any:
        """[N] or [N, D] numbers, none missing; text and pictures as lists."""
        column = table[name].combine_chunks()
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_struct(kind):
            return column.to_pylist()
        width = math.prod(self.features[name]["shape"]) if name in self.features else 1
        flat = column.flatten() if pa.types.is_nested(kind) else column
        widths = column.value_lengths().to_pylist() if pa.types.is_list(kind) else []
        uneven = any(found != width for found in widths)
        if flat.null_count or uneven or len(flat) != len(column) * width:
            raise self._gap(f"{width} numbers in every row of {name}", str(kind))
        values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
        return values if width == 1 else values.reshape(len(column), width)

    def _gap(self, expected: str, got: str) -> StoreError:
        return StoreError(
            f"{self.root} is damaged: positions do not match",
            expected=expected,
            got=got,
            fix="get the dataset again; nothing was changed in it",
        )


def _read_table(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            about = file.metadata
            size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            if about.num_rows > MAX_ROWS or not 0 <= size <= MAX_FILE_BYTES:
                raise pa.ArrowInvalid(f"{about.num_rows} rows, {size} bytes unpacked")
            table = _unpacked(file)
            table.validate(full=True)  # text that is UTF-8, lists that lie within their values
            if len(set(table.column_names)) != len(table.column_names):
                raise pa.ArrowInvalid("two columns of one name")
            return table
    except (OSError, MemoryError, pa.ArrowException, UnicodeDecodeError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise StoreError(
            f"{path.name} {'is missing' if missing else 'is damaged'}",
            expected=f"a parquet file {path}",
            got=str(error)[:300],
            fix="get this file again, then repeat the command: it goes on where it was",
        ) from error


def _unpacked(file: pq.ParquetFile) -> pa.Table:
    """Its rows, a few at a time where a value that is said once may be meant a million times.

    Numbers take eight bytes at most, and how many there are is said; text and pictures may be of
    any length. Raises `pa.ArrowInvalid` where the rows are too much.
    """
    about, lengths, numbers = file.metadata, 0, 0
    for group in map(about.row_group, range(about.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.physical_type == "BYTE_ARRAY":
                lengths += column.total_uncompressed_size
            else:
                numbers += 8 * column.num_values
    if numbers > MAX_FILE_BYTES:
        raise pa.ArrowInvalid(f"{numbers} bytes of numbers unpacked")
    at_once = max(1, min(1 << 16, MAX_FILE_BYTES // (8 * max(lengths, 1))))
    batches, taken = [], 0
    for batch in file.iter_batches(at_once):
        taken += batch.nbytes
        if taken > MAX_FILE_BYTES:
            raise pa.ArrowInvalid(f"more than {MAX_FILE_BYTES} bytes unpacked")
        batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow).combine_chunks()


def _of_episode(table: pa.Table, episode: int) -> pa.Table:
    chosen = table["episode_index"].to_numpy() == episode
    return table.filter(pa.array(chosen))


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
        found = plain_json.loads(data) if len(data) <= MAX_JSON_BYTES else "too large"
    except (OSError, ValueError) as error:
        found = str(error)
    if isinstance(found, dict):
        return found
    raise StoreError(
        f"{path} cannot be read",
        expected="a JSON object",
        got=str(found)[:200],
        fix="get the dataset again",
    )
