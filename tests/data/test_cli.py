"""`robot-rl export` and `robot-rl import` as a person uses them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from robot_rl.cli import export, import_, progress, replay, report, verify
from robot_rl.cli.common import existing_run
from robot_rl.errors import ConfigError, StoreError
from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from robot_rl.studio.run import Run
from robot_rl.types import Label
from tests.support.data_samples import files, made_episode
from tests.support.synthetic_run import write_run

TASK = "experiment=peg_insert_easy"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with 12 episodes of a task of ours."""
    spec = Experiment.compose([TASK]).section("task").spec
    folder = write_run(tmp_path / "run")
    with Store(folder / "store.sqlite", spec=spec, reserve_bytes=0) as store:
        for number in range(12):
            store.append(made_episode(spec, number, 4))
    return folder


def test_out_and_in_again(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, demos = tmp_path / "out", tmp_path / "demos"
    words = [str(run), "--to", "lerobot", "--out", str(out), "--task", "insert the peg"]
    assert export.run([*words, "--json", str(tmp_path / "f.json")]) == 0
    said = capsys.readouterr().out
    assert "12 of 12 episodes exported" in said and "12 episodes, 48 steps" in said
    assert said.count("episodes exported") < 13
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["steps"] == 48 and figures["bytes"] > 10_000
    assert import_.run([str(out), TASK, "--out", str(demos)]) == 0
    assert f"train.dataset={demos}" in capsys.readouterr().out
    before = files(out)
    assert export.run(words) == 0 and files(out) == before, "complete: nothing is written"


def test_what_was_imported_is_a_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, demos, again = tmp_path / "out", tmp_path / "demos", tmp_path / "again"
    assert export.run([str(run), "--to", "lerobot", "--out", str(out)]) == 0
    words = [str(out), TASK, "--out", str(demos)]
    assert import_.run(words) == 0
    assert existing_run(demos) == demos and Experiment.load(demos).name == "peg_insert_easy"
    assert verify.run([str(demos)]) == 0
    assert report.run([str(demos)]) == 0
    seen = Run(demos, "demos")
    seen.look(time.monotonic() + 5.0)
    assert seen.state == "ended" and seen.figures.env_steps == 0
    assert export.run([str(demos), "--to", "lerobot", "--out", str(again)]) == 0
    before = files(demos)
    assert import_.run(words) == 0 and files(demos) == before, "complete: nothing is written"
    with pytest.raises(StoreError, match="imported or generated"):
        replay.run([str(demos)])
    assert files(demos) == before


def test_an_export_counts_what_a_filter_left_out(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(run / "store.sqlite") as store:
        id_ = store.episodes()[0].id
        store.append([Label(id_, n, n, "leave_out", 1.0, "filter", "filter", n) for n in range(3)])
    out = tmp_path / "out"
    assert export.run([str(run), "--to", "lerobot", "--out", str(out)]) == 0
    assert "3 of these steps were left out of training" in capsys.readouterr().out
    assert json.loads((out / "robot_rl.json").read_text())["left_out_of_training"] == 3


def test_an_import_of_an_older_version_becomes_a_run_and_keeps_its_labels(
    run: Path, tmp_path: Path
) -> None:
    out, demos = tmp_path / "out", tmp_path / "demos"
    export.run([str(run), "--to", "lerobot", "--out", str(out)])
    words = [str(out), TASK, "--out", str(demos)]
    import_.run(words)
    for name in ("config.yaml", "run.json", "limits.yaml", "record.process.json"):
        (demos / name).unlink()
    with Store(demos / "store.sqlite") as store:
        said = store.meta("import")
        store.set_meta("import", {k: v for k, v in said.items() if k not in ("files", "source")})
        store.append([Label(store.episodes()[0].id, 0, None, "exclude", 1.0, "human", "me", 1)])
    with pytest.raises(ConfigError, match=r"is not a run yet(.|\n)*repeat the command"):
        existing_run(demos)
    assert import_.run(words) == 0 and verify.run([str(demos)]) == 0
    with Store(demos / "store.sqlite") as store:
        assert len(store.all_labels(["exclude"])) == 1


def test_the_folder_of_another_run_is_not_imported_into(run: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    export.run([str(run), "--to", "lerobot", "--out", str(out)])
    Experiment.compose([TASK, "seed=7"]).save(other)
    before = files(other)
    with pytest.raises(ConfigError, match="belongs to another experiment"):
        import_.run([str(out), TASK, "--out", str(other)])
    assert files(other) == before


@pytest.mark.parametrize(("format_", "end"), [("mcap", "mcap"), ("rerun", "rrd")])
def test_one_file_per_episode(run: Path, tmp_path: Path, format_: str, end: str) -> None:
    if format_ == "rerun":
        pytest.importorskip("rerun")
    out = tmp_path / "out"
    assert export.run([str(run), "--to", format_, "--out", str(out)]) == 0
    assert len(list(out.glob(f"*.{end}"))) == 12


def test_ctrl_c_says_how_to_go_on(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_self: object, done: int, _total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    words = [str(run), "--to", "mcap", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(progress.ProgressBar, "__call__", stop)
        with pytest.raises(KeyboardInterrupt):
            export.run(words)
    assert "the same command goes on" in capsys.readouterr().out
    assert export.run(words) == 0


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with progress.ProgressBar("episodes exported") as bar:
        for done in range(4):
            bar(done, 3)
    assert "1 of 3" not in capsys.readouterr().out


def test_wrong_words_name_the_right_ones(run: Path, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    with pytest.raises(ConfigError, match="invalid choice: 'lerobt'"):
        export.run([str(run), "--to", "lerobt", *out])
    with pytest.raises(ConfigError, match="did you mean 'aborted'"):
        export.run([str(run), "--to", "mcap", *out, "--include", "eval,abort"])
    with pytest.raises(StoreError, match="no data in"):
        export.run([str(tmp_path / "nowhere"), "--to", "mcap", *out])
    with pytest.raises(ConfigError, match="FEATURE=ENTRY"):
        import_.run([str(tmp_path), TASK, *out, "--map", "state"])
    with pytest.raises(StoreError, match="no dataset in"):
        import_.run([str(tmp_path / "nowhere"), TASK, *out])
    assert not (tmp_path / "out").exists()
