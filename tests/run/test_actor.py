"""The actor process after a kill: which policy it evaluates."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch

from robot_rl.errors import RobotRLError
from robot_rl.learn.algos import HilSerlConfig
from robot_rl.policy.runtime import PolicyRuntime, save_policy
from robot_rl.run import actor as process
from robot_rl.run.actor import Actor
from robot_rl.types import Weights
from tests.support.point_mass import SPEC

ALGO = HilSerlConfig(hidden=(16,))
PASSED, NEWEST = 3, 5  # versions


def weights(version: int) -> Weights:
    data = safetensors.torch.save(ALGO.make(SPEC, version).actor_state())
    return Weights(version, hashlib.sha256(data).hexdigest(), data)


def started(run_dir: Path, *, mastered: bool) -> Any:
    """An actor that finds its demonstrations recorded and the learner's newest weights there."""

    def nothing(*_: object) -> None: ...

    actor: Any = Actor.__new__(Actor)
    actor.run_dir, actor._demos_only, actor._adopted_s, actor._refused = run_dir, False, 0.0, ""
    actor.experiment = SimpleNamespace(spec=SPEC, runtime="ros")
    actor.policy = PolicyRuntime(ALGO, SPEC)
    actor.link = SimpleNamespace(
        start=nothing,
        next_episode=nothing,
        stop=nothing,
        tell=lambda **_: None,
        newest_weights=lambda: weights(NEWEST),
    )
    actor.store = actor.writer = SimpleNamespace(close=nothing)
    actor.ports = SimpleNamespace(stopping=lambda: "")
    actor.session = SimpleNamespace(
        progress=SimpleNamespace(mastered=mastered), demos=nothing, practice=nothing, purpose=""
    )
    actor._starts = SimpleNamespace(retry=lambda _error: True)
    actor._hand_over, actor._await_weights = nothing, actor._adopt
    return actor


@pytest.mark.parametrize(("mastered", "judged"), [(True, PASSED), (False, NEWEST)])
def test_after_a_kill_in_the_evaluation_the_policy_that_passed_is_evaluated(
    mastered: bool, judged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner has learned on: its newest policy took the place of the one that passed."""
    save_policy(tmp_path, weights(PASSED), SPEC)
    actor = started(tmp_path, mastered=mastered)
    found: list[int] = []
    monkeypatch.setattr(process, "finish", lambda *_, **__: found.append(actor.policy.version))
    assert actor.run() == 0 and found == [judged]


@pytest.mark.parametrize("torn", [False, True])
def test_where_the_policy_that_passed_is_not_there_the_newest_is_evaluated(
    torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torn:
        save_policy(tmp_path, weights(PASSED), SPEC).write_bytes(b"another one")
    actor = started(tmp_path, mastered=True)
    found: list[int] = []
    monkeypatch.setattr(process, "finish", lambda *_, **__: found.append(actor.policy.version))
    assert actor.run() == 0 and found == [NEWEST]


def test_a_start_that_fails_in_an_evaluation_changes_no_policy(tmp_path: Path) -> None:
    actor = started(tmp_path, mastered=True)
    actor.policy.load(weights(PASSED))
    actor.session.purpose = "eval"
    assert actor._retry(RobotRLError("a stop was pressed")) and actor.policy.version == PASSED
    actor.policy.refused = np.full(6, np.nan, np.float32)
    assert actor._retry(RobotRLError("frozen")) and actor.policy.version == NEWEST
    actor.policy.load(weights(PASSED))
    actor.session.purpose = "train"
    assert actor._retry(RobotRLError("a stop was pressed")) and actor.policy.version == NEWEST
