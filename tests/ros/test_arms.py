"""The table of arms: what works with which arm, on its double (`robot-rl bench arms`)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mink", reason="mink is not installed: pip install 'robot-rl[ik]'")

from robot_rl.bench.arms import FAILED, arms, bench
from robot_rl.cli.main import main
from robot_rl.errors import ConfigError

pytestmark = pytest.mark.ros
URDFS = Path(__file__).parents[1] / "robots" / "urdf"
ARMS = {
    "ur5e": ("position", "forward_position_controller"),
    "ur10e": ("position", "forward_position_controller"),
    "fr3": ("trajectory", "joint_trajectory_controller"),
    "xarm7": ("trajectory", "xarm7_traj_controller"),
    "gen3": ("trajectory", "joint_trajectory_controller"),
    "iiwa7": ("trajectory", "joint_trajectory_controller"),
    "so101": ("position", "forward_position_controller"),
}
"""URDF of ours -> joint targets that its driver takes, and its vendor's name of the controller."""
TIPS = {"so101": "gripper_frame_link"}


def described(name: str, folder: Path) -> str:
    """Write robot and profile as a person would; returns the profile's name."""
    kind, controller = ARMS[name]
    words = ["--kind", kind, "--controller", controller, "--gripper", "none"]
    words += ["--tip", TIPS[name]] if name in TIPS else []
    given = ["robot", "new", str(URDFS / f"{name}.urdf"), "--name", f"my_{name}", *words]
    assert main([*given, "--config-dir", str(folder)]) == 0
    return f"my_{name}_{kind}"


def test_the_shipped_profiles_are_lines_of_the_table() -> None:
    assert {"ur5e_forward", "ur5e_velocity", "fr3_joint", "ur5e_fzi", "fr3_crisp"} <= set(arms())


def test_a_name_that_is_not_there_gets_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="no arm 'ur5e_foward'") as error:
        bench(0.0, only="ur5e_foward")
    assert "ur5e_forward" in error.value.fix
    with pytest.raises(ConfigError, match="no column 'kil'"):
        bench(0.0, only="ur5e_forward", columns="kil")


@pytest.mark.alone
def test_one_arm_goes_up_and_survives_kill_9(tmp_path: Path) -> None:
    """The short form: an arm that is a URDF and nothing else."""
    name = described("xarm7", tmp_path)
    table = bench(0.0, only=name, columns="up,kill", config_dir=tmp_path)
    assert not [cell for cell in table.values() if not cell.startswith("ok")], table


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ARMS)
def test_each_arm_from_its_urdf_to_a_trained_policy(name: str, tmp_path: Path) -> None:
    table = bench(0.0, only=described(name, tmp_path), config_dir=tmp_path)
    assert not [cell for cell in table.values() if cell.startswith(FAILED)], table


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["ur5e_forward", "ur5e_velocity", "fr3_joint"])
def test_each_shipped_profile_with_joint_targets(name: str) -> None:
    table = bench(0.0, only=name)
    assert not [cell for cell in table.values() if cell.startswith(FAILED)], table
