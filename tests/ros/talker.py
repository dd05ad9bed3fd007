"""A publisher process for the transport tests: `talker.py image|joints RATE_HZ SECONDS`."""

from __future__ import annotations

import sys
import time

import numpy as np

from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import publisher
from robot_rl.ros.runtime import Pace, node_shell


def main(kind: str, rate_hz: float, seconds: float) -> None:
    """Publish after a subscriber has appeared; the frame_id or first joint name is the count."""
    with node_shell("watchdog", []) as shell:
        topic = topics.CAMERA_IMAGE.named(camera="vga") if kind == "image" else topics.JOINT_STATES
        out = publisher(shell.node, topic)
        while out.get_subscription_count() == 0 and shell.running:
            time.sleep(0.02)
        time.sleep(0.3)
        rng = np.random.default_rng(0)
        frame = rng.integers(0, 255, (480, 640, 3), dtype=np.uint8)
        zeros = np.zeros(7)
        pace = Pace(1.0 / rate_hz)
        for count in range(int(rate_hz * seconds)):
            now_s = time.time()
            if kind == "image":
                out.publish(convert.image_to(frame, now_s, str(count)))
            else:
                out.publish(convert.joints_to([str(count)] * 7, zeros, zeros, now_s))
            pace.sleep()
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
