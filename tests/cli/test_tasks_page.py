"""docs/tasks.md: the drawer is pulled open, and a simulator of one's own is as good as ours."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from robot_rl.config.compose import config_dir
from robot_rl.robots import Fr3
from robot_rl.store.store import Store
from robot_rl.types import Command, Driver
from tests.support.pages import DOCS, commands, run, write_files

pytest.importorskip("robot_rl_sim")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page."""
    return write_files("tasks.md", tmp_path_factory.mktemp("tasks"))


def test_the_commands_of_the_page(lab: Path) -> None:
    drawer, ideal, record = commands("tasks.md", "Run it")
    said = run(lab, ["-m", "robot_rl.cli.main", *drawer])
    assert "scene: 2 parts" in said and "expert: 3 of 3 episodes" in said
    said = run(lab, ["-m", "robot_rl.cli.main", *drawer, "robot=ur5e"])
    assert "expert: 3 of 3 episodes" in said
    said = run(lab, ["-m", "robot_rl.cli.main", *ideal])
    assert "simulator: IdealArm" in said and "expert: 3 of 3 episodes" in said
    run(lab, ["-m", "robot_rl.cli.main", *record, f"run_dir={lab / 'shown'}"])
    with Store(lab / "shown" / "store.sqlite") as store:
        summaries = store.episode_summaries()
        assert [e.success for e in summaries] == [True] * 2
        frames = [store.frames(e.id) for e in summaries]
    for episode in frames:  # it is closed at first, and opens while the fingers are in the slot
        opening = [frame.observation["state"][6] for frame in episode]
        assert opening[0] == pytest.approx(0.0, abs=0.01) and opening[-1] > 1.0


@pytest.fixture
def package(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same in this process."""
    monkeypatch.syspath_prepend(str(lab))
    for name in [n for n in sys.modules if n.startswith("my_tasks")]:
        monkeypatch.delitem(sys.modules, name)
    return lab


def test_a_simulator_of_ones_own_trains_as_any_other(package: Path) -> None:
    words = "task=ideal algo=hil_serl_state operator=scripted runtime=lockstep train.demos=1"
    words += " train.max_env_steps=30 train.min_env_steps=20 train.eval_episodes=1"
    words += " train.stochastic_eval_episodes=1 algo.hidden=[16] --config-dir configs"
    run(package, ["-m", "robot_rl.cli.main", "train", *words.split(), f"run_dir={package / 'run'}"])
    with Store(package / "run" / "store.sqlite") as store:
        assert {e.purpose for e in store.episode_summaries()} == {"demo", "train", "eval"}
    assert (package / "run" / "report.html").exists()


def test_it_keeps_the_promises_of_a_simulated_robot(package: Path) -> None:
    from my_tasks.ideal import IdealReachTask  # type: ignore[reportMissingImports]

    from robot_rl.ports import BringsSimulator

    task = IdealReachTask()
    assert isinstance(task, BringsSimulator)
    arm = task.simulate(Fr3())
    plan = task.sample_reset(np.random.default_rng(1))
    arm.reset(plan)
    begin_s, before = arm.now_s(), arm.read()
    assert np.array_equal(before.tcp_in_base.position_m, plan.tcp_in_base.position_m)
    goal = task.sample_reset(np.random.default_rng(2)).tcp_in_base
    arm.apply(Command(1, begin_s, Driver.POLICY, "test", goal))
    arm.sleep_until_s(begin_s + 0.1)
    after = arm.read()
    assert after.stamp_s == begin_s + 0.1
    moved = np.linalg.norm(after.tcp_in_base.position_m - before.tcp_in_base.position_m)
    assert 0.0 < moved <= 0.025 + 1e-9


def test_the_page_shows_the_task_without_code_as_it_is_shipped() -> None:
    example = config_dir() / "experiment" / "taught_insert.yaml"
    assert f"```yaml\n{example.read_text()}```" in (DOCS / "tasks.md").read_text()
