"""Our nodes beside a robot's driver: ros2 launch robot_rl_bringup real.launch.py run_dir:=..."""

from robot_rl.run.launch import of_run


def generate_launch_description():
    """Start what the run says; launch arguments override it."""
    return of_run(
        "real",
        namespace="of one robot among several",
        stop_service="std_srvs/Trigger that deactivates the controller",
        with_view="true: for the page",
    )
