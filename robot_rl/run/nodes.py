"""The nodes of the graph as processes: `python -m robot_rl.run.nodes gate --ros-args ...`.

Each reads its run's experiment and hands its node the sections that the node needs, no more. A
process imports only what it runs: the gate's loads neither torch nor MuJoCo.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from robot_rl.ros.runtime import Shell, run_node
from robot_rl.run.experiment import Experiment


def sim(args: Sequence[str] | None = None) -> int:
    """Run the simulated arm."""
    return run_node("sim", _sim, args)


def gate(args: Sequence[str] | None = None) -> int:
    """Run the gate, the only publisher of robot commands."""
    return run_node("gate", _gate, args)


def watchdog(args: Sequence[str] | None = None) -> int:
    """Run the process that stops the controller when the gate is silent."""
    from robot_rl.ros.watchdog_node import run_watchdog

    return run_node("watchdog", run_watchdog, args)


def operator(args: Sequence[str] | None = None) -> int:
    """Run the process that passes on the person's device."""
    return run_node("operator", _operator, args)


def view(args: Sequence[str] | None = None) -> int:
    """Run the process that the operator's page looks at."""
    return run_node("view", _view, args)


def actor(args: Sequence[str] | None = None) -> int:
    """Run the control loop of one robot."""
    return run_node("actor", _actor, args)


NODES: Mapping[str, Callable[[Sequence[str] | None], int]] = {
    "sim": sim,
    "gate": gate,
    "watchdog": watchdog,
    "operator": operator,
    "view": view,
    "actor": actor,
}
"""Kind of node -> its process (`robot_rl.ros.graph.KINDS`)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: the kind of node, then ROS arguments."""
    kind, *args = sys.argv[1:] if argv is None else argv
    return NODES[kind](args)


def _experiment(shell: Shell) -> Experiment:
    return Experiment.load(Path(shell.params["run_dir"]))


def _sim(shell: Shell) -> None:
    from robot_rl.ros.sim_node import SimNode

    experiment = _experiment(shell)
    task, arm, seed = experiment.task, experiment.robot, experiment.seed
    SimNode(shell, task, arm, seed, experiment.graph_cameras).run()


def _gate(shell: Shell) -> None:
    from robot_rl.ros.gate_node import run_gate

    run_gate(shell, _experiment(shell).limits)


def _operator(shell: Shell) -> None:
    from robot_rl.ros.operator_node import run_operator

    experiment = _experiment(shell)
    experiment.refuse_script_on_a_real_arm()
    run_operator(shell, experiment.operator, experiment.task)


def _view(shell: Shell) -> None:
    from robot_rl.ros.view_node import run_view

    experiment = _experiment(shell)
    mirror = experiment.mirror if experiment.is_simulated else None
    run_view(shell, experiment.task, experiment.graph_cameras, mirror)


def _actor(shell: Shell) -> int:
    from robot_rl.ros.actor_ports import actor_ports
    from robot_rl.run.actor import Actor

    experiment, run_dir = _experiment(shell), Path(shell.params["run_dir"])
    ports = actor_ports(shell, experiment.task, experiment.graph_cameras)
    return Actor(experiment, ports, run_dir, demos_only=shell.params["demos_only"]).run()


if __name__ == "__main__":
    raise SystemExit(main())
