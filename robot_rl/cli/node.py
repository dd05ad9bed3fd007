"""The node verbs (sim, gate, watchdog, operator, actor): start one node as `up` would start it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, existing_run, say

TEXTS = {
    "sim": "Node: simulated arm, gripper and cameras with the topics of a real one, and /clock.",
    "gate": "Node: checks every command against the limits; the only publisher of robot commands.",
    "watchdog": "Node: watches the gate's heartbeat; stops the controller when the gate dies.",
    "operator": "Node: the person (operator=scripted: a script) who takes over, corrects, lets go.",
    "actor": "Process: the control loop of one robot. A restarted actor goes on from its store.",
}
EXAMPLES = """
robot-rl {kind} runs/peg_insert/20260101-120000-s0
robot-rl {kind} --ros-args -r __node:={kind} -p use_sim_time:=true     (plain ROS arguments)
robot-rl {kind} --parameters                                          (what can be set)
"""


def run(kind: str, argv: Sequence[str]) -> int:
    """Run node `kind` until it is told to stop; return its exit code."""
    words = list(argv)
    cut = words.index("--ros-args") if "--ros-args" in words else len(words)
    parser = Parser(kind, TEXTS[kind], EXAMPLES.format(kind=kind))
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="run folder")
    parser.add_argument(
        "--parameters", action="store_true", help="list its ROS parameters and stop"
    )
    args = parser.read(words[:cut])
    if args.parameters:
        for p in engine("robot_rl.ros.parameters:table")(kind).values():
            say(f"{p.name:<22} {p.default!s:<24} [{p.unit}] {p.meaning}")
        return 0
    ros = words[cut:]
    if args.run is not None:
        ros = [*_arguments(kind, existing_run(args.run)), *ros]
    return int(engine(f"robot_rl.run.nodes:{kind}")(ros) or 0)


def _arguments(kind: str, run: Path) -> list[str]:
    """ROS arguments that this node has in the graph of the run."""
    import yaml

    from robot_rl.errors import ConfigError, did_you_mean
    from robot_rl.ros.graph import ros_arguments
    from robot_rl.ros.supervise import node_environment
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.graph import graph_of

    graph = {spec.name: spec for spec in graph_of(Experiment.load(run), with_actor=True)}
    if kind not in graph:
        raise ConfigError(
            f"this run has no node '{kind}'",
            expected=f"one of its nodes: {', '.join(graph)}",
            got=kind,
            fix=did_you_mean(kind, graph),
        )
    os.environ.update(node_environment(graph[kind], os.environ))  # its keystore, for one
    (run / "ros").mkdir(exist_ok=True)
    path = run / "ros" / f"{kind}.yaml"
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": dict(graph[kind].params)}}))
    return ros_arguments(graph[kind], str(path))
