"""What may differ from episode to episode in a simulated scene, or from run to run, by how much.

A policy that has met one friction, one camera pose and no delay has learned these. `task.randomize`
names a preset of ranges, `task.ranges` sets single ones:

    task.randomize=light 'task.ranges={action_delay_s: [0.08, 0.08], friction: [0.6, 0.6]}'
    task.randomize=light 'task.ranges={gains: run, camera_place_m: [-0.02, 0.02, run]}'

Equal ends make a twin: a scene that differs from the nominal one by known amounts. Every draw is
uniform. It is a function of the start of the episode, so equal seeds give equal draws; with the
scope `run`, of the run's seed instead (`drawn_once`).

Sources of the ranges of `real`: MuJoCo Playground (camera, light), ManiSkill SO100 (focal length,
colours, friction), robosuite's wrapper, Isaac Lab's FORGE and UR10e gear assembly (gains, damping,
wrench), with the delays of SERL's hardware; `light` is about a third of them. `cameras` is for
policies that see: the pictures of `real`, with textures, in the physics of `light`. What a camera
or an arm's wrist is really like is measured (docs/calibration.md), not drawn.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from robot_rl.errors import did_you_mean
from robot_rl.ports import ResetPlan

Range = tuple[float, float]
Asked = Range | tuple[float, float, str] | str
"""What `task.ranges` says of a quantity: a range, one with its scope, or only the scope."""


class Quantity(NamedTuple):
    """One thing that may differ.

    kind: "factor" of the nominal value, "offset" from it, or "amount" (nominal: 0). each: so many
    draws, for axes, or "" for one. when: the draw holds for an episode ("reset"), or is the size of
    something that is drawn again and again ("step"). patterns: it has further draws of its own, one
    for each material. cameras: of the preset of that name, if it is not as `preset_of` says.
    """

    kind: str
    when: str
    light: Range
    real: Range
    each: tuple[str, ...] = ("",)
    text: str = ""
    patterns: bool = False
    cameras: Range | None = None

    @property
    def nominal(self) -> float:
        """The value that changes nothing."""
        return 1.0 if self.kind == "factor" else 0.0


PATTERN = "_pattern"  # a draw in [0, 1) that decides all further draws of `Quantity.patterns`
XYZ = ("_x", "_y", "_z")
Q = Quantity
PHYSICS: Mapping[str, Quantity] = {
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
}
PICTURES: Mapping[str, Quantity] = {
    "camera_place_m": Q("offset", "reset", (-0.005, 0.005), (-0.02, 0.02), XYZ, "of each camera"),
    "camera_turn_rad": Q("offset", "reset", (-0.01, 0.01), (-0.035, 0.035), XYZ, "of each camera"),
    "camera_focal": Q("factor", "reset", (0.99, 1.01), (0.98, 1.02), text="length"),
    "light_turn_rad": Q("offset", "reset", (-0.1, 0.1), (-0.35, 0.35), ("_x", "_y"), "of the lamp"),
    "light": Q("factor", "reset", (0.9, 1.1), (0.6, 1.4), text="of the lamp"),
    "colour": Q(
        *("amount", "reset", (0.0, 0.03), (0.0, 0.15)),
        text="largest change of each material",
        patterns=True,
    ),
    "texture": Q(
        *("amount", "reset", (0.0, 0.0), (0.0, 0.0)),
        text="contrast of patterns on table, objects, floor and sky",
        patterns=True,
        cameras=(0.0, 0.6),
    ),
    "brightness": Q("factor", "reset", (0.95, 1.05), (0.8, 1.2), text="of pictures"),
    "image_noise": Q("amount", "step", (0.0, 2.0), (0.0, 6.0), text="grey levels"),
    "jpeg_loss": Q("amount", "reset", (0.0, 0.0), (0.0, 40.0), text="100 - quality; 0 = none"),
    "image_delay_s": Q("amount", "reset", (0.0, 0.03), (0.03, 0.1), text="age of a picture"),
    "dropped_frames": Q("amount", "step", (0.0, 0.0), (0.0, 0.02), text="share, each 33 ms older"),
}
QUANTITIES = {**PHYSICS, **PICTURES}
PRESETS = ("none", "light", "real", "cameras")
SCOPES = ("episode", "run")


def preset_of(name: str, preset: str) -> Range:
    """The range of a quantity in a preset that is not `none`."""
    quantity = QUANTITIES[name]
    if preset == "cameras":
        usual = quantity.real if name in PICTURES else quantity.light
        return quantity.cameras or usual
    return quantity.light if preset == "light" else quantity.real


def ranges_of(
    preset: str, own: Mapping[str, Asked], cameras: Sequence[str] = ()
) -> dict[str, Range]:
    """The ranges of a preset, with those that a person has set, whatever their scope.

    Raises:
        ValueError: an unknown preset, quantity, camera or scope, or a range that makes no sense.
    """
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise ValueError(f"randomize must be one of {', '.join(PRESETS)}; got {preset!r} ({hint})")
    found: dict[str, Range] = {}
    if preset != "none":
        found = {name: preset_of(name, preset) for name in QUANTITIES}
    for name, asked in own.items():
        of = quantity_of(name)
        if of not in QUANTITIES:
            raise ValueError(f"ranges: unknown '{name}' ({did_you_mean(name, QUANTITIES)})")
        camera = name.partition("/")[2]
        if camera and camera not in cameras:
            hint = did_you_mean(camera, cameras)
            raise ValueError(f"ranges.{name}: the task has no camera '{camera}' ({hint})")
        low, high = _range(name, asked, preset)
        kind = QUANTITIES[of].kind
        least = {"factor": 0.1, "offset": -10.0, "amount": 0.0}[kind]
        if not least <= low <= high <= 100.0:
            raise ValueError(
                f"ranges.{name} is [low, high] with {least} <= low <= high <= 100 "
                f"(a {kind}), got [{low}, {high}]"
            )
        if of.endswith("_s") and high > 1.0:
            raise ValueError(f"ranges.{name} is in seconds, at most 1, got {high}")
        if name in ("texture", *(n + PATTERN for n in QUANTITIES)) and high > 1.0:
            raise ValueError(f"ranges.{name} is a share, at most 1, got {high}")
        found[name] = (low, high)
    nominal = {n: (q.nominal, q.nominal) for n, q in QUANTITIES.items()}
    return {n: r for n, r in found.items() if r != nominal.get(n)}


def _range(name: str, asked: Asked, preset: str) -> Range:
    """The range that `task.ranges` asks for. Raises `ValueError`: an unknown scope, or no range."""
    scope = scope_of(asked)
    if scope not in SCOPES:
        hint = did_you_mean(scope, SCOPES)
        raise ValueError(
            f"ranges.{name} is [low, high], [low, high, run], or run; got {asked!r} ({hint})"
        )
    if not isinstance(asked, str):
        return asked[0], asked[1]
    if preset == "none" or name not in QUANTITIES:
        raise ValueError(
            f"ranges.{name} is only a scope, and no preset has a range of that name; "
            f"expected [low, high, {scope}], or task.randomize=light and a quantity"
        )
    return preset_of(name, preset)


def scope_of(asked: Asked) -> str:
    """How long a draw holds: for an "episode", or for a whole "run"."""
    if isinstance(asked, str):
        return asked
    return asked[2] if len(asked) == 3 else "episode"


def drawn_once(
    preset: str, own: Mapping[str, Asked], cameras: Sequence[str], seed: int
) -> dict[str, Asked]:
    """What a person has set, with that of scope `run` drawn for the run with this seed.

    Each draw is a range of its own then, with equal ends: whoever plays an episode of the run again
    needs nothing but its configuration.

    Raises:
        ValueError: see `ranges_of`.
    """
    of_run = {name: asked for name, asked in own.items() if scope_of(asked) != "episode"}
    if not of_run:
        return dict(own)
    ranges_of(preset, own, cameras)  # raises for all that is wrong
    ranges = {name: _range(name, asked, preset) for name, asked in of_run.items()}
    drawn = _draw(ranges, (seed,), cameras)
    for name in of_run:
        if name in QUANTITIES and QUANTITIES[name].patterns:
            pattern = f"{name}{PATTERN}"
            drawn |= {pattern: float(_generator(pattern, (seed,)).uniform())}
    kept = {name: asked for name, asked in own.items() if name not in of_run}
    return {name: (value, value) for name, value in drawn.items()} | kept


def quantity_of(name: str) -> str:
    """A quantity, or that of a draw: of `camera_place_m_x/wrist`, `camera_place_m`; "" = none."""
    if name in QUANTITIES:
        return name
    whole, slash, camera = name.partition("/")
    draws = {of + axis: of for of, q in QUANTITIES.items() for axis in q.each}
    draws |= {of + PATTERN: of for of, q in QUANTITIES.items() if q.patterns}
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
    return _draw(ranges, seed_of(plan), cameras)


def _draw(
    ranges: Mapping[str, Range], seed: tuple[int, ...], cameras: Sequence[str]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, (low, high) in sorted(ranges.items(), key=lambda item: item[0] not in QUANTITIES):
        rng = _generator(name, seed)
        if name not in QUANTITIES:
            found[name] = float(rng.uniform(low, high))
            continue
        of = [f"/{camera}" for camera in cameras] if name.startswith("camera_") else [""]
        for whose in of:
            for axis in QUANTITIES[name].each:
                found[f"{name}{axis}{whose}"] = float(rng.uniform(low, high))
    return found


def _generator(name: str, seed: tuple[int, ...]) -> np.random.Generator:
    return np.random.default_rng((zlib.crc32(name.encode()), *seed))


def seed_of(plan: ResetPlan) -> tuple[int, ...]:
    """Of what is drawn at every step of the episode that begins with `plan`.

    The start as whole numbers, exact to a micrometre and a microradian: a plan that has travelled
    as text is the same plan.
    """
    poses = [plan.tcp_in_base, *(plan.objects[name] for name in sorted(plan.objects))]
    numbers = np.concatenate([np.append(p.position_m, p.quaternion_xyzw) for p in poses])
    return tuple(int(n) for n in np.round((numbers + 16.0) * 1e6).astype(np.int64))
