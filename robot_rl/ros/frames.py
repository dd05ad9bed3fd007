"""Fixed transforms between frames, from `/tf_static`: where a vendor's frame lies in one of ours.

Only fixed ones: a pose in a frame that moves belongs to another instant, and is refused.
"""

from __future__ import annotations

from typing import Any

from rclpy.node import Node

from robot_rl.errors import LinkError
from robot_rl.geometry import compose, inverse, pose
from robot_rl.ros import topics
from robot_rl.ros.endpoints import Newest
from robot_rl.types import Pose


class Frames:
    """The tree of fixed frames that has been heard. One thread; never blocks."""

    def __init__(self, node: Node) -> None:
        self._heard = Newest(node, topics.TF_STATIC)
        self._parents: dict[str, tuple[str, Pose]] = {}  # frame -> parent, frame in parent

    def find(self, of: str, within: str) -> Pose | None:
        """Pose of frame `of` in frame `within`; None when nothing fixed connects them."""
        self._poll()
        here, there = self._up(of), self._up(within)
        shared = next((name for name in here if name in there), None)
        return None if shared is None else compose(inverse(there[shared]), here[shared])

    def _up(self, frame: str) -> dict[str, Pose]:
        """Every frame above `frame`, itself first -> pose of `frame` in it."""
        found = {frame: pose((0.0, 0.0, 0.0))}
        while frame in self._parents and self._parents[frame][0] not in found:
            parent, in_parent = self._parents[frame]
            found[parent] = compose(in_parent, found[frame])
            frame = parent
        return found

    def _poll(self) -> None:
        for message in self._heard.arrived():
            for stamped in message.transforms:
                child, parent = stamped.child_frame_id.strip("/"), stamped.header.frame_id
                self._parents[child] = (parent.strip("/"), _pose_from(stamped.transform))


def _pose_from(transform: Any) -> Pose:
    p, q = transform.translation, transform.rotation
    return pose((p.x, p.y, p.z), (q.x, q.y, q.z, q.w))


def unknown(what: str, expected: str, got: str) -> LinkError:
    """The error for a message in a frame that cannot be turned into ours."""
    return LinkError(
        f"{what} in another frame",
        expected=f"frame_id '{expected}', in which the limits are, or one that /tf_static connects",
        got=repr(got),
        fix="have the driver publish in that frame, or start its robot_state_publisher",
    )
