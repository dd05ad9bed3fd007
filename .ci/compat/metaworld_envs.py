"""MetaWorld's tasks with a sparse reward, at 10 Hz: metaworld/peg-insert-side-v3, ...

`ROBOT_RL_PLUGINS=metaworld_envs` imports it. MetaWorld steps at 80 Hz and pays a shaped reward;
here an action holds for 8 of its steps, the reward is 1 for success and 0 otherwise, success ends
the episode, and `reset(seed)` decides where things lie. The fourth entry of the action, the effort
of the gripper, stays a number. The experts are MetaWorld's own scripted policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE
from metaworld.policies import ENV_POLICY_MAP

from robot_rl.config.registry import register

TASKS = ("peg-insert-side-v3", "assembly-v3", "drawer-open-v3")
HZ, HOLD = 10, 8  # steps of MetaWorld that an action holds
MAX_STEPS = 60  # 480 of MetaWorld's 500


class MetaWorldEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One MetaWorld task. Observation float32 [39], the goal included; action [-1, 1]^4."""

    def __init__(self, task: str) -> None:
        self.metadata = {"render_modes": [], "render_fps": HZ}
        self._env = ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{task}-goal-observable"](seed=0)
        self._env._freeze_rand_vec, self._env.seeded_rand_vec = False, True
        # metres; the bounds that MetaWorld gives move with the task
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (39,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self._script = ENV_POLICY_MAP[task]()
        self._seen = np.zeros(39)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; `seed` decides where the objects lie."""
        super().reset(seed=seed)
        if seed is not None:
            self._env.seed(seed)
        self._seen, info = self._env.reset()
        return self._seen.astype(np.float32), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control period; success ends the task."""
        success, info = False, dict[str, Any]()
        for _ in range(HOLD):
            self._seen, _, _, _, info = self._env.step(action)
            success = bool(info["success"])
            if success:
                break
        return self._seen.astype(np.float32), float(success), success, False, info

    def scripted(self) -> np.ndarray:
        """What MetaWorld's scripted policy would do now: within the bounds of an action."""
        return np.clip(self._script.get_action(self._seen), -1.0, 1.0).astype(np.float32)


@dataclass(frozen=True)
class MetaWorldExpert:
    """MetaWorld's scripted policy of the task."""

    def __call__(self, env: gymnasium.Env[Any, Any]) -> np.ndarray:
        """An action of the environment."""
        action: np.ndarray = env.unwrapped.scripted()  # type: ignore[attr-defined]
        return action


for _name in TASKS:
    gymnasium.register(
        f"metaworld/{_name}", MetaWorldEnv, max_episode_steps=MAX_STEPS, kwargs={"task": _name}
    )
    register("expert", f"metaworld/{_name}")(MetaWorldExpert)
