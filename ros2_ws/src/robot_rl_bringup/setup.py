"""ament_python package: the launch files, and scripts for `ros2 run` that call the pip package.

The launch files come from the repository around this folder, else (a copy of this folder in another
workspace) from the installed robot-rl. Without either the build fails: a package without its launch
files would be found out only at the robot.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup

NAME = "robot_rl_bringup"
HERE = Path(__file__).resolve().parent
KINDS = ("sim", "arm", "ik", "camera", "gate", "view", "mirror", "watchdog", "operator", "actor")


def launch_dir() -> Path:
    """Folder with the launch files."""
    beside = HERE.parents[2] / "launch" if len(HERE.parents) > 2 else HERE
    if (beside / "of_run.py").is_file():
        return beside
    named, venv = os.environ.get("ROBOT_RL_PYTHON"), os.environ.get("VIRTUAL_ENV")
    python = named or (f"{venv}/bin/python" if venv else sys.executable)
    try:
        command = [python, "-P", "-m", "robot_rl.run.launch", "--folder"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"{NAME} has no launch files to install\n"
            "  expected: the robot-rl repository around this folder, or robot-rl installed\n"
            f"  got:      neither {beside}, nor a robot_rl that {python} can import\n"
            "  fix:      activate the environment that has robot-rl, or export ROBOT_RL_PYTHON="
            "/path/to/.venv/bin/python; then build again"
        ) from error
    return Path(done.stdout.strip())


setup(
    name=NAME,
    version="0.1.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (
            f"share/{NAME}/launch",
            sorted(os.path.relpath(path, HERE) for path in launch_dir().glob("*.py")),
        ),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="robot-rl maintainers",
    maintainer_email="maintainers@robot-rl.invalid",
    description="Launch files and ros2 run entry points for robot-rl.",
    license="Apache-2.0",
    entry_points={"console_scripts": [f"{kind} = robot_rl.run.nodes:{kind}" for kind in KINDS]},
)
