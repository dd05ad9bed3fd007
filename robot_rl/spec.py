"""The observation/action contract of a run: hashed, saved with it, checked at every handshake."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import SpecError
from robot_rl.geometry import (
    compose,
    pose,
    quat_from_rotvec,
    quat_to_rotvec,
    relative,
)
from robot_rl.types import Observation, Pose

IMAGE = "image/"  # prefix of the observation entries of cameras
PRIVILEGED = "privileged/"  # prefix of the entries that critics see and the policy never gets
BASE = "base/"  # prefix of the entries that a base policy adds
BASE_ACTION = "base/action"  # float32 [n, A]: what the base policy would do in the next n steps
BASE_NOISE = "base/noise"  # float32 [d]: the decision about the noise that this plan came from
BASE_AGE = "base/age"  # float32 [1]: ticks since that decision; 0 = made at this frame
GRIPPER_DEAD_ZONE = 0.5  # of the gripper's entry of an action: less commands nothing
TOLD = 6  # lines of a difference in one message
ABSENT = "(absent)"  # in the place of a value that one of two dicts lacks
PROTOCOL_VERSION = 1  # bump when a message or row changes shape


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype name of one observation tensor ("float32" or "uint8")."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """How a normalised action in [-1, 1]^A becomes a command.

    Layout: [dx, dy, dz, rx, ry, rz] in the TCP frame, times `translation_m` / `rotation_rad` per
    step; with `gripper`, one more entry in {-1 close, 0 keep, +1 open}.
    """

    translation_m: float
    rotation_rad: float
    gripper: bool
    gripper_open_m: float = 0.08  # Franka hand stroke
    gripper_closed_m: float = 0.0

    @property
    def motion(self) -> int:
        """Number of entries that are motion; the gripper's, if there is one, comes last."""
        return 6

    @property
    def size(self) -> int:
        """Number of action entries A."""
        return self.motion + self.gripper

    def target(self, action: NDArray[np.float32], tcp_in_base: Pose) -> Pose:
        """Action [A] -> target pose: a delta on the *measured* pose, so targets never wind up."""
        a = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        delta = pose(a[:3] * self.translation_m, quat_from_rotvec(a[3:6] * self.rotation_rad))
        return compose(tcp_in_base, delta)

    def gripper_width_m(self, action: NDArray[np.float32]) -> float | None:
        """Commanded finger distance, or None for "keep"."""
        if not self.gripper or abs(float(action[-1])) < GRIPPER_DEAD_ZONE:
            return None
        return self.gripper_open_m if action[-1] > 0 else self.gripper_closed_m

    def action(self, target: Pose, tcp_in_base: Pose, gripper: float = 0.0) -> NDArray[np.float32]:
        """Inverse of `target`: the action [A] whose command from this pose is `target`."""
        delta = relative(target, tcp_in_base)
        a = np.concatenate(
            (
                delta.position_m / self.translation_m,
                quat_to_rotvec(delta.quaternion_xyzw) / self.rotation_rad,
                [gripper] if self.gripper else [],
            )
        )
        return np.clip(a, -1.0, 1.0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class JointActionSpec:
    """How a normalised action in [-1, 1]^A becomes a command to the joints.

    Layout: a delta of each joint of `joints`, in their order, times `joint_rad` per step; with a
    gripper, one more entry as in `ActionSpec`.

    Attributes:
        hand: what a person's device and a scripted expert mean, who always move the TCP
            (`control.actions` turns this into joint deltas); and the gripper's two ends.
    """

    joints: tuple[str, ...]
    joint_rad: float
    hand: ActionSpec

    @property
    def motion(self) -> int:
        """Number of entries that are motion: J."""
        return len(self.joints)

    @property
    def size(self) -> int:
        """Number of action entries A."""
        return self.motion + self.gripper

    @property
    def gripper(self) -> bool:
        """Whether the last entry is the gripper's."""
        return self.hand.gripper

    def target_rad(
        self, action: NDArray[np.float32], joint_position_rad: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Action [A] -> target [J]: a delta on the *measured* joints, so targets never wind up."""
        a = np.clip(np.asarray(action[: self.motion], np.float64), -1.0, 1.0)
        return joint_position_rad + self.joint_rad * a

    def gripper_width_m(self, action: NDArray[np.float32]) -> float | None:
        """Commanded finger distance, or None for "keep"."""
        return self.hand.gripper_width_m(action)

    def action(
        self,
        target_rad: NDArray[np.float64],
        joint_position_rad: NDArray[np.float64],
        gripper: float = 0.0,
    ) -> NDArray[np.float32]:
        """Inverse of `target_rad`; a delta that is too large is shortened, its direction kept."""
        a = (target_rad - joint_position_rad) / self.joint_rad
        a /= max(1.0, float(np.abs(a).max()))
        return np.concatenate((a, [gripper] if self.gripper else [])).astype(np.float32)


@dataclass(frozen=True, slots=True)
class BoxActionSpec:
    """How a normalised action in [-1, 1]^A maps to any Box: entry i spans low[i] to high[i].

    For environments without an arm of ours (`tasks.gym`); units are the environment's own. With
    `gripper` the last entry is one of three: -1 = its low end, 0 = the middle, +1 = its high end.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    gripper: bool = False

    @property
    def motion(self) -> int:
        """Number of continuous entries; the gripper's, if there is one, comes last."""
        return self.size - self.gripper

    @property
    def size(self) -> int:
        """Number of action entries A."""
        return len(self.low)

    def gripper_width_m(self, action: NDArray[np.float32]) -> float | None:
        """What the last entry commands, in the environment's units; None for "keep"."""
        if not self.gripper or abs(float(action[-1])) < GRIPPER_DEAD_ZONE:
            return None
        return self.high[-1] if action[-1] > 0 else self.low[-1]

    def scaled(self, action: NDArray[np.float32]) -> NDArray[np.float64]:
        """Action [A] in [-1, 1] -> the environment's own units, within its bounds."""
        low, high = np.array(self.low), np.array(self.high)
        share = (self._chosen(np.asarray(action, np.float64)) + 1.0) / 2.0
        return low * (1.0 - share) + high * share

    def action(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Inverse of `scaled`, for [..., A]: what lies outside of the bounds is clipped to them."""
        low, high = np.array(self.low), np.array(self.high)
        width = np.where(high > low, high - low, 1.0)  # an entry that cannot change: the low end
        share = (np.asarray(values, np.float64) - low) / width
        return self._chosen(2.0 * share - 1.0).astype(np.float32)

    def _chosen(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        """Actions [..., A] within [-1, 1], the gripper's entry being one of -1, 0, 1."""
        a = np.clip(action, -1.0, 1.0)
        if self.gripper:
            last = a[..., -1]
            a[..., -1] = np.where(np.abs(last) < GRIPPER_DEAD_ZONE, 0.0, np.sign(last))
        return a


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything two processes must agree on before one may learn from the other.

    state_layout: (name, size, unit) of each slice of observation["state"], in order.
    """

    task: str
    control_hz: float
    observation: Mapping[str, TensorSpec]
    action: ActionSpec | JointActionSpec | BoxActionSpec
    state_layout: tuple[tuple[str, int, str], ...] = ()

    @property
    def pose_action(self) -> ActionSpec:
        """What moves the TCP of an arm: the `action`, or that of a hand where it moves the joints.

        Raises:
            SpecError: the task's actions move no arm.
        """
        if isinstance(self.action, ActionSpec):
            return self.action
        if isinstance(self.action, JointActionSpec):
            return self.action.hand
        raise SpecError(
            f"the actions of task '{self.task}' do not move an arm",
            expected="an ActionSpec: pose and gripper",
            got=str(self.action),
            fix="Gymnasium environments run with `robot-rl train task=gym runtime=lockstep` only",
        )

    @property
    def hand(self) -> ActionSpec | BoxActionSpec:
        """What a person's action means: the `pose_action`, or the environment's own where there is
        no arm."""
        return self.action if isinstance(self.action, BoxActionSpec) else self.pose_action

    @property
    def state_slices(self) -> dict[str, slice]:
        """Where each named part of `state_layout` lies in the state vector."""
        found, first = {}, 0
        for name, size, _unit in self.state_layout:
            found[name] = slice(first, first + size)
            first += size
        return found

    def with_base(self, ahead: int, noise: int = 0) -> Spec:
        """This spec with the next `ahead` actions of a base policy in each frame; with `noise` also
        the decision that they came from (`noise` numbers), and how old the decision is."""
        added = {BASE_ACTION: TensorSpec((ahead, self.action.size), "float32")}
        if noise:
            added[BASE_NOISE] = TensorSpec((noise,), "float32")
            added[BASE_AGE] = TensorSpec((1,), "float32")
        return replace(self, observation={**self.observation, **added})

    def without_base(self) -> Spec:
        """This spec without what `with_base` added."""
        own = {k: v for k, v in self.observation.items() if not k.startswith(BASE)}
        return replace(self, observation=own)

    @property
    def privileged(self) -> tuple[str, ...]:
        """Names of the entries that only critics see (`privileged/<name>`), in a fixed order."""
        return tuple(k for k in sorted(self.observation) if k.startswith(PRIVILEGED))

    def of_policy(self) -> Spec:
        """This spec without what the policy never gets."""
        own = {k: v for k, v in self.observation.items() if not k.startswith(PRIVILEGED)}
        return replace(self, observation=own)

    @property
    def cameras(self) -> list[str]:
        """Names of the cameras whose pictures are in the observation (`image/<name>`)."""
        return [k.removeprefix(IMAGE) for k in self.observation if k.startswith(IMAGE)]

    def picture_size(self, camera: str) -> tuple[int, int]:
        """(height, width) in pixels of a camera's picture in the observation."""
        height, width, _ = self.observation[IMAGE + camera].shape
        return height, width

    def as_dict(self) -> dict[str, Any]:
        """Plain nested dict (JSON-able), the form that is hashed, saved and sent."""
        plain: dict[str, Any] = asdict(self) | {"protocol": PROTOCOL_VERSION}
        plain["observation"] = {k: asdict(v) for k, v in self.observation.items()}
        if isinstance(self.action, BoxActionSpec) and not self.action.gripper:
            del plain["action"]["gripper"]  # hashes stay what they were before there was one
        return json.loads(json.dumps(plain))

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        text = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def check(self, observation: Observation) -> None:
        """Raise `SpecError` when an observation's keys, shapes or dtypes differ, or hold NaN."""
        got = {k: TensorSpec(tuple(v.shape), str(v.dtype)) for k, v in observation.items()}
        if got != dict(self.observation):
            raise SpecError(
                "observation does not match the spec of this run",
                expected=str(dict(self.observation)),
                got=str(got),
                fix="use the task's own observe(); check camera names and image_size",
            )
        for key, value in observation.items():
            if value.dtype == np.float32 and not np.isfinite(value).all():
                raise SpecError(
                    f"observation '{key}' holds NaN or infinity",
                    expected="finite values",
                    got=str(value),
                    fix="check the sensor behind this entry",
                )


def spec_from_dict(data: Mapping[str, Any]) -> Spec:
    """Inverse of `Spec.as_dict`.

    Raises:
        SpecError: another protocol version, or no spec.
    """
    version = data.get("protocol") if isinstance(data, Mapping) else None
    if version != PROTOCOL_VERSION:
        raise SpecError(
            "the spec was written by another protocol version",
            expected=str(PROTOCOL_VERSION),
            got=repr(version)[:80],
            fix="run the same robot-rl version on both sides",
        )
    try:
        return Spec(
            task=_a(str, data["task"]),
            control_hz=_number(data["control_hz"]),
            observation={
                k: TensorSpec(tuple(_a(int, n) for n in v["shape"]), _a(str, v["dtype"]))
                for k, v in data["observation"].items()
            },
            action=_action_from(data["action"]),
            state_layout=tuple(
                (_a(str, n), _a(int, s), _a(str, u)) for n, s, u in data["state_layout"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SpecError(
            "this is no spec",
            expected="task, control_hz, observation, action and state_layout, as in config.yaml",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="run the same robot-rl version on both sides; check the file for damage",
        ) from error


def _a(kind: type, value: Any) -> Any:
    """A value of exactly this type. Raises `TypeError`."""
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} for a {kind.__name__}")
    return value


def _number(value: Any) -> Any:
    """A finite number, as it is: the hash of a spec counts 10 and 10.0 as two."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError("no finite number")
    return value


def _pose_action(data: Mapping[str, Any]) -> ActionSpec:
    """An `ActionSpec` of numbers, and of one flag."""
    found = ActionSpec(**data)
    for key, value in data.items():
        _a(bool, value) if key == "gripper" else _number(value)
    return found


def _action_from(data: Mapping[str, Any]) -> ActionSpec | JointActionSpec | BoxActionSpec:
    """Each kind is known by a key that only it has."""
    if "low" in data:
        low, high = (tuple(map(_number, data[key])) for key in ("low", "high"))
        if len(low) != len(high):
            raise ValueError("low and high of other lengths")
        return BoxActionSpec(low, high, _a(bool, data.get("gripper", False)))
    if "joints" in data:
        joints = tuple(_a(str, name) for name in data["joints"])
        return JointActionSpec(joints, _number(data["joint_rad"]), _pose_action(data["hand"]))
    return _pose_action(data)


def gripper_index(last: NDArray[np.float32]) -> NDArray[np.int64]:
    """The gripper's entries [...] of actions -> index of close, keep, open."""
    opens, closes = last > GRIPPER_DEAD_ZONE, last < -GRIPPER_DEAD_ZONE
    return 1 + opens.astype(np.int64) - closes.astype(np.int64)


def diff(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Readable lines `path: mine -> theirs` for every leaf in which two spec dicts differ."""
    return [f"{path}: {a} -> {b}" for path, a, b in differing(mine, theirs)]


def told_apart(mine: Spec, theirs: Spec | None) -> str:
    """For a message: in what another spec differs from one's own, entry by entry."""
    if theirs is None:
        return "no spec"
    lines = diff(mine.as_dict(), theirs.as_dict())
    return f"spec {theirs.hash}; wanted -> got: {listed(lines)}"


def listed(lines: Sequence[str]) -> str:
    """Lines of a difference in one message: the first, and how many more there are."""
    more = [f"and {len(lines) - TOLD} more"] if len(lines) > TOLD else []
    return "; ".join([*lines[:TOLD], *more])


def differing(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """(path, mine, theirs) of every leaf in which two nested dicts differ."""
    for key in sorted(set(mine) | set(theirs)):
        a, b, path = mine.get(key, ABSENT), theirs.get(key, ABSENT), f"{prefix}{key}"
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differing(a, b, f"{path}.")
        elif a != b:
            yield path, a, b
