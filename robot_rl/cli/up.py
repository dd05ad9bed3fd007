"""`robot-rl up`: start the ROS 2 graph of an experiment as supervised processes."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from robot_rl.cli.common import Parser, engine, experiment_from, say
from robot_rl.cli.pair import inviting

if TYPE_CHECKING:
    from robot_rl.ros.graph import Graph
    from robot_rl.run.experiment import Experiment

TEXT = """
Start the ROS 2 nodes of an experiment and keep them running: a node that dies is started again.
Ctrl-C stops them in order, the arm last. The learner is a separate process: robot-rl learner RUN.
"""
EXAMPLES = """
robot-rl up experiment=peg_insert
robot-rl up ros=real robot=fr3 operator=gamepad                beside a real arm's own driver
robot-rl up ros=real ros.double=true robot=ur5e operator=none   the same graph, a simulated driver
robot-rl up actors=left,right operator=console                 two arms (docs/several_arms.md)
robot-rl up ros.with_actor=false                the actor in a terminal of its own
robot-rl up experiment=peg_insert --print       show the graph, start nothing (needs no ROS)
"""


def run(argv: Sequence[str]) -> int:
    """Start the graph; return when it is stopped, 1 when a critical node cannot be kept alive."""
    parser = Parser("up", TEXT, EXAMPLES).with_overrides()
    parser.add_argument("--print", action="store_true", help="show the graph and stop")
    args = parser.read(argv)
    experiment = experiment_from(args)
    if experiment is None:
        return 0
    from robot_rl.ros.graph import module_of
    from robot_rl.run.graph import graph_of, with_console

    graph = graph_of(experiment)
    if args.print:
        ros = experiment.ros
        spaces = dict.fromkeys(f"/{spec.namespace.strip('/')}" for spec in graph)
        say(f"ROS domain {ros.domain_id}, namespace {', '.join(spaces)}")
        for spec in graph:
            say(f"{spec.label:<10} python {' '.join(module_of(spec))}")
            for key, value in sorted(spec.params.items()):
                say(f"           {key} = {value}")
            for ours, theirs in spec.remaps.items():
                say(f"           {ours} is {theirs}")
        return 0
    engine("rclpy:init")  # a missing ROS is an error here, not five nodes that restart in a loop
    # before there is a folder: the supervisor looks again, when it starts the graph
    engine("robot_rl.ros.sole:need_no_gate")(graph, experiment.ros.domain_id)
    found = [engine("robot_rl.run.preflight:refuse_unready")(arm) for arm in experiment.arms]
    with engine("robot_rl.run.at_work:alone_in")(experiment.save()):
        for arm, findings in zip(experiment.arms, found, strict=True):
            engine("robot_rl.run.preflight:keep_findings")(findings, arm.run_dir)
        run = shlex.quote(str(experiment.run_dir))
        if not experiment.link.paired:
            say(f"run folder {experiment.run_dir}; learner: robot-rl learner {run}")
        if with_console(experiment):
            say(f"page for the operator: robot-rl console {run}")
        with inviting(experiment):
            return _supervise(graph, experiment)


def _supervise(graph: Graph, experiment: Experiment) -> int:
    from robot_rl.run.graph import last_words

    supervisor = engine("robot_rl.ros.supervise:Supervisor")
    stop: list[int] = []
    before = {s: signal.signal(s, lambda n, _: stop.append(n)) for s in _SIGNALS}
    try:
        with supervisor(graph, experiment.run_dir, experiment.ros.domain_id) as running:
            say(f"up: {', '.join(running.pids())}; Ctrl-C stops")
            while not stop:
                for death in running.poll():
                    if death.fatal:
                        say(f"{death.name} cannot go on: {last_words(death, experiment.run_dir)}")
                        return 1
                    say(f"{death.name} ended with code {death.code}")
                time.sleep(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
