"""From a run's graph to launch_ros actions. Imported by the launch files only (needs `launch_ros`).

A launch file starts the nodes that the run's own `ros` section asks for; launch arguments override
this section.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from launch import LaunchDescription  # type: ignore[import-not-found]
from launch.actions import DeclareLaunchArgument, OpaqueFunction  # type: ignore[import-not-found]
from launch.substitutions import LaunchConfiguration  # type: ignore[import-not-found]
from launch_ros.actions import Node  # type: ignore[import-not-found]

from robot_rl.errors import ConfigError
from robot_rl.ros.graph import NodeSpec, module_of
from robot_rl.ros.supervise import node_environment
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of

AS_IN_RUN = ""
READ = {bool: lambda word: word == "true", float: float, str: str}


def of_run(ros: str, **arguments: str) -> LaunchDescription:
    """What a launch file generates.

    Args:
        ros: kind of graph, `sim` or `real`.
        arguments: key of the run's `ros` section -> its description for people.
    """

    def nodes(context: Any) -> list[Any]:
        run_dir = Path(LaunchConfiguration("run_dir").perform(context))
        experiment = Experiment.load(run_dir)
        if (made_for := experiment.config["ros"]["name"]) != ros:
            raise ConfigError(
                f"{run_dir} is a run of another graph",
                expected=f"ros={ros}",
                got=f"ros={made_for}",
                fix=f"{made_for}.launch.py starts it; `robot-rl up ros={ros}` makes a run of this",
            )
        words = {k: LaunchConfiguration(k).perform(context) for k in arguments}
        given = {
            k: READ[type(getattr(experiment.ros, k))](word)
            for k, word in words.items()
            if word != AS_IN_RUN
        }
        return [_node(spec) for spec in graph_of(experiment, **given)]

    run = DeclareLaunchArgument("run_dir", description="made by `robot-rl train` or `robot-rl up`")
    return LaunchDescription(
        [
            run,
            *(
                DeclareLaunchArgument(key, default_value=AS_IN_RUN, description=text)
                for key, text in arguments.items()
            ),
            OpaqueFunction(function=nodes),
        ]
    )


def _node(spec: NodeSpec) -> Any:
    """`sys.executable -m module kind`: no console script, so no wrong shebang in a venv."""
    return Node(
        executable=spec.python or sys.executable,
        arguments=module_of(spec),
        name=spec.name,
        namespace=spec.namespace,
        parameters=[dict(spec.params)],
        remappings=list(spec.remaps.items()),
        additional_env=node_environment(spec),
        respawn=spec.restart,
        respawn_delay=1.0,
        output="screen",
    )
