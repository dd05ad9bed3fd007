"""Episodes of a Gymnasium environment, recorded like those of a robot: same rows, same identities.

The counterpart of `loop.ControlLoop` without gate, person and deadlines. The policy drives every
step; its action, clipped to [-1, 1], is what is recorded as executed.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.loop import EpisodeSummary, Policy
from robot_rl.errors import SetupError, SpecError
from robot_rl.tasks.gym import GymTask
from robot_rl.types import Driver, Ending, EpisodeStart, Frame, Observation, Outcome, Row, Step

log = logging.getLogger(__name__)


class GymLoop:
    """Runs episodes; call `reset` before each. Arguments as in `control.loop.ControlLoop`."""

    def __init__(
        self,
        task: GymTask,
        policy: Policy,
        *,
        record: Callable[[list[Row]], object],
        on_step: Callable[[Step], None] = lambda _step: None,
        stopping: Callable[[], str] = lambda: "",
    ) -> None:
        self.task, self.policy = task, policy
        self.record, self.on_step, self.stopping = record, on_step, stopping
        self._observation: Observation = {}
        self._warned = False

    def reset(self, seed: int) -> None:
        """Start an episode; equal seeds give equal starts."""
        self._observation = self.task.observe(self.task.env.reset(seed=seed)[0])

    def run_episode(self, start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        """Drive one episode to its end.

        Raises:
            SpecError: an observation is not finite or not of its space, or an action is not finite.
        """
        start = replace(start, limits_hash="")  # no gate judged these steps
        summary = EpisodeSummary(start.id, start.purpose)
        period_s = 1.0 / self.task.spec.control_hz
        self.policy.begin_episode()
        observation = self.policy.annotate(self._observation)
        self.record([start, Frame(start.id, 0, 0, observation)])
        for index in itertools.count():
            proposed = self.policy.act(observation, deterministic)
            action, version = _within_bounds(proposed), self.policy.version
            raw, reward, terminated, truncated, info = self.task.env.step(
                self.task.env_action(action)
            )
            observation = self.policy.annotate(self.task.observe(raw))
            summary.steps, summary.total_reward = index + 1, summary.total_reward + float(reward)
            if terminated:  # also when the time is up in the same step: the future is worth nothing
                ending = Ending.TERMINATED
            elif truncated:
                ending = Ending.TRUNCATED
            else:
                summary.reason = self.policy.problem or self.stopping()
                ending = Ending.ABORTED if summary.reason else None
            success = self._success(info, summary.total_reward) if ending else None
            step = Step(
                id=start.id,
                step=index,
                frame=index,
                next_frame=index + 1,
                segment=0,
                driver=Driver.POLICY,
                action=action,
                policy_action=proposed,
                outcome=Outcome.PASS,
                reason="",
                reward=float(reward),
                ending=ending,
                success=success,
                weights_version=version,
                stamp_ns=int(index * period_s * 1e9),
            )
            stamp_ns = int((index + 1) * period_s * 1e9)
            self.record([step, Frame(start.id, index + 1, stamp_ns, observation)])
            self.on_step(step)
            if ending:
                summary.ending, summary.success = ending, bool(success)
                summary.success_known = success is not None
                break
        summary.driver_steps = {Driver.POLICY: summary.steps}
        summary.duration_s = summary.steps * period_s
        return summary

    def _success(self, info: dict[str, object], total_reward: float) -> bool | None:
        success = self.task.success(info, total_reward)
        if success is None and not self._warned:
            self._warned = True
            log.warning(
                "%s does not say what success is: read the return instead, or set task.success_key"
                " (it reports %s) or task.success_return",
                self.task.env_id,
                sorted(info) or "nothing",
            )
        return success


@dataclass(slots=True)
class GymRig:
    """The rig of a Gymnasium environment, as `run.lockstep.Rig` is that of a simulated arm."""

    loop: GymLoop

    def reset(self, plan: int, start: EpisodeStart) -> None:
        """Start the environment from a seed."""
        self.loop.reset(plan)

    def camera(self, _height: int, _width: int) -> GymCamera:
        """The environment's own pictures, in its own size."""
        return GymCamera(self.loop.task)


class GymCamera:
    """Pictures to show people.

    Raises:
        SetupError: the environment was made without pictures.
    """

    def __init__(self, task: GymTask) -> None:
        if task.env.render_mode != "rgb_array":
            raise SetupError(
                f"environment '{task.env_id}' makes no pictures",
                expected="render mode rgb_array",
                got=str(task.env.render_mode),
                fix="task.env_kwargs.render_mode=rgb_array, when training begins",
            )
        self._env = task.env

    def render_video_frame(self) -> NDArray[np.uint8]:
        """RGB uint8 [H, W, 3]; H and W are cut to even numbers, as video needs."""
        picture = np.asarray(self._env.render(), np.uint8)
        height, width = picture.shape[:2]
        return picture[: height // 2 * 2, : width // 2 * 2]

    def close(self) -> None:
        """Nothing to free: the environment stays."""


def _within_bounds(proposed: NDArray[np.float32]) -> NDArray[np.float32]:
    """The action [A] that is executed: the policy's, clipped to [-1, 1]."""
    if not np.isfinite(proposed).all():
        raise SpecError(
            "the policy's action is not finite",
            expected="numbers in [-1, 1]",
            got=str(proposed),
            fix="look at the learner's log; it never publishes such weights itself",
        )
    return np.clip(proposed, -1.0, 1.0).astype(np.float32)
