"""RobotEnv: robot + cameras + task behind the Gymnasium API, gate included.

It opens our tasks to other people's libraries (Stable-Baselines3, CleanRL, ...) and serves lockstep
speed tests. The training loop (`loop.ControlLoop`) drives the same ports itself, because
interventions, identities and real time do not fit through `step()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robot_rl.control.actions import Actions, TcpActions
from robot_rl.ports import Camera, Clock, Gate, ResetPlan, RewardSource, RobotPort, Task
from robot_rl.reward.predicate import PredicateReward
from robot_rl.types import Command, Driver, Observation, RobotState


class RobotEnv(gymnasium.Env[Observation, NDArray[np.float32]]):
    """Gymnasium environment over the ports.

    Observation: Dict of Box as in `task.spec.observation`. Action: Box [-1, 1]^A float32.
    Reward: from `reward` (the task's sparse predicate by default). `info` holds `success`,
    `gate` (pass / clipped / hold), `gate_reason`.

    Args:
        gate: judges every action before it reaches the robot; None = no gate (physics tests only).
        reset: puts robot and objects where a `ResetPlan` says (a teleport in simulation).
        actions: how actions become commands (`control.actions.actions_of`); None = they move the
            TCP.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own name

    def __init__(
        self,
        task: Task,
        robot: RobotPort,
        clock: Clock,
        reset: Callable[[ResetPlan], None],
        *,
        cameras: Sequence[Camera] = (),
        gate: Gate | None = None,
        reward: RewardSource | None = None,
        render: Callable[[], NDArray[np.uint8]] | None = None,
        close: Callable[[], None] = lambda: None,
        actions: Actions | None = None,
    ) -> None:
        self._actions = actions or TcpActions(task.spec.pose_action)
        self.task, self.robot, self.clock, self.cameras, self.gate = (
            task,
            robot,
            clock,
            cameras,
            gate,
        )
        self.reward = reward or PredicateReward(task)
        self.render_mode = "rgb_array" if render else None
        self.metadata = self.metadata | {"render_fps": task.spec.control_hz}
        self._reset, self._render, self._close = reset, render, close
        self._period_s = 1.0 / task.spec.control_hz
        self._sequence = self._steps = 0
        spec = task.spec
        self.observation_space = gymnasium.spaces.Dict(  # type: ignore[assignment]
            {
                key: gymnasium.spaces.Box(0, 255, t.shape, np.uint8)
                if t.dtype == "uint8"
                else gymnasium.spaces.Box(-np.inf, np.inf, t.shape, np.float32)
                for key, t in spec.observation.items()
            }
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (spec.action.size,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a start from the task and place robot and objects there."""
        super().reset(seed=seed)
        self._reset(self.task.sample_reset(self.np_random))
        self.reward.begin_episode("train")
        self._steps = 0
        if self.gate is not None:
            self.gate.arm("env")
        self._state, observation = self._observe()
        return observation, {"success": False}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One control period: action -> gate -> robot -> observation."""
        state = self._state
        target = self._actions.target(action, state)
        self._sequence += 1
        command = Command(
            sequence=self._sequence,
            stamp_s=self.clock.now_s(),
            driver=Driver.POLICY,
            lease="env",
            tcp_target_in_base=target.tcp_in_base,
            gripper_width_m=self.task.spec.action.gripper_width_m(action),
            joint_target_rad=target.joints_rad,
        )
        info: dict[str, Any] = {}
        if self.gate is not None:
            verdict = self.gate.request(command, state)
            if verdict is not None:
                command = verdict.command
                info = {"gate": str(verdict.outcome), "gate_reason": verdict.reason}
        self.robot.apply(command)
        self.clock.sleep_until_s(self.clock.now_s() + self._period_s)
        self._state, observation = self._observe()
        self._steps += 1
        result = self.reward.score(self._state, observation)
        truncated = not result.terminated and self._steps >= self.task.max_steps
        info["success"] = info["is_success"] = bool(result.success)  # the latter for SB3
        return observation, float(result.reward or 0.0), result.terminated, truncated, info

    def _observe(self) -> tuple[RobotState, Observation]:
        state = self.robot.read()
        images = {camera.name: camera.read()[1] for camera in self.cameras}
        return state, self.task.observe(state, images)

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """RGB image [H, W, 3] of the scene, when the environment was made with a renderer."""
        return self._render() if self._render else None

    def close(self) -> None:
        """Free the renderer."""
        self._close()
