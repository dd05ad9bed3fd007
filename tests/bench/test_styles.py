"""The two people of `robot-rl bench styles` differ as they say, and both succeed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("robot_rl_sim")

from robot_rl.bench.styles import STYLES, Style, record
from robot_rl.config.run_folder import STORE
from robot_rl.reward.compatible_train import driven
from robot_rl.store.store import Store


def test_one_goes_right_quickly_the_other_left_slowly(tmp_path: Path) -> None:
    found = {}
    for name, style in {"straight": Style(), **STYLES}.items():
        with Store(record(style, 1, tmp_path / name, 3, skill=1.0) / STORE) as store:
            assert store.spec is not None
            (summary,) = store.episode_summaries()
            (found[name],) = driven(store, store.spec)
        assert summary.success and found[name].who == name
    right, left = (found[name].action for name in ("quick", "careful"))
    aside = {n: e.action[e.action[:, -1] < 0.0][:, 0].sum() for n, e in found.items()}
    assert (aside["quick"] - aside["straight"]) * (aside["careful"] - aside["straight"]) < 0.0
    assert len(left) > 1.5 * len(right) and abs(left[:, :6]).max() <= 0.51
