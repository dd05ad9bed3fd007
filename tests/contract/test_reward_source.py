"""Every `RewardSource` keeps the promises of the port: the rule, a classifier, nobody (VLM)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot_rl.ports import RewardResult, RewardSource
from robot_rl.reward.predicate import PredicateReward
from robot_rl.reward.success.model import ClassifierReward
from robot_rl.reward.vlm.source import VlmReward
from robot_rl.run.rounds import Unsaid
from robot_rl.tasks import ReachTask
from robot_rl.tasks.common import tool_down, upright
from robot_rl.types import RobotState

TASK = ReachTask()
GOAL_M = np.array((0.5, 0.0, 0.2))


def classifier(hold_steps: int) -> ClassifierReward:
    """A model that sees success where the rule does."""
    model: Any = SimpleNamespace(
        logit=lambda seen: 5.0 if np.linalg.norm(seen["state"][:3]) * 0.1 < 0.01 else -5.0,
        threshold=0.0, hold_steps=hold_steps, author="test",
    )  # fmt: skip
    return ClassifierReward(model, PredicateReward(TASK))


SOURCES: dict[str, Callable[[], RewardSource]] = {
    "predicate": lambda: PredicateReward(TASK),
    "predicate held": lambda: PredicateReward(TASK, 2),
    "classifier": lambda: classifier(1),
    "classifier held": lambda: classifier(2),
    "vlm": lambda: VlmReward(PredicateReward(TASK)),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> RewardSource:
    return SOURCES[request.param]()


def state_at(away_m: float) -> RobotState:
    zero, joints = np.zeros(6), np.zeros(7)
    tcp = tool_down(GOAL_M + away_m * np.eye(3)[0])
    return RobotState(0.0, joints, joints, tcp, zero, zero, 0.0, {"target": upright(GOAL_M)})


def said(source: RewardSource, *away_m: float, purpose: str = "train") -> list[RewardResult]:
    source.begin_episode(purpose)
    states = [state_at(away) for away in away_m]
    return [source.score(s, TASK.observe(s, {})) for s in states]


def test_it_is_a_reward_source(source: RewardSource) -> None:
    assert isinstance(source, RewardSource)


@pytest.mark.parametrize("purpose", ["train", "demo", "eval"])
def test_far_away_nothing_is_paid_and_nothing_ends(source: RewardSource, purpose: str) -> None:
    for result in said(source, 0.1, 0.09, 0.08, purpose=purpose):
        assert not result.reward and not result.success and not result.terminated


def test_success_ends_an_episode_and_an_unlabelled_step_does_not(source: RewardSource) -> None:
    for result in said(source, 0.1, 0.0, 0.0, 0.0):
        assert result.terminated == bool(result.success)
        assert (result.reward is None) == (result.success is None)
        assert result.reward in (None, 0.0, 1.0)


def test_an_evaluation_is_judged_by_the_rule(source: RewardSource) -> None:
    last = said(source, 0.1, 0.0, 0.0, purpose="eval")[-1]
    assert last.success is True and last.terminated


def test_a_new_episode_knows_nothing_of_the_last_one(source: RewardSource) -> None:
    said(source, 0.1, 0.0)
    again, fresh = said(source, 0.0), said(source, 0.0)
    assert again == fresh


def test_scores_and_progress_are_shares(source: RewardSource) -> None:
    for result in said(source, 0.1, 0.05, 0.0, purpose="demo"):
        for share in (result.score, result.progress):
            assert share is None or 0.0 <= share <= 1.0


class Unknown(ReachTask):
    """A task whose success the state does not show."""

    def success(self, state: RobotState) -> None:
        return None


def test_what_the_state_does_not_show_is_nobodys_truth() -> None:
    """Evaluation is then judged by the model, and nothing is recorded as what the rule says."""
    rule = PredicateReward(Unknown(), tells=True)
    (alone,) = said(rule, 0.0)
    assert (alone.reward, alone.success, alone.progress) == (0.0, False, None)
    seen: Any = classifier(1)
    seen._truth = rule
    for purpose in ("train", "eval"):
        (result,) = said(seen, 0.0, purpose=purpose)
        assert result.success and result.terminated and result.truth is None
    (unlabelled,) = said(VlmReward(rule), 0.0)
    assert unlabelled.success is None and unlabelled.truth is None
    assert not VlmReward(rule).knows and VlmReward(PredicateReward(TASK)).knows


@pytest.mark.parametrize("source", [PredicateReward, VlmReward])
def test_on_the_arm_what_nobody_has_said_is_open(source: Any) -> None:
    """An evaluation of a model's run asks a person, too, where the state tells nothing."""
    open_ = Unsaid(source(PredicateReward(Unknown()) if source is VlmReward else Unknown()))
    (result,) = said(open_, 0.0, purpose="eval")
    assert result.success is None and result.reward is None
