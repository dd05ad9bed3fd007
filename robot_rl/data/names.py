"""What the entries of observations and actions are called outside this project."""

from __future__ import annotations

from robot_rl.errors import SpecError
from robot_rl.spec import ActionSpec, JointActionSpec, Spec

POSE = ("dx", "dy", "dz", "rx", "ry", "rz", "gripper")


def image_keys(spec: Spec) -> list[str]:
    """Observation entries that are pictures.

    Raises:
        SpecError: one of them is not RGB.
    """
    keys = [k for k, t in spec.observation.items() if t.dtype == "uint8" and len(t.shape) == 3]
    for key in keys:
        if spec.observation[key].shape[2] != 3:
            raise SpecError(
                f"'{key}' is no colour image",
                expected="height x width x 3",
                got=str(spec.observation[key].shape),
                fix="videos hold RGB only; leave this camera out of the task",
            )
    return keys


def vector_keys(spec: Spec) -> list[str]:
    """Observation entries that are not pictures."""
    images = image_keys(spec)
    return [key for key in spec.observation if key not in images]


def state_names(spec: Spec) -> list[str] | None:
    """One name per entry of `state`; None when the spec does not name them."""
    names: list[str] = []
    for name, size, _ in spec.state_layout:
        names += [name] if size == 1 else [f"{name}_{i}" for i in range(size)]
    return names or None


def action_names(spec: Spec) -> list[str] | None:
    """One name per action entry; None for actions that move no arm."""
    action = spec.action
    if isinstance(action, JointActionSpec):
        return [*action.joints, *POSE[6 : 6 + action.gripper]]
    return list(POSE[: action.size]) if isinstance(action, ActionSpec) else None
