"""Capsules around the collision shapes of a URDF, for the gate's collision check.

A capsule holds the whole shape: a cylinder or a box is filled by more than itself, a cylinder with
a ball at each end exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import compose, pose, quat_to_matrix
from robot_rl.robots.robot import Capsule, Vec3
from robot_rl.robots.urdf import Shape
from robot_rl.types import Pose

F64 = NDArray[np.float64]
Rod = tuple[F64, F64, float]
"""Ends [3] m and radius m of a capsule."""

RING = 24  # points around a cylinder; the radius is widened so that their polygon holds the circle
SHORTEST_M = 1e-3
FAR = 1e6  # a mesh in millimetres, too, is nearer
MOST_MESH_BYTES = 100_000_000
SAME = 1e-3  # m: two balls this close to the ends of a cylinder make it a capsule


def capsules_of(
    shapes: Sequence[tuple[Pose, Shape]], link: int, find: Callable[[str], Path | None]
) -> tuple[list[Capsule], list[str]]:
    """(capsules of a link, meshes that were not found).

    Args:
        shapes: with the pose of their URDF link in our link.
        find: the file of a mesh; None = it is not there.
    """
    found: list[Rod] = []
    missing: list[str] = []
    for place, shape in shapes:
        at = compose(place, shape.pose)
        points = _points(shape, find)
        if points is None:
            missing.append(shape.file)
        elif shape.kind == "sphere":
            found.append((at.position_m, at.position_m, shape.size_m[0]))
        elif shape.kind == "capsule" or (
            shape.kind == "cylinder" and _has_caps(shapes, place, shape)
        ):
            half = rotated(at, (0.0, 0.0, shape.size_m[1] / 2)) - at.position_m
            found.append((at.position_m - half, at.position_m + half, shape.size_m[0]))
        elif len(points):
            turn = quat_to_matrix(at.quaternion_xyzw)
            found.append(around(points @ turn.T + at.position_m))
    kept = [
        a
        for i, a in enumerate(found)
        if not any(_inside(a, b, i > k) for k, b in enumerate(found) if k != i)
    ]
    return [
        Capsule(link, _vec(a), _vec(b), round(r + 1e-4, 4)) for a, b, r in map(_apart, kept)
    ], missing


def _apart(one: Rod) -> Rod:
    """A ball as a capsule of at least `SHORTEST_M`: engines know none without a length."""
    a, b, radius = one
    if float(np.linalg.norm(b - a)) >= SHORTEST_M:
        return one
    half = np.array((0.0, 0.0, SHORTEST_M / 2))
    return (a + b) / 2 - half, (a + b) / 2 + half, radius + SHORTEST_M / 2


def rotated(at: Pose, point: Sequence[float]) -> F64:
    """A point of a frame, in the one that `at` is told in."""
    return compose(at, pose(point)).position_m


def around(points: F64) -> Rod:
    """The smallest capsule found around points [N, 3]: three axes, a few radii each."""
    middle = (points.min(0) + points.max(0)) / 2
    _, _, axes = np.linalg.svd(points - points.mean(0), full_matrices=False)
    best: tuple[float, Rod] | None = None
    for axis in (*axes, *np.eye(3)):
        along = (points - middle) @ axis
        off = points - middle - np.outer(along, axis)
        centre = (off.min(0) + off.max(0)) / 2
        away = np.linalg.norm(off - centre, axis=1)
        for radius in max(float(away.max()), 1e-3) * np.linspace(1.0, 1.8, 17):
            bulge = np.sqrt(np.maximum(radius**2 - away**2, 0.0))
            low, high = float((along + bulge).min()), float((along - bulge).max())
            ends = (low, high) if low < high else ((low + high) / 2,) * 2
            a, b = (middle + centre + t * axis for t in ends)
            held = max(float(radius), float(_distance(points, a, b).max()))
            volume = held**2 * (np.linalg.norm(b - a) + 4 / 3 * held)
            if best is None or volume < best[0] - 1e-12:
                best = (float(volume), (a, b, held))
    assert best is not None
    return best[1]


def _distance(points: F64, a: F64, b: F64) -> F64:
    """Of points [N, 3] from the segment a-b [N]."""
    way = b - a
    t = np.clip((points - a) @ way / max(float(way @ way), 1e-18), 0.0, 1.0)
    return np.linalg.norm(points - a - np.outer(t, way), axis=1)


def _inside(one: Rod, other: Rod, later: bool) -> bool:
    """Whether a capsule lies within another (of two that are the same, the later one)."""
    a, b, radius = one
    room = other[2] - radius
    far = float(_distance(np.array((a, b)), other[0], other[1]).max())
    return far < room - 1e-9 or (far <= room + 1e-9 and later)


def _has_caps(shapes: Sequence[tuple[Pose, Shape]], place: Pose, rod: Shape) -> bool:
    """Whether a ball of its radius sits at either end of a cylinder."""
    ends = [rotated(compose(place, rod.pose), (0.0, 0.0, s * rod.size_m[1] / 2)) for s in (-1, 1)]
    balls = [
        rotated(compose(where, ball.pose), (0.0, 0.0, 0.0))
        for where, ball in shapes
        if ball.kind == "sphere" and abs(ball.size_m[0] - rod.size_m[0]) < SAME
    ]
    return all(any(np.linalg.norm(end - ball) < SAME for ball in balls) for end in ends)


def _points(shape: Shape, find: Callable[[str], Path | None]) -> F64 | None:
    """Points [N, 3] whose convex hull holds the shape, in its frame; None: the mesh is missing."""
    if shape.kind == "mesh":
        path = find(shape.file)
        points = None if path is None else vertices(path)
        return None if points is None else points * shape.size_m
    signs = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    if shape.kind == "box":
        return signs * np.array(shape.size_m) / 2
    radius, length = (*shape.size_m, 0.0)[:2]
    angle = np.arange(RING) * 2 * np.pi / RING
    ring = np.column_stack((np.cos(angle), np.sin(angle))) * radius / np.cos(np.pi / RING)
    rings = [np.column_stack((ring, np.full(RING, s * length / 2))) for s in (-1, 1)]
    return np.vstack(rings)


def vertices(path: Path) -> F64 | None:
    """Vertices [N, 3] in m of an STL (binary or text) or OBJ file; None for what cannot be read."""
    if path.stat().st_size > MOST_MESH_BYTES:
        return None
    data = path.read_bytes()
    try:
        if path.suffix.lower() == ".obj":
            return _numbers(data, b"v ")
        if path.suffix.lower() != ".stl":
            return None
        (count,) = struct.unpack_from("<I", data, 80) if len(data) >= 84 else (0,)
        if len(data) == 84 + 50 * count:
            kind = np.dtype(
                [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")]
            )
            corners = np.frombuffer(data, kind, count, 84)["corners"]
            return _usable(corners.reshape(-1, 3).astype(float))
        return _numbers(data, b"vertex ")
    except (ValueError, struct.error):
        return None


def _numbers(data: bytes, word: bytes) -> F64 | None:
    """Three numbers behind a word at the beginning of each line that has it."""
    lines = (line.strip() for line in data.splitlines())
    rows = [line.split()[1:4] for line in lines if line.startswith(word)]
    return _usable(np.array(rows, float)) if rows else None


def _usable(points: F64) -> F64 | None:
    """Points [N, 3] of a mesh; None for none, or for others than numbers of a robot's size."""
    fits = points.ndim == 2 and points.shape[1] == 3 and len(points) > 0
    return points if fits and bool((np.abs(points) < FAR).all()) else None


def _vec(point: F64) -> Vec3:
    x, y, z = (point.round(4) + 0.0).tolist()
    return (x, y, z)
