"""Counts who publishes what only one node may publish: commands, states, a person's device."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rclpy.node import Node

from robot_rl.ros.topics import Topic

CENSUS_S = 0.1  # wall; publishers are counted this often
UNKNOWN = "_NODE_NAME_UNKNOWN_"  # of a publisher whose node has not told its name yet
NAMELESS_S = 2.0  # wall; who has no name for longer is nobody's successor


class Census:
    """Names rivals: a second publisher where one is right. Use from one thread; never blocks.

    A node that was killed is counted until DDS forgets it (3 s with the profile that we ship, 20 s
    with Fast DDS's own).

    Args:
        single: topics with one publisher, whatever its name (two drivers are two, too).
        restarted: topics whose node may be started again while the arm is driven: there a second
            publisher of the same name is taken for the first one's successor.
    """

    def __init__(
        self, node: Node, single: Sequence[Topic], restarted: Sequence[Topic] = ()
    ) -> None:
        self._node = node
        names = [(node.resolve_topic_name(topic.name), True) for topic in single]
        names += [(node.resolve_topic_name(topic.name), False) for topic in restarted]
        self._topics = tuple(dict(reversed(names)).items())  # each once; `single` is stricter
        self._due_s, self._rivals = 0.0, ""
        self._nameless_s: dict[str, float] = {}  # topic -> since when somebody on it has no name

    def rivals(self) -> str:
        """Which topics have rivals, and who they are, for people; "" = there are none."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + CENSUS_S
            crowded = [found for name, strict in self._topics if (found := self._on(name, strict))]
            self._rivals = f"publishers: {'; '.join(crowded)}" if crowded else ""
        return self._rivals

    def _on(self, name: str, strict: bool) -> str:
        if self._node.count_publishers(name) < 2:  # names cost more than a number
            return ""
        nodes = sorted(s.node_name for s in self._node.get_publishers_info_by_topic(name))
        now_s = time.monotonic()
        since_s = self._nameless_s.setdefault(name, now_s) if UNKNOWN in nodes else now_s
        if UNKNOWN not in nodes:
            self._nameless_s.pop(name, None)
        named = set(nodes) - ({UNKNOWN} if now_s - since_s < NAMELESS_S else set())
        if len(nodes if strict else named) < 2:
            return ""
        return f"{len(nodes)} on {name.lstrip('/')} ({', '.join(nodes)})"
