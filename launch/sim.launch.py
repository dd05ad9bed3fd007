"""The graph with the simulated arm: ros2 launch robot_rl_bringup sim.launch.py run_dir:=runs/..."""

from robot_rl.run.launch import of_run


def generate_launch_description():
    """Start what the run says; launch arguments override it."""
    return of_run(
        "sim",
        namespace="of one robot among several",
        real_time_factor="run s per wall s; 0 = as fast as those who act in it (docs/ros.md)",
        camera_hz="simulated cameras",
        with_view="true: for the page",
    )
