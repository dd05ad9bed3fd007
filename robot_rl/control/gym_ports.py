"""A Gymnasium environment behind the ports of the control loop, so that people can help there, too.

An environment is robot, clock, gate and source of reward in one: `step` takes an action and says
what it led to. So `EnvPorts` implements these four, and `control.loop.ControlLoop` runs it as it
runs an arm. The environment's own bounds are its gate, and its step is the control period.

Some environments let a person drive by themselves (HIL-SERL's `info["intervene_action"]`; gym-hil's
`info["is_intervention"]` with `info["action_intervention"]`). The verdict of such a step says who
drove and what was carried out, and so it is recorded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.loop import ControlLoop
from robot_rl.errors import SetupError, SpecError
from robot_rl.ports import RewardResult
from robot_rl.store.rows import MAX_NUMBER
from robot_rl.tasks.gym import EnvState, GymTask
from robot_rl.types import (
    HELPED,
    Command,
    Driver,
    EpisodeStart,
    Observation,
    Outcome,
    RobotState,
    Verdict,
)

log = logging.getLogger(__name__)

BY_ENVIRONMENT = "a person drives through the environment"  # reason of such a step


class EnvPorts:
    """`RobotPort`, `Clock`, `Gate` and `RewardSource` of a Gymnasium environment.

    The clock is simulated, one control period per step. It goes on from one episode to the next:
    the stamps of a person's device must not lie ahead of it.

    pause: lets wall time pass (seconds) where a person may drive; None = nobody can.
    """

    reason = ""

    def __init__(self, task: GymTask, *, pause: Callable[[float], None] | None = None) -> None:
        self.task, self._pause, self._began_s = task, pause, 0.0
        self._state = EnvState.of(0.0, None)
        self._purpose, self._now_s, self._warned = "", 0.0, False
        self._last: Verdict | None = None

    def reset(self, seed: int) -> None:
        """Start an episode; equal seeds give equal starts."""
        self._began_s = time.monotonic() - self._now_s
        self._state = EnvState.of(self._now_s, self.task.reset(seed))

    def begin_episode(self, purpose: str) -> None:
        """See `ports.RewardSource`."""
        self._purpose = purpose

    def read(self) -> EnvState:
        """What the newest step led to."""
        return replace(self._state, stamp_s=self._now_s)

    def now_s(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def sleep_until_s(self, deadline_s: float) -> None:
        """Let the control period pass; the step was made when its command was judged."""
        self._now_s = max(self._now_s, deadline_s)
        if self._pause is not None and self._purpose in (*HELPED, "demo"):
            early_s = self._began_s + self._now_s - time.monotonic()
            if early_s > 0.0:
                self._pause(early_s)
            self._began_s = time.monotonic() - self._now_s  # time that was lost is given up

    def arm(self, lease: str) -> bool:
        """Granted: an environment needs no leave."""
        return True

    def request(self, command: Command, state: RobotState) -> Verdict:
        """Step the environment. The verdict says what was carried out, and who drove.

        Raises:
            SpecError: an action that is not finite, or a person's that is none of this environment;
                the environment raises, or rewards with something else than a number.
        """
        asked = command.joint_target_rad
        assert asked is not None
        if not np.isfinite(asked).all():
            raise SpecError(
                "the policy's action is not finite",
                expected="numbers in [-1, 1]",
                got=str(asked),
                fix="look at the learner's log; it never publishes such weights itself",
            )
        raw, said, terminated, truncated, info = self.task.step(asked)
        reward = self._rewarded(said)
        self._state = EnvState.of(
            self._now_s,
            raw,
            reward=reward,
            total_reward=self._state.total_reward + reward,
            terminated=bool(terminated),
            truncated=bool(truncated),
            info=info,
        )
        theirs = self._intervened(info)
        taken = theirs is not None
        if taken:
            driver = Driver.DEMO if self._purpose == "demo" else Driver.CORRECTION
            command = replace(command, driver=driver, joint_target_rad=theirs)
        reason = BY_ENVIRONMENT if taken else ""
        self._last = Verdict(command.sequence, Outcome.PASS, reason, command, self._now_s, taken)
        return self._last

    def verdict(self, sequence: int) -> Verdict | None:
        """The newest verdict, if it answers request `sequence`."""
        return self._last if self._last and self._last.sequence == sequence else None

    def apply(self, command: Command) -> None:
        """Nothing: the step was made when its command was judged."""

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """The environment's own reward and ending; see `GymTask.success`."""
        assert isinstance(state, EnvState)
        over = state.terminated or state.truncated
        success = self.task.success(state.info, state.total_reward, over=over)
        if success is None and over and not self._warned:
            self._warned = True
            log.warning(
                "%s does not say what success is: read the return instead, or set task.success_key"
                " (it reports %s) or task.success_return",
                self.task.env_id,
                sorted(state.info) or "nothing",
            )
        return RewardResult(state.reward, success, state.terminated, truncated=state.truncated)

    def _rewarded(self, said: Any) -> float:
        """The environment's reward as a number that the store takes."""
        with suppress(TypeError, ValueError):
            number = np.asarray(said, np.float64)  # None becomes NaN
            if number.size == 1 and abs(number.item()) <= MAX_NUMBER:
                return number.item()
        raise SpecError(
            f"the reward of '{self.task.env_id}' is {str(said)[:200]}",
            expected=f"one finite number, at most {MAX_NUMBER:g} either way",
            got=type(said).__name__,
            fix="scale or mend it in the environment, for example with "
            "gymnasium.wrappers.TransformReward; the same command with the same run_dir goes on",
        )

    def _intervened(self, info: Mapping[str, Any]) -> NDArray[np.float64] | None:
        """The person's action in the environment's units [A]; None when nobody intervened."""
        theirs = info.get("intervene_action")
        if theirs is None and info.get("is_intervention"):
            theirs = info.get("action_intervention")
            if theirs is None:
                raise SpecError(
                    f"'{self.task.env_id}' says that a person intervened, and not how",
                    expected='info["intervene_action"] or info["action_intervention"]',
                    got=f"is_intervention, with {sorted(info)}",
                    fix="let the environment's wrapper add the action that was carried out",
                )
        if theirs is None or not info.get("is_intervention", True):
            return None
        return self.task.checked(theirs, "the person's action in info")


@dataclass(slots=True)
class GymRig:
    """The rig of a Gymnasium environment, as `run.lockstep.Rig` is that of a simulated arm."""

    loop: ControlLoop
    env: EnvPorts

    def reset(self, plan: int, start: EpisodeStart) -> None:
        """Start the environment from a seed."""
        self.env.reset(plan)

    def camera(self, _height: int, _width: int) -> GymCamera:
        """The environment's own pictures, in its own size."""
        return GymCamera(self.env.task)


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
