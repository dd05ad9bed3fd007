"""Any Gymnasium environment as a task: `task=gym task.env_id=Pendulum-v1`.

Its observation becomes our tensors: the numbers, in the order of the space, form one float32
"state" [S]; uint8 images [H, W, C] become entries "image/<key>". Actions in [-1, 1]^A are scaled to
its Box. The control loop runs it as it runs an arm (`control.gym_ports`).

Configuration never names code: an environment of another package is known by its id, and a scripted
expert by its name, once a `robot_rl.plugins` entry point or `ROBOT_RL_PLUGINS` has imported that
package (`config`):

    @register("expert", "lab/Push-v0")  # the environment's id, or any name: task.expert_name
    @dataclass(frozen=True)
    class Push:
        def __call__(self, env): ...  # the environment -> an action of its action_space
        def progress(self, env): ...  # optional: a `ports.TaskProgress`
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import load_plugins, register, resolve
from robot_rl.errors import (
    ConfigError,
    RobotRLError,
    SetupError,
    SpecError,
    UnknownNameError,
    did_you_mean,
)
from robot_rl.geometry import NOWHERE
from robot_rl.ports import Expert, TaskProgress
from robot_rl.spec import BoxActionSpec, Spec, TensorSpec
from robot_rl.types import Observation, RobotState

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Box

log = logging.getLogger(__name__)

SUCCESS_KEYS = ("is_success", "success", "succeed")  # Gymnasium-Robotics, MetaWorld, gym-hil
MAX_CHANNELS = 4  # a longer last axis means that the image has its channels first
DEFAULT_HZ = 10.0  # of an environment that does not say; a script's seconds, videos, cycle times
RESET = ("observation", "info")  # what a method of an environment returns
STEP = ("observation", "reward", "terminated", "truncated", "info")
TREMOR = 0.5  # action units: noise of a script with skill 0, as of a scripted hand (`tasks.hand`)
UNKNOWN = TaskProgress(remaining_m=1.0, deviation_m=0.0)  # never nearer, never astray


@dataclass(frozen=True, slots=True)
class EnvState(RobotState):
    """What an environment last said, in the place of an arm's state, whose own fields are empty.

    reward: of the newest step; total_reward: of the episode so far. terminated, truncated, info:
    as `step` returned them.
    """

    raw: Any = None
    reward: float = 0.0
    total_reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, stamp_s: float, raw: Any, **said: Any) -> Self:
        """A state without an arm; said: the other fields."""
        none = np.zeros(0)
        return cls(stamp_s, none, none, NOWHERE, np.zeros(6), np.zeros(6), 0.0, raw=raw, **said)


class Script(Protocol):
    """What a plugin registers under `expert`."""

    def __call__(self, env: gymnasium.Env[Any, Any]) -> Any:
        """An action of `env.action_space`."""
        ...


@runtime_checkable
class TellsProgress(Protocol):
    """A script that also says how far the task is; without it, "stuck" is a matter of time."""

    def progress(self, env: gymnasium.Env[Any, Any]) -> TaskProgress:
        """How much is left, and how far the policy has strayed."""
        ...


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One Box of the observation space and the keys that lead to it."""

    path: tuple[str, ...]
    box: Box

    @property
    def is_image(self) -> bool:
        return len(self.box.shape) == 3

    @property
    def name(self) -> str:
        """Entry of the observation, or slice of the state."""
        name = "/".join(self.path) or "observation"
        return f"image/{name.removeprefix('image/')}" if self.is_image else name


@register("task", "gym")
@dataclass(frozen=True, kw_only=True)
class GymTask:
    """A registered Gymnasium environment with a bounded Box action.

    Raises:
        ConfigError: unknown id, no time limit, or a space that is not supported (on first use).
    """

    env_id: str = "Pendulum-v1"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)  # plain values for its constructor
    max_steps: int | None = None  # None = as registered; then the episode is truncated
    control_hz: float | None = None  # None = its render_fps, else DEFAULT_HZ
    success_key: str = ""  # key in the last info; "" = the first of SUCCESS_KEYS that is there
    success_return: float | None = None  # at least this return is a success, whatever info says
    gripper: bool = False  # the last action entry is one of three: close, keep, open
    expert_name: str = ""  # of a registered expert; "" = the one named like the environment
    base_id: str = ""  # of the environment that `env_id` only wraps: its rows are of the same task

    def __post_init__(self) -> None:
        """Look the environment up; store its time limit in `max_steps`."""
        import gymnasium

        if self.env_id not in gymnasium.registry:
            load_plugins()
        if self.env_id not in gymnasium.registry:
            near = get_close_matches(self.env_id, gymnasium.registry, 5)
            raise UnknownNameError(
                f"unknown environment '{self.env_id}'",
                expected="an id registered with Gymnasium, version included",
                got=f"task.env_id={self.env_id}",
                fix=(f"{did_you_mean(self.env_id, near)}; " if near else "")
                + "of another package: ROBOT_RL_PLUGINS=package robot-rl ...",
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(
                f"max_steps must be at least 1, or null as registered, got {self.max_steps}"
            )
        limit = self.max_steps or gymnasium.registry[self.env_id].max_episode_steps
        if not limit or limit < 1:
            raise ValueError(f"{self.env_id} has no time limit; set task.max_steps, e.g. 200")
        if self.control_hz is not None and self.control_hz <= 0:
            raise ValueError(f"control_hz must be positive, got {self.control_hz}")
        object.__setattr__(self, "max_steps", limit)

    @property
    def name(self) -> str:
        """Id of the environment; the name of the task in the store."""
        return self.base_id or self.env_id

    @cached_property
    def env(self) -> gymnasium.Env[Any, Any]:
        """The environment, made on first use and kept: some can be made once per process only.

        Raises:
            SetupError: a package that it needs is missing.
            ConfigError: it refuses `env_kwargs`.
        """
        import gymnasium

        try:
            return gymnasium.make(
                self.env_id, max_episode_steps=self.max_steps, **dict(self.env_kwargs)
            )
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise SetupError(
                f"environment '{self.env_id}' needs a package that is not installed",
                expected="gymnasium.make works",
                got=str(error),
                fix="install what the message names into this Python",
            ) from error
        except (gymnasium.error.Error, TypeError, ValueError, AssertionError) as error:
            raise ConfigError(
                f"environment '{self.env_id}' cannot be made",
                expected="arguments that its constructor takes",
                got=f"task.env_kwargs={dict(self.env_kwargs)}: {error}",
                fix="see the documentation of that environment",
            ) from error

    @cached_property
    def spec(self) -> Spec:
        """Observation, action and rate; makes the environment.

        Raises:
            ConfigError: a space that no network here reads or drives.
        """
        leaves = self._leaves
        vectors = [leaf for leaf in leaves if not leaf.is_image]
        layout = tuple((leaf.name, int(np.prod(leaf.box.shape)), "") for leaf in vectors)
        state = {"state": TensorSpec((sum(size for _, size, _ in layout),), "float32")}
        images = {x.name: TensorSpec(x.box.shape, "uint8") for x in leaves if x.is_image}
        return Spec(
            task=self.name,
            control_hz=self.control_hz or float(self.env.metadata.get("render_fps") or DEFAULT_HZ),
            observation=(state if layout else {}) | images,
            action=self._action,
            state_layout=layout,
        )

    @property
    def is_drawn(self) -> bool:
        """Whether the environment makes pictures for people."""
        return self.env_kwargs.get("render_mode") == "rgb_array"

    def parts(self) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Of each part of the environment's observation the keys that lead to it, and its shape."""
        return ((leaf.path, leaf.box.shape) for leaf in self._leaves)

    def sample_reset(self, rng: np.random.Generator) -> int:
        """Draw a start: the seed of the environment's `reset`."""
        return int(rng.integers(2**31))

    def observe(
        self, state: EnvState, images: Mapping[str, NDArray[np.uint8]] | None = None
    ) -> Observation:
        """The environment's observation as tensors of `spec`; its pictures are part of it.

        Raises:
            SpecError: shapes or dtypes differ from its space, or a number is NaN, infinite or no
                float32.
        """
        observation: Observation = {}
        vectors: list[NDArray[np.float32]] = []
        for leaf in self._leaves:
            value = reduce(getitem, leaf.path, state.raw)
            if leaf.is_image:
                observation[leaf.name] = np.array(value)  # a copy: environments reuse buffers
            else:
                vectors.append(self._numbers(leaf, value))
        if vectors:
            observation["state"] = np.concatenate(vectors)
        self.spec.check(observation)
        return observation

    def reset(self, seed: int) -> Any:
        """Begin an episode; returns its first observation. Raises like `step`."""
        return self._asked("reset", RESET, seed=seed)[0]

    def step(self, values: NDArray[np.float64]) -> tuple[Any, Any, bool, bool, Mapping[str, Any]]:
        """Carry out an action [A] in the environment's own units; returns what `step` returns.

        Raises:
            SpecError: the environment raises, or answers in another form than Gymnasium's.
        """
        space = self.env.action_space
        action = values.reshape(space.shape or ()).astype(space.dtype)
        return self._asked("step", STEP, action)

    def _asked(self, call: str, form: tuple[str, ...], *args: Any, **kwargs: Any) -> Any:
        """What a method of the environment returns: a tuple of this form that ends in its info."""
        try:
            answer = getattr(self.env, call)(*args, **kwargs)
        except RobotRLError:
            raise
        except Exception as error:
            raised = f"{type(error).__name__}: {str(error)[:200]}"
            raise SpecError(
                f"the environment '{self.env_id}' raised {raised}",
                expected=f"its {call}() returns ({', '.join(form)})",
                got="an error; --debug shows the traceback",
                fix="mend it; the same command with the same run_dir goes on",
            ) from error
        is_tuple = isinstance(answer, tuple) and len(answer) == len(form)
        if not is_tuple or not isinstance(answer[-1], Mapping):
            raise SpecError(
                f"{call}() of the environment '{self.env_id}' answers in another form",
                expected=f"({', '.join(form)}), and info a dict",
                got=f"info={answer[-1]!r}"[:200] if is_tuple else str(answer)[:200],
                fix="mend it; the same command with the same run_dir goes on",
            )
        return answer

    def _numbers(self, leaf: _Leaf, value: Any) -> NDArray[np.float32]:
        """A value of the observation as float32, without numpy's warning of an overflow.

        Raises:
            SpecError: a number that is finite, and too large for float32.
        """
        with np.errstate(over="ignore"):
            numbers = np.asarray(value, np.float32).ravel()
        if not np.isfinite(numbers).all() and np.isfinite(np.asarray(value, np.float64)).all():
            raise SpecError(
                f"'{leaf.name}' of '{self.env_id}' holds a number that is too large for float32",
                expected=f"at most {np.finfo(np.float32).max:.2g} either way",
                got=f"{np.abs(np.asarray(value, np.float64)).max():.3g}",
                fix="scale it in the environment, or with gymnasium.wrappers.TransformObservation",
            )
        return numbers

    def checked(self, action: Any, whose: str) -> NDArray[np.float64]:
        """An action of somebody else's code, in the environment's own units, as [A].

        Raises:
            SpecError: another shape, or not a finite number.
        """
        space = self.env.action_space
        with suppress(TypeError, ValueError):
            values = np.asarray(action, np.float64)
            if values.shape == space.shape and np.isfinite(values).all():
                return values.ravel()
        raise SpecError(
            f"{whose} is no action of '{self.env_id}'",
            expected=f"finite numbers of shape {list(space.shape or ())}, as in its action_space",
            got=str(action)[:200],
            fix="return an action in the environment's own units, like action_space.sample()",
        )

    @cached_property
    def script(self) -> Script:
        """The registered expert.

        Raises:
            ConfigError: there is none by that name.
        """
        name = self.expert_name or self.name
        try:
            return resolve("expert", {"name": name}, "task.expert_name")
        except ConfigError as error:
            raise ConfigError(
                f"nobody knows a scripted expert for '{self.env_id}'",
                expected=f'@register("expert", "{name}") in a package that is imported',
                got=error.fix if self.expert_name else "no such name, and no task.expert_name",
                fix="ROBOT_RL_PLUGINS=package robot-rl ...; docs/gym.md shows an expert",
            ) from error

    def expert(self, skill: float) -> Expert:
        """The scripted expert, which drives through the environment. Raises like `script`."""
        return GymExpert(self, skill)

    def progress(self, state: RobotState) -> TaskProgress:
        """What the script says, if it does; else nothing ever comes nearer."""
        script = self.script
        return script.progress(self.env) if isinstance(script, TellsProgress) else UNKNOWN

    def success(
        self, info: Mapping[str, Any], total_reward: float, *, over: bool = True
    ) -> bool | None:
        """Whether an episode with this last `info` and return succeeded; None = nobody says.

        Without `success_return` and without a key in `info`, the reward threshold decides that the
        environment was registered with, if it has one.

        Raises:
            ConfigError: `success_key` is given, and `info` does not hold it when all is `over`.
        """
        threshold = self.success_return
        if threshold is None:
            for key in (self.success_key,) if self.success_key else SUCCESS_KEYS:
                if key in info:
                    return bool(info[key])
            if self.success_key and not over:
                return None
            if self.success_key:
                raise ConfigError(
                    f"the last info of '{self.env_id}' does not say '{self.success_key}'",
                    expected=f"one of {sorted(info)}",
                    got=f"task.success_key={self.success_key}",
                    fix=did_you_mean(self.success_key, info)
                    + "; or judge by the return: task.success_return=...",
                )
            threshold = self.env.spec.reward_threshold if self.env.spec else None
        return None if threshold is None else total_reward >= threshold

    @cached_property
    def _leaves(self) -> tuple[_Leaf, ...]:
        leaves: dict[str, _Leaf] = {}
        for leaf in self._walk(self.env.observation_space, ()):
            if (other := leaves.setdefault(leaf.name, leaf)) is not leaf:
                got = " and ".join("".join(f"[{key!r}]" for key in x.path) for x in (other, leaf))
                got += f", both '{leaf.name}'"
                raise self._unsupported(
                    "observation", "one name for each part", got, "TransformObservation"
                )
        return tuple(leaves.values())

    def _walk(self, space: gymnasium.Space[Any], path: tuple[str, ...]) -> Iterator[_Leaf]:
        from gymnasium import spaces

        if isinstance(space, spaces.Dict):
            for key, part in space.spaces.items():
                yield from self._walk(part, (*path, key))
        elif isinstance(space, spaces.Box):
            leaf = _Leaf(path, space)
            if 0 in space.shape:
                got = f"{leaf.name} of shape {list(space.shape)}"
                raise self._unsupported(
                    "observation", "numbers in each Box", got, "TransformObservation"
                )
            if leaf.is_image and (space.dtype != np.uint8 or space.shape[2] > MAX_CHANNELS):
                got = f"{leaf.name} {space.dtype} {list(space.shape)}"
                expected = "images as uint8 [H, W, C], channels last"
                raise self._unsupported("observation", expected, got, "TransformObservation")
            yield leaf
        else:
            got = f"{'/'.join(path)} {space}"
            raise self._unsupported("observation", "Dict or Box", got, "FlattenObservation")

    @cached_property
    def _action(self) -> BoxActionSpec:
        from gymnasium import spaces

        space = self.env.action_space
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise self._unsupported("action", "a Box of floats", str(space), "TransformAction")
        if 0 in space.shape:
            raise self._unsupported("action", "an entry at least", str(space), "TransformAction")
        if not space.is_bounded("both"):
            raise self._unsupported("action", "finite bounds", str(space), "TransformAction")
        if self.gripper and int(np.prod(space.shape)) < 2:
            raise self._unsupported(
                "action", "another entry beside the gripper's", str(space), "TransformAction"
            )
        low, high = (tuple(map(float, bound.ravel())) for bound in (space.low, space.high))
        return BoxActionSpec(low, high, self.gripper)

    def _unsupported(self, what: str, expected: str, got: str, wrapper: str) -> ConfigError:
        return ConfigError(
            f"the {what} of environment '{self.env_id}' is not supported",
            expected=expected,
            got=got,
            fix=f"register a wrapped one, e.g. in gymnasium.wrappers.{wrapper} (docs/gym.md)",
        )


class GymExpert:
    """A script as `ports.Expert`: its actions checked, in [-1, 1]; with less skill they tremble."""

    def __init__(self, task: GymTask, skill: float) -> None:
        if not 0.0 <= skill <= 1.0:
            raise ValueError(f"skill must lie in [0, 1], got {skill}")
        self._task, self._script = task, task.script
        self._tremor, self._said = TREMOR * (1.0 - skill), False
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """See `Expert`."""
        self._rng = rng

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """See `Expert`; what lies outside of the environment's bounds is clipped, and said once.

        Raises:
            SpecError: the script raises, or returns something else than an action.
        """
        task, action = self._task, self._task.spec.action
        assert isinstance(action, BoxActionSpec)
        whose = f"the expert {type(self._script).__name__}"
        try:
            answer = self._script(task.env)
        except RobotRLError:
            raise
        except Exception as error:
            raise SpecError(
                f"{whose} raised {type(error).__name__}",
                expected=f"an action of '{task.env_id}'",
                got=str(error)[:200],
                fix="look at the traceback above; call it once by hand after env.reset()",
            ) from error
        values = task.checked(answer, f"what {whose} returned")
        over = np.maximum(np.subtract(action.low, values), np.subtract(values, action.high))
        if over.max() > 1e-6 and not self._said:
            self._said = True
            log.warning("%s leaves the bounds of %s; it is clipped", whose, task.env_id)
        asked = action.action(values)
        if self._tremor:
            motion = action.motion
            asked[:motion] += self._rng.normal(0.0, self._tremor, motion).astype(np.float32)
        return np.clip(asked, -1.0, 1.0).astype(np.float32)
