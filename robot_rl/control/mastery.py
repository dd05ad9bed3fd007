"""When a skill counts as mastered: the rule of the exam, and how often the rule errs.

An exam judges one policy, deterministic and unaided, on starts never seen before. It goes on, one
episode after another, until it is decided:

    passed   the lower end of the Wilson 95 % interval of its success reaches the target
    failed   more than `allowed` episodes have failed

So a target of 95 % needs 73 of 73 episodes, or 109 of 110. The earlier rule, 30 episodes without a
failure, let a policy that succeeds in 95 % pass one exam in five by luck.
"""

from __future__ import annotations

import functools

import numpy as np

from robot_rl.control.statistics import wilson

SIMULATED = 20_000  # exams per rate: a standard error of at most 0.4 percentage points


def decide(wins: int, failures: int, target: float, allowed: int) -> bool | None:
    """True = passed, False = failed, None = the exam goes on."""
    if failures > allowed:
        return False
    if wilson(wins, wins + failures)[0] >= target:
        return True
    return None


def simulate(rate: float, target: float, allowed: int, seed: int = 0) -> tuple[float, float]:
    """(probability of passing, mean episodes) of an exam of a policy with a true success `rate`."""
    rng = np.random.default_rng(seed)
    passed = episodes = 0
    for _ in range(SIMULATED):
        # lengths of the runs of successes before each failure decide an exam
        wins = failures = 0
        for run in rng.geometric(1.0 - rate, allowed + 1) - 1:
            enough = needed(failures, target)
            if wins + run >= enough:
                wins, passed = enough, passed + 1
                break
            wins, failures = wins + int(run), failures + 1
        episodes += wins + failures
    return passed / SIMULATED, episodes / SIMULATED


@functools.cache
def needed(failures: int, target: float) -> int:
    """Number of successes that pass an exam in spite of `failures` failures."""
    wins = 0
    while wilson(wins, wins + failures)[0] < target:
        wins += 1
    return wins
