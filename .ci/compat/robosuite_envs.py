"""robosuite's tasks as Gymnasium environments: robosuite/Lift-v0, Stack-v0, Door-v0, ...

sparse/Lift-v0 and sparse/NutAssemblySquare-v0 pay 1 for success and nothing else, hold an action
for several steps, and have experts.

`ROBOT_RL_PLUGINS=robosuite_envs` imports it. robosuite's own GymWrapper reports its time limit as
the end of the task, draws starts from a generator that `reset(seed)` does not reach, and cannot be
made by `gymnasium.make`; this wrapper differs in these three points and adds success to `info`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import robosuite
from robosuite.utils.transform_utils import quat2mat
from robosuite.wrappers import GymWrapper

from robot_rl.config.registry import register

TASKS = ("Lift", "Stack", "Door", "NutAssemblyRound", "PickPlaceCan")
HZ = 20
ABOVE_M, NEAR_M = np.array([0.0, 0.0, 0.06]), 0.01
UP_M, DOWN = np.array([0.0, 0.0, 0.05]), np.array([0.0, 0.0, -1.0])
GAIN = 10.0  # action units per metre; one unit moves the hand by 0.05 m
TURN_GAIN, LEAN_GAIN = 4.0, 2.0  # action units per rad; one unit turns it by 0.5 rad

# The square nut: its origin is the middle of the hole, its handle lies along x.
HANDLE_M = np.array([0.06, 0.0, 0.005])
HELD_M = 0.018  # half the width of the handle is 0.016 m
PEG_M, PEG_TOP_M = np.array([0.23, 0.1, 0.83]), 0.96  # below this the nut is around the peg
LIFTED_M, HOVER_M = 0.84, 1.0
FIT_M, FIT_RAD = 0.005, 0.1  # between hole and peg are 7 mm on each side
QUARTER = np.pi / 2


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
            # in place, because every sampler of objects holds this generator
            self._env.env.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        observation, info = self._env.reset()
        return observation.astype(np.float32), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control period; success ends the task."""
        for _ in range(self._hold):
            observation, reward, _, _, info = self._env.step(self._whole(action))
            success = bool(self._env.env._check_success())
            if success:
                break
        info = info | {"is_success": success}
        return observation.astype(np.float32), float(reward), success, False, info

    def _whole(self, action: np.ndarray) -> np.ndarray:
        """What robosuite is told: translation, rotation, gripper."""
        return action

    @property
    def seen(self) -> dict[str, np.ndarray]:
        """What is where: robosuite's named observations."""
        named: dict[str, np.ndarray] = self._env.env._get_observations()
        return named


class UprightEnv(RobosuiteEnv):
    """The same with a tool that points down. Action [-1, 1]^5: translation, turn, gripper.

    The turn is about the vertical, from x to y.
    """

    def __init__(self, task: str, hold: int = 1, **kwargs: Any) -> None:
        super().__init__(task, hold, **kwargs)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (5,), np.float32)

    def _whole(self, action: np.ndarray) -> np.ndarray:
        *move, turn, gripper = action
        lean = np.cross(quat2mat(self.seen["robot0_eef_quat"])[:, 2], DOWN)
        return np.array([*move, *(LEAN_GAIN * lean[:2]), turn, gripper])


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
            return _action(UP_M, 1.0)
        if np.linalg.norm(to_cube[:2]) > NEAR_M:
            return _action(to_cube + ABOVE_M, -1.0)
        if to_cube[2] < -NEAR_M:
            return _action(to_cube, -1.0)
        return _action(to_cube, 1.0)


@register("expert", "sparse/NutAssemblySquare-v0")
@dataclass(frozen=True)
class NutAssemblySquare:
    """Over the handle, down, close, up and over the peg, the hole turned like the peg, down."""

    def __call__(self, env: gymnasium.Env[Any, Any]) -> np.ndarray:
        """An action of the environment: translation, turn, gripper (1 closes)."""
        seen = env.unwrapped.seen  # type: ignore[attr-defined]
        nut, nut_turned = seen["SquareNut_pos"], quat2mat(seen["SquareNut_quat"])
        nut_yaw = _yaw(nut_turned)
        to_handle = nut + nut_turned @ HANDLE_M - seen["robot0_eef_pos"]
        near = np.linalg.norm(to_handle) < 2 * NEAR_M
        if near and seen["robot0_gripper_qpos"][0] < HELD_M:
            return self._carry(nut, nut_yaw)
        # the fingers fit on either way round; this way the wrist has room to turn on
        turn = _centred(nut_yaw, 2 * QUARTER) - _yaw(quat2mat(seen["robot0_eef_quat"]))
        if np.linalg.norm(to_handle[:2]) > NEAR_M or abs(turn) > FIT_RAD:
            return _action(to_handle + ABOVE_M, -1.0, [turn])
        if to_handle[2] < -NEAR_M:
            return _action(to_handle, -1.0, [turn])
        return _action(to_handle, 1.0, [turn])

    def _carry(self, nut: np.ndarray, yaw: float) -> np.ndarray:
        if nut[2] < LIFTED_M:  # on the table it would not turn with the hand
            return _action(UP_M, 1.0, [0.0])
        # the hole fits after every quarter turn; the arm is too short for a handle beyond the peg
        yaw %= 4 * QUARTER
        turn = QUARTER * np.clip(np.round(yaw / QUARTER), 1, 3) - yaw
        to_peg = PEG_M - nut
        far_m = np.linalg.norm(to_peg[:2])
        around = nut[2] < PEG_TOP_M and far_m < 0.02
        if not around and (far_m > FIT_M or abs(turn) > FIT_RAD):
            to_peg[2] = HOVER_M - nut[2]
        return _action(to_peg, 1.0, [turn])


def _yaw(turned: np.ndarray) -> float:
    return float(np.arctan2(turned[1, 0], turned[0, 0]))


def _centred(angle: float, period: float) -> float:
    """The nearest to 0 of the angles that differ by whole periods."""
    return (angle + period / 2) % period - period / 2


def _action(
    step_m: np.ndarray, gripper: float, rotation_rad: Sequence[float] = (0.0, 0.0, 0.0)
) -> np.ndarray:
    turns = TURN_GAIN * np.array(rotation_rad)
    return np.clip([*(GAIN * step_m), *turns, gripper], -1.0, 1.0).astype(np.float32)


gymnasium.register(
    "sparse/Lift-v0",
    RobosuiteEnv,
    max_episode_steps=60,
    kwargs={"task": "Lift", "hold": 2, "reward_shaping": False},
)
gymnasium.register(
    "sparse/NutAssemblySquare-v0",
    UprightEnv,
    max_episode_steps=75,
    kwargs={"task": "NutAssemblySquare", "hold": 4, "reward_shaping": False},
)
