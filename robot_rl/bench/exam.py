"""`robot-rl bench exam`: how often the rule that ends practice errs, by simulation."""

from __future__ import annotations

from collections.abc import Mapping

from robot_rl.control.mastery import simulate
from robot_rl.control.session import TrainConfig

RATES = (0.85, 0.90, 0.95, 0.97, 0.98, 0.99)


def bench(seconds: float) -> Mapping[str, float]:
    """Figures of the rule with the default settings, at several true success rates."""
    train, figures = TrainConfig(), {}
    for rate in RATES:
        passed, episodes = simulate(rate, train.target_success, train.exam_failures)
        figures[f"true_{rate:.2f}/passed_percent"] = 100 * passed
        figures[f"true_{rate:.2f}/episodes"] = episodes
    return figures
