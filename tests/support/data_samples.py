"""Made-up stores for tests of export and import; pictures are plain colours, which codecs keep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.store import Store
from robot_rl.types import (
    Driver,
    Ending,
    EpisodeId,
    EpisodeStart,
    Frame,
    Observation,
    Outcome,
    Row,
    Step,
)

FPS = 10


def made_spec(
    cameras: tuple[tuple[int, int], ...] = (), state: int = 5, gripper: bool = False
) -> Spec:
    """A spec with one camera per (height, width)."""
    observation = {"state": TensorSpec((state,), "float32")}
    for index, (height, width) in enumerate(cameras):
        observation[f"image/cam{index}"] = TensorSpec((height, width, 3), "uint8")
    layout = (("pose", state - 1, "m"), ("width", 1, "m"))
    action = ActionSpec(translation_m=0.01, rotation_rad=0.05, gripper=gripper)
    return Spec("stack", float(FPS), observation, action, layout)


def made_observation(spec: Spec, rng: np.random.Generator) -> Observation:
    """Random numbers and plain colours."""
    found: Observation = {}
    for key, tensor in spec.observation.items():
        if tensor.dtype == "uint8":
            colour = rng.integers(0, 256, 3, np.uint8)
            found[key] = np.broadcast_to(colour, tensor.shape).copy()
        else:
            found[key] = rng.normal(size=tensor.shape).astype(tensor.dtype)
    return found


def made_episode(
    spec: Spec,
    number: int,
    steps: int,
    *,
    ending: Ending | None = Ending.TERMINATED,
    purpose: str = "train",
) -> list[Row]:
    """Header, frames and steps, everything in them random, times not quite regular."""
    rng = np.random.default_rng((7, number))
    id_ = EpisodeId("made", "arm", number)
    stamps = number * 10**12 + np.cumsum(rng.integers(90_000_000, 110_000_000, steps + 1))
    rows: list[Row] = [
        EpisodeStart(id_, purpose, spec.task, spec.hash, "limits", number, number * 10**9)
    ]
    rows += [Frame(id_, k, int(t), made_observation(spec, rng)) for k, t in enumerate(stamps)]
    drivers, outcomes = list(Driver)[:4], list(Outcome)
    for k in range(steps):
        over = k == steps - 1
        rows.append(
            Step(
                id=id_,
                step=k,
                frame=k,
                next_frame=k + 1,
                segment=k // 3,
                driver=drivers[k // 3 % len(drivers)],
                action=rng.uniform(-1, 1, spec.action.size).astype(np.float32),
                policy_action=rng.uniform(-1, 1, spec.action.size).astype(np.float32),
                outcome=outcomes[int(rng.integers(len(outcomes)))],
                reason=str(rng.choice(["", "force: 12 N, limit 10 N", "größer"])),
                reward=None if rng.random() < 0.3 else float(rng.normal()),
                ending=ending if over else None,
                success=(None, True, False)[number % 3] if over else None,
                weights_version=int(rng.integers(-1, 50)),
                stamp_ns=int(stamps[k]),
            )
        )
    return rows


def made_store(path: Path, spec: Spec, lengths: list[int]) -> Store:
    """A store with one finished episode per length."""
    store = Store(path, spec=spec, reserve_bytes=0)
    for number, steps in enumerate(lengths):
        store.append(made_episode(spec, number, steps))
    return store


def make_foreign(folder: Path) -> None:
    """Take everything of ours out of an export: what is left could be any recorder's."""
    (folder / "robot_rl.json").unlink()
    shutil.rmtree(folder / "robot_rl")
    drop_features(folder, "robot_rl.")


def drop_features(folder: Path, *starts: str) -> None:
    """Remove features whose names begin so."""
    path = folder / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"] = {k: v for k, v in info["features"].items() if not k.startswith(starts)}
    path.write_text(json.dumps(info))
    for data in folder.glob("data/*/*.parquet"):
        table = pq.ParquetFile(data).read()
        kept = [name for name in table.column_names if not name.startswith(starts)]
        pq.write_table(table.select(kept), data)


def change_info(folder: Path, **values: object) -> None:
    """Overwrite entries of info.json."""
    path = folder / "meta" / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def files(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
