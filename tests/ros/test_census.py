"""Who publishes what only one node may publish, as DDS tells it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from robot_rl.ros import topics

pytestmark = pytest.mark.ros


class Graph:
    """What a node hears of the publishers of each topic."""

    def __init__(self) -> None:
        self.nodes: list[str] = []

    def resolve_topic_name(self, name: str) -> str:
        """An absolute name."""
        return f"/{name}"

    def count_publishers(self, _name: str) -> int:
        """How many there are."""
        return len(self.nodes)

    def get_publishers_info_by_topic(self, _name: str) -> list[Any]:
        """Who they are."""
        return [SimpleNamespace(node_name=name) for name in self.nodes]


def rivals(nodes: list[str], *, strict: bool, after_s: float = 0.0) -> str:
    from robot_rl.ros.census import CENSUS_S, Census

    graph = Graph()
    topic = (topics.GATE_HEARTBEAT,)
    census = Census(graph, topic if strict else (), () if strict else topic)  # type: ignore[arg-type]
    graph.nodes = nodes
    found = census.rivals()
    if after_s:
        time.sleep(max(after_s, CENSUS_S))
        found = census.rivals()
    return found


@pytest.mark.parametrize(
    ("nodes", "strict", "restarted"),
    [
        (["gate"], "", ""),
        (["gate", "gate"], "2 on gate/heartbeat", ""),  # killed, and started again
        (["gate", "thief"], "2 on gate/heartbeat", "2 on gate/heartbeat"),
        (["_NODE_NAME_UNKNOWN_", "gate"], "2 on gate/heartbeat", ""),  # has just been started
    ],
)
def test_one_publisher_or_one_and_its_successor(
    nodes: list[str], strict: str, restarted: str
) -> None:
    for found, wanted in ((rivals(nodes, strict=True), strict),
                          (rivals(nodes, strict=False), restarted)):  # fmt: skip
        assert wanted in found and bool(found) == bool(wanted)


def test_who_never_tells_a_name_is_a_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    from robot_rl.ros import census

    monkeypatch.setattr(census, "NAMELESS_S", 0.1)
    assert rivals(["_NODE_NAME_UNKNOWN_", "gate"], strict=False, after_s=0.3)
