"""docs/extend.md: its files, written to an empty folder, do what the page says they do."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from robot_rl.store.store import Store

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "extend.md").read_text()
SHORT = "train.demos=2 train.max_env_steps=40 train.min_env_steps=30 train.eval_episodes=2"
SHORT += " train.stochastic_eval_episodes=1 train.video=false task.image_size=32"
SHORT += " algo.hidden=[16,16] algo.encoder.channels=[4,4,4]"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page, found by its entry point as if it were installed."""
    folder = tmp_path_factory.mktemp("lab")
    for block in re.findall(r"```\w*\n(.*?)```", PAGE, re.DOTALL):
        head = re.match(r"# ([\w/.]+\.(?:py|yaml|toml))\n", block)
        if head:
            path = folder / head[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
    info = folder / "my_lab-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_lab\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[robot_rl.plugins]\nmy_lab = my_lab\n")
    run(lab=folder, words=["-m", "robot_rl.safety.sheet", "raised", "--out", "configs"])
    return folder


def run(lab: Path, words: list[str]) -> str:
    """What a program says, started in the lab's folder."""
    env = os.environ | {"PYTHONPATH": f"{lab}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, *words], cwd=lab, env=env, capture_output=True, text=True, timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def commands() -> list[list[str]]:
    """The commands of the page, as words."""
    block = PAGE.split("## Run it")[1].split("```")[1]
    return [shlex.split(line) for line in block.strip().splitlines()]


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
    record, _ = commands()
    run(lab, ["-m", "robot_rl.cli.main", *record[1:], f"run_dir={lab / 'shown'}"])
    with Store(lab / "shown" / "store.sqlite") as store:
        assert [e.success for e in store.episode_summaries()] == [True] * 3


def test_robot_camera_reward_and_algorithm_train_together(lab: Path) -> None:
    _, train = commands()
    words = ["-m", "robot_rl.cli.main", *train[1:], *SHORT.split(), f"run_dir={lab / 'run'}"]
    run(lab, words)
    config = yaml.safe_load((lab / "run" / "config.yaml").read_text())
    names = [config[k]["name"] for k in ("robot", "task", "reward", "algo")]
    assert names == ["raised", "button", "quick", "calm"]
    with Store(lab / "run" / "store.sqlite") as store:
        assert store.spec is not None and store.spec.cameras == ["side"]
        first = next(e for e in store.episode_summaries() if e.purpose == "demo" and e.success)
        assert 0.5 < store.steps(first.id)[-1].reward < 1.0  # type: ignore[operator]
