"""The pose of a real (or simulated) arm, read once: a task is taught by where somebody put the arm.

Only the driver's pose topic is needed; no gate, no actor, and nothing is ever commanded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from robot_rl.errors import SetupError
from robot_rl.robots import Robot
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.runtime import visitor
from robot_rl.types import Pose

WATCH_S = 0.3  # wall; the arm must stand still for so long
STILL_M = 0.001
ENOUGH = 5  # poses; fewer do not show that it stands still
FIRST_S = 5.0  # wall; discovery of the driver takes a second


@contextmanager
def taught_poses(
    robot: Robot, domain_id: int, namespace: str = "", topic: str = ""
) -> Iterator[Callable[[], Pose]]:
    """A function that returns the TCP pose in base, of an arm that stands still.

    topic: of the driver, "" = our own name. The function raises `SetupError`.
    """
    name = topic or topics.CURRENT_POSE.name
    with visitor("teach", domain_id, namespace, {topics.CURRENT_POSE.name: name}) as node:
        newest = Newest(node, topics.CURRENT_POSE)
        yield lambda: _standing(newest, name, robot.base_frame)


def _standing(newest: Newest, name: str, frame: str) -> Pose:
    list(newest.arrived())  # what has waited since the last question is of another place
    seen: list[Pose] = []
    give_up_s = time.monotonic() + FIRST_S
    until_s = np.inf
    while time.monotonic() < give_up_s and (len(seen) < ENOUGH or time.monotonic() < until_s):
        for msg in newest.arrived():
            if msg.header.frame_id != frame:
                raise SetupError(
                    f"{name} tells poses in another frame",
                    expected=f"frame_id '{frame}', the base of the robot's limits",
                    got=repr(msg.header.frame_id),
                    fix="have the driver publish in that frame, or choose the robot's file",
                )
            seen.append(convert.pose_from(msg))
            until_s = min(until_s, time.monotonic() + WATCH_S)
        time.sleep(0.005)
    if len(seen) < ENOUGH:
        raise SetupError(
            "the arm does not say where it is",
            expected=f"poses on {name}",
            got=f"{len(seen)} in {FIRST_S:g} s",
            fix="start the robot's driver; check --domain-id, --namespace and --topic",
        )
    moved_m = float(np.ptp([p.position_m for p in seen], axis=0).max())
    if moved_m > STILL_M:
        raise SetupError(
            "the arm is moving",
            expected=f"less than {STILL_M * 1e3:g} mm in {WATCH_S:g} s",
            got=f"{moved_m * 1e3:.1f} mm",
            fix="let it come to rest, then press Enter again",
        )
    return seen[-1]
