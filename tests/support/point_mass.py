"""A point on a plane that must reach a goal: the smallest task that needs the whole learner.

The first two action entries move the point by up to 0.1 m per step; success is being within 0.08 m
of the goal, which pays 1 and ends the episode. Sparse reward, random start, so that luck fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.learn.learner import Learner
from robot_rl.policy.runtime import PolicyRuntime
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.summary import EpisodeRecord
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Frame, Outcome, Row, Step

SPEC = Spec(
    task="point_mass",
    control_hz=10.0,
    observation={"state": TensorSpec((4,), "float32")},
    action=ActionSpec(translation_m=0.1, rotation_rad=0.1, gripper=False),
    state_layout=(("position", 2, "m"), ("goal", 2, "m")),
)
MAX_STEPS = 30
Act = Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], Driver]]


class FakeStore:
    """Rows in memory, with what the learner needs of a store."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.kept: dict[str, Any] = {}

    def meta(self, key: str) -> Any:
        """See `robot_rl.learn.learner.RowSource`."""
        return self.kept.get(key)

    def set_meta(self, key: str, value: Any) -> None:
        """See `robot_rl.learn.learner.RowSource`."""
        self.kept[key] = value

    def rows_of(self, id: EpisodeId, until: int) -> list[Row]:
        """See `robot_rl.learn.learner.RowSource`."""
        return [row for row in self.rows[:until] if row.id == id]

    def episode_summaries(self) -> list[EpisodeRecord]:
        """Nothing is left out."""
        return []

    def rows_since(self, cursor: int, limit: int) -> tuple[list[Row], int]:
        """See `robot_rl.learn.learner.RowSource`."""
        rows = self.rows[cursor : cursor + limit]
        return rows, cursor + len(rows)


class PointMass:
    """position, goal: float64 [2] in m."""

    goal = np.array([0.5, 0.3])

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.episodes = 0

    def reset(self) -> NDArray[np.float32]:
        """Draw a start at least 0.4 m from the goal."""
        while True:
            self.position = self.rng.uniform(-1, 1, 2)
            if np.linalg.norm(self.position - self.goal) > 0.4:
                return self.observe()

    def observe(self) -> NDArray[np.float32]:
        """float32 [4]."""
        return np.concatenate((self.position, self.goal)).astype(np.float32)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], bool]:
        """Move; (observation, success)."""
        self.position = np.clip(self.position + 0.1 * action[:2], -1.2, 1.2)
        return self.observe(), bool(np.linalg.norm(self.position - self.goal) < 0.08)

    def expert(self) -> NDArray[np.float32]:
        """Straight at the goal, with a shaky hand."""
        action = self.rng.normal(0.0, 0.2, 6)
        action[:2] += 10.0 * (self.goal - self.position)
        return np.clip(action, -1, 1).astype(np.float32)

    def episode(self, act: Act, purpose: str = "train") -> tuple[list[Row], bool]:
        """Run one episode; its rows and whether it succeeded."""
        key = EpisodeId("test", "actor", self.episodes)
        self.episodes += 1
        state, success, segment, previous = self.reset(), False, -1, None
        rows: list[Row] = [
            EpisodeStart(key, purpose, "point_mass", SPEC.hash, "", 0, 0),
            Frame(key, 0, 0, {"state": state}),
        ]
        for index in range(MAX_STEPS):
            action, driver = act(state)
            segment += driver is not previous
            previous = driver
            state, success = self.step(action)
            last = success or index == MAX_STEPS - 1
            ending = (Ending.TERMINATED if success else Ending.TRUNCATED) if last else None
            rows.append(
                Step(
                    id=key,
                    step=index,
                    frame=index,
                    next_frame=index + 1,
                    segment=segment,
                    driver=driver,
                    action=action,
                    policy_action=action,
                    outcome=Outcome.PASS,
                    reason="",
                    reward=float(success),
                    ending=ending,
                    success=success if last else None,
                    weights_version=0,
                    stamp_ns=0,
                )
            )
            rows.append(Frame(key, index + 1, 0, {"state": state}))
            if last:
                break
        return rows, success


def practice(
    learner: Learner, store: FakeStore, env: PointMass, policy: PolicyRuntime, env_steps: int
) -> None:
    """Let the policy act and the learner learn until `env_steps` practice steps are seen."""
    while learner.env_steps < env_steps:
        weights = learner.weights()
        if weights.version > policy.version:
            policy.load(weights)
        rows, _ = env.episode(lambda o: (policy.act({"state": o}, False), Driver.POLICY))
        store.rows += rows
        learner.ingest()
        if due := learner.updates_due():
            learner.update(due)
    policy.load(learner.weights())


def demonstrate(store: FakeStore, env: PointMass, episodes: int) -> None:
    """The expert's episodes."""
    for _ in range(episodes):
        store.rows += env.episode(lambda _: (env.expert(), Driver.DEMO), "demo")[0]


def success_rate(policy: PolicyRuntime, episodes: int, deterministic: bool) -> float:
    """Share of successful episodes on starts that were never trained on."""
    env = PointMass(10_000)
    act: Act = lambda o: (policy.act({"state": o}, deterministic), Driver.POLICY)  # noqa: E731
    return float(np.mean([env.episode(act)[1] for _ in range(episodes)]))
