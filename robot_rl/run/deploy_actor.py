"""The actor process of a deployment or a comparison: no learner, no link."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from robot_rl.errors import ConfigError
from robot_rl.ports import ActorPorts
from robot_rl.run.compare import COMPARE, compare_on_ports
from robot_rl.run.deploy import DEPLOY, deploy_on_ports, read_plan

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment


def deploy_on(experiment: Experiment, ports: ActorPorts) -> int:
    """Do what the plan in the run folder says; returns the process exit code.

    Raises:
        ConfigError: there is no plan.
        RobotRLError: see the message; started again, it goes on where it stopped.
    """
    kind = read_plan(experiment.run_dir).get("kind")
    work = {DEPLOY: deploy_on_ports, COMPARE: compare_on_ports}.get(str(kind))
    if work is None:
        raise ConfigError(
            f"nothing to deploy in {experiment.run_dir}",
            expected="plan.json, as robot-rl deploy or eval --on robot writes it",
            got=str(kind),
            fix="give that command again",
        )
    gc.disable()  # collected between episodes
    try:
        work(experiment, ports)
    finally:
        gc.enable()
    return 0
