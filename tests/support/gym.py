"""A small Gymnasium environment with a scripted expert, and the loop around any environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.control.actions import BoxActions
from robot_rl.control.arbiter import Arbiter, ArbiterConfig
from robot_rl.control.gym_ports import EnvPorts, GymRig
from robot_rl.control.loop import ControlLoop, Policy
from robot_rl.operate.scripted import NoOperator
from robot_rl.ports import InputDevice, TaskProgress
from robot_rl.spec import BoxActionSpec
from robot_rl.tasks.gym import GymTask
from robot_rl.types import Row, Step

POINT = "robot_rl_test/Point-v0"


class Point(gymnasium.Env[Any, Any]):
    """A point on a plane that must reach a goal: 1 and the end within 0.1, else 0.

    An action moves it by up to 0.1 along each axis; its unit is a centimetre.

    Args:
        person: action of a person who drives through the environment at a step, or None.
        keys: how `info` tells of that person: "hil_serl" or "gym_hil".
        grip: with a third action entry in [0, 2], which does nothing.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        *,
        person: Callable[[int], list[float] | None] = lambda _step: None,
        keys: str = "hil_serl",
        grip: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (4,), np.float32)
        high = np.array([10.0, 10.0] + [2.0] * grip, np.float32)
        low = np.array([-10.0, -10.0] + [0.0] * grip, np.float32)
        self.action_space = spaces.Box(low, high)
        self.person, self.keys, self.render_mode = person, keys, render_mode
        self.sent: list[NDArray[np.float32]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.8, -0.3, 2)
        self.goal = np.array([0.4, 0.3])
        self.steps, self.sent = 0, []
        return self._observe(), {}

    def _observe(self) -> NDArray[np.float32]:
        return np.concatenate((self.place, self.goal)).astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        theirs = self.person(self.steps)
        info: dict[str, Any] = {}
        done_by_hand = theirs is not None
        if done_by_hand:
            action = np.array(theirs, np.float32)
        if self.keys == "gym_hil":
            info |= {"is_intervention": done_by_hand, "action_intervention": action}
        elif done_by_hand:
            info["intervene_action"] = action
        self.steps += 1
        self.sent.append(action)
        self.place = np.clip(self.place + 0.01 * np.asarray(action[:2], np.float64), -1.0, 1.0)
        won = bool(np.linalg.norm(self.goal - self.place) < 0.1)
        return self._observe(), float(won), won, False, info | {"is_success": won}

    def render(self) -> Any:
        return np.zeros((16, 16, 3), np.uint8)


@register("expert", POINT)
@dataclass(frozen=True)
class ToGoal:
    """Straight at the goal."""

    def __call__(self, env: gymnasium.Env[Any, Any]) -> NDArray[np.float64]:
        point: Any = env.unwrapped
        action = np.clip(100.0 * (point.goal - point.place), -10.0, 10.0)
        extra = point.action_space.shape[0] - 2
        return np.concatenate((action, np.full(extra, 1.9)))

    def progress(self, env: gymnasium.Env[Any, Any]) -> TaskProgress:
        point: Any = env.unwrapped
        return TaskProgress(float(np.linalg.norm(point.goal - point.place)), 0.0)


def register_point(env_id: str = POINT, **kwargs: Any) -> str:
    """Register `Point`; returns its id. Leave Gymnasium's registry as it was afterwards."""
    gymnasium.register(env_id, f"{__name__}:Point", max_episode_steps=30, kwargs=kwargs)
    return env_id


def rig_of(
    task: GymTask,
    policy: Policy,
    *,
    record: Callable[[list[Row]], object],
    operator: InputDevice | None = None,
    on_step: Callable[[Step], None] = lambda _step: None,
    stopping: Callable[[], str] = lambda: "",
    paced: bool = False,
) -> GymRig:
    """The control loop on an environment."""
    env, action = EnvPorts(task, pause=time.sleep if paced else None), task.spec.hand
    assert isinstance(action, BoxActionSpec)
    loop = ControlLoop(
        task=task,  # type: ignore[arg-type]
        robot=env,
        cameras=(),
        gate=env,
        clock=env,
        policy=policy,
        operator=operator or NoOperator(task),  # type: ignore[arg-type]
        arbiter=Arbiter(ArbiterConfig(ramp_s=0.0), action.size, motion=action.motion),
        reward=env,
        record=record,
        lease="test",
        on_step=on_step,
        stopping=stopping,
        actions=BoxActions(action),
    )
    return GymRig(loop, env)
