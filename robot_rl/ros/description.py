"""The robot description that a driver publishes: the URDF as text, kept for late comers.

`robot_state_publisher` and the controllers of ros2_control have it on `robot_description`
(std_msgs/String, transient local).
"""

from __future__ import annotations

import time

from robot_rl.errors import SetupError
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.runtime import visitor
from robot_rl.ros.topics import Topic

FIRST_S = 5.0  # wall; discovery of the driver takes a second


def read_description(topic: str, domain_id: int, namespace: str = "") -> str:
    """The text on a topic. Raises `SetupError` when nobody publishes it."""
    listed = Topic(
        topic, "std_msgs/msg/String", "latched", "driver", ("robot_new",), 0, "-", "the URDF"
    )
    with visitor("robot_new", domain_id, namespace) as node:
        newest = Newest(node, listed)
        give_up_s = time.monotonic() + FIRST_S
        while time.monotonic() < give_up_s:
            for msg in newest.arrived():
                return str(msg.data)
            time.sleep(0.01)
    raise SetupError(
        "nobody publishes a robot description",
        expected=f"a std_msgs/String on {topic}, kept for late comers (transient local)",
        got=f"nothing in {FIRST_S:g} s",
        fix="start the arm's driver; check the topic's name, --domain-id and --namespace",
    )
