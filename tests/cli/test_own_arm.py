"""docs/own_arm.md, typed as it stands: from a URDF to a double that records and learns."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from robot_rl.cli.main import main
from robot_rl.store.store import Store

REPO = Path(__file__).resolve().parents[2]


def commands(step: int) -> list[list[str]]:
    """What the guide has its reader type in this step, without the program's name."""
    guide = (REPO / "docs" / "own_arm.md").read_text()
    text = guide[guide.index(f"**{step}. ") :].split("\n\n")[0]
    typed = [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", text)]
    return [shlex.split(line)[1:] for line in typed if line.startswith("robot-rl ")]


@pytest.mark.slow
def test_the_guide_from_a_urdf_to_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPO / "tests" / "robots" / "urdf" / "xarm7.urdf", "my_arm.urdf")
    (write,), (show,), (record,), (train,) = (commands(step) for step in (2, 3, 5, 6))
    assert main(write) == 0
    assert main(show) == 0 and Path("my_arm.png").stat().st_size > 10_000
    assert main(record) == 0
    with Store(Path("RUN/store.sqlite")) as store:
        assert sum(bool(e.success) for e in store.episode_summaries()) == 2
    short = ["train.demos=3", "train.min_env_steps=100", "train.max_env_steps=100"]
    short += ["train.eval_episodes=2", "train.stochastic_eval_episodes=0", "train.video=false"]
    assert main([*train, *short]) == 0
    evaluation = json.loads(Path("LEARNED/eval.json").read_text())
    assert evaluation["deterministic"]["episodes"] == 2


def test_five_joints_record_actions_that_move_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The section on five joints: no code, no pose that has to be replaced."""
    monkeypatch.chdir(tmp_path)
    urdf = str(REPO / "tests" / "robots" / "urdf" / "so101.urdf")
    assert main(["robot", "new", urdf, "--name", "my_arm", "--tip", "gripper_frame_link"]) == 0
    guide = (REPO / "docs" / "own_arm.md").read_text()
    section = guide[guide.index("## Five joints") :].split("\n## ")[0].replace("\n", " ")
    (line,) = re.findall(r"`(robot-rl record [^`]+)`", section)
    assert main([*shlex.split(line)[1:], "--config-dir", "configs", "run_dir=RUN"]) == 0
    with Store(Path("RUN/store.sqlite")) as store:
        found = [e for e in store.episode_summaries() if e.success]
        actions = [s.action for e in found for s in store.steps(e.id)]
        assert len(found) == 2 and {len(action) for action in actions} == {5}
