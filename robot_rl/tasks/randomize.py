"""What may differ from episode to episode in a simulated scene, and by how much.

A policy that has met one friction, one camera pose and no delay has learned these. `task.randomize`
names a preset of ranges, `task.ranges` sets single ones:

    task.randomize=light 'task.ranges={action_delay_s: [0.08, 0.08], friction: [0.6, 0.6]}'

Equal ends make a twin: a scene that differs from the nominal one by known amounts. Every draw is
uniform. It is a function of the start of the episode, so equal seeds give equal draws.

Sources of the ranges of `real`: MuJoCo Playground (camera, light), ManiSkill SO100 (focal length,
colours, friction), robosuite's wrapper, Isaac Lab's FORGE and UR10e gear assembly (gains, damping,
wrench), with the delays of SERL's hardware; `light` is about a third of them. What a camera or an
arm's wrist is really like is measured (docs/calibration.md), not drawn.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from robot_rl.errors import did_you_mean
from robot_rl.ports import ResetPlan

Range = tuple[float, float]


class Quantity(NamedTuple):
    """One thing that may differ.

    kind: "factor" of the nominal value, "offset" from it, or "amount" (nominal: 0). each: so many
    draws, for axes, or "" for one. when: the draw holds for an episode ("reset"), or is the size of
    something that is drawn again and again ("step").
    """

    kind: str
    when: str
    light: Range
    real: Range
    each: tuple[str, ...] = ("",)
    text: str = ""

    @property
    def nominal(self) -> float:
        """The value that changes nothing."""
        return 1.0 if self.kind == "factor" else 0.0


XYZ = ("_x", "_y", "_z")
Q = Quantity
QUANTITIES: Mapping[str, Quantity] = {
    "object_size": Q("factor", "reset", (0.99, 1.01), (0.97, 1.03), text="of free parts"),
    "object_mass": Q("factor", "reset", (0.9, 1.1), (0.8, 1.2), text="of free and held parts"),
    "friction": Q("factor", "reset", (0.85, 1.15), (0.6, 1.4), text="of all surfaces"),
    "joint_damping": Q("factor", "reset", (0.8, 1.25), (0.5, 2.0), text="of the arm's joints"),
    "joint_friction": Q(
        "amount", "reset", (0.0, 0.0), (0.0, 0.0), text="dry; share of a joint's greatest torque"
    ),
    "armature": Q("factor", "reset", (0.8, 1.25), (0.5, 2.0), text="inertia of the motors"),
    "gains": Q("factor", "reset", (0.9, 1.1), (0.8, 1.2), text="of the arm's controller"),
    "action_delay_s": Q("amount", "reset", (0.0, 0.02), (0.0, 0.08), text="until a command acts"),
    "action_jitter_s": Q(
        "amount", "step", (0.0, 0.005), (0.0, 0.02), text="on top, anew each time"
    ),
    "gripper_latency_s": Q(
        "amount", "reset", (0.0, 0.1), (0.0, 0.3), text="on top, of the gripper"
    ),
    "encoder_noise_rad": Q(
        "amount", "step", (0.0, 3e-4), (0.0, 1e-3), text="of angles, and the TCP"
    ),
    "wrench_noise_n": Q("amount", "step", (0.0, 0.2), (0.2, 1.0), text="torque: 20 mm times that"),
    "wrench_bias_n": Q(
        "offset", "reset", (-0.3, 0.3), (-1.0, 1.0), XYZ, "torque: 20 mm times that"
    ),
    "camera_place_m": Q("offset", "reset", (-0.005, 0.005), (-0.02, 0.02), XYZ, "of each camera"),
    "camera_turn_rad": Q("offset", "reset", (-0.01, 0.01), (-0.035, 0.035), XYZ, "of each camera"),
    "camera_focal": Q("factor", "reset", (0.99, 1.01), (0.98, 1.02), text="length"),
    "light_turn_rad": Q("offset", "reset", (-0.1, 0.1), (-0.35, 0.35), ("_x", "_y"), "of the lamp"),
    "light": Q("factor", "reset", (0.9, 1.1), (0.6, 1.4), text="of the lamp"),
    "colour": Q(
        "amount", "reset", (0.0, 0.03), (0.0, 0.15), text="largest change of each material"
    ),
    "brightness": Q("factor", "reset", (0.95, 1.05), (0.8, 1.2), text="of pictures"),
    "image_noise": Q("amount", "step", (0.0, 2.0), (0.0, 6.0), text="grey levels"),
    "jpeg_loss": Q("amount", "reset", (0.0, 0.0), (0.0, 40.0), text="100 - quality; 0 = none"),
    "image_delay_s": Q("amount", "reset", (0.0, 0.03), (0.03, 0.1), text="age of a picture"),
    "dropped_frames": Q("amount", "step", (0.0, 0.0), (0.0, 0.02), text="share, each 33 ms older"),
}
PRESETS = ("none", "light", "real")


def ranges_of(
    preset: str, own: Mapping[str, Range], cameras: Sequence[str] = ()
) -> dict[str, Range]:
    """The ranges of a preset, with those that a person has set.

    Raises:
        ValueError: an unknown preset, quantity or camera, or a range that makes no sense.
    """
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise ValueError(f"randomize must be one of {', '.join(PRESETS)}; got {preset!r} ({hint})")
    found: dict[str, Range] = {}
    if preset != "none":
        found = {name: getattr(q, preset) for name, q in QUANTITIES.items()}
    for name, (low, high) in own.items():
        of = quantity_of(name)
        if of not in QUANTITIES:
            raise ValueError(f"ranges: unknown '{name}' ({did_you_mean(name, QUANTITIES)})")
        camera = name.partition("/")[2]
        if camera and camera not in cameras:
            hint = did_you_mean(camera, cameras)
            raise ValueError(f"ranges.{name}: the task has no camera '{camera}' ({hint})")
        kind = QUANTITIES[of].kind
        least = {"factor": 0.1, "offset": -10.0, "amount": 0.0}[kind]
        if not least <= low <= high <= 100.0:
            raise ValueError(
                f"ranges.{name} is [low, high] with {least} <= low <= high <= 100 "
                f"(a {kind}), got [{low}, {high}]"
            )
        if of.endswith("_s") and high > 1.0:
            raise ValueError(f"ranges.{name} is in seconds, at most 1, got {high}")
        found[name] = (low, high)
    nominal = {n: (q.nominal, q.nominal) for n, q in QUANTITIES.items()}
    return {n: r for n, r in found.items() if r != nominal.get(n)}


def quantity_of(name: str) -> str:
    """A quantity, or that of a draw: of `camera_place_m_x/wrist`, `camera_place_m`; "" = none."""
    if name in QUANTITIES:
        return name
    whole, slash, camera = name.partition("/")
    draws = {of + axis: of for of, q in QUANTITIES.items() for axis in q.each}
    of = draws.get(whole, "")
    return of if of.startswith("camera_") == bool(slash and camera) else ""


def draw(
    ranges: Mapping[str, Range], plan: ResetPlan, cameras: Sequence[str] = ()
) -> dict[str, float]:
    """The draws of the episode that begins with `plan`; the same for the same plan.

    Each quantity has a generator of its own, so that to add one changes none of the others. Each
    camera has draws of its own, as `camera_place_m_x/wrist`; a range of that name counts for it
    alone, before that of its quantity.
    """
    start = seed_of(plan)
    found: dict[str, float] = {}
    for name, (low, high) in sorted(ranges.items(), key=lambda item: item[0] not in QUANTITIES):
        rng = np.random.default_rng((zlib.crc32(name.encode()), *start))
        if name not in QUANTITIES:
            found[name] = float(rng.uniform(low, high))
            continue
        of = [f"/{camera}" for camera in cameras] if name.startswith("camera_") else [""]
        for whose in of:
            for axis in QUANTITIES[name].each:
                found[f"{name}{axis}{whose}"] = float(rng.uniform(low, high))
    return found


def seed_of(plan: ResetPlan) -> tuple[int, ...]:
    """Of what is drawn at every step of the episode that begins with `plan`.

    The start as whole numbers, exact to a micrometre and a microradian: a plan that has travelled
    as text is the same plan.
    """
    poses = [plan.tcp_in_base, *(plan.objects[name] for name in sorted(plan.objects))]
    numbers = np.concatenate([np.append(p.position_m, p.quaternion_xyzw) for p in poses])
    return tuple(int(n) for n in np.round((numbers + 16.0) * 1e6).astype(np.int64))
