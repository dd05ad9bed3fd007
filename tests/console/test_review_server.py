"""What the server tells the review page: of many episodes, of numbers, in other formats."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.config.run_folder import SCENE_PICTURES
from robot_rl.console import exports
from robot_rl.console.batch import MOST, read_batch
from robot_rl.console.records import Records
from robot_rl.console.remembered import Role
from robot_rl.console.signals import MOST_POINTS, plain_unit, signals_of, thinned
from robot_rl.console.starts import Starts
from robot_rl.console.unfinished import still_runs
from robot_rl.errors import SetupError, StoreError
from robot_rl.store.labels import review
from robot_rl.store.scenes import SCENES
from robot_rl.store.store import Store
from robot_rl.system.presence import own_process
from robot_rl.types import EpisodeId, Frame, Label
from tests.console.test_server import enter
from tests.support.served import rows_of

WHERE = {"run": "run", "actor": "actor-0", "episode": 3}


def print_of(folder: Path) -> str:
    """Digest of every file of a run; not of the shared memory in which readers take locks."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".sqlite-shm"):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def excluded(run_dir: Path) -> list[int]:
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        return [
            r.id.episode for r in store.episode_summaries() if review(store.labels(r.id)).excluded
        ]


def batch(kind: str, episodes: list[Any], **more: Any) -> dict[str, Any]:
    return {"kind": kind, "of": [{"run": "run", "actor": "actor-0", "episodes": episodes} | more]}


# --- the list -------------------------------------------------------------------------------------


def test_the_list_tells_who_drove_and_whose_words_stand(console: Any, run_dir: Path) -> None:
    client = enter(console)
    first = client.get("/api/episodes").json()
    assert {tuple(e["drivers"]) for e in first} == {("correction", "policy")}
    assert [e["authors"] for e in first] == [[]] * 5
    said = client.post("/api/label", json={**WHERE, "kind": "success"}).json()
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        id_ = EpisodeId("run", "actor-0", 3)
        store.append([Label(id_, 0, None, "vlm_success", 1.0, "vlm", "model-x", 7)])
        store.append(rows_of(store.spec, "run", 5, 2, success=True))
    now = {e["episode"]: e for e in client.get("/api/episodes").json()}
    assert now[3]["authors"] == ["model-x", "operator 1"]
    assert now[5]["drivers"] == ["policy"] and now[4]["drivers"] == ["correction", "policy"]
    client.post("/api/label", json={**WHERE, "kind": "undo", "value": said["label"]})
    assert client.get("/api/episode", params=WHERE).json()["authors"] == ["model-x"]


# --- plots ----------------------------------------------------------------------------------------


def test_signals_are_what_the_store_holds_in_the_unit_of_the_spec(
    console: Any, run_dir: Path
) -> None:
    client = enter(console)
    known = client.get("/api/signals", params=WHERE).json()
    assert known["signals"] == []
    names = [signal["name"] for signal in known["known"]]
    assert names[:5] == ["action", "policy_action", "reward", "outcome", "weights_version"]
    assert {"tcp_in_workspace", "force_in_tcp"} <= set(names)
    asked = ["action", "outcome", "reward", "force_in_tcp"]
    found = client.get("/api/signals", params=WHERE | {"name": asked}).json()["signals"]
    assert [x["name"] for x in found] == asked
    with Store(run_dir / "actor.sqlite") as store:
        id_ = EpisodeId("run", "actor-0", 3)
        steps, frames, spec = store.steps(id_), store.frames(id_), store.spec
    assert spec is not None
    action, outcome, reward, force = found
    assert action["lines"] == ["dx", "dy", "dz", "rx", "ry", "rz"][: len(action["lines"])]
    assert [n for n, _ in action["points"][1]] == list(range(12))
    dy = [value for _, value in action["points"][1]]
    assert dy == pytest.approx([float(s.action[1]) for s in steps], rel=1e-4)
    assert outcome["words"] == ["pass", "clipped", "hold"] and outcome["points"][0][5] == [5, 0.0]
    assert reward["points"][0][-1] == [11, 0.0]
    assert force["unit"] == "N clipped at 20" and force["lines"] == ["x", "y", "z"]
    place = spec.state_slices["force_in_tcp"]
    z = [10.0 * float(f.observation["state"][place][2]) for f in frames]
    assert [value for _, value in force["points"][2]] == pytest.approx(z, rel=1e-4)


def test_what_is_asked_for_is_bounded_and_named(console: Any) -> None:
    client = enter(console)
    answer = client.get("/api/signals", params=WHERE | {"name": "forse_in_tcp"})
    assert answer.status_code == 409 and "did you mean 'force_in_tcp'" in answer.json()["error"]
    many = {"name": ["action"] * 9}
    assert client.get("/api/signals", params=WHERE | many).status_code == 422
    assert client.get("/api/signals", params=WHERE | {"episode": 99}).status_code == 409


def test_a_long_episode_is_thinned_and_keeps_its_peaks() -> None:
    values = np.sin(np.linspace(0, 50, 100_000)) * 0.5
    values[70_003], values[20_001], values[5] = 9.0, -8.0, np.nan
    points = thinned(range(100_000), values)
    assert len(points) <= MOST_POINTS
    assert (70_003, 9.0) in points and (20_001, -8.0) in points
    assert [n for n, _ in points] == sorted(n for n, _ in points)
    assert thinned(range(3), np.array([1.0, np.nan, 2.0])) == [(0, 1.0), (1, None), (2, 2.0)]
    assert all(v is None for _, v in thinned(range(2000), np.full(2000, np.nan)))


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("50 mm", (50.0, "mm")),
        ("0.1 m from its middle", (100.0, "mm from its middle")),
        ("100 mm, from 150 mm", (100.0, "mm from 150 mm")),
        ("10 N, clipped at 2", (10.0, "N clipped at 20")),
        ("0.5 rad/s", (0.5, "rad/s")),
        ("0.1 m/s", (0.1, "m/s")),
        ("tanh of 10 mm", (1.0, "tanh of 10 mm")),
        ("sin and cos of 4 x angle", (1.0, "sin and cos of 4 x angle")),
        ("", (1.0, "")),
    ],
)
def test_units_of_the_state_become_plain(recorded: str, shown: tuple[float, str]) -> None:
    factor, unit = plain_unit(recorded)
    assert (round(factor, 9), unit) == shown


# --- starts ---------------------------------------------------------------------------------------


def test_starts_are_read_once_and_tell_the_widest_axes_first(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, read = Records(run_dir), []
    first_frame = records.store.frame

    def counting(id_: EpisodeId, number: int) -> Frame | None:
        read.append((id_.episode, number))
        return first_frame(id_, number)

    monkeypatch.setattr(records.store, "frame", counting)
    found = records.starts()
    assert records.starts() == found and read == [(i, 0) for i in range(5)]
    names = [axis["name"] for axis in found["axes"]]
    assert set(names[:3]) == {f"{entry} of tcp_in_workspace" for entry in "xyz"}
    assert not any("force" in name or "velocity" in name for name in names)
    assert found["axes"][0]["unit"] == "mm from its middle"
    spec = records.store.spec
    assert spec is not None
    place, entry = spec.state_slices["tcp_in_workspace"], "xyz".index(names[0][0])
    for start in found["starts"]:
        frame = first_frame(EpisodeId("run", "actor-0", start["episode"]), 0)
        assert frame is not None
        state = frame.observation["state"]
        assert start["at"][0] == pytest.approx(100.0 * float(state[place][entry]), rel=1e-4)
    spreads = [np.std([s["at"][i] for s in found["starts"]]) for i in range(3)]
    assert spreads == sorted(spreads, reverse=True)
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(rows_of(store.spec, "run", 5, 12, success=True))
    assert len(records.starts()["starts"]) == 6 and read[5:] == [(5, 0)]
    records.close()


def test_a_simulated_scene_tells_where_the_objects_were(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.record import record

    chosen = ["experiment=reach", "train.demos=3", f"run_dir={tmp_path / 'run'}"]
    record(Experiment.compose(chosen))
    assert (tmp_path / "run" / SCENES).is_file()
    records = Records(tmp_path / "run")
    found = records.starts()
    names = [axis["name"] for axis in found["axes"]]
    assert names[0].endswith("_in_base") and len(found["starts"]) == 3
    scene = records._scenes.state(2, 0)
    assert scene is not None
    entry, name = names[0].split(" of ")
    pose = {"tcp": scene.tcp_in_base, **scene.objects}[name.removesuffix("_in_base")]
    at = next(s["at"][0] for s in found["starts"] if s["episode"] == 2)
    assert at == pytest.approx(1000.0 * pose.position_m["xyz".index(entry)], rel=1e-3)
    records.close()


def test_a_state_of_another_shape_has_no_place(run_dir: Path) -> None:
    spec = Records(run_dir).store.spec
    assert spec is not None
    starts, id_ = Starts(spec), EpisodeId("run", "actor-0", 0)
    starts.add(id_, Frame(id_, 0, 0, {"state": np.zeros(1, np.float32)}), None)
    assert starts.told([id_]) == {"axes": [], "starts": []}


# --- several at once ------------------------------------------------------------------------------


def test_several_are_excluded_and_taken_back_at_once(console: Any, run_dir: Path) -> None:
    client = enter(console)
    done = client.post("/api/labels", json=batch("exclude", [0, 2, 4])).json()
    assert done["said"] == "exclude of 3 episodes" and excluded(run_dir) == [0, 2, 4]
    assert done["of"] == [
        {"run": "run", "actor": "actor-0", "episodes": [0, 2, 4], "values": [0, 0, 0]}
    ]
    client.post("/api/label", json={**WHERE, "episode": 2, "kind": "exclude"})
    assert client.post("/api/labels", json={"kind": "undo", "of": done["of"]}).status_code == 200
    assert excluded(run_dir) == [2]  # somebody has said so apart from the batch
    with Store(run_dir / "actor.sqlite") as store:
        words = store.labels(EpisodeId("run", "actor-0", 0))
    assert [(x.kind, x.author) for x in words] == [
        ("exclude", "operator 1"),
        ("undo", "operator 1"),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        batch("exclude", []),
        batch("exclude", [0, 1, 99]),
        batch("exclude", [0, 1, 1]),
        batch("exclude", [0, "1"]),
        batch("exclude", [0, True]),
        batch("exclude", [0, -1]),
        batch("success", [0, 1]),
        batch("undo", [0, 1]),
        batch("undo", [0, 1], values=[0]),
        batch("undo", [0, 1], values=[0, 7]),
        batch("exclude", list(range(MOST + 1))),
        {"kind": "exclude", "of": "all"},
        {"kind": "exclude", "of": [[0]]},
        {"kind": "exclude"},
        {},
    ],
    ids=lambda bad: json.dumps(bad)[:60],
)
def test_a_batch_is_stored_as_a_whole_or_not_at_all(
    console: Any, run_dir: Path, bad: dict[str, Any]
) -> None:
    answer = enter(console).post("/api/labels", json=bad)
    assert answer.status_code == 409 and "expected" in answer.json()["error"]
    with Store(run_dir / "actor.sqlite") as store:
        assert store.all_labels() == []


def test_the_largest_batch_fits_a_request(console: Any) -> None:
    name = "20260101-120000-s0"
    numbers = list(range(10_000, 10_000 + MOST))
    said = batch("undo", numbers, run=name, values=[1000] * MOST)
    assert len(read_batch(said)[1]) == MOST
    answer = enter(console).post("/api/labels", json=said)
    assert answer.status_code == 409 and "episode" in answer.json()["error"]  # not 413


def test_who_may_only_watch_excludes_nothing(console: Any, run_dir: Path) -> None:
    client = enter(console, Role.OBSERVER)
    assert client.post("/api/labels", json=batch("exclude", [0])).status_code == 403
    assert client.get("/api/starts").status_code == 200
    assert excluded(run_dir) == []


# --- other viewers --------------------------------------------------------------------------------


def test_an_episode_is_downloaded_as_mcap_and_the_run_stays_as_it_was(
    console: Any, run_dir: Path
) -> None:
    reader = pytest.importorskip("mcap.reader", reason="the data extra is not installed")
    client = enter(console)
    client.post("/api/labels", json=batch("exclude", [3]))
    before, left = print_of(run_dir), set(Path(tempfile.gettempdir()).iterdir())
    answer = client.get("/api/export/mcap", params=WHERE)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="run-episode-000003.mcap"'
    messages = list(reader.make_reader(io.BytesIO(answer.content)).iter_messages())
    topics = [channel.topic for _, channel, _ in messages]
    assert topics.count("/robot_rl/action") == 12  # all steps, also of an excluded episode
    assert topics.count("/robot_rl/image/front/compressed") == 13
    assert print_of(run_dir) == before
    new = set(Path(tempfile.gettempdir()).iterdir()) - left
    assert not [path for path in new if path.suffix == ".mcap"]


def test_an_episode_is_downloaded_for_rerun_or_the_extra_is_named(
    console: Any, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = enter(console)
    monkeypatch.delitem(sys.modules, "robot_rl.data.rerun_write", raising=False)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "rerun", None)
        answer = client.get("/api/export/rrd", params=WHERE)
    assert answer.status_code == 409 and "robot-rl[data,rerun]" in answer.json()["error"]
    pytest.importorskip("rerun", reason="the rerun extra is not installed")
    answer = client.get("/api/export/rrd", params=WHERE)
    assert answer.status_code == 200 and answer.content[:3] == b"RRF"


def test_one_export_at_a_time(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcap", reason="the data extra is not installed")
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*_: Any) -> bytes:
        begun.set()
        assert go_on.wait(10.0)
        return b"whole"

    monkeypatch.setattr("robot_rl.data.mcap_write.mcap_file", slowly)
    records, id_ = Records(run_dir), EpisodeId("run", "actor-0", 3)
    made: list[bytes] = []
    first = threading.Thread(
        target=lambda: made.extend(exports.chunks(records.export(id_, "mcap")[1]))
    )
    first.start()
    assert begun.wait(10.0)
    with pytest.raises(StoreError, match="another episode is being exported"):
        records.export(id_, "mcap")
    go_on.set()
    first.join()
    assert made == [b"whole"]
    assert records.export(id_, "mcap")[0] == "run-episode-000003.mcap"
    records.close()


def test_what_cannot_be_exported_says_why(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, id_ = Records(run_dir), EpisodeId("run", "actor-0", 3)
    with pytest.raises(StoreError, match="no such kind"):
        records.export(id_, "../etc/passwd")
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        store.append(rows_of(store.spec, "run", 5, 12, success=True)[:8])
    pytest.importorskip("mcap", reason="the data extra is not installed")
    for number, why in ((5, "still runs"), (99, "not there")):
        with pytest.raises(StoreError, match=why):
            records.export(EpisodeId("run", "actor-0", number), "mcap")
    monkeypatch.setitem(sys.modules, "mcap.writer", None)
    monkeypatch.delitem(sys.modules, "robot_rl.data.mcap_write", raising=False)
    with pytest.raises(SetupError, match="needs the package 'mcap'"):
        records.export(id_, "mcap")
    records.close()


def test_signals_of_a_spec_are_named_once(run_dir: Path) -> None:
    spec = Records(run_dir).store.spec
    assert spec is not None and len(signals_of(spec)) == 5 + len(spec.state_layout)
    assert not (run_dir / SCENE_PICTURES).exists()


# --- episodes without an ending -------------------------------------------------------------------


def begun(run_dir: Path, number: int, began_s: float) -> None:
    """An episode that nobody has ended."""
    with Store(run_dir / "actor.sqlite", reserve_bytes=0) as store:
        rows = rows_of(store.spec, "run", number, 12, success=True)
        store.append([replace(rows[0], stamp_ns=int(began_s * 1e9)), *rows[1:8]])


def ending(client: Any, number: int) -> set[Any]:
    """What the list and the episode itself say."""
    (row,) = (e for e in client.get("/api/episodes").json() if e["episode"] == number)
    said = client.get("/api/episode", params={**WHERE, "episode": number}).json()
    return {row["ending"], said["ending"]}


def test_an_episode_of_a_run_that_was_stopped_does_not_run_for_ever(
    console: Any, run_dir: Path
) -> None:
    client, now_s = enter(console), time.time()
    begun(run_dir, 5, now_s)
    assert ending(client, 5) == {None} and ending(client, 4) == {"terminated"}
    told = run_dir / "train.process.json"
    told.write_text(json.dumps({"process": own_process(), "began_s": now_s - 9.0}))
    assert ending(client, 5) == {None}
    told.write_text(json.dumps({"process": "", "ended": "stopped", "ended_s": now_s + 1.0}))
    assert ending(client, 5) == {"aborted"}
    gone = own_process().rpartition(" ")[0] + " 1"  # it was killed
    told.write_text(json.dumps({"process": gone, "began_s": now_s - 9.0}))
    assert ending(client, 5) == {"aborted"}
    told.unlink()
    begun(run_dir, 6, now_s + 2.0)  # the actor has gone on, so the one before does not run
    assert ending(client, 5) == {"aborted"} and ending(client, 6) == {None}


def test_a_store_that_nobody_writes_to_has_no_running_episode(run_dir: Path) -> None:
    store = run_dir / "actor.sqlite"
    assert still_runs(run_dir, store, time.time())
    for path in (store, run_dir / "actor.sqlite-wal"):
        if path.exists():
            os.utime(path, (1.0, 1.0))
    assert not still_runs(run_dir, store, time.time())
    arm = run_dir / "arms" / "left"  # its run says who works
    (run_dir / "train.process.json").write_text(json.dumps({"process": own_process()}))
    assert still_runs(arm, store, time.time())
