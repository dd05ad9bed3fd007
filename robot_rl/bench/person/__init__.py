"""`robot-rl bench person`: how soon somebody new at the page has shown a task once, and ten times.

    bench(tasks="lift", seeds=1)["lift/demo_1_s_p50"]

A program stands in for the person. It sees the large picture of the operator's page, the text that
the page shows, and where the arrows at the tip of the tool begin. It presses keys in a real
browser. It has no other way in: no store, no topic, no socket of its own, nothing of the page's
scripts. The run is real (`robot-rl record runtime=ros operator=console`, the whole ROS 2 graph in
real time); the clock starts when the page is opened.

What it knows beforehand is what docs/console.md and `?` tell: what each key is for, that the robot
waits until somebody drives, and what to press when it holds or has stopped. And it knows how the
thing is done: the colours of cube, block and peg; over it, down, close, up. How fast a key moves
the tool it learns by pressing. A press follows what it answers after 200 to 300 ms; how long a key
is held varies by 12 %; 3 of 100 presses land on a neighbouring key first; after one episode in five
there is a pause.

Unlike a person it does not read `?` or the docs, does not hesitate, does not tire, and needs no
second look to find a thing or to read a line. It looks at one picture, the large one. It measures
a length in a picture to about a pixel. Unlike a person's eyes, its looks take some of the
machine's time. Its browser goes before other programs where the system lets it (as root, say), as
if it had a computer of its own; `browser_first` in sitting.json tells. So a figure here is near the
least that a person needs; what a person needs above that has to be measured with persons.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.bench.choice import some_of

if TYPE_CHECKING:
    from robot_rl.bench.person.sitting import Sitting

log = logging.getLogger(__name__)

TASKS = ("lift", "peg_insert_easy")
DEMOS = 10
MINUTES = 11.0  # of a sitting; the target for ten demonstrations is ten
TARGETS = {
    f"{task}/demo_{demo}_s_p50": limit
    for task in TASKS
    for demo, limit in ((1, 120.0), (10, 600.0))
}
"""Figure -> its highest allowed value."""


def bench(
    seconds: float = 0.0,
    *,
    tasks: str = "",
    seeds: int = 3,
    demos: int = DEMOS,
    minutes: float | None = None,
    out: Path | None = None,
    source: Path | None = None,
) -> dict[str, float]:
    """Let the stand-in show each of the tasks, once for each seed; returns figure -> number.

    seconds: is not used, a sitting takes as long as it takes; tasks: names with commas between
    them, "" = all; seeds: of the run's starts and of the hand; minutes: after so long a sitting
    ends; out: gets a folder for each sitting, with what was seen and pressed; source: a checkout of
    another commit, whose run and page are used.

    demo_1_s, demo_10_s: seconds from opening the page until so many demonstrations have succeeded,
    the median of the sittings (NaN: most of them did not get there). failures, presses, slips: the
    means.

    Raises:
        ConfigError: an unknown task.
        SetupError: no browser, no ROS 2, or a package is missing.
        RobotRLError: a run does not come up.
    """
    chosen = some_of(tasks, TASKS, "task")
    from robot_rl.bench.console.browser import need_browser
    from robot_rl.bench.person.sitting import sit
    from robot_rl.run.graph import need_ros

    need_browser()
    need_ros()
    out = (out or Path("runs/person")) / time.strftime("%Y%m%d-%H%M%S")
    limit_s, figures = 60 * (MINUTES if minutes is None else minutes), dict[str, float]()
    for task in chosen:
        sittings: list[Sitting] = []
        for seed in range(seeds):
            log.info("%s, seed %d", task, seed)
            folder = out / f"{task}-s{seed}"
            sittings.append(sit(task, seed, folder, demos=demos, limit_s=limit_s, source=source))
        figures |= figures_of(task, sittings, demos)
    return figures


def figures_of(task: str, sittings: list[Sitting], demos: int) -> dict[str, float]:
    """Medians and means of some sittings at one task."""
    figures = {f"{task}/sittings": float(len(sittings))}
    for demo in sorted({1, demos}):
        at_s = [s.at_s[demo - 1] if len(s.at_s) >= demo else math.inf for s in sittings]
        for name, value in (("p50", statistics.median(at_s)), ("max", max(at_s))):
            figures[f"{task}/demo_{demo}_s_{name}"] = value if math.isfinite(value) else math.nan
    for name in ("demos", "failures", "presses", "slips"):
        figures[f"{task}/{name}"] = sum(getattr(s, name) for s in sittings) / len(sittings)
    return figures
