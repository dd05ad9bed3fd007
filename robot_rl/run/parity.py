"""One scene in several engines: written as USD, and compared in numbers."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import ConfigError
from robot_rl.run.scene import scene_of

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment


def need_file(path: Path, usual: str) -> None:
    """Make the folder of `path`, and see that a file can be written there.

    Args:
        usual: a name that would do.

    Raises:
        ConfigError: it cannot.
    """
    try:
        got = "a folder" if path.is_dir() else ""
        if not got:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                return
    except OSError as error:
        got = error.strerror or f"{error}"
    raise ConfigError(
        f"no file can be written to '{path}'",
        expected="the name of a file in a folder of yours",
        got=got,
        fix=f"--out {usual}",
    )


def write_usd(experiment: Experiment, path: Path) -> Path:
    """Write the scene at the start of an episode, with the cameras as they are calibrated.

    Raises:
        ConfigError: there is no scene, the name does not end with one of USD's endings, or no file
            can be written there.
        SetupError: OpenUSD is not installed.
    """
    if path.suffix not in (".usda", ".usdc", ".usd"):
        raise ConfigError(
            f"'{path.name}' is not the name of a USD file",
            expected="NAME.usda (text), NAME.usdc (binary) or NAME.usd",
            got=path.suffix or "no ending",
            fix=f"--out {path.stem or 'stage'}.usda",
        )
    need_file(path, "stage.usda")
    from robot_rl_sim.usd import write_stage

    task = scene_of(experiment)
    write_stage(task, experiment.robot, path, experiment.seed, experiment.cameras)
    return path


def measure(experiment: Experiment, engine: str = "") -> dict[str, Any]:
    """Compare the scene as USD with the one in MuJoCo, both as they are without randomisation.

    Args:
        engine: "physx" asks that engine, too, and lets the arm move; "" reads the stage only.

    Returns:
        task, robot, engine, passed, checks (name, difference, gate, unit, note, passed), and
        traces (name, unit, time_s, mujoco, physx).

    Raises:
        ConfigError: there is no scene, or an engine that there is not.
        SetupError: OpenUSD or the engine is not installed.
    """
    from robot_rl_sim.parity import static_checks

    task = replace(scene_of(experiment), randomize="none", ranges={})
    robot = experiment.robot
    checks, traces = static_checks(task, robot), []
    if engine:
        if engine != "physx":
            raise ConfigError(
                f"nothing can be compared with the engine '{engine}'",
                expected="physx, or no --engine: the stage alone",
                got=engine,
                fix="--engine physx",
            )
        from robot_rl_sim.parity_physx import engine_checks

        measured = engine_checks(task, robot)
        checks += measured.checks
        traces = measured.traces
    return {
        "task": task.name,
        "robot": robot.name,
        "engine": engine,
        "passed": all(check.passed for check in checks),
        "checks": [asdict(check) | {"passed": check.passed} for check in checks],
        "traces": [asdict(trace) for trace in traces],
    }
