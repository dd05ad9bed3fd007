"""`robot-rl bench console`: the operator's page and what it depends on, compared with targets.

    bench(5.0, only="video")["video/lag_ms_p95"]

The docstring of each module says what in its parts is real and what is made up. The parts run one
after the other; whatever else the machine does shows in the figures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from robot_rl.bench.choice import some_of
from robot_rl.bench.console import drive, page, review
from robot_rl.bench.console.browser import need_browser

log = logging.getLogger(__name__)

TARGETS: Mapping[str, float] = {
    "key/to_inbox_ms_p50": 5.0,
    "key/to_inbox_ms_p99": 30.0,
    "key/to_gate_ms_p50": 5.0,
    "key/to_gate_ms_p99": 30.0,
    "hand/to_gate_ms_p50": 5.0,
    "hand/to_gate_ms_p99": 30.0,
    "key/unheard": 0.0,
    "hand/unheard": 0.0,
    "takeover/muted_periods_p99": 1.0,
    "takeover/policy_commands_max": 1.0,
    "kill/hold_ms_max": drive.HOLD_MS,
    "kill/over_120_ms": 0.0,
    "video/lag_ms_p95": 80.0,
    "video/lag_ms_p99": 150.0,
    "server/round_trip_ms_p99": 5.0,
    "memory/growth_megabytes": 50.0,
    "review/open_ms_max": 1000.0,
    "review/step_ms_p95": 100.0,
}
"""Figure -> its highest allowed value. The round trip of control messages has its target at the
server: a page that draws three cameras without a GPU, on the robot side's cores, delays itself."""

PARTS = ("key", "hand", "kill", "server", "video", "memory", "review")


def bench(
    seconds: float,
    *,
    only: str = "",
    presses: int = 500,
    trials: int = 20,
    hours: float = 8.0,
    episodes: int = 1000,
) -> dict[str, float]:
    """Measure the parts named in `only` ("key,video"; "" = all); returns figure -> number.

    seconds: of video; presses: of the drive key; trials: kills of the server; hours: of telemetry;
    episodes: in the reviewed store, two at least: one to open, one to go to.

    Raises:
        ConfigError: an unknown part.
        SetupError: no browser, no ROS 2, or a package is missing.
        RobotRLError: a process dies, or the benchmark does not get on.
    """
    chosen = some_of(only, PARTS, "part")
    if not set(chosen) <= {"kill", "hand", "server"}:
        need_browser()
    run: dict[str, Callable[[], dict[str, float]]] = {
        "key": lambda: drive.key(presses),
        "hand": lambda: drive.hand(presses),
        "kill": lambda: drive.kill(trials),
        "server": lambda: page.server(seconds),
        "video": lambda: page.video(seconds),
        "memory": lambda: page.memory(hours),
        "review": lambda: review.review(episodes),
    }
    figures: dict[str, float] = {}
    for name in chosen:
        log.info("measuring: %s", name)
        figures |= run[name]()
    return figures
