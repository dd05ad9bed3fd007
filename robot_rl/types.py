"""The nouns of the system: frozen data that flows observe -> act -> gate -> record -> learn.

Conventions: SI units; frames as in REP-103/105; quaternions are xyzw, unit norm, at every seam;
`x_in_y` is the pose of frame x expressed in frame y. Time is seconds on the run's clock (`_s`) or
integer nanoseconds (`_ns`). Arrays are C-contiguous numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Observation = dict[str, np.ndarray]
"""Named tensors of one frame, e.g.

    {"state":        float32 [S],        # layout and units: spec.Spec.state_layout
     "image/wrist":  uint8   [H, W, 3],  # RGB
     "image/front":  uint8   [H, W, 3]}
"""


class Driver(StrEnum):
    """Who produced a command. Every step carries exactly one."""

    POLICY = "policy"
    CORRECTION = "correction"  # a person completes the (sub-)task
    RECOVERY = "recovery"  # a person leads the robot back to known ground (RaC)
    DEMO = "demo"  # a person, or the scripted expert, from the start of the episode
    RESET = "reset"  # automatic motion between episodes: commanded, never a step

    @property
    def is_human(self) -> bool:
        """True when a person (or a script standing in for one) drives."""
        return self in (Driver.CORRECTION, Driver.RECOVERY, Driver.DEMO)


class Ending(StrEnum):
    """Why a stream of steps ended. The four are never folded into one flag."""

    TERMINATED = "terminated"  # success or failure: no bootstrap
    TRUNCATED = "truncated"  # time limit: bootstrap from the true last frame
    ABORTED = "aborted"  # crash, stop, operator cancel: dropped from training
    STALE = "stale"  # the observation could not be trusted: flagged, dropped from training


class Outcome(StrEnum):
    """What the gate did with a command."""

    PASS = "pass"
    CLIPPED = "clipped"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Pose:
    """A rigid pose. `position_m` float64 [3]; `quaternion_xyzw` float64 [4], unit norm."""

    position_m: NDArray[np.float64]
    quaternion_xyzw: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RobotState:
    """One synchronous reading of the arm, its wrench and the tracked objects.

    joint_position_rad, joint_velocity_rad_s: float64 [J]; tcp_twist_in_base: float64 [6] linear
    m/s then angular rad/s; wrench_in_tcp: float64 [6] force N then torque Nm acting *on* the tool,
    tared; gripper_width_m: distance between the fingers; objects: name -> `object_in_base`;
    told_success: what a program beside ours says of the task's success; None where nobody is asked.
    """

    stamp_s: float
    joint_position_rad: NDArray[np.float64]
    joint_velocity_rad_s: NDArray[np.float64]
    tcp_in_base: Pose
    tcp_twist_in_base: NDArray[np.float64]
    wrench_in_tcp: NDArray[np.float64]
    gripper_width_m: float
    objects: Mapping[str, Pose] = field(default_factory=dict)
    told_success: bool | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A physical target for the robot's controller. Only the gate sends one.

    sequence: strictly increasing within a `lease`; lease: who may drive (one random word per actor
    process); gripper_width_m: None means "leave the gripper as it is". joint_target_rad: float64
    [J], in a run whose actions move the joints; then the TCP target is where they put the TCP,
    which the gate computes itself. None = the target is the TCP's. A Gymnasium environment has
    neither: there it is the environment's own action [A], in its units (`control.gym_ports`).
    """

    sequence: int
    stamp_s: float
    driver: Driver
    lease: str
    tcp_target_in_base: Pose
    gripper_width_m: float | None = None
    joint_target_rad: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's answer to one request: what was really sent, and why if it differs.

    taken: behind the gate, an environment let a person drive, and `command` is theirs.
    """

    sequence: int
    outcome: Outcome
    reason: str
    command: Command  # the executed command; for HOLD the latched hold pose
    stamp_s: float
    taken: bool = False


@dataclass(frozen=True, slots=True, order=True)
class EpisodeId:
    """Identity of an episode; with an index it identifies every row of the store."""

    run: str
    actor: str
    episode: int


ONLY_ACTOR = "actor-0"
"""Identity of the rows of a run's only arm."""

HELPED = ("train", "deploy")
"""Purposes of episodes in which a person may take over from the policy."""


@dataclass(frozen=True, slots=True)
class EpisodeStart:
    """Header row of an episode, before its first frame.

    purpose: train | deploy (the policy drives, a person may help) | demo | eval | data.
    """

    id: EpisodeId
    purpose: str
    task: str
    spec_hash: str
    limits_hash: str
    seed: int
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One observation, stored once; it is `obs` of one step and `next_obs` of the one before."""

    id: EpisodeId
    frame: int
    stamp_ns: int
    observation: Observation


@dataclass(frozen=True, slots=True)
class Step:
    """One control tick: frame -> executed action -> next_frame.

    action / policy_action: float32 [A] in [-1, 1] (executed, and what the policy proposed);
    segment: counts unbroken runs of one driver inside the episode; reward: None = unlabelled,
    never 0; ending: set on the last step of an episode only; weights_version: -1 before any.
    """

    id: EpisodeId
    step: int
    frame: int
    next_frame: int
    segment: int
    driver: Driver
    action: NDArray[np.float32]
    policy_action: NDArray[np.float32]
    outcome: Outcome
    reason: str
    reward: float | None
    ending: Ending | None
    success: bool | None
    weights_version: int
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened beside the steps: takeover, release, hold, resume, label_undo ..."""

    id: EpisodeId
    event: int
    step: int
    name: str
    detail: str
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class Label:
    """Reward evidence, append-only. step None = the whole episode; source: person|predicate|..."""

    id: EpisodeId
    label: int
    step: int | None
    kind: str
    value: float
    source: str
    author: str
    stamp_ns: int


Row = EpisodeStart | Frame | Step | Event | Label
"""What the store keeps and the link replicates; all are append-only."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Versioned policy weights: `data` is a safetensors file image, `sha256` its hex digest."""

    version: int
    sha256: str
    data: bytes
