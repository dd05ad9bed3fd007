"""The seams: small Protocols that MuJoCo, ROS 2, real hardware and test fakes all implement.

All implementations of a port pass the same tests (`tests/contract`): robot, camera, clock and gate
in lockstep and over ROS 2, input devices, sources of reward. Tasks and their experts are checked by
`robot-rl check --run`. The core never imports an implementation; the configuration names it
(`robot_rl.config.registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robot_rl.spec import Spec
from robot_rl.types import Command, Driver, EpisodeStart, Observation, Pose, RobotState, Verdict


@runtime_checkable
class Clock(Protocol):
    """Time of the run. In lockstep, sleeping *is* stepping the simulator."""

    def now_s(self) -> float:
        """Seconds on this run's clock; monotonic, origin arbitrary."""
        ...

    def sleep_until_s(self, deadline_s: float) -> None:
        """Return at `deadline_s` (at once if it has passed)."""
        ...


@runtime_checkable
class RobotPort(Protocol):
    """The arm: newest state out, one command in. Implemented by MuJoCo and over ROS 2 topics."""

    def read(self) -> RobotState:
        """Newest state, never blocking. Raises `RobotRLError` when nothing was ever received."""
        ...

    def apply(self, command: Command) -> None:
        """Send a target that has passed the gate; returns at once."""
        ...


@runtime_checkable
class Camera(Protocol):
    """One camera: newest image, cropped and resized to what the network sees."""

    name: str

    def read(self) -> tuple[float, NDArray[np.uint8]]:
        """(stamp_s, RGB uint8 [H, W, 3]) of the newest frame, never blocking."""
        ...


@runtime_checkable
class Gate(Protocol):
    """The only door to motion, as the control loop sees it.

    In lockstep it judges in-process; over ROS 2 it is another process and `request` returns None
    until the answer arrives (ask again with `verdict`).
    """

    @property
    def reason(self) -> str:
        """Why the gate refused to arm, or why it holds; "" when it did neither."""
        ...

    def arm(self, lease: str) -> bool:
        """Ask for the right to drive; True if granted. Nothing is ever armed without this call."""
        ...

    def request(self, command: Command, state: RobotState) -> Verdict | None:
        """Ask for motion. The verdict's command is executed, never `command` itself."""
        ...

    def verdict(self, sequence: int) -> Verdict | None:
        """The answer to request `sequence` if it has arrived."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """What the person does now.

    driving: the enabling device is held (hold-to-drive); action: float32, units and frame of
    `Spec.hand` (the control loop turns it into the run's own actions), used only while
    driving; driver: which kind of driving this is; success / abort: label
    buttons; stamp_s: when the device was read (its heartbeat); guided: the person pushes the arm
    itself, so what counts as their action is the motion that is measured.
    """

    driving: bool
    action: NDArray[np.float32]
    driver: Driver = Driver.CORRECTION
    success: bool | None = None
    abort: bool = False
    stamp_s: float = 0.0
    guided: bool = False


@runtime_checkable
class InputDevice(Protocol):
    """A person's hand on the robot: scripted expert, keyboard, gamepad, SpaceMouse, console."""

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Forget the last episode. purpose: as in `EpisodeStart`."""
        ...

    def poll(self, state: RobotState) -> OperatorInput:
        """Read the device now; must not block."""
        ...


@runtime_checkable
class HandDevice(InputDevice, Protocol):
    """An input device in a person's hand; it also reports its buttons, problems and presence."""

    @property
    def held(self) -> frozenset[str]:
        """Meanings of the buttons that are down."""
        ...

    @property
    def problem(self) -> str:
        """Why the device does not drive; "" when it may."""
        ...

    @property
    def present(self) -> bool:
        """Whether somebody has the device in their hand, even while a script drives."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the device has news, at most this long; True when it has."""
        ...


@dataclass(frozen=True, slots=True)
class RewardResult:
    """Outcome of one step. reward None = unlabelled. terminated ends the episode, no bootstrap.

    score: how sure `source` is that this moment shows success, in [0, 1]; recorded beside the step;
    None when nobody gave a score. author: who exactly gave it; a model's name has its version.
    truth: where a model decides, what the task's own predicate says; recorded, not learned from;
    None when unknown. progress: how far the task really is, in [0, 1], as the simulator knows it;
    recorded, and progress models are measured against it. truncated: an environment's time is up.
    """

    reward: float | None
    success: bool | None
    terminated: bool
    score: float | None = None
    source: str = ""
    author: str = ""
    truth: bool | None = None
    progress: float | None = None
    truncated: bool = False


@runtime_checkable
class RewardSource(Protocol):
    """Evidence about a step, computed beside the loop. Never blocks."""

    def begin_episode(self, purpose: str) -> None:
        """Forget the last episode (e.g. how long success has been held). purpose: as recorded."""
        ...

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """Judge the state that a step has led to."""
        ...


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """How an episode starts: where the tool is and where the objects lie (all in base).

    clear_z_m: the arm rises at least to this height and crosses there; None = straight to the start
    from above. via: poses that it goes through instead of rising. ask: what a person prepares
    before each start, "" = nothing; None = the objects and the held part.
    """

    tcp_in_base: Pose
    objects: dict[str, Pose]
    gripper_width_m: float
    held_in_tcp: Pose | None = None  # pose of a held part (e.g. the peg) in the hand
    clear_z_m: float | None = None
    via: tuple[Pose, ...] = ()
    ask: str | None = None


@runtime_checkable
class Expert(Protocol):
    """A scripted policy that solves a task from `RobotState`; stands in for a person."""

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode; `rng` draws the expert's imperfections."""
        ...

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [A] in [-1, 1], TCP frame."""
        ...


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How much is left and how far the robot has strayed; the scripted operator watches both.

    remaining_m: way left along the task (0 = done); deviation_m: distance from the centre line of
    the corridor, which is the straight and safe way to do the task.
    """

    remaining_m: float
    deviation_m: float


@runtime_checkable
class Task(Protocol):
    """What is to be learned: pure numpy, no simulator, so that a real arm runs the same object."""

    name: str
    max_steps: int

    @property
    def spec(self) -> Spec:
        """Observation, action, control rate of this task."""
        ...

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        """Draw how the next episode starts."""
        ...

    def observe(self, state: RobotState, images: dict[str, NDArray[np.uint8]]) -> Observation:
        """Build the observation that the policy sees; matches `spec.observation`."""
        ...

    def success(self, state: RobotState) -> bool | None:
        """Honest success predicate on ground truth (instantaneous).

        None: the state cannot tell; a person or a model says it.
        """
        ...

    def failure(self, state: RobotState) -> bool:
        """True when the episode is lost for good (e.g. the part was dropped off the table)."""
        ...

    def progress(self, state: RobotState) -> TaskProgress:
        """How far the task has come, as a person watching would judge it."""
        ...

    def expert(self, skill: float) -> Expert:
        """The scripted expert; `skill` in [0, 1], 1 = always solves it."""
        ...


class SimulatedRobot(RobotPort, Clock, Protocol):
    """A simulator's arm: its clock is the run's clock, and the arm can be put anywhere."""

    def reset(self, plan: ResetPlan) -> None:
        """Put arm and objects at the start of an episode, at rest."""
        ...

    def camera(self, name: str, size: tuple[int, int]) -> Camera:
        """Camera `name`, one of the task's `images`; size: (height, width) in pixels."""
        ...


@runtime_checkable
class BringsSimulator(Protocol):
    """A task that brings its own simulation instead of the MuJoCo scene."""

    def simulate(self, robot: Any) -> SimulatedRobot:
        """A simulation of the task with a `robots.Robot`."""
        ...


@runtime_checkable
class FitsRobot(Protocol):
    """A task that depends on the robot, for example on what its gripper can do."""

    def with_robot(self, robot: Any) -> Any:
        """The same task for a `robots.Robot`."""
        ...


@runtime_checkable
class Mirrored(Protocol):
    """A task that looks the same in a mirror, left <-> right of the base (`learn.mirror`)."""

    @property
    def mirror(self) -> Mapping[str, Sequence[int]] | None:
        """Part of the state -> signs of its entries; None where these settings allow no mirror."""
        ...


@dataclass(frozen=True, slots=True)
class ActorPorts:
    """What the runtime (ROS 2) hands to the actor."""

    robot: RobotPort
    cameras: Sequence[Camera]
    gate: Gate
    clock: Clock
    operator: InputDevice
    place_objects: Callable[[ResetPlan], None]
    ask: Callable[[str], None]  # show a person these words, and wait until they say "ready"
    announce: Callable[[EpisodeStart], None]  # tells the graph which episode begins
    time_waits_for: Callable[[str, Callable[[], bool], Callable[[], bool]], None]  # see RosClock
    figures: Callable[[], dict[str, float]]  # of the runtime, for each episode's line
    stopping: Callable[[], str]
