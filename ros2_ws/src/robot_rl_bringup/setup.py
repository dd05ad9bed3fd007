"""ament_python package: installs the repository's launch files and configs, and console scripts.

All logic lives in the pip package `robot-rl`; the scripts only call into it.
"""

import os
from pathlib import Path

from setuptools import setup

NAME = "robot_rl_bringup"
HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]


def files(folder: str, pattern: str) -> list[tuple[str, list[str]]]:
    """data_files entries that keep the layout below `folder` of the repository."""
    entries: dict[str, list[str]] = {}
    for path in sorted((REPO / folder).rglob(pattern)):
        target = f"share/{NAME}/{path.parent.relative_to(REPO)}"
        entries.setdefault(target, []).append(os.path.relpath(path, HERE))
    return list(entries.items())


setup(
    name=NAME,
    version="0.1.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        *files("launch", "*.launch.py"),
        *files("configs", "*.yaml"),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="robot-rl maintainers",
    maintainer_email="maintainers@robot-rl.invalid",
    description="Launch files and ros2 run entry points for robot-rl.",
    license="Apache-2.0",
    entry_points={
        "console_scripts": [
            "sim = robot_rl.run.nodes:sim",
            "arm = robot_rl.run.nodes:arm",
            "gate = robot_rl.run.nodes:gate",
            "view = robot_rl.run.nodes:view",
            "watchdog = robot_rl.run.nodes:watchdog",
            "operator = robot_rl.run.nodes:operator",
            "actor = robot_rl.run.nodes:actor",
        ]
    },
)
