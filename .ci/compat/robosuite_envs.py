"""robosuite's tasks as Gymnasium environments: robosuite/Lift-v0, Stack-v0, Door-v0, ...

`ROBOT_RL_PLUGINS=robosuite_envs` imports it. robosuite's own GymWrapper reports its time limit as
the end of the task, draws starts from a generator that `reset(seed)` does not reach, and cannot be
made by `gymnasium.make`; this wrapper differs in these three points and adds success to `info`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import robosuite
from robosuite.wrappers import GymWrapper

TASKS = ("Lift", "Stack", "Door", "NutAssemblyRound", "PickPlaceCan")
HZ = 20


class RobosuiteEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One robosuite task, from state. Observation float32 [S], action [-1, 1]^A."""

    def __init__(self, task: str, **kwargs: Any) -> None:
        self.metadata = {"render_modes": [], "render_fps": HZ}
        defaults = {"robots": "Panda", "reward_shaping": True}
        self._env = GymWrapper(
            robosuite.make(
                task,
                **(defaults | kwargs),
                has_renderer=False,
                has_offscreen_renderer=False,
                use_camera_obs=False,
                control_freq=HZ,
                ignore_done=True,  # Gymnasium's TimeLimit ends the episode, as truncated
            )
        )
        self.observation_space, self.action_space = (
            self._env.observation_space,
            self._env.action_space,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; `seed` decides where the objects lie."""
        super().reset(seed=seed)
        if seed is not None:
            self._env.env.rng = np.random.default_rng(seed)
            self._env.env.placement_initializer.rng = self._env.env.rng
        observation, info = self._env.reset()
        return observation.astype(np.float32), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control period; success ends the task."""
        observation, reward, _, _, info = self._env.step(action)
        success = bool(self._env.env._check_success())
        info = info | {"is_success": success}
        return observation.astype(np.float32), float(reward), success, False, info


for name in TASKS:
    gymnasium.register(
        f"robosuite/{name}-v0", RobosuiteEnv, max_episode_steps=200, kwargs={"task": name}
    )
