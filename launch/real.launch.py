"""Our nodes beside a robot's driver: ros2 launch robot_rl_bringup real.launch.py robot:=ur5e ..."""

import runpy
from pathlib import Path

of_run = runpy.run_path(str(Path(__file__).with_name("of_run.py")))["of_run"]


def generate_launch_description():
    """Start what the run says; launch arguments override it."""
    return of_run(
        "real",
        stop_service="std_srvs/Trigger that deactivates the controller",
        start_service="its opposite; then both are tried before anything may move",
        double="true: the simulated arm stands in for the driver",
    )
