"""What the scene looks like: materials, room, table, lights, cameras, the robot's covers.

Picture only: nothing in this file collides or has mass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import mujoco
import numpy as np

from robot_rl.robots import Robot
from robot_rl.tasks.common import CameraView
from robot_rl_sim.arm import HAND, covers_of

GEOM, TEXTURE = mujoco.mjtGeom, mujoco.mjtTexture
Point = tuple[float, float, float]
VISUAL_GROUP = 1

MATERIALS: dict[str, tuple[tuple[float, float, float, float], float, float]] = {
    "cover": ((0.93, 0.935, 0.945, 1), 0.35, 0.5),
    "joint": ((0.32, 0.34, 0.37, 1), 0.4, 0.5),
    "dark": ((0.07, 0.075, 0.085, 1), 0.3, 0.4),
    "steel": ((0.66, 0.68, 0.71, 1), 0.8, 0.7),
    "light_ring": ((0.15, 0.75, 0.95, 1), 0.2, 0.2),
    "brass": ((0.86, 0.62, 0.22, 1), 0.8, 0.7),
    "block": ((0.20, 0.30, 0.45, 1), 0.4, 0.4),
    "rim": ((0.90, 0.92, 0.95, 1), 0.3, 0.3),
    "orange": ((0.95, 0.42, 0.12, 1), 0.3, 0.4),
    "goal": ((0.15, 0.80, 0.45, 0.55), 0.1, 0.1),
    "table": ((0.80, 0.70, 0.58, 1), 0.15, 0.2),
    "frame": ((0.24, 0.26, 0.29, 1), 0.3, 0.3),
    "mat": ((0.17, 0.19, 0.22, 1), 0.05, 0.1),
}
"""name -> colour RGBA, specular, shininess."""
TABLE = ("table", "mat")
PATTERNED = (*TABLE, "block", "rim", "orange", "brass")
"""Materials that a pattern may be painted on: those of table and objects, not of the arm."""
PATTERN_PX = 32  # side of such a texture, or of each of its six faces


def add_materials(spec: mujoco.MjSpec, appearance: str, *, patterned: Collection[str] = ()) -> None:
    """Named materials, the sky and the floor; the floor mirrors a little in videos only.

    patterned: materials that get white textures, if they are among `PATTERNED`; these change
    nothing until somebody paints them.
    """
    for name, (rgba, specular, shininess) in MATERIALS.items():
        material = spec.add_material(name=name, rgba=rgba, specular=specular, shininess=shininess)
        if name in patterned and name in PATTERNED:
            flat = name in TABLE  # seen from above only; cheaper where most of a picture is
            spec.add_texture(
                name=name,
                type=TEXTURE.mjTEXTURE_2D if flat else TEXTURE.mjTEXTURE_CUBE,
                builtin=mujoco.mjtBuiltin.mjBUILTIN_FLAT,
                rgb1=(1.0, 1.0, 1.0),
                width=PATTERN_PX,
                height=PATTERN_PX * (1 if flat else 6),
            )
            material.textures = _texture(name)
    spec.material("light_ring").emission = 0.8
    spec.material("goal").emission = 0.4
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=(0.80, 0.86, 0.92),
        rgb2=(0.42, 0.48, 0.56),
        width=128,
        height=768,
    )
    spec.add_texture(
        name="floor",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        mark=mujoco.mjtMark.mjMARK_EDGE,
        rgb1=(0.56, 0.59, 0.63),
        rgb2=(0.53, 0.56, 0.60),
        markrgb=(0.66, 0.69, 0.73),
        width=256,
        height=256,
    )
    floor = spec.add_material(
        name="floor",
        texrepeat=(2, 2),
        texuniform=True,
        specular=0.1,
        reflectance=0.12 if appearance == "video" else 0.0,  # costs a second pass
    )
    floor.textures = _texture("floor")


def _texture(name: str) -> list[str]:
    """The textures of a material that has one, for its colour."""
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = name
    return textures


def add_scene(spec: mujoco.MjSpec, appearance: str, cameras: Mapping[str, CameraView]) -> None:
    """Room, table, lights, the task's cameras and the renderer's quality.

    Raises:
        ValueError: unknown appearance.
    """
    if appearance not in ("fast", "video"):
        raise ValueError(f"appearance must be fast or video, got {appearance!r}")
    video = appearance == "video"
    visual = spec.visual
    visual.quality.shadowsize = 1024 if video else 0  # MuJoCo's defaults cost 14-35 times as much
    visual.quality.offsamples = 4 if video else 0
    if not video:
        visual.quality.numslices, visual.quality.numstacks = 16, 8
    visual.global_.offwidth, visual.global_.offheight = 1280, 960
    visual.headlight.ambient = (0.38, 0.38, 0.40)
    visual.headlight.diffuse = (0.22, 0.22, 0.22)
    visual.headlight.specular = (0.1, 0.1, 0.1)
    spec.stat.extent, spec.stat.center = 1.0, (0.4, 0.0, 0.2)  # clip planes scale with it
    visual.map.znear, visual.map.zfar = 0.01, 30.0
    visual.map.haze = 0.25
    visual.rgba.haze = (0.74, 0.80, 0.86, 1.0)
    world = spec.worldbody
    # an endless shiny plane in videos; a slab for speed (MuJoCo draws planes in 1 ms, boxes in 0.3)
    floor = world.add_geom(
        name="floor",
        type=GEOM.mjGEOM_PLANE if video else GEOM.mjGEOM_BOX,
        size=(0, 0, 0.05) if video else (4, 4, 0.01),
        pos=(0, 0, -0.76),
    )
    _only_seen(floor, "floor")
    world.add_light(
        name="lamp",
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=(1.2, -1.0, 2.4),
        dir=(-0.35, 0.45, -1.0),
        diffuse=(0.62, 0.61, 0.58),
        specular=(0.35, 0.35, 0.35),
        castshadow=video,
    )
    _add_table(world)
    for name, view in cameras.items():
        _add_camera(world, name, view.position_m, view.look_at_m, fovy_deg=view.fovy_deg)
    _add_camera(world, "video", (1.14, -0.68, 0.55), (0.38, 0.0, 0.21), fovy_deg=48.0)


def _add_table(world: mujoco.MjsBody) -> None:
    """A table with a dark mat; its top is z = 0, the box that collides is made by `builder`."""
    _box(world, (0.60, 0.50, 0.015), (0.35, 0.0, -0.0160), "table")
    _box(world, (0.24, 0.32, 0.001), (0.50, 0.0, -0.0005), "mat")
    for x in (-0.19, 0.89):
        for y in (-0.44, 0.44):
            _box(world, (0.03, 0.03, 0.36), (x, y, -0.39), "frame")
    for y in (-0.44, 0.44):
        _box(world, (0.54, 0.02, 0.03), (0.35, y, -0.062), "frame")


def _add_camera(
    body: mujoco.MjsBody,
    name: str,
    position_m: Point,
    look_at_m: Point,
    *,
    fovy_deg: float,
    up: Point = (0.0, 0.0, 1.0),
) -> None:
    """A camera at `position_m` that looks at a point of the same body frame."""
    back = np.array(position_m) - np.array(look_at_m)
    back /= np.linalg.norm(back)
    right = np.cross(up, back)
    right /= np.linalg.norm(right)
    rotation = np.column_stack((right, np.cross(back, right), back))
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, rotation.ravel())
    body.add_camera(name=name, pos=position_m, quat=quat, fovy=fovy_deg)


def dress(spec: mujoco.MjSpec, robot: Robot) -> None:
    """The robot's covers, and the camera at its wrist on a bracket."""
    for name, cover in covers_of(robot):
        body = spec.body(name)
        if cover.shape == "box":
            _box(body, cover.end_m, cover.start_m, cover.look)
        else:
            shape = _rod if cover.shape == "rod" else _drum
            shape(body, cover.start_m, cover.end_m, cover.radius_m, cover.look)
    # it sits on the side away from the arm's elbow and looks past the fingers at the part
    hand, (position_m, look_at_m) = spec.body(HAND), robot.gripper.wrist_camera
    x, y, z = position_m
    _box(hand, (0.0100, 0.0210, 0.0120), (x - 0.006, y, z - 0.012), "dark")
    _box(hand, (0.0200, 0.0120, 0.0030), (x - 0.028, y, z - 0.020), "joint")
    _add_camera(hand, "wrist", position_m, look_at_m, fovy_deg=66.0, up=(1, 0, 0))


def _rod(body: mujoco.MjsBody, start_m: Point, end_m: Point, radius_m: float, look: str) -> None:
    """Capsule between two points."""
    ends = (*start_m, *end_m)
    geom = body.add_geom(type=GEOM.mjGEOM_CAPSULE, fromto=ends, size=(radius_m, 0, 0))
    _only_seen(geom, look)


def _drum(body: mujoco.MjsBody, start_m: Point, end_m: Point, radius_m: float, look: str) -> None:
    """Cylinder between two points."""
    ends = (*start_m, *end_m)
    geom = body.add_geom(type=GEOM.mjGEOM_CYLINDER, fromto=ends, size=(radius_m, 0, 0))
    _only_seen(geom, look)


def _box(body: mujoco.MjsBody, half_m: Point, centre_m: Point, look: str) -> None:
    _only_seen(body.add_geom(type=GEOM.mjGEOM_BOX, size=half_m, pos=centre_m), look)


def _only_seen(geom: mujoco.MjsGeom, look: str) -> None:
    """No contact, no mass."""
    geom.contype = geom.conaffinity = 0
    geom.mass, geom.group, geom.material = 0.0, VISUAL_GROUP, look
