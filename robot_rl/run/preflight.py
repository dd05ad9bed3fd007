"""`robot-rl doctor robot=PROFILE`, and what `up`, `train` and `record` do first at a real arm."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.errors import ConfigError, SetupError
from robot_rl.ros.graph import RealGraphConfig, real_graph
from robot_rl.ros.preflight import Finding, judge

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

DOUBLE_S = 30.0  # wall; the double is up within this time


def preflight(experiment: Experiment) -> list[Finding]:
    """Observe the driver of a real arm, or its double, for some seconds; nothing moves.

    Raises:
        ConfigError: the graph of this experiment is a simulation.
        SetupError: rclpy, or the vendor's message types, are missing.
    """
    config = experiment.ros
    if not isinstance(config, RealGraphConfig):
        raise ConfigError(
            "there is no driver to look at",
            expected="a profile of a real arm, e.g. robot=ur5e_fzi (docs/robot.md), or ros=real",
            got=f"ros={(experiment.config.get('ros') or {}).get('name')}",
            fix="robot-rl doctor robot=ur5e_fzi; for this machine alone: robot-rl doctor",
        )
    if config.double:
        return _beside_a_double(experiment)
    return _findings(experiment, config)


def _findings(experiment: Experiment, config: RealGraphConfig) -> list[Finding]:
    from robot_rl.ros.cameras import image_topic
    from robot_rl.ros.listening import listen, needed_of

    spec, driver, link = experiment.task.spec, experiment.driver, experiment.link
    pictures = {
        name: (image_topic(name, camera), *spec.picture_size(name))
        for name, camera in experiment.graph_cameras.items()
    }
    needed = needed_of(experiment.robot, driver, config, pictures)
    learner = None if link.is_loopback else (link.host, link.port)  # ours is started with the run
    return judge(listen(driver, config, needed, learner=learner), needed)


def _beside_a_double(experiment: Experiment) -> list[Finding]:
    """Start the double alone, look at it, and end it."""
    from robot_rl.ros.supervise import Supervisor

    config = experiment.ros
    assert isinstance(config, RealGraphConfig)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        there = dataclasses.replace(experiment, run_dir=folder)
        there.save()
        graph = real_graph(
            config,
            str(folder),
            experiment.robot,
            driver=experiment.driver,
            cameras=bool(experiment.task.spec.cameras),
        )
        double = tuple(spec for spec in graph if spec.name == "sim")
        with Supervisor(double, folder, config.domain_id) as running:
            _wait_up(folder)
            running.poll()
            return _findings(experiment, config)


def _wait_up(folder: Path) -> None:
    log_file, give_up_s = folder / "logs" / "sim.log", time.monotonic() + DOUBLE_S
    while time.monotonic() < give_up_s:
        if log_file.is_file() and "/sim up" in log_file.read_text():
            return
        time.sleep(0.05)
    raise SetupError(
        "the double does not start",
        expected=f"a simulated arm within {DOUBLE_S:.0f} s",
        got=log_file.read_text()[-500:] if log_file.is_file() else "nothing",
        fix="robot-rl doctor checks this machine",
    )


def refuse_unready(experiment: Experiment) -> None:
    """Refuse to start beside a real driver that is not ready; nothing is asked of a double.

    Raises:
        SetupError: a finding that `ros.accept` does not name.
    """
    config = experiment.ros
    if not isinstance(config, RealGraphConfig) or config.double:
        return
    if not experiment.driver.is_vendors:
        return
    wrong = [finding for finding in preflight(experiment) if finding.status == "fail"]
    accepted = [f for f in wrong if f.name in config.accept]
    for finding in accepted:
        log.warning("accepted by ros.accept: %s: %s", finding.name, finding.text)
    left = [finding for finding in wrong if finding not in accepted]
    if left:
        raise SetupError(
            "the robot is not ready",
            expected="robot-rl doctor with these words finds nothing wrong",
            got="; ".join(f"{f.name}: {f.text}" for f in left),
            fix=f"{left[0].fix}; or accept an item by its name: ros.accept=[{left[0].name}]",
        )
