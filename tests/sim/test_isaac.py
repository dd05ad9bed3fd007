"""The arm in Isaac Sim: the vendor's names, and the whole program against a stand-in."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError, RobotRLError, SetupError
from robot_rl.geometry import compose, pose
from robot_rl.run.experiment import Experiment
from robot_rl.types import Command, Driver
from robot_rl_sim.isaac import PYTHON_VARIABLE, IsaacRobot, Worker
from robot_rl_sim.robot import MujocoRobot
from tests.support.isaac import STAND_IN, use_stand_in

pytest.importorskip("pxr", reason="OpenUSD is not installed: pip install 'robot-rl[usd]'")

PROGRAM = Path(__file__).parents[2] / "sim" / "isaac"


def program(name: str) -> ModuleType:
    """A file of `sim/isaac`, which no package holds."""
    found = importlib.util.spec_from_file_location(name, PROGRAM / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


manifest = program("manifest")
KNOWN: dict[str, Any] = json.loads(manifest.MANIFEST.read_text())


# --- the vendor's names ---------------------------------------------------------------------------


def test_every_call_of_the_worker_is_one_that_isaac_sim_has() -> None:
    uses = manifest.Uses(manifest.WORKER.read_text())
    assert manifest.wrong(uses.found, KNOWN["names"]) == []
    assert {name for name, *_ in uses.found} == set(KNOWN["names"])
    assert uses.extensions == KNOWN["extensions"]


def test_every_line_that_speaks_to_isaac_sim_is_seen() -> None:
    """Nobody imports it elsewhere, and no method of an unknown object is called in passing."""
    text = manifest.WORKER.read_text()
    lines = {line for *_, line in manifest.Uses(text).found}
    speaks = ("self._arm.", "prim.", "self._manager.", "app_utils.", "stage_utils.", "camera.get")
    for number, line in enumerate(text.splitlines(), 1):
        if any(word in line for word in speaks) and "import" not in line:
            assert number in lines, line
    for path in (Path(__file__).parents[2] / "robot_rl").rglob("*.py"):
        assert "isaacsim" not in path.read_text(), path


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("set_dof_efforts(", "set_joint_efforts(", "set_joint_efforts is not in the manifest"),
        ("dof_indices=self._fingers", "joint_indices=self._fingers", "no parameter joint_indices"),
        ("open_stage(said", "open_stage(said, said", "takes 1 arguments by place"),
        ("prim.get_friction_data(dt", "prim.get_friction_data(self._step_s, dt", "by place"),
        ("self._arm.dof_names", "self._arm.dof_names()", "is property"),
        ("app_utils.enable_extension(", "app_utils.enable_extensions(", "not in the manifest"),
    ],
)
def test_a_call_that_isaac_sim_does_not_have_is_found(
    before: str, after: str, complaint: str
) -> None:
    text = manifest.WORKER.read_text()
    assert before in text
    found = manifest.wrong(manifest.Uses(text.replace(before, after)).found, KNOWN["names"])
    assert any(complaint in line for line in found), found


def test_the_stand_in_has_the_vendors_parameters() -> None:
    sources = {
        f"x/{path.relative_to(STAND_IN)}": path.read_text()
        for path in (STAND_IN / "isaacsim").rglob("*.py")
    }
    for name, has in KNOWN["names"].items():
        module = name.partition(":")[0]
        where = f"x/{module.replace('.', '/')}"
        near = {"x/isaacsim/simulation_app/x.py": sources["x/isaacsim/__init__.py"]}
        if module != "isaacsim":
            near = {f"{where}/x.py": sources[f"{where}.py"]}
        assert manifest.look_up(name, near) == has, name


def test_the_manifest_is_read_from_wheels_without_installing_them(tmp_path: Path) -> None:
    for module in {name.partition(":")[0] for name in KNOWN["names"]}:
        near = STAND_IN / f"{module.replace('.', '/')}.py"
        folder = f"isaacsim/exts/{module}/{module.replace('.', '/')}"
        if module == "isaacsim":
            near = STAND_IN / "isaacsim" / "__init__.py"
            folder = "isaacsim/exts/isaacsim.simulation_app/isaacsim/simulation_app"
        with zipfile.ZipFile(tmp_path / f"{module}.whl", "w") as wheel:
            wheel.writestr(f"{folder}/impl/code.py", near.read_text())
            wheel.writestr(f"{folder}/tests/other.py", "def step(): ...")
    assert manifest.refresh("6.2.0.0", tmp_path) == KNOWN
    (tmp_path / "isaacsim.core.version.whl").unlink()
    with pytest.raises(SystemExit, match=r"has no isaacsim\.core\.version:get_version"):
        manifest.refresh("6.3.0.0", tmp_path)


# --- the program ----------------------------------------------------------------------------------


def both(monkeypatch: pytest.MonkeyPatch, words: str, **more: str) -> tuple[Any, MujocoRobot]:
    """The arm of these words in Isaac Sim's stand-in, and in MuJoCo."""
    use_stand_in(monkeypatch, words, **more)
    experiment = Experiment.compose(words.split())
    task: Any = experiment.task
    return IsaacRobot(task, experiment.robot), MujocoRobot(task, experiment.robot)


@pytest.mark.parametrize("words", ["experiment=peg_insert", "experiment=lift robot=ur5e"])
def test_it_moves_as_the_same_physics_does_in_our_own_process(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Through USD, sockets and another order of joints: masses, contacts, frames and wrench."""
    isaac, mujoco = both(monkeypatch, words)
    touched = 0.0
    for seed in range(2):
        plan = isaac.task.sample_reset(np.random.default_rng(seed))
        goal = compose(plan.tcp_in_base, pose((0.02, 0.01, 0.06)))  # down, and beside the block
        for arm in (isaac, mujoco):
            arm.reset(plan)
            arm.apply(Command(1, arm.now_s(), Driver.POLICY, "test", goal, 0.02))
        for tick in range(12):
            for arm in (isaac, mujoco):
                if tick == 2:  # built anew while it moves
                    arm.restore(arm.snapshot())
                arm.advance(0.1)
            one, other = isaac.read(), mujoco.read()
            touched = max(touched, float(np.abs(other.wrench_in_tcp).max()))
            for name in ("tcp_in_base", *one.objects):
                where = one.tcp_in_base if name == "tcp_in_base" else one.objects[name]
                same = other.tcp_in_base if name == "tcp_in_base" else other.objects[name]
                assert np.abs(where.position_m - same.position_m).max() < 1e-3, name
            assert np.abs(one.joint_position_rad - other.joint_position_rad).max() < 5e-3
            assert abs(one.gripper_width_m - other.gripper_width_m) < 1e-3
            # Half of what presses. How friction shares it while the peg lands and slides hangs on
            # the last digit: 2.2 N apart on one make of processor, 1.8 N on another.
            assert np.abs(one.wrench_in_tcp - other.wrench_in_tcp).max() < 4.0
    assert touched > 5.0 or "lift" in words


def test_a_flying_cube_keeps_its_motion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    isaac, mujoco = both(monkeypatch, "experiment=lift")
    plan = isaac.task.sample_reset(np.random.default_rng(1))
    for arm in (isaac, mujoco):
        arm.reset(plan)
        arm.data.qpos[-5] += 0.05  # above the table
        arm.data.qvel[-6:] = 0.2, 0.1, 0.3, 1.0, 2.0, 3.0
        arm.advance(0.1)  # in the air: no contact that could differ
    assert np.allclose(isaac.data.qpos[-7:], mujoco.data.qpos[-7:], atol=1e-4)
    assert np.allclose(isaac.data.qvel[-6:], mujoco.data.qvel[-6:], atol=1e-3)


@pytest.mark.gl
def test_pictures_are_isaac_sims(monkeypatch: pytest.MonkeyPatch) -> None:
    isaac, mujoco = both(monkeypatch, "experiment=lift_pixels")
    plan = isaac.task.sample_reset(np.random.default_rng(0))
    views = [arm.camera("wrist", (64, 96)) for arm in (isaac, mujoco)]
    assert views[0].fovy_rad == views[1].fovy_rad
    for arm in (isaac, mujoco):
        arm.reset(plan)
        arm.advance(0.1)
    (stamp_s, drawn), (_, same) = (view.read() for view in views)
    assert stamp_s == isaac.now_s()
    assert drawn.shape == (64, 96, 3) and drawn.dtype == np.uint8
    assert np.abs(drawn.astype(int) - same.astype(int)).mean() < 3.0  # other edges
    for view in views:
        view.close()


def test_policies_are_evaluated_in_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recording is the same path: reset, gate, loop, script; a policy needs torch's start."""
    use_stand_in(monkeypatch, "experiment=reach")
    run = tmp_path / "run"
    words = ["experiment=reach", "runtime=lockstep", "sim=isaac", f"run_dir={run}"]
    assert main(["record", *words, "--demos", "2"]) == 0, capsys.readouterr().err
    assert Experiment.load(run).sim == "isaac"
    assert (run / "config.yaml").read_text().count("sim: isaac") == 1


# --- what goes wrong ------------------------------------------------------------------------------


def refusal(monkeypatch: pytest.MonkeyPatch, **more: str) -> SetupError:
    """The error of a start that fails."""
    use_stand_in(monkeypatch, "experiment=reach", **more)
    with pytest.raises(SetupError) as error:
        Worker()
    return error.value


def test_nothing_says_where_isaac_sim_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    with pytest.raises(SetupError) as error:
        Worker()
    assert PYTHON_VARIABLE in error.value.fix and "docs/isaac.md" in error.value.fix


def test_no_interpreter_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = refusal(monkeypatch, **{PYTHON_VARIABLE: str(tmp_path / "python.sh")})
    assert "cannot be started" in error.summary and "python.sh" in error.got


def test_a_python_without_isaac_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_in(monkeypatch, "experiment=reach")
    monkeypatch.setenv("PYTHONPATH", "")
    with pytest.raises(SetupError) as error:
        Worker()
    assert "does not start" in error.value.summary
    assert "No module named 'isaacsim'" in error.value.got


def test_the_licence_was_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal(monkeypatch, FAKE_ISAAC_FAULT="licence")
    assert "licence" in error.summary and "your shell" in error.fix
    sources = [*PROGRAM.glob("*.py"), Path(sys.modules[IsaacRobot.__module__].__file__ or "")]
    for path in sources:  # nor do we accept anything in anybody's name
        assert "ACCEPT_EULA" not in path.read_text()


def test_another_isaac_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal(monkeypatch, FAKE_ISAAC_VERSION="5.1.0")
    assert "this is Isaac Sim 5.1.0, and robot-rl knows 6.x" in error.got


def test_the_worker_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    isaac, _ = both(monkeypatch, "experiment=reach")
    isaac.advance(0.01)
    os.kill(isaac.worker.process.pid, signal.SIGKILL)
    with pytest.raises(RobotRLError) as error:
        isaac.advance(0.5)
    assert "Isaac Sim is gone" in error.value.summary and "exit code -9" in error.value.got
    assert not isinstance(error.value, SetupError)  # a node that fails so is started again


def test_the_worker_ends_with_whoever_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_in(monkeypatch, "experiment=reach")
    worker = Worker()
    process, begun_s = worker.process, time.monotonic()
    worker.close()
    assert process.returncode is not None and time.monotonic() - begun_s < 5.0


def test_a_request_that_cannot_be_met_is_told_and_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    isaac, _ = both(monkeypatch, "experiment=reach")
    with pytest.raises(RobotRLError, match="could not do") as error:
        isaac.worker.picture("/World/nobody", (8, 8))
    assert "the stage has not been opened" in error.value.got
    isaac.advance(0.01)
    with pytest.raises(RobotRLError, match="could not do"):
        isaac.worker.picture("/World/nobody", (8, 8))
    isaac.advance(0.01)
    isaac.worker.close()


def test_what_it_cannot_build_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_stand_in(monkeypatch, "experiment=reach")
    with pytest.raises(ConfigError, match="unknown physics engine 'gazebo'"):
        Experiment.compose(["experiment=reach", "sim=gazebo"])
    with pytest.raises(ConfigError, match="simulator of its own"):
        Experiment.compose(["experiment=gym", "sim=isaac", "task.env_id=Pendulum-v1"]).check()
