"""The graph with the simulated arm: ros2 launch robot_rl_bringup sim.launch.py run_dir:=runs/..."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction

from robot_rl.ros.graph import SimGraphConfig, sim_graph
from robot_rl.ros.launch_front import actions, argument


def _nodes(context):
    config = SimGraphConfig(
        namespace=argument(context, "namespace"),
        real_time_factor=float(argument(context, "real_time_factor")),
        camera_hz=float(argument(context, "camera_hz")),
        with_view=argument(context, "view") == "true",
    )
    return actions(sim_graph(config, argument(context, "run_dir")))


def generate_launch_description():
    """Declare arguments; the graph is built once their values are known."""
    return LaunchDescription(
        [
            DeclareLaunchArgument("run_dir", description="run folder made by `robot-rl train`"),
            DeclareLaunchArgument("namespace", default_value=""),
            DeclareLaunchArgument("real_time_factor", default_value="1.0"),
            DeclareLaunchArgument("camera_hz", default_value="0.0"),
            DeclareLaunchArgument("view", default_value="false", description="for the console"),
            OpaqueFunction(function=_nodes),
        ]
    )
