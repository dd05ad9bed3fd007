"""Quality of service by purpose; names are what `topics.Topic.qos` says.

Streams are best effort, depth 1: a late frame is worthless and a best-effort reader accepts any
writer. Commands are reliable, depth 1 (newest wins). States are latched. No reader asks for a
deadline or a liveliness that our own writer does not offer: it would silently get nothing.
"""

from __future__ import annotations

from rclpy.duration import Duration
from rclpy.qos import (
    DurabilityPolicy,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
)

GATE_LIVELINESS_S = 0.3  # with this lease, readers notice a SIGKILL after 177 ms (measured)

_BEST_EFFORT = ReliabilityPolicy.BEST_EFFORT
_RELIABLE = ReliabilityPolicy.RELIABLE

PROFILES: dict[str, QoSProfile] = {
    "stream": QoSProfile(depth=1, reliability=_BEST_EFFORT),
    # a reader that pairs topics needs the reading before the newest as well
    "paired": QoSProfile(depth=3, reliability=_BEST_EFFORT),
    # who counts what is lost must not lose anything itself: 0.2 s of a driver at 1 kHz
    "counted": QoSProfile(depth=200, reliability=_BEST_EFFORT),
    "image": QoSProfile(depth=1, reliability=_BEST_EFFORT),
    "command": QoSProfile(depth=1, reliability=_RELIABLE),
    "exchange": QoSProfile(depth=10, reliability=_RELIABLE),
    "latched": QoSProfile(
        depth=1, reliability=_RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    ),
    # for a reader that must not miss a state which has changed again while it was frozen
    "changes": QoSProfile(
        depth=10, reliability=_RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    ),
    "static": QoSProfile(  # several writers, each says its frames once
        depth=100, reliability=_RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    ),
    "heartbeat": QoSProfile(
        depth=1,
        reliability=_RELIABLE,
        liveliness=LivelinessPolicy.AUTOMATIC,
        liveliness_lease_duration=Duration(seconds=GATE_LIVELINESS_S),
    ),
    "diagnostics": QoSProfile(depth=10, reliability=_RELIABLE),
}
