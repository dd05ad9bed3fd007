"""Our nodes beside a robot's driver: ros2 launch robot_rl_bringup real.launch.py run_dir:=..."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction

from robot_rl.ros.graph import RealGraphConfig, real_graph
from robot_rl.ros.launch_front import actions, argument


def _nodes(context):
    config = RealGraphConfig(
        namespace=argument(context, "namespace"),
        stop_service=argument(context, "stop_service"),
        with_view=argument(context, "view") == "true",
    )
    return actions(real_graph(config, argument(context, "run_dir")))


def generate_launch_description():
    """Declare arguments; the graph is built once their values are known."""
    return LaunchDescription(
        [
            DeclareLaunchArgument("run_dir", description="run folder made by `robot-rl train`"),
            DeclareLaunchArgument("namespace", default_value=""),
            DeclareLaunchArgument("stop_service", default_value="controller/stop"),
            DeclareLaunchArgument("view", default_value="false", description="for the console"),
            OpaqueFunction(function=_nodes),
        ]
    )
