"""The nodes of the graph as processes: `python -m robot_rl.run.nodes gate --ros-args ...`.

Each reads its run's experiment and hands its node the sections that the node needs, no more. A
process imports only what it runs: the gate's loads neither torch nor MuJoCo.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.ros.runtime import Shell, run_node
from robot_rl.ros.sole import sole_gate
from robot_rl.run import engines
from robot_rl.run.experiment import Experiment

if TYPE_CHECKING:
    from robot_rl.ros.reader import StateReader


def sim(args: Sequence[str] | None = None) -> int:
    """Run the simulated arm."""
    return run_node("sim", _sim, args)


def arm(args: Sequence[str] | None = None) -> int:
    """Run the process that speaks with a vendor's driver."""
    return run_node("arm", _arm, args)


def ik(args: Sequence[str] | None = None) -> int:
    """Run the process that turns TCP targets into joint targets."""
    return run_node("ik", _ik, args)


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


def camera(args: Sequence[str] | None = None) -> int:
    """Run the process that reads one camera and publishes its pictures."""
    return run_node("camera", _camera, args)


def view(args: Sequence[str] | None = None) -> int:
    """Run the process that the operator's page looks at."""
    return run_node("view", _view, args)


def mirror(args: Sequence[str] | None = None) -> int:
    """Run the simulated arm that mirrors a real one."""
    return run_node("mirror", _mirror, args)


def actor(args: Sequence[str] | None = None) -> int:
    """Run the control loop of one robot."""
    return run_node("actor", _actor, args)


NODES: Mapping[str, Callable[[Sequence[str] | None], int]] = {
    "sim": sim,
    "arm": arm,
    "ik": ik,
    "gate": gate,
    "watchdog": watchdog,
    "operator": operator,
    "camera": camera,
    "view": view,
    "mirror": mirror,
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
    SimNode(
        shell,
        experiment.task,
        experiment.robot,
        experiment.draws_seed,
        cameras=experiment.graph_cameras,
        calibrated=experiment.cameras,
        driver=experiment.spoken_driver,
        simulated=engines.robot_class(experiment.sim),
    ).run()


def _reader(shell: Shell, experiment: Experiment, *, objects: bool = True) -> StateReader:
    """Who reads the state of the arm and, where the task needs them, of the objects."""
    from robot_rl.ros.reader import StateReader, tracked_objects

    names = tracked_objects(shell, experiment.task) if objects else ()
    return StateReader(shell, names, experiment.robot, experiment.spoken_driver)


def _arm(shell: Shell) -> None:
    from robot_rl.ros.arm_node import run_arm
    from robot_rl.run.preflight import kept_findings

    experiment, run_dir = _experiment(shell), Path(shell.params["run_dir"])
    cameras, found = experiment.graph_cameras, kept_findings(run_dir)
    run_arm(shell, experiment.robot, experiment.spoken_driver, cameras, found)


def _ik(shell: Shell) -> None:
    from robot_rl.ros.ik_node import run_ik

    experiment = _experiment(shell)
    run_ik(
        shell,
        experiment.robot,
        experiment.spoken_driver,
        experiment.inverse_kinematics(),
        of_joints=experiment.moves_joints,
    )


def _gate(shell: Shell) -> None:
    from robot_rl.ros.gate_node import run_gate

    experiment = _experiment(shell)
    with sole_gate(shell.node.context.get_domain_id(), shell.node.get_namespace()):
        run_gate(shell, experiment.limits, _reader(shell, experiment, objects=False))


def _operator(shell: Shell) -> None:
    from robot_rl.ros.operator_node import run_operator

    experiment = _experiment(shell)
    experiment.refuse_script_on_a_real_arm()
    run_operator(shell, experiment.operator, experiment.task, _reader(shell, experiment))


def _camera(shell: Shell) -> None:
    from robot_rl.ros.camera_node import run_camera

    name = shell.params["camera"]
    devices = _experiment(shell).devices
    if name not in devices:
        raise ConfigError(
            f"the run has no camera '{name}' that a node of ours reads",
            expected="parameter `camera`: a camera of the section `cameras`, not a topic",
            got=name,
            fix=did_you_mean(name, devices),
        )
    run_camera(shell, name, devices[name])


def _view(shell: Shell) -> None:
    from robot_rl.ros.view_node import run_view

    experiment = _experiment(shell)
    mirror = experiment.mirror if experiment.is_simulated else None
    reader = _reader(shell, experiment)
    run_view(shell, experiment.task, experiment.graph_cameras, mirror, reader)


def _mirror(shell: Shell) -> None:
    from robot_rl.ros.mirror_node import MirrorNode
    from robot_rl.run.scene import scene_of

    experiment = _experiment(shell)
    MirrorNode(
        shell,
        scene_of(experiment),
        experiment.robot,
        _reader(shell, experiment),
        cameras=experiment.cameras,
        driver=experiment.driver,
        simulated=engines.robot_class(shell.params["engine"] or experiment.sim),
    ).run()


def _actor(shell: Shell) -> int:
    from robot_rl.ros.actor_ports import actor_ports
    from robot_rl.run.actor import Actor

    experiment, run_dir = _experiment(shell), Path(shell.params["run_dir"])
    reader = _reader(shell, experiment)
    ports = actor_ports(shell, experiment.task, experiment.graph_cameras, reader)
    if shell.params["deploys"]:
        from robot_rl.run.deploy_actor import deploy_on

        return deploy_on(experiment, ports)
    return Actor(experiment, ports, run_dir, demos_only=shell.params["demos_only"]).run()


def _leave(code: int) -> NoReturn:
    """End the process here: `run_node` has taken everything down, and nothing is left to say.

    An interpreter that ends by itself takes 600 modules apart, and a destructor of Fast DDS sleeps
    for 0.1 s: together 0.2 s of each node, and nodes are stopped one after the other.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main())
