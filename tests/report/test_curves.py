"""Learning curves count what a policy did alone, over all seeds."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from robot_rl.control.statistics import over_seeds
from robot_rl.report.curves import WINDOW, learning_curve, picture


def run(
    folder: Path, outcomes: list[tuple[bool, int]], length: int = 10, abort: bool = False
) -> Path:
    """A run folder with practice episodes (success, takeovers) of `length` steps each.

    abort: what did not succeed was aborted.
    """
    folder.mkdir()
    lines = [
        {
            "env_steps": length * (i + 1),
            "time_s": float(i),
            "episode/success": float(success),
            "episode/takeovers": float(takeovers),
            "episode/aborted": float(abort and not success),
        }
        for i, (success, takeovers) in enumerate(outcomes)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return folder


def test_only_unaided_successes_count_and_seeds_are_pooled(tmp_path: Path) -> None:
    alone, helped, failed = (True, 0), (True, 1), (False, 0)
    one = run(tmp_path / "one", [failed] * WINDOW + [alone] * WINDOW)
    two = run(tmp_path / "two", [helped] * 2 * WINDOW)
    curve = learning_curve([one, two])
    assert curve is not None and curve.seeds == 2
    assert curve.success[0] == 0.0 and curve.env_steps[-1] == 20 * WINDOW
    assert curve.success[-1] == pytest.approx(0.5)
    assert (curve.low[-1], curve.high[-1]) == over_seeds([WINDOW, 0], [WINDOW] * 2)
    assert curve.low[-1] < 0.1 and curve.high[-1] > 0.9  # two seeds that differ tell nothing
    assert np.all(np.diff(curve.env_steps) > 0)


def test_a_run_that_ended_early_keeps_its_last_episodes(tmp_path: Path) -> None:
    short = run(tmp_path / "short", [(True, 0)] * WINDOW)
    long = run(tmp_path / "long", [(False, 0)] * 5 * WINDOW)
    curve = learning_curve([short, long])
    assert curve is not None and curve.success[-1] == pytest.approx(0.5)


def test_aborted_episodes_are_no_failures(tmp_path: Path) -> None:
    outcomes = [(True, 0), (False, 0)] * WINDOW
    aborted = run(tmp_path / "aborted", outcomes, abort=True)
    failed = run(tmp_path / "failed", outcomes)
    for folder, success in ((aborted, 1.0), (failed, 0.5)):
        curve = learning_curve([folder])
        assert curve is not None and curve.success[-1] == success


def test_without_practice_there_is_no_curve(tmp_path: Path) -> None:
    (tmp_path / "bc").mkdir()
    assert learning_curve([tmp_path / "bc"]) is None


def test_the_picture_is_a_document_that_names_its_lines(tmp_path: Path) -> None:
    curve = learning_curve([run(tmp_path / "one", [(True, 0)] * 2 * WINDOW)])
    assert curve is not None
    root = ET.fromstring(picture({"ours & theirs": curve}, "peg <1>"))
    texts = [x.text for x in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "peg <1>" in texts and "ours & theirs, 1 seeds" in texts
