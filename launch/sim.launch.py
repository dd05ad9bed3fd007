"""The graph with the simulated arm: ros2 launch robot_rl_bringup sim.launch.py robot:=fr3"""

import runpy
from pathlib import Path

of_run = runpy.run_path(str(Path(__file__).with_name("of_run.py")))["of_run"]


def generate_launch_description():
    """Start what the run says; launch arguments override it."""
    return of_run(
        "sim",
        sim="what moves the arm of the new run: mujoco, physx, isaac",
        real_time_factor="run s per wall s; 0 = as fast as those who act in it (docs/ros.md)",
        camera_hz="simulated cameras",
    )
