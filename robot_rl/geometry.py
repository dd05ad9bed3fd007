"""Small SE(3) helpers in numpy: quaternions xyzw, poses as `a_in_b`, rotation vectors in radians.

A pose delta changes its frame by rotating its two 3-vectors; the twist adjoint is *not* used
(HIL-SERL issue 36: a command is a pose delta, not a twist, so the adjoint leaks translation into
rotation).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robot_rl.types import Pose

F64 = NDArray[np.float64]
POLAR, AXIAL = (1, -1, 1), (-1, 1, -1)
"""Signs of vectors in a mirror y -> -y. POLAR: positions, velocities, forces; AXIAL: rotations,
angular rates, torques."""


def pose(position_m: ArrayLike, quaternion_xyzw: ArrayLike = (0.0, 0.0, 0.0, 1.0)) -> Pose:
    """Build a `Pose`; the quaternion is normalised."""
    q = np.array(quaternion_xyzw, np.float64)
    return Pose(np.array(position_m, np.float64), q / math.sqrt(float(q @ q)))


NOWHERE = pose((0.0, 0.0, 0.0))
"""In the place of a TCP's pose where there is no arm."""


def quat_multiply(a: F64, b: F64) -> F64:
    """Hamilton product a*b of xyzw quaternions [4]: rotate by b, then by a."""
    ax, ay, az, aw = a.tolist()
    bx, by, bz, bw = b.tolist()
    return np.array(
        (
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        )
    )


def quat_conjugate(q: F64) -> F64:
    """Inverse rotation of a unit quaternion."""
    return q * (-1.0, -1.0, -1.0, 1.0)


def quat_to_matrix(q: F64) -> F64:
    """Rotation matrix [3, 3] of a unit quaternion xyzw."""
    x, y, z, w = q.tolist()
    return np.array(
        (
            (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
            (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
            (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
        )
    )


def quat_from_matrix(matrix: F64) -> F64:
    """Unit quaternion xyzw of a rotation matrix [3, 3] (Shepperd 1978), w >= 0."""
    m = matrix
    squares = np.array((m[0, 0], m[1, 1], m[2, 2], np.trace(m)))
    i = int(np.argmax(squares))  # the largest component divides the others
    if i == 3:
        q = np.array((m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], 1.0 + squares[3]))
    else:
        j, k = (i + 1) % 3, (i + 2) % 3
        q = np.empty(4)
        q[i] = 1.0 + m[i, i] - m[j, j] - m[k, k]
        q[j], q[k], q[3] = m[j, i] + m[i, j], m[k, i] + m[i, k], m[k, j] - m[j, k]
    q /= math.sqrt(float(q @ q))
    return q if q[3] >= 0.0 else -q


def quat_from_rotvec(rotvec_rad: ArrayLike) -> F64:
    """Unit quaternion xyzw of a rotation vector [3] (axis times angle)."""
    x, y, z = np.asarray(rotvec_rad, np.float64).tolist()
    angle = math.sqrt(x * x + y * y + z * z)
    # sin(angle/2)/angle, by its series where the quotient loses digits
    s = 0.5 - angle * angle / 48.0 if angle < 1e-4 else math.sin(angle / 2) / angle
    return np.array((x * s, y * s, z * s, math.cos(angle / 2)))


def quat_to_rotvec(q: F64) -> F64:
    """Rotation vector [3] of a unit quaternion, the short way round (angle <= pi)."""
    x, y, z, w = (q if q[3] >= 0 else -q).tolist()
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-9 else 2.0 * math.atan2(sine, w) / sine
    return np.array((x, y, z)) * scale


def rotate(q: F64, v: F64) -> F64:
    """Rotate vector v [3] by q: from the frame q describes into the frame it is expressed in."""
    return quat_to_matrix(q) @ v


def rotate_inverse(q: F64, v: F64) -> F64:
    """Rotate v [3] by the inverse of q."""
    return v @ quat_to_matrix(q)


def compose(a_in_b: Pose, c_in_a: Pose) -> Pose:
    """Pose of c in b, from a in b and c in a."""
    q = quat_multiply(a_in_b.quaternion_xyzw, c_in_a.quaternion_xyzw)
    return Pose(
        a_in_b.position_m + rotate(a_in_b.quaternion_xyzw, c_in_a.position_m),
        q / math.sqrt(float(q @ q)),
    )


def inverse(a_in_b: Pose) -> Pose:
    """Pose of b in a, from a in b."""
    q = quat_conjugate(a_in_b.quaternion_xyzw)
    return Pose(-rotate(q, a_in_b.position_m), q)


def relative(a_in_c: Pose, b_in_c: Pose) -> Pose:
    """Return a_in_b: the pose of a as seen from b."""
    return compose(inverse(b_in_c), a_in_c)


def rotation_error(target: Pose, current: Pose) -> F64:
    """Rotation vector [3], in the base frame, that takes `current` to `target`."""
    return quat_to_rotvec(
        quat_multiply(target.quaternion_xyzw, quat_conjugate(current.quaternion_xyzw))
    )


def step_towards(current: Pose, target: Pose, max_m: float, max_rad: float) -> Pose:
    """Move `current` towards `target` by at most `max_m` and `max_rad` (straight, geodesic)."""
    dp = target.position_m - current.position_m
    dr = rotation_error(target, current)
    dp = dp * min(1.0, max_m / max(float(np.linalg.norm(dp)), 1e-12))
    dr = dr * min(1.0, max_rad / max(float(np.linalg.norm(dr)), 1e-12))
    q = quat_multiply(quat_from_rotvec(dr), current.quaternion_xyzw)
    return pose(current.position_m + dp, q)
