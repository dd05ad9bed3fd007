"""docs/extend.md: its files, written to an empty folder, do what the page says they do."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from robot_rl.store.store import Store
from tests.support.pages import commands, run, write_files

SHORT = "train.demos=2 train.max_env_steps=40 train.min_env_steps=30 train.eval_episodes=2"
SHORT += " train.stochastic_eval_episodes=1 train.video=false task.image_size=32"
SHORT += " algo.hidden=[16,16] algo.encoder.channels=[4,4,4]"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page, found by its entry point as if it were installed."""
    folder = write_files("extend.md", tmp_path_factory.mktemp("lab"))
    run(folder, ["-m", "robot_rl.safety.sheet", "raised", "--out", "configs"])
    return folder


def test_the_page_shows_as_many_files_as_it_promises(lab: Path) -> None:
    found = {str(p.relative_to(lab)) for p in lab.rglob("*") if p.suffix in (".py", ".yaml")}
    assert found == {
        *("my_lab/__init__.py", "my_lab/button.py", "configs/task/button.yaml"),
        *("my_lab/raised.py", "configs/robot/raised.yaml"),
        *("my_lab/quick.py", "configs/reward/quick.yaml"),
        *("my_lab/calm.py", "configs/algo/calm.yaml"),
    }
    limits = yaml.safe_load((lab / "configs/robot/raised.yaml").read_text())["safety"]
    assert limits["workspace_min_m"] == [0.25, -0.4, 0.01]


def test_the_task_is_solved_by_its_expert(lab: Path) -> None:
    record, _ = commands("extend.md", "Run it")
    run(lab, ["-m", "robot_rl.cli.main", *record, f"run_dir={lab / 'shown'}"])
    with Store(lab / "shown" / "store.sqlite") as store:
        assert [e.success for e in store.episode_summaries()] == [True] * 3


def test_robot_camera_reward_and_algorithm_train_together(lab: Path) -> None:
    _, train = commands("extend.md", "Run it")
    words = ["-m", "robot_rl.cli.main", *train, *SHORT.split(), f"run_dir={lab / 'run'}"]
    run(lab, words)
    config = yaml.safe_load((lab / "run" / "config.yaml").read_text())
    names = [config[k]["name"] for k in ("robot", "task", "reward", "algo")]
    assert names == ["raised", "button", "quick", "calm"]
    with Store(lab / "run" / "store.sqlite") as store:
        assert store.spec is not None and store.spec.cameras == ["side"]
        first = next(e for e in store.episode_summaries() if e.purpose == "demo" and e.success)
        assert 0.5 < store.steps(first.id)[-1].reward < 1.0  # type: ignore[operator]
