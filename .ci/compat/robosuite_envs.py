"""robosuite's tasks as Gymnasium environments: robosuite/Lift-v0, Stack-v0, Door-v0, ...

sparse/Lift-v0 pays 1 for success and nothing else, holds an action for two steps, and has an
expert.

`ROBOT_RL_PLUGINS=robosuite_envs` imports it. robosuite's own GymWrapper reports its time limit as
the end of the task, draws starts from a generator that `reset(seed)` does not reach, and cannot be
made by `gymnasium.make`; this wrapper differs in these three points and adds success to `info`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import robosuite
from robosuite.wrappers import GymWrapper

from robot_rl.config.registry import register

TASKS = ("Lift", "Stack", "Door", "NutAssemblyRound", "PickPlaceCan")
HZ = 20
ABOVE_M, NEAR_M = np.array([0.0, 0.0, 0.06]), 0.01
GAIN = 10.0  # action units per metre; one unit moves the hand by 0.05 m


class RobosuiteEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One robosuite task, from state. Observation float32 [S], action [-1, 1]^A."""

    def __init__(self, task: str, hold: int = 1, **kwargs: Any) -> None:
        self._hold = hold  # steps of robosuite in which an action stays
        self.metadata = {"render_modes": [], "render_fps": HZ // hold}
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
        for _ in range(self._hold):
            observation, reward, _, _, info = self._env.step(action)
            success = bool(self._env.env._check_success())
            if success:
                break
        info = info | {"is_success": success}
        return observation.astype(np.float32), float(reward), success, False, info

    @property
    def seen(self) -> dict[str, np.ndarray]:
        """What is where: robosuite's named observations."""
        named: dict[str, np.ndarray] = self._env.env._get_observations()
        return named


for name in TASKS:
    gymnasium.register(
        f"robosuite/{name}-v0", RobosuiteEnv, max_episode_steps=200, kwargs={"task": name}
    )


@register("expert", "sparse/Lift-v0")
@dataclass(frozen=True)
class Lift:
    """Over the cube, down, close, up."""

    def __call__(self, env: gymnasium.Env[Any, Any]) -> np.ndarray:
        """An action of the environment: translation, rotation, gripper (1 closes)."""
        seen = env.unwrapped.seen  # type: ignore[attr-defined]
        to_cube = seen["cube_pos"] - seen["robot0_eef_pos"]
        near = np.linalg.norm(to_cube) < 2 * NEAR_M
        if near and seen["robot0_gripper_qpos"][0] < 0.03:  # of 0.04 m: half the width when open
            return _action(np.array([0.0, 0.0, 0.05]), 1.0)
        if np.linalg.norm(to_cube[:2]) > NEAR_M:
            return _action(to_cube + ABOVE_M, -1.0)
        if to_cube[2] < -NEAR_M:
            return _action(to_cube, -1.0)
        return _action(to_cube, 1.0)


def _action(step_m: np.ndarray, gripper: float) -> np.ndarray:
    move = [*(GAIN * step_m), 0.0, 0.0, 0.0, gripper]
    return np.clip(move, -1.0, 1.0).astype(np.float32)


gymnasium.register(
    "sparse/Lift-v0",
    RobosuiteEnv,
    max_episode_steps=60,
    kwargs={"task": "Lift", "hold": 2, "reward_shaping": False},
)
