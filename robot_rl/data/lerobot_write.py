"""Write a LeRobotDataset v3.0; a repeated call goes on where it was after any interruption.

Episodes are grouped into files of about a minute of steps: one parquet file and one video per
camera. A group whose rows under `meta/episodes` are there is complete; info.json, without which
there is no dataset, is written when all groups are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from robot_rl.data import lerobot_format as fmt
from robot_rl.data.episodes import Chosen, fingerprint, read, spec_of, unbroken
from robot_rl.data.folder import ExportFolder, Progress, as_json, silent
from robot_rl.data.lerobot_group import FileGroup, Layout, parquet, place
from robot_rl.data.lerobot_stats import merged
from robot_rl.data.video import CRF, available
from robot_rl.errors import StoreError
from robot_rl.store.labels import ACTION_SPREAD
from robot_rl.store.store import Store

FILE_S = 60.0  # a file holds about this much; a kill costs no more, and float32 times stay exact


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a dataset is written.

    codec: av1 or h264; crf: quality, lower is better; task: text for all episodes, "" = the name
    of the task; robot_type: kept in info.json.
    """

    codec: str = "av1"
    crf: int = CRF
    task: str = ""
    robot_type: str = ""


def write_lerobot(
    store: Store,
    chosen: Sequence[Chosen],
    out: Path,
    options: WriteOptions,
    progress: Progress = silent,
) -> dict[str, int]:
    """Export; the same call goes on after an interruption. Returns episodes and steps.

    Raises:
        ConfigError: `out` holds something else, or another export.
        SpecError: the format cannot hold these images or this rate.
        StoreError: disk full, or no step is left.
    """
    layout = _layout(store, chosen, options)
    identity = {
        "format": f"LeRobotDataset {fmt.VERSION}",
        "spec": layout.spec.as_dict(),
        "tasks": layout.texts,
        "codec": layout.codec,
        "crf": layout.crf,
        "robot_type": options.robot_type,
        "episodes": fingerprint(chosen),
    }
    inferred = _inferred(store, chosen)
    identity |= {"inferred_actions": inferred} if inferred else {}
    left_out = sum(c.not_learned_from for c in chosen)
    identity |= {"left_out_of_training": left_out} if left_out else {}
    with ExportFolder(out, identity) as folder:
        if not folder.has(fmt.INFO):
            _write_groups(store, chosen, layout, folder, progress)
            _finish(layout, folder, options.robot_type)
        progress(len(chosen), len(chosen))
        episodes, steps = _count(folder.path)
    return {"episodes": episodes, "steps": steps}


def _inferred(store: Store, chosen: Sequence[Chosen]) -> int:
    """Steps whose actions nobody recorded: the format has no place for a step's labels."""
    ids = {c.start.id for c in chosen}
    return sum(x.id in ids for x in store.all_labels((ACTION_SPREAD,)))


def _layout(store: Store, chosen: Sequence[Chosen], options: WriteOptions) -> Layout:
    spec, codec = spec_of(store), available(options.codec)
    return Layout(
        spec=spec,
        fps=fmt.whole_fps(spec),
        codec=codec,
        crf=options.crf,
        tasks={c.start.task: options.task or c.start.task for c in chosen},
        features=fmt.features(spec, codec, options.crf),
    )


def _write_groups(
    store: Store,
    chosen: Sequence[Chosen],
    layout: Layout,
    folder: ExportFolder,
    progress: Progress,
) -> None:
    """Write every group that is not there yet."""
    done = 0
    for number, group in enumerate(_groups(chosen, FILE_S * layout.fps)):
        if not folder.has(fmt.EPISODES.format(**place(number))):
            files = FileGroup(layout, number, *_count(folder.path))
            for index, one in enumerate(group):
                for piece in unbroken(read(store, one)):
                    files.add(piece)
                progress(done + index + 1, len(chosen))
            files.write(folder)
        done += len(group)
        progress(done, len(chosen))


def _groups(chosen: Sequence[Chosen], steps: float) -> Iterator[list[Chosen]]:
    """Yield groups of consecutive episodes with about so many steps; the same every time."""
    group: list[Chosen] = []
    for one in chosen:
        if group and sum(c.steps for c in group) + one.steps > steps:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _finish(layout: Layout, folder: ExportFolder, robot_type: str) -> None:
    """Write the files about all episodes, last info.json, which makes the folder a dataset."""
    episodes, steps = _count(folder.path)
    if not episodes:
        raise StoreError(
            "no step is left to export",
            expected="steps with the frames before and after them",
            got="episodes whose frames are missing",
            fix="export from the store of the actor that recorded them",
        )
    tasks = layout.texts
    folder.write(fmt.TASKS, parquet([fmt.tasks_table(tasks)]))
    folder.write(fmt.STATS, as_json(_stats(folder.path, layout)))
    totals = (episodes, steps, len(tasks))
    info = fmt.info(layout.features, layout.fps, totals, robot_type or None)
    folder.write(fmt.INFO, as_json(info))


def _episode_files(out: Path) -> list[Path]:
    return sorted((out / "meta" / "episodes").glob("*/*.parquet"))


def _count(out: Path) -> tuple[int, int]:
    """Episodes and steps in the complete groups."""
    files = _episode_files(out)
    if not files:
        return 0, 0
    rows = pq.ParquetFile(files[-1]).read(["episode_index", "dataset_to_index"]).to_pylist()
    return rows[-1]["episode_index"] + 1, rows[-1]["dataset_to_index"]


def _stats(out: Path, layout: Layout) -> dict[str, Any]:
    """Statistics of every feature over all episodes."""
    rows = [row for path in _episode_files(out) for row in pq.ParquetFile(path).read().to_pylist()]
    names = [name for name, f in layout.features.items() if f["dtype"] != "string"]
    return {name: merged([_of_feature(row, f"stats/{name}/") for row in rows]) for name in names}


def _of_feature(row: dict[str, Any], head: str) -> dict[str, Any]:
    return {k.removeprefix(head): v for k, v in row.items() if k.startswith(head)}
