"""Deployments in lockstep: counted from the stores, rotated by day, stopped and gone on with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.cli.main import main
from robot_rl.control.session import ACTOR
from robot_rl.errors import CheckpointError, ConfigError, RobotRLError, SetupError, SpecError
from robot_rl.report.report import write_report
from robot_rl.report.tally import Ledger
from robot_rl.reward.config import PredicateRewardConfig
from robot_rl.run.deploy import DeployPlan, deploy, figures_of
from robot_rl.run.deploy_setup import experiment_on, policy_weights
from robot_rl.run.experiment import Experiment
from robot_rl.safety.limits import Limits
from robot_rl.store.cycles import read_cycles
from robot_rl.store.daily import day_files
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import RESERVE_VARIABLE, Store
from robot_rl.types import Label
from tests.support.deployed import trained

NOON_S = 1_795_608_000.0  # 2026-11-25T12:00:00Z
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("good") / "run")


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("bad") / "run", good=False)


def work(
    run: Path, folder: Path, *words: str, now_s: Callable[[], float] = lambda: NOON_S, **plan: Any
) -> dict[str, Any]:
    """Deploy in lockstep."""
    experiment = experiment_on(run, words, folder)
    weights = policy_weights(run, experiment)
    return deploy(experiment, weights, DeployPlan(run=str(run), **plan), now_s=now_s)


def cycles(folder: Path) -> list[Any]:
    found = []
    for path in day_files(folder):
        with Store(path) as store:
            found += read_cycles(store, folder.name, ACTOR)
    return found


def test_what_is_recorded_is_what_is_told(good: Path, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    folder = tmp_path / "d"
    experiment = experiment_on(good, [], folder)
    weights = policy_weights(good, experiment)
    told = deploy(experiment, weights, DeployPlan(episodes=6), lines.append)
    assert (told["episodes"], told["labelled"], told["unlabelled"]) == (6, 6, 0)
    assert told["successes"] >= 5 and told["autonomy_episodes"] == 1.0 and told["mtbi_s"] is None
    found = cycles(folder)
    assert [c.episode for c in found] == list(range(6)) and {c.purpose for c in found} == {"deploy"}
    assert told["cycle_time_s_median"] == pytest.approx(
        np.median([c.lasted_s for c in found if c.success])
    )
    assert told["driven_s"] == pytest.approx(sum(c.lasted_s for c in found))
    assert [line["deploy/episodes"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert json.loads((folder / "deploy.json").read_text()) == told
    page = write_report(folder).read_text()
    assert "6 of 6" in page or "5 of 6" in page
    assert "not evaluated" not in page
    chart = page.partition("success by the hour")[2].partition("</svg>")[0]
    assert 'class="tick"' in chart and ">-" not in chart  # no hour before the first


def test_the_same_command_goes_on_in_count_and_in_the_same_file(good: Path, tmp_path: Path) -> None:
    work(good, tmp_path / "d", episodes=2)
    assert work(good, tmp_path / "d", episodes=2)["episodes"] == 2  # nothing left to do
    assert work(good, tmp_path / "d", episodes=5)["episodes"] == 5
    assert [c.episode for c in cycles(tmp_path / "d")] == [0, 1, 2, 3, 4]
    assert [p.name for p in day_files(tmp_path / "d")] == ["2026-11-25.sqlite"]


def test_each_day_has_a_file_and_no_episode_is_split(good: Path, tmp_path: Path) -> None:
    hours = iter(range(10_000))
    told = work(
        good, tmp_path / "d", episodes=12, now_s=lambda: NOON_S + 3600.0 * next(hours), stop_after=0
    )
    files = day_files(tmp_path / "d")
    assert len(files) >= 2 and told["episodes"] == 12
    numbers = []
    for path in files:
        with Store(path) as store:
            store.verify()
            for record in store.episode_summaries():
                numbers.append(record.id.episode)
                assert record.ending is not None
                assert len(store.frames(record.id)) == record.steps + 1
    assert numbers == list(range(12))
    assert (tmp_path / "d" / "actor.sqlite").resolve() == files[-1].resolve()


def test_a_clock_set_back_across_midnight_loses_nothing(
    good: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work(good, tmp_path / "d", episodes=2, now_s=lambda: NOON_S + DAY_S)
    told = work(good, tmp_path / "d", episodes=4, now_s=lambda: NOON_S)
    assert told["episodes"] == 4 and [c.episode for c in cycles(tmp_path / "d")] == [0, 1, 2, 3]
    assert [p.name for p in day_files(tmp_path / "d")] == ["2026-11-26.sqlite"]
    assert "the clock says 2026-11-25" in caplog.text


def test_failures_in_a_row_stop_it_and_a_person_goes_on(bad: Path, tmp_path: Path) -> None:
    with pytest.raises(RobotRLError, match="3 failures in a row"):
        work(bad, tmp_path / "d", episodes=9)
    assert len(cycles(tmp_path / "d")) == 3
    with pytest.raises(RobotRLError, match="3 failures in a row"):  # the command again: 3 more
        work(bad, tmp_path / "d", episodes=9, now_s=lambda: NOON_S + DAY_S)
    found = cycles(tmp_path / "d")
    assert len(found) == 6 and [c.continued for c in found].index(True) == 2
    told = figures_of(tmp_path / "d")
    assert (told["successes"], told["failures"], told["failures_in_a_row"]) == (0, 6, 3)
    assert [f["reason"] for f in told["failed"]] == ["time limit"] * 6


def test_help_counts_against_autonomy(bad: Path, tmp_path: Path) -> None:
    """The script takes over, as it does in training."""
    told = work(bad, tmp_path / "d", "operator=scripted", "task.max_steps=200", episodes=4)
    assert told["successes"] >= 3 and told["unaided"] == 0
    assert told["interventions"] >= 4 and told["autonomy_episodes"] == 0.0
    assert 0.0 < told["autonomy_steps"] < 1.0
    assert told["mtbi_s"] == pytest.approx(told["driven_s"] / told["interventions"])


def test_what_nobody_judged_is_unlabelled_until_somebody_does(good: Path, tmp_path: Path) -> None:
    """A person's word counts more than the rule's, and neutral takes both back."""
    folder = tmp_path / "d"
    assert work(good, folder, episodes=3)["successes"] == 3
    ledger = Ledger(folder, "d", ACTOR)
    assert ledger.read().successes == 3
    with Store(day_files(folder)[0]) as store:
        starts = store.episodes()
        for number, kind, value in ((0, "success", 0.0), (1, "neutral", 1.0)):
            said = Label(starts[number].id, 0, None, kind, value, "person", "p1", 10**9)
            store.append([said])
    tally = ledger.read()  # of an older episode, said later
    assert (tally.successes, tally.failures, tally.unlabelled) == (1, 1, 1)
    assert figures_of(folder)["labelled"] == 2
    ledger.close()


def test_a_task_that_cannot_tell_leaves_episodes_unlabelled(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robot_rl.tasks.reach import ReachTask

    monkeypatch.setattr(ReachTask, "success", lambda _self, _state: None)
    told = work(good, tmp_path / "d", "task.max_steps=5", episodes=4, stop_after=2)
    assert (told["episodes"], told["unlabelled"], told["failures"]) == (4, 4, 0)
    assert told["success"] is None and (told["success_low"], told["success_high"]) == (0.0, 1.0)


def test_another_policy_needs_another_folder(good: Path, bad: Path, tmp_path: Path) -> None:
    work(good, tmp_path / "d", episodes=1)
    experiment = experiment_on(good, [], tmp_path / "d")
    other = policy_weights(bad, experiment)
    with pytest.raises(CheckpointError, match="another policy"):
        deploy(experiment, other, DeployPlan(episodes=2))


def test_a_kill_while_the_policy_is_installed_costs_nothing(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if Path(target).name == "policy.json":
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        work(good, tmp_path / "d", episodes=1)
    assert (tmp_path / "d" / "policy.safetensors").is_file()
    assert work(good, tmp_path / "d", episodes=1)["episodes"] == 1


def test_every_day_is_exported_and_learned_from(good: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "d", tmp_path / "out"
    for day in range(3):
        work(good, folder, episodes=day + 1, now_s=lambda day=day: NOON_S + day * DAY_S)
    assert len(day_files(folder)) == 3
    assert main(["export", str(folder), "--to", "mcap", "--out", str(out)]) == 0
    listed = json.loads((out / "episodes.json").read_text())
    assert [row["episode"] for row in listed] == [0, 1, 2]
    with Store(tmp_path / "new.sqlite", reserve_bytes=0) as store:
        assert import_dataset(store, str(folder), Experiment.load(folder).spec) == 3


def test_a_checkpoint_is_the_policy_that_was_published(good: Path, tmp_path: Path) -> None:
    experiment = experiment_on(good, [], tmp_path / "d")
    newest = max((good / "checkpoints").glob("[0-9]*"))
    saved, of_checkpoint = (policy_weights(good, experiment, p) for p in (None, newest))
    assert saved.data == of_checkpoint.data
    unfinished = tmp_path / "unfinished"
    shutil.copytree(good, unfinished)
    (unfinished / "policy.safetensors").unlink()
    assert policy_weights(unfinished, experiment).data == saved.data


def test_what_does_not_fit_is_refused_with_the_difference(good: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="another arm") as other:
        experiment_on(good, ["robot=ur5e_fzi"], tmp_path / "d")
    assert "fr3" in str(other.value) and "ur5e" in str(other.value)
    with pytest.raises(SpecError, match="to see or to do") as seen:
        experiment_on(good, ["task.images=[wrist]"], tmp_path / "d")
    assert "image/wrist" in str(seen.value)
    with pytest.raises(SpecError) as acts:
        experiment_on(good, ["task.control_hz=20"], tmp_path / "d")
    assert "control_hz: 10" in str(acts.value)
    with pytest.raises(ConfigError, match="cannot be chosen"):
        experiment_on(good, ["task=lift"], tmp_path / "d")
    with pytest.raises(ConfigError, match="ur5e_fzi"):
        experiment_on(good, ["robot=ur5e_fzy"], tmp_path / "d")


def test_a_profile_of_the_same_arm_fits_and_widens_nothing(good: Path, tmp_path: Path) -> None:
    words = ["robot=fr3_crisp", "double=true", "ros.domain_id=7"]
    experiment = experiment_on(good, words, tmp_path / "d")
    assert experiment.runtime == "ros" and experiment.is_real
    assert experiment.config["ros"]["double"] is True and experiment.ros.domain_id == 7
    assert experiment.driver.is_vendors and experiment.config["operator"] == {"name": "console"}
    slow = tmp_path / "slow"
    Experiment.compose(["experiment=reach", "safety.max_speed_m_s=0.1", f"run_dir={slow}"]).save()
    assert experiment_on(slow, words, tmp_path / "e").robot_limits.max_speed_m_s == 0.1
    more = [*words, "safety.max_speed_m_s=0.05"]
    assert experiment_on(slow, more, tmp_path / "f").robot_limits.max_speed_m_s == 0.05


def test_a_run_with_several_arms_is_deployed_on_one(tmp_path: Path) -> None:
    """And one whose learner was on another machine needs none here."""
    words = ["experiment=reach", "actors=left,right", f"run_dir={tmp_path / 'two'}"]
    Experiment.compose(words).save()
    experiment = experiment_on(tmp_path / "two", [], tmp_path / "d")
    assert experiment.actors == () and experiment.arms == (experiment,)
    with pytest.raises(ConfigError, match="one arm at a time"):
        experiment_on(tmp_path / "two", ["actors=left"], tmp_path / "d")
    with pytest.raises(ConfigError, match="--out FOLDER"):
        experiment_on(tmp_path / "two", ["run_dir=elsewhere"], tmp_path / "d")
    words = [
        "experiment=reach",
        "runtime=ros",
        "link=remote",
        "link.host=10.0.0.2",
        f"run_dir={tmp_path / 'far'}",
    ]
    Experiment.compose(words).save()
    assert not experiment_on(tmp_path / "far", ["runtime=lockstep"], tmp_path / "d").link.paired


def test_limits_within_others_are_the_narrower_ones() -> None:
    a = Limits(max_speed_m_s=0.1, workspace_min_m=(0.3, -0.1, 0.0))
    b = Limits(max_force_n=9.0, workspace_min_m=(0.2, 0.0, 0.01), joint_margin_rad=0.2)
    both = a.within(b)
    assert both == b.within(a)
    assert (both.max_speed_m_s, both.max_force_n, both.joint_margin_rad) == (0.1, 9.0, 0.2)
    assert both.workspace_min_m == (0.3, 0.0, 0.01)


def test_a_full_disk_stops_it_between_episodes(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(good, tmp_path / "d", episodes=1)
    monkeypatch.setenv(RESERVE_VARIABLE, str(10**18))
    with pytest.raises(RobotRLError, match="too little disk space"):  # before anything starts
        work(good, tmp_path / "d", episodes=2)
    monkeypatch.delenv(RESERVE_VARIABLE)
    experiment = experiment_on(good, [], tmp_path / "d")
    weights = policy_weights(good, experiment)

    def fill(_line: object) -> None:
        monkeypatch.setattr(Store, "check_reserve", _full)

    with pytest.raises(SetupError, match="too little disk space"):
        deploy(experiment, weights, DeployPlan(episodes=9), fill)
    monkeypatch.undo()
    assert [c.ending is not None for c in cycles(tmp_path / "d")] == [True, True]


def _full(_store: Store) -> None:
    from robot_rl.errors import StoreError

    raise StoreError("too little disk space to start an episode")


def test_a_folder_of_another_run_is_left_alone(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    Store(folder / "actor.sqlite").close()
    with pytest.raises(ConfigError, match=r"run\.json is missing"):
        work(good, folder, episodes=1)
    assert [path.name for path in folder.iterdir()] == ["actor.sqlite"]
    (folder / "actor.sqlite").rename(tmp_path / "theirs")
    work(good, folder, episodes=1)
    (folder / "actor.sqlite").unlink()
    (tmp_path / "theirs").rename(folder / "actor.sqlite")
    with pytest.raises(RobotRLError, match="another kind of run"):
        work(good, folder, episodes=1)
    with pytest.raises(ConfigError, match="belongs to another experiment"):
        work(good, good, "task.max_steps=7", episodes=1)
    assert (folder / "actor.sqlite").is_file()


def test_kill_9_costs_the_step_in_flight(good: Path, tmp_path: Path) -> None:
    """In a process of its own, while the next episode begins."""
    moment = 2
    words = ["deploy", str(good), "--out", str(tmp_path / "d"), "--episodes"]
    process = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli.main", *words, "400"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += line.startswith("episode")
        if seen == moment:
            process.kill()
            break
    process.wait()
    assert main([*words, str(moment + 2)]) == 0
    found = cycles(tmp_path / "d")
    assert [c.episode for c in found] == list(range(len(found)))
    assert sum(c.counts for c in found) >= moment + 2 and all(c.ending for c in found)
    with Store(day_files(tmp_path / "d")[0]) as store:
        store.verify()


def test_the_verb_tells_names_what_is_missing_and_reports(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "d")
    assert "Deployment" not in write_report(good).read_text()
    assert main(["deploy", str(good), "--episodes", "2"]) == 0
    assert "2 of 2" in write_report(good).read_text().partition("<h2>Deployment")[2]
    shutil.rmtree(good / "deploy")
    assert main(["deploy", str(good), "--out", out, "--episodes", "2"]) == 0
    said = capsys.readouterr().out
    assert "2 of 2 succeeded" in said and "no takeover" in said
    assert main(["deploy", str(good), "--out", out, "--report"]) == 0
    assert main(["deploy", out, "--report"]) == 2  # that folder is no run that was deployed
    assert f"fix:      robot-rl report {out}\n" in capsys.readouterr().err
    assert main(["deploy", str(good), "--report"]) == 2
    assert "--out FOLDER --report" in capsys.readouterr().err
    assert main(["deploy", str(tmp_path / "nothing")]) == 2
    assert "no run in" in capsys.readouterr().err
    empty = tmp_path / "empty"
    Experiment.compose(["experiment=reach", f"run_dir={empty}"]).save()
    assert main(["deploy", str(empty)]) == 2
    assert "no usable policy" in capsys.readouterr().err
    assert main(["deploy", str(good), "--policy", str(good / "config.yaml")]) == 2
    assert "no policy in" in capsys.readouterr().err


def test_a_model_that_labels_beside_the_loop_gets_each_day(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And may go on with yesterday's episodes until the day after."""
    said: list[str] = []

    @contextmanager
    def beside(_self: object, store: Store) -> Iterator[Callable[[], str]]:
        said.append(f"+{store.path.stem[-2:]}")
        yield lambda: ""
        said.append(f"-{store.path.stem[-2:]}")

    monkeypatch.setattr(PredicateRewardConfig, "beside", beside)
    days = iter(range(1000))
    work(good, tmp_path / "d", episodes=4, now_s=lambda: NOON_S + DAY_S * (next(days) // 2))
    assert len(day_files(tmp_path / "d")) >= 4
    opened = [word for word in said if word[0] == "+"]
    assert [word[1:] for word in opened] == [
        p.stem[-2:] for p in day_files(tmp_path / "d")[-len(opened) :]
    ]
    assert said[:3] == [*opened[:2], f"-{opened[0][1:]}"] and said.count("-" + opened[-1][1:]) == 1
