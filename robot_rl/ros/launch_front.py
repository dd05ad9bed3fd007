"""From our graph to launch_ros actions. Imported by the launch files only (needs `launch_ros`)."""

from __future__ import annotations

import sys
from typing import Any

from launch.substitutions import LaunchConfiguration  # type: ignore[import-not-found]
from launch_ros.actions import Node  # type: ignore[import-not-found]

from robot_rl.ros.graph import Graph, NodeSpec
from robot_rl.ros.supervise import node_environment


def argument(context: Any, name: str) -> str:
    """Value of a launch argument."""
    return LaunchConfiguration(name).perform(context)


def _node(spec: NodeSpec) -> Any:
    """`sys.executable -m module`: no console script, so no wrong shebang in a venv."""
    return Node(
        executable=spec.python or sys.executable,
        arguments=["-m", spec.module],
        name=spec.name,
        namespace=spec.namespace,
        parameters=[dict(spec.params)],
        remappings=list(spec.remaps.items()),
        additional_env=node_environment(spec),
        respawn=spec.restart,
        respawn_delay=1.0,
        output="screen",
    )


def actions(graph: Graph) -> list[Any]:
    """One launch_ros Node per entry, in start order."""
    return [_node(spec) for spec in graph]
