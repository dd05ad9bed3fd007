"""A deployment over several days: memory and open files stay as they were."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from robot_rl.run.deploy import DeployPlan, deploy
from robot_rl.run.deploy_setup import experiment_on, policy_weights
from robot_rl.store.daily import day_files
from robot_rl.store.store import Store
from tests.support.deployed import trained

log = logging.getLogger(__name__)
START_S = 1_795_608_000.0
EPISODES, WARM = 600, 200


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_six_hundred_episodes_over_five_days(tmp_path: Path) -> None:
    run, folder = trained(tmp_path / "run"), tmp_path / "d"
    seen: list[tuple[float, int]] = []
    clock_s = START_S

    def watch(line: dict[str, object]) -> None:
        nonlocal clock_s
        clock_s += 5 * 86_400.0 / EPISODES
        seen.append((resident_mb(), open_files()))

    experiment = experiment_on(run, [], folder)
    plan = DeployPlan(episodes=EPISODES, stop_after=0)
    told = deploy(experiment, policy_weights(run, experiment), plan, watch, now_s=lambda: clock_s)
    memory, files = zip(*seen, strict=True)
    grown_mb = memory[-1] - memory[WARM]
    log.info("%d episodes: RSS %.1f -> %.1f MB, files %d -> %d", len(seen), memory[WARM],
             memory[-1], files[WARM], files[-1])  # fmt: skip
    assert told["episodes"] == EPISODES and told["success"] > 0.9
    assert 5 <= len(day_files(folder)) <= 6
    assert grown_mb < 8.0, grown_mb
    assert max(files[WARM:]) <= max(files[:WARM]) + 2
    numbers = []
    for path in day_files(folder):
        with Store(path) as store:
            numbers += [r.id.episode for r in store.episode_summaries()]
    assert numbers == list(range(len(numbers)))
