"""Gymnasium-Robotics' Fetch tasks with a 0/1 reward: sparse/FetchPickAndPlace-v0.

`ROBOT_RL_PLUGINS=fetch_envs` imports it. The original pays -1 in every step without success and
goes on after success; here success pays 1 and ends the episode. It steps at 25 Hz; an action holds
for two steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import gymnasium_robotics
import numpy as np

from robot_rl.config.registry import register

gymnasium.register_envs(gymnasium_robotics)

HOLD = 2
ABOVE_M, NEAR_M = np.array([0.0, 0.0, 0.06]), 0.01
GAIN = 8.0  # action units per metre; one unit moves the gripper by 0.05 m at most
OPEN, CLOSE = 1.0, -1.0


class SparseFetch(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The task with a sparse 0/1 reward; success ends it."""

    def __init__(self, task: str) -> None:
        super().__init__(gymnasium.make(task, max_episode_steps=-1))
        self.metadata = {"render_modes": [], "render_fps": 12}
        self.seen: dict[str, np.ndarray] = {}

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self.seen, info = self.env.reset(**options)
        return self.seen, info

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One control period."""
        info = dict[str, Any]()
        for _ in range(HOLD):
            self.seen, _, _, _, info = self.env.step(action)
            if info["is_success"]:
                break
        success = bool(info["is_success"])
        return self.seen, float(success), success, False, info


@register("expert", "sparse/FetchPickAndPlace-v0")
@dataclass(frozen=True)
class PickAndPlace:
    """Over the object, down, close, to the goal."""

    def __call__(self, env: gymnasium.Env[Any, Any]) -> np.ndarray:
        """An action of the environment: dx, dy, dz, gripper."""
        seen = _sparse(env).seen
        grip, thing, goal = seen["observation"][:3], seen["observation"][3:6], seen["desired_goal"]
        width_m = seen["observation"][9:11].sum()
        to_thing = thing - grip
        held = np.linalg.norm(to_thing) < 2 * NEAR_M and width_m < 0.06
        if held:
            return _action(goal - thing, CLOSE)
        if np.linalg.norm(to_thing[:2]) > NEAR_M:  # first above it
            return _action(to_thing + ABOVE_M, OPEN)
        if np.linalg.norm(to_thing) > NEAR_M:
            return _action(to_thing, OPEN)
        return _action(to_thing, CLOSE)


def _action(step_m: np.ndarray, gripper: float) -> np.ndarray:
    return np.clip([*(GAIN * step_m), gripper], -1.0, 1.0).astype(np.float32)


def _sparse(env: gymnasium.Env[Any, Any]) -> SparseFetch:
    while not isinstance(env, SparseFetch):
        env = env.env  # type: ignore[attr-defined]
    return env


gymnasium.register(
    "sparse/FetchPickAndPlace-v0",
    SparseFetch,
    max_episode_steps=50,
    kwargs={"task": "FetchPickAndPlace-v4"},
)
