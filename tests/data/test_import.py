"""Import of a LeRobotDataset: another recorder's data, mappings, and what can be wrong."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robot_rl.config.run_folder import STORE
from robot_rl.data.episodes import choose
from robot_rl.data.lerobot_import import import_lerobot
from robot_rl.data.lerobot_rows import ImportOptions
from robot_rl.data.lerobot_write import WriteOptions, write_lerobot
from robot_rl.data.video import encode_still
from robot_rl.errors import ConfigError, RobotRLError, SpecError, StoreError
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import Store
from robot_rl.types import Driver, Ending, Label, Outcome, Step
from tests.support.data_samples import (
    change_info,
    drop_features,
    files,
    made_episode,
    made_spec,
    made_store,
    make_foreign,
)

SPEC = made_spec(((16, 24),))
LENGTHS = [5, 3, 8]
VIDEO = "videos/observation.images.cam0/chunk-000/file-000.mp4"
DATA = "data/chunk-000/file-000.parquet"


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """An export of ours."""
    with made_store(tmp_path / "source.sqlite", SPEC, LENGTHS) as store:
        write_lerobot(store, choose(store), tmp_path / "dataset", WriteOptions())
    return tmp_path / "dataset"


@pytest.fixture
def theirs(ours: Path) -> Path:
    """A dataset that another program could have recorded."""
    make_foreign(ours)
    return ours


def run(source: Path, out: Path, spec: Spec = SPEC, **options: object) -> list[list[Step]]:
    """Import, and the steps of every episode."""
    import_lerobot(source, spec, out, ImportOptions(**options))  # type: ignore[arg-type]
    with Store(out / STORE) as store:
        return [store.steps(start.id) for start in store.episodes()]


def refused(source: Path, error: type[Exception], match: str, **options: object) -> None:
    """The import fails so, and neither touches its source nor leaves a store to learn from."""
    before, out = files(source), source.parent / "refused"
    spec = options.pop("spec", SPEC)
    with pytest.raises(error, match=match):
        run(source, out, spec, **options)  # type: ignore[arg-type]
    assert files(source) == before
    assert not (out / STORE).exists()


def test_training_takes_the_folder_as_a_dataset(ours: Path, tmp_path: Path) -> None:
    run(ours, tmp_path / "demos")
    with Store(tmp_path / "run.sqlite", spec=SPEC, reserve_bytes=0) as store:
        assert import_dataset(store, str(tmp_path / "demos"), SPEC) == 3
        starts = store.episodes()
        assert {s.purpose for s in starts} == {"data"} and starts[0].id.run == "demos"
        assert [len(store.steps(s.id)) for s in starts] == LENGTHS
        assert [len(store.frames(s.id)) for s in starts] == [n + 1 for n in LENGTHS]
    assert sorted(files(tmp_path / "demos")) == ["import.json", STORE]
    summary = json.loads((tmp_path / "demos" / "import.json").read_text())
    assert summary["steps"] == sum(LENGTHS)


def test_another_recorders_steps_are_demonstrations(theirs: Path, tmp_path: Path) -> None:
    drop_features(theirs, "next.")
    episodes = run(theirs, tmp_path / "demos")
    for steps in episodes:
        assert {s.driver for s in steps} == {Driver.DEMO}
        assert {s.reward for s in steps} == {None}, "unlabelled, never 0"
        assert {s.outcome for s in steps} == {Outcome.PASS}
        assert [s.ending for s in steps] == [None] * (len(steps) - 1) + [Ending.TRUNCATED]
        assert [s.stamp_ns for s in steps] == [k * 10**8 for k in range(len(steps))]
    with Store(tmp_path / "demos" / STORE) as store:
        frames = store.frames(store.episodes()[0].id)
        assert {s.purpose for s in store.episodes()} == {"demo"}
    before, last = frames[-2:]
    assert np.array_equal(before.observation["state"], last.observation["state"])


def test_success_last_labels_every_step_and_ends_terminated(theirs: Path, tmp_path: Path) -> None:
    drop_features(theirs, "next.")
    for steps in run(theirs, tmp_path / "demos", success="last"):
        assert [s.reward for s in steps] == [0.0] * (len(steps) - 1) + [1.0]
        assert steps[-1].ending is Ending.TERMINATED and steps[-1].success is True


def test_rewards_are_taken_from_next_reward(ours: Path, tmp_path: Path) -> None:
    own = [[s.reward for s in steps] for steps in run(ours, tmp_path / "own")]
    make_foreign(ours)
    theirs = [[s.reward for s in steps] for steps in run(ours, tmp_path / "theirs")]
    for a, b in zip(own, theirs, strict=True):
        assert b == [float(np.float32(r or 0.0)) for r in a]


@pytest.mark.parametrize(
    ("values", "ending", "success"),
    [
        ({"next.done": True, "next.success": True}, Ending.TERMINATED, True),
        ({"next.done": True, "next.success": False}, Ending.TRUNCATED, False),
        ({"next.done": True, "next.reward": 1.0}, Ending.TERMINATED, True),
        ({"next.done": True, "next.reward": 0.0}, Ending.TRUNCATED, None),
        ({"next.done": False, "next.reward": 1.0}, Ending.TRUNCATED, None),
        ({"next.done": True, "next.truncated": False}, Ending.TRUNCATED, None),
        (
            {"next.done": True, "next.truncated": False, "next.success": False},
            Ending.TERMINATED,
            False,
        ),
        (
            {"next.done": True, "next.truncated": False, "next.reward": 0.0},
            Ending.TERMINATED,
            None,
        ),
    ],
)
def test_how_an_episode_of_another_recorder_ends(
    theirs: Path, tmp_path: Path, values: dict[str, float], ending: Ending, success: bool | None
) -> None:
    known = json.loads((theirs / "meta" / "info.json").read_text())["features"]
    drop_features(theirs, *(k for k in known if k.startswith("next.") and k not in values))
    table = pq.ParquetFile(theirs / DATA).read()
    for name, value in values.items():
        kind = table.schema.field(name).type
        column = pa.array([value] * len(table), kind)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, theirs / DATA)
    last = run(theirs, tmp_path / "demos")[0][-1]
    assert (last.ending, last.success) == (ending, success)


def test_features_are_mapped_and_images_resized(
    theirs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = dict(made_spec(((8, 12),)).observation)
    wanted["image/hand"] = wanted.pop("image/cam0")
    spec = Spec("other", 10.0, wanted, SPEC.action, SPEC.state_layout)
    mapping = {"observation.images.cam0": "image/hand"}
    with caplog.at_level(logging.INFO):
        run(theirs, tmp_path / "demos", spec, mapping=mapping)
    assert "16x24 are resized to 8x12" in caplog.text
    with (
        Store(tmp_path / "demos" / STORE) as store,
        Store(tmp_path / "source.sqlite") as source,
    ):
        new, old = (s.frames(s.episodes()[1].id)[1].observation for s in (store, source))
    assert new["image/hand"].shape == (8, 12, 3)
    assert np.abs(new["image/hand"][0, 0] - old["image/cam0"][0, 0].astype(float)).max() < 25


def test_pictures_inside_the_data_files_are_read_as_well(theirs: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "source.sqlite") as source:
        frames = [f for s in source.episodes() for f in source.frames(s.id)[:-1]]
    stills = [
        {"bytes": encode_still(f.observation["image/cam0"], "png"), "path": ""} for f in frames
    ]
    table = pq.ParquetFile(theirs / DATA).read()
    pq.write_table(table.append_column("observation.images.cam0", pa.array(stills)), theirs / DATA)
    info = json.loads((theirs / "meta" / "info.json").read_text())
    info["features"]["observation.images.cam0"]["dtype"] = "image"
    change_info(theirs, features=info["features"], video_path=None)
    run(theirs, tmp_path / "demos")
    with Store(tmp_path / "demos" / STORE) as store:
        again = [f for s in store.episodes() for f in store.frames(s.id)[:-1]]
    for a, b in zip(frames, again, strict=True):
        assert np.array_equal(a.observation["image/cam0"], b.observation["image/cam0"])


def test_an_interrupted_import_goes_on_and_a_finished_one_is_left_alone(
    ours: Path, tmp_path: Path
) -> None:
    def stop(done: int, _all: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    out = tmp_path / "demos"
    with pytest.raises(KeyboardInterrupt):
        import_lerobot(ours, SPEC, out, ImportOptions(), stop)
    assert not (out / STORE).exists(), "nothing that training would take"
    run(ours, out)
    with Store(out / STORE) as store, Store(tmp_path / "source.sqlite") as source:
        assert store.last_seq() == source.last_seq()
    written = (out / STORE).read_bytes()
    run(ours, out)
    assert (out / STORE).read_bytes() == written
    with pytest.raises(ConfigError, match="another import"):
        run(ours, out, success="last")
    assert (out / STORE).read_bytes() == written


def relabelled(tmp_path: Path) -> tuple[Path, Path]:
    """Two exports of one store, the second after a review: the same descriptions, other labels."""
    with made_store(tmp_path / "source.sqlite", SPEC, LENGTHS) as store:
        write_lerobot(store, choose(store), tmp_path / "a", WriteOptions())
        store.append(
            [Label(s.id, 0, None, "success", 1.0, "human", "me", 1) for s in store.episodes()]
        )
        write_lerobot(store, choose(store), tmp_path / "b", WriteOptions())
    info = Path("meta") / "info.json"
    assert (tmp_path / "a" / info).read_bytes() == (tmp_path / "b" / info).read_bytes()
    return tmp_path / "a", tmp_path / "b"


def test_another_dataset_of_the_same_description_is_refused(tmp_path: Path) -> None:
    a, b = relabelled(tmp_path)
    out = tmp_path / "demos"
    run(a, out)
    before = files(out)
    with pytest.raises(ConfigError, match=r"holds another dataset(.|\n)*data/chunk-000"):
        run(b, out)
    assert files(out) == before, "neither its rows nor what it says of itself"
    a.rename(tmp_path / "moved")
    run(tmp_path / "moved", out)
    assert files(out) == before, "where a dataset lies does not matter, and nothing was imported"


def test_another_dataset_of_the_same_pictures_count_is_refused(ours: Path, tmp_path: Path) -> None:
    out, video = tmp_path / "demos", ours / VIDEO
    run(ours, out)
    changed = bytearray(video.read_bytes())
    changed[-1] ^= 1
    video.write_bytes(changed)
    with pytest.raises(ConfigError, match=r"file-000\.mp4"):
        run(ours, out)


def stopped(source: Path, out: Path) -> None:
    """An import that ended after two episodes."""

    def stop(done: int, _all: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_lerobot(source, SPEC, out, ImportOptions(), stop)


def test_an_interrupted_import_never_mixes_two_datasets(tmp_path: Path) -> None:
    a, b = relabelled(tmp_path)
    out = tmp_path / "demos"
    stopped(a, out)
    with pytest.raises(ConfigError, match="holds another dataset"):
        run(b, out)
    a.rename(tmp_path / "old")
    b.rename(a)  # another export in the same place: the same command begins again
    success = [steps[-1].success for steps in run(a, out)]
    assert success == [True] * 3


def test_imports_of_older_versions_go_on_and_stay(
    ours: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not say what was in the files."""
    out = tmp_path / "demos"

    def forget(path: Path) -> None:
        with Store(path) as store:
            said = store.meta("import")
            store.set_meta(
                "import", {k: v for k, v in said.items() if k not in ("files", "source")}
            )

    stopped(ours, out)
    forget(out / "import.unfinished.sqlite")
    assert len(run(ours, out)) == 3
    assert "an older version began this import" in caplog.text
    forget(out / STORE)
    before = files(out)
    assert len(run(ours, out)) == 3
    assert "does not say from which files" in caplog.text and files(out) == before


def test_the_same_data_for_another_task_is_refused(theirs: Path, tmp_path: Path) -> None:
    """A folder has one configuration, and its rows one spec."""
    run(theirs, tmp_path / "demos")
    with pytest.raises(SpecError, match="for another observation or action"):
        run(theirs, tmp_path / "demos", replace(SPEC, task="other"))


def test_the_folder_of_a_run_is_not_imported_into(ours: Path, tmp_path: Path) -> None:
    made_store(tmp_path / "run" / "store.sqlite", SPEC, [2]).close()
    before = files(tmp_path / "run")
    with pytest.raises(ConfigError, match="the store of a run"):
        run(ours, tmp_path / "run")
    assert files(tmp_path / "run") == before


# -- what can be wrong ---------------------------------------------------------------------------


def test_another_rate_is_refused(theirs: Path) -> None:
    change_info(theirs, fps=30)
    refused(theirs, SpecError, r"expected: 10 steps per second(.|\n)*fps 30")


def test_another_robot_is_refused_with_both_sides(theirs: Path) -> None:
    refused(theirs, SpecError, r"action float32 \[6\] -> action \[7\]", spec=_spec(gripper=True))
    refused(
        theirs, SpecError, r"observation.state float32 \[5\] -> state \[8\]", spec=_spec(state=8)
    )


def _spec(state: int = 5, gripper: bool = False) -> Spec:
    return made_spec(((16, 24),), state=state, gripper=gripper)


def test_other_names_are_refused_until_somebody_says_that_they_mean_the_same(
    theirs: Path, tmp_path: Path
) -> None:
    info = json.loads((theirs / "meta" / "info.json").read_text())
    names = ["shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3"]
    info["features"]["action"]["names"] = {"motors": names}
    change_info(theirs, features=info["features"])
    refused(theirs, SpecError, "shoulder_pan -> dx, .* and 2 more")
    assert len(run(theirs, tmp_path / "demos", ignore_names=True)) == 3


def test_the_same_names_with_another_scale_are_refused(ours: Path) -> None:
    scaled = Spec(
        SPEC.task, 10.0, SPEC.observation, ActionSpec(0.02, 0.05, False), SPEC.state_layout
    )
    refused(ours, SpecError, "action.translation_m: 0.01 -> 0.02", spec=scaled)
    layout = (("pose", 4, "mm"), ("width", 1, "m"))
    metric = Spec(SPEC.task, 10.0, SPEC.observation, SPEC.action, layout)
    refused(ours, SpecError, "'m'] -> .*'mm'", spec=metric)


def test_actions_in_other_units_are_refused(theirs: Path) -> None:
    table = pq.ParquetFile(theirs / DATA).read()
    degrees = pa.FixedSizeListArray.from_arrays(pa.array([90.0] * 6 * len(table), pa.float32()), 6)
    at = table.schema.get_field_index("action")
    pq.write_table(table.set_column(at, "action", degrees), theirs / DATA)
    refused(theirs, SpecError, r"\[-1, 1\](.|\n)*90.0")


@pytest.mark.parametrize(
    ("mapping", "match"),
    [
        ({"observation.stat": "state"}, "did you mean 'observation.state'"),
        ({"observation.state": "stat"}, "did you mean 'state'"),
    ],
)
def test_misspelt_mappings_name_the_right_word(
    theirs: Path, mapping: dict[str, str], match: str
) -> None:
    refused(theirs, ConfigError, match, mapping=mapping)


def test_a_missing_camera_is_named_with_what_there_is(theirs: Path) -> None:
    observation = {**SPEC.observation, "image/wrist": TensorSpec((8, 8, 3), "uint8")}
    spec = Spec(SPEC.task, 10.0, observation, SPEC.action, SPEC.state_layout)
    match = "nothing for image/wrist(.|\n)*--map FEATURE=image/wrist"
    refused(theirs, SpecError, match, spec=spec)


def test_a_depth_camera_is_no_colour_image(theirs: Path) -> None:
    info = json.loads((theirs / "meta" / "info.json").read_text())
    info["features"]["observation.images.cam0"]["info"]["is_depth_map"] = True
    change_info(theirs, features=info["features"])
    refused(theirs, SpecError, "depth .* -> RGB image image/cam0")


def test_a_missing_a_damaged_and_a_short_video_are_named(ours: Path, tmp_path: Path) -> None:
    video = ours / VIDEO
    whole = video.read_bytes()
    video.unlink()
    refused(ours, StoreError, "file-000.mp4 is missing")
    video.write_bytes(whole[: len(whole) // 2])
    refused(ours, StoreError, "file-000.mp4 is damaged")
    with made_store(tmp_path / "short.sqlite", SPEC, [5, 3]) as store:
        write_lerobot(store, choose(store), tmp_path / "short", WriteOptions())
    video.write_bytes((tmp_path / "short" / VIDEO).read_bytes())
    refused(ours, StoreError, "lacks pictures(.|\n)*0 of 8")
    video.write_bytes(whole)
    assert len(run(ours, tmp_path / "refused")) == 3, "the same command goes on"


def test_rows_that_are_missing_or_out_of_order_never_shift_the_rest(theirs: Path) -> None:
    table = pq.ParquetFile(theirs / DATA).read()
    pq.write_table(pa.concat_tables([table.slice(0, 6), table.slice(7)]), theirs / DATA)
    refused(theirs, StoreError, "3 rows of episode 1(.|\n)*got:      2")
    order = [0, 1, 2, 3, 4, 6, 5, 7, *range(8, 16)]
    pq.write_table(table.take(order), theirs / DATA)
    refused(theirs, StoreError, "frame_index out of order in episode 1")
    (theirs / DATA).write_bytes((theirs / DATA).read_bytes()[:-9])
    refused(theirs, StoreError, "file-000.parquet is damaged")
    (theirs / DATA).unlink()
    refused(theirs, StoreError, "file-000.parquet is missing")


def test_whatever_is_damaged_is_refused_or_does_not_matter(ours: Path, tmp_path: Path) -> None:
    """Random damage of random files: our errors and no others; numbers are right or refused."""
    rng, names = np.random.default_rng(3), sorted(files(ours))
    right = [s.action for steps in run(ours, tmp_path / "right") for s in steps]
    refusals = 0
    for number in range(40):
        path = ours / names[int(rng.integers(len(names)))]
        whole = path.read_bytes()
        damaged, at = bytearray(whole), int(rng.integers(len(whole)))
        if number % 2:
            damaged[at:] = b""
        else:
            damaged[at : at + 20] = rng.bytes(len(damaged[at : at + 20]))
        path.write_bytes(damaged)
        try:
            steps = [s for steps in run(ours, tmp_path / f"out{number}") for s in steps]
            assert all(np.array_equal(s.action, a) for s, a in zip(steps, right, strict=True))
        except RobotRLError:
            refusals += 1
        path.write_bytes(whole)
    assert refusals > 15


def test_rows_of_another_width_never_shift_the_rest(theirs: Path) -> None:
    table = pq.ParquetFile(theirs / DATA).read()
    at = table.schema.get_field_index("observation.state")
    uneven = [[0.0] * 4, [0.0] * 6] * 8  # five numbers on average
    for rows in (uneven, [[0.0] * 10] * 16, [None, *[[0.0] * 5] * 15]):
        column = pa.array(rows, pa.list_(pa.float32()))
        pq.write_table(table.set_column(at, "observation.state", column), theirs / DATA)
        refused(theirs, StoreError, "5 numbers in every row of observation.state")
    pq.write_table(table.drop_columns(["observation.state"]), theirs / DATA)
    refused(theirs, StoreError, "a column observation.state")
    pq.write_table(table.drop_columns(["timestamp"]), theirs / DATA)
    refused(theirs, StoreError, "a column timestamp")


def test_episodes_with_a_gap_between_them_are_refused(theirs: Path) -> None:
    path = theirs / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.take([0, 2]), path)
    refused(theirs, StoreError, "episode 1 at")
    pq.write_table(rows.drop_columns(["length"]), path)
    refused(theirs, StoreError, "episodes with length")
    path.write_bytes(b"PAR1")
    refused(theirs, StoreError, "file-000.parquet is damaged")
    pq.write_table(rows.slice(0, 2), path)
    refused(theirs, StoreError, r"\(3, 16\) as in info.json(.|\n)*\(2, 8\)")


def test_paths_that_lead_out_of_the_dataset_are_refused(theirs: Path) -> None:
    change_info(theirs, data_path="../../secret/file-{file_index:03d}.parquet")
    refused(theirs, StoreError, "inside the dataset")
    for pattern in ("{nobody}/file.parquet", "{chunk_index", "{chunk_index.x}"):
        change_info(theirs, data_path=pattern)
        refused(theirs, StoreError, "data_path")


def test_what_is_no_dataset_is_named(theirs: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, StoreError, "no dataset in")
    change_info(theirs, codebase_version="v2.1")
    refused(theirs, StoreError, "codebase_version: 'v2.1'")
    (theirs / "meta" / "info.json").write_text("{")
    refused(theirs, StoreError, "cannot be read")


def test_an_unfinished_export_is_no_dataset(ours: Path) -> None:
    (ours / "meta" / "info.json").unlink()
    refused(ours, StoreError, "an export that is not finished")


def test_bags_are_not_imported(ours: Path) -> None:
    (ours / "meta" / "info.json").unlink()
    (ours / "robot_rl.json").write_text('{"format": "mcap"}')
    refused(ours, StoreError, "format mcap(.|\n)*--to lerobot")


def test_text_of_ours_that_is_no_word_of_ours_is_refused(ours: Path) -> None:
    table = pq.ParquetFile(ours / DATA).read()
    at = table.schema.get_field_index("robot_rl.driver")
    nobody = pa.array(["nobody"] * len(table))
    pq.write_table(table.set_column(at, "robot_rl.driver", nobody), ours / DATA)
    refused(ours, StoreError, "none of ours")


def test_gaps_of_the_source_episode_do_not_matter_for_a_second_import(
    ours: Path, tmp_path: Path
) -> None:
    """Imported episodes have an identity of their own, so both can be learned from."""
    run(ours, tmp_path / "demos")
    with Store(tmp_path / "both.sqlite", spec=SPEC, reserve_bytes=0) as store:
        store.append(made_episode(SPEC, 0, 5))
        assert import_dataset(store, str(tmp_path / "demos"), SPEC) == 3
        assert len(store.episodes()) == 4
