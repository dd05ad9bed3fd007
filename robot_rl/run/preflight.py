"""`robot-rl doctor robot=PROFILE`, and what `up`, `train` and `record` do first at a real arm."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.config.run_folder import PREFLIGHT
from robot_rl.errors import ConfigError, LinkError, SetupError
from robot_rl.link.auth import keys_for
from robot_rl.link.config import LinkConfig
from robot_rl.ros import surroundings as around
from robot_rl.ros.graph import RealGraphConfig, real_graph
from robot_rl.ros.preflight import Finding, judge
from robot_rl.ros.readiness import Readiness
from robot_rl.system import machine, plain_json
from robot_rl.system.machine import Checked

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
    # ours is started with the run; one on another machine may come later
    learner = None if link.is_loopback or link.paired else (link.host, link.port)
    ours = surroundings(experiment, os.environ)  # before our own settings are made here
    return [*judge(listen(driver, config, needed, learner=learner), needed), *ours]


def surroundings(experiment: Experiment, env: Mapping[str, str]) -> list[Finding]:
    """What shell, machine and keys contribute to the safety of this run. env: of the shell."""
    domain_id = experiment.ros.domain_id
    checks: dict[str, Callable[[], Checked]] = {
        "domain": lambda: around.domain(domain_id, env),
        "discovery": lambda: around.discovery(domain_id, env),
        "dds profile": lambda: around.dds_profile(env),
        "priority": machine.real_time,
        "disk": lambda: machine.disk(experiment.run_dir),
        "shared memory": machine.shared_memory,
    }
    if not experiment.link.is_loopback and not experiment.link.paired:
        # on one machine, a run makes its own keys
        checks["keys"] = lambda: _keys(experiment.link, experiment.key_name)
    return [Finding(name, *check()) for name, check in checks.items()]


def _keys(link: LinkConfig, name: str) -> Checked:
    """Whether the actor here and the learner there would know each other."""
    try:
        keys_for(link, Path(), name).public_of("learner")
    except LinkError as error:
        text = f"{error.summary}: {error.got}" if error.got else error.summary
        return "fail", text, error.fix
    return "ok", f"{name} and learner in {link.key_folder}", ""


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


def refuse_unready(experiment: Experiment) -> list[Finding]:
    """Refuse to start beside a real driver that is not ready; nothing is asked of a double.

    Returns what was found, for `keep_findings`.

    Raises:
        SetupError: a finding that `ros.accept` does not name, or that nobody may accept.
    """
    config = experiment.ros
    if not isinstance(config, RealGraphConfig) or config.double:
        return []
    if not experiment.driver.is_vendors:
        return []
    found = preflight(experiment)
    ready = [told.topic for told in experiment.driver.ready]
    listed = Readiness(found, ready)
    listed.update(())
    if refusal := listed.refusal(config.accept):
        raise SetupError(
            "ros.accept names what cannot be accepted",
            expected="items of robot-rl doctor with these words, by their names",
            got=f"ros.accept={list(config.accept)}",
            fix=refusal,
        )
    listed.accept(config.accept)
    for item in listed.items:
        if item.status == "accepted":
            log.warning("accepted by ros.accept: %s: %s", item.name, item.text)
    left = [item for item in listed.items if item.status == "fail"]
    if left:
        may = "" if left[0].never else f"; or accept it by its name: ros.accept=[{left[0].name}]"
        raise SetupError(
            "the robot is not ready",
            expected="robot-rl doctor with these words finds nothing wrong",
            got="; ".join(f"{item.name}: {item.text}" for item in left),
            fix=f"{left[0].fix}{may}",
        )
    return found


def keep_findings(found: Sequence[Finding], run_dir: Path) -> None:
    """Leave what was found before the start in the run folder, where the arm node reads it."""
    if not found:  # of an earlier start, perhaps, beside another driver
        (run_dir / PREFLIGHT).unlink(missing_ok=True)
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    lines = [dataclasses.asdict(finding) for finding in found]
    (run_dir / PREFLIGHT).write_text(json.dumps(lines, indent=1) + "\n")


def kept_findings(run_dir: Path) -> list[Finding]:
    """What `keep_findings` has left; empty where nobody looked before the start.

    Raises:
        ConfigError: the file holds something else.
    """
    path = run_dir / PREFLIGHT
    try:
        lines = plain_json.loads(path.read_text()) if path.is_file() else []
        return [Finding(**{key: str(value) for key, value in line.items()}) for line in lines]
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is damaged",
            expected="a list of findings in JSON: name, status, text, fix",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="start the run again: the file is written anew",
        ) from error
