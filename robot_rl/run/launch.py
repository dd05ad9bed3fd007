"""From a run's graph to launch_ros actions. Imported by the launch files only (needs `launch_ros`).

A launch file starts the nodes that the run's own `ros` section asks for; launch arguments override
this section.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from launch import LaunchDescription  # type: ignore[import-not-found]
from launch.actions import (  # type: ignore[import-not-found]
    DeclareLaunchArgument,
    OpaqueFunction,
    Shutdown,
)
from launch.substitutions import LaunchConfiguration  # type: ignore[import-not-found]
from launch_ros.actions import Node  # type: ignore[import-not-found]

from robot_rl.errors import ConfigError
from robot_rl.ros.graph import EXIT_SETUP, NodeSpec, module_of
from robot_rl.ros.supervise import node_environment
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of

AS_IN_RUN = ""
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _boolean(word: str) -> bool:
    if word.lower() not in BOOLEANS:
        raise ConfigError(
            "a launch argument is neither true nor false",
            expected="true or false",
            got=word,
            fix="e.g. with_view:=true",
        )
    return BOOLEANS[word.lower()]


READ = {bool: _boolean, float: float, str: str}


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
        exec_name=spec.name,
        prefix=f"nice -n {spec.nice}" if spec.nice else None,
        arguments=module_of(spec),
        name=spec.name,
        namespace=spec.namespace,
        parameters=[dict(spec.params)],
        remappings=list(spec.remaps.items()),
        additional_env=node_environment(spec, os.environ),
        respawn=spec.restart,
        respawn_delay=1.0,
        on_exit=partial(_ended, spec),
        output="screen",
    )


def _ended(spec: NodeSpec, event: Any, _context: Any) -> Any:
    """End the launch when a node's work is done, or a restart is no help; else it is respawned."""
    if event.returncode == 0 and spec.finishes:
        return [Shutdown(reason=f"{spec.name} has finished")]
    if event.returncode == EXIT_SETUP and spec.critical:
        return [Shutdown(reason=f"{spec.name} cannot start; its last lines say why")]
    return None
