"""Reads a URDF: links, joints, limits, masses, collision shapes; every fault in one clear error.

URDF: https://wiki.ros.org/urdf/XML (metres, radians, kilograms; roll, pitch, yaw about fixed axes).
The XML reader of the standard library is given no document type, so there are no entities.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from xml.etree import ElementTree as Xml

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from robot_rl.types import Pose

F64 = NDArray[np.float64]

MOST_BYTES = 5_000_000
MOST = 1e20  # of any number; a limit that is none is written as 1e16
MOST_RAD = 60.0  # to either side: ten turns
NO_LIMIT = 1e6  # from here on it is none
MOST_LEVELS = 200  # joints from the root to a link
TURNING = ("revolute", "continuous")
KINDS = (*TURNING, "prismatic", "fixed", "planar", "floating")
XACRO = "xacro FILE.urdf.xacro ARGUMENT:=VALUE > FILE.urdf, in a terminal with ROS 2"


@dataclass(frozen=True, slots=True)
class Mass:
    """Mass, and inertia [3, 3] about the centre of mass; `pose` puts its axes into the link."""

    kg: float
    pose: Pose
    inertia_kg_m2: F64


@dataclass(frozen=True, slots=True)
class Shape:
    """A collision shape. size_m: box: edges; cylinder: radius, length; sphere: radius; mesh: scale.

    file: of a mesh.
    """

    kind: str
    pose: Pose
    size_m: tuple[float, ...]
    file: str = ""


@dataclass(frozen=True, slots=True)
class UrdfLink:
    """A link; mass None = it has none."""

    name: str
    mass: Mass | None
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class UrdfJoint:
    """A joint. origin: its frame in the parent link, and the child's at position 0; axis [3] in it.

    lower, upper, velocity, effort: None = not said. mimic: the joint that it follows, or "".
    """

    name: str
    kind: str
    parent: str
    child: str
    origin: Pose
    axis: F64
    lower: float | None
    upper: float | None
    velocity: float | None
    effort: float | None
    mimic: str

    @property
    def moves(self) -> bool:
        """Whether it is not fixed."""
        return self.kind != "fixed"


@dataclass(frozen=True)
class Urdf:
    """A tree of links. joints: child link -> the joint that carries it."""

    name: str
    root: str
    links: dict[str, UrdfLink]
    joints: dict[str, UrdfJoint]

    @cached_property
    def children(self) -> dict[str, list[UrdfJoint]]:
        """Link -> the joints that it carries."""
        found: dict[str, list[UrdfJoint]] = {name: [] for name in self.links}
        for joint in self.joints.values():
            found[joint.parent].append(joint)
        return found

    def link(self, name: str, option: str) -> str:
        """`name`, if there is such a link. Raises `ConfigError` that names the option."""
        if name not in self.links:
            raise ConfigError(
                f"the URDF has no link '{name}'",
                expected=f"{option} and a link: {', '.join(self.links)}",
                got=name,
                fix=did_you_mean(name, self.links),
            )
        return name

    def path(self, base: str, tip: str) -> list[UrdfJoint]:
        """Joints from `base` to `tip`. Raises `ConfigError` when tip is not behind base."""
        found, here = [], tip
        while here != base:
            joint = self.joints.get(here)
            if joint is None:
                raise ConfigError(
                    f"link '{tip}' is not behind link '{base}'",
                    expected="--base a link between the root and --tip",
                    got=f"from {tip} back to the root: "
                    + ", ".join([tip, *(j.parent for j in found)]),
                    fix="choose one of these as --base",
                )
            found.append(joint)
            here = joint.parent
        return found[::-1]

    def behind(self, link: str) -> list[str]:
        """The link and every link that it carries, directly or not."""
        found = [link]
        for name in found:
            found.extend(joint.child for joint in self.children[name])
        return found


def parse(text: str, where: str) -> Urdf:
    """The tree of a URDF.

    Args:
        text: of the file.
        where: the file or topic it comes from, for messages.

    Raises:
        ConfigError: it is no XML, no URDF, a xacro, or its links are no tree.
    """
    robot = _xml(text, where)
    links = [_link(element) for element in robot.findall("link")]
    joints = [_joint(element) for element in robot.findall("joint")]
    for what, names in (("link", [x.name for x in links]), ("joint", [j.name for j in joints])):
        double = [name for name, count in Counter(names).items() if count > 1]
        if double:
            raise ConfigError(
                f"{where}: two {what}s have one name",
                expected=f"a name of its own for each {what}",
                got=", ".join(double),
                fix="rename one of them; two arms in one URDF need a prefix each",
            )
    return _tree(
        _printable(robot.get("name", "robot"), where), {x.name: x for x in links}, joints, where
    )


def _xml(text: str, where: str) -> Xml.Element:
    size = len(text.encode("utf-8", "replace"))
    if size > MOST_BYTES:
        raise ConfigError(
            f"{where} is too large for a robot description",
            expected=f"at most {MOST_BYTES // 1_000_000} MB",
            got=f"{size / 1e6:.1f} MB",
            fix="give the URDF; meshes stay in files of their own",
        )
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ConfigError(
            f"{where} declares a document type",
            expected="plain XML: entities are not read, they may name any file or fill the memory",
            got="<!DOCTYPE or <!ENTITY",
            fix="delete the declaration; a URDF needs none",
        )
    try:
        robot = Xml.fromstring(text)
    except (Xml.ParseError, UnicodeEncodeError) as error:  # bytes that were no UTF-8
        fix = "give the .urdf file itself; " + XACRO
        raise ConfigError(
            f"{where} is not XML",
            expected="<robot name='...'> ... </robot>",
            got=str(error),
            fix=fix,
        ) from error
    if "xacro" in text and any("xacro" in element.tag for element in robot.iter()):
        raise ConfigError(
            f"{where} is a xacro, not a URDF",
            expected="a URDF, without xacro: elements",
            got=next(e.tag.rpartition("}")[2] for e in robot.iter() if "xacro" in e.tag)
            + " of xacro",
            fix=XACRO,
        )
    if robot.tag != "robot":
        raise ConfigError(
            f"{where} is not a URDF",
            expected="<robot name='...'> ... </robot>",
            got=f"<{robot.tag}>",
            fix="an SDF or an MJCF has to be turned into a URDF first",
        )
    return robot


def _tree(name: str, links: dict[str, UrdfLink], joints: list[UrdfJoint], where: str) -> Urdf:
    for joint in joints:
        for end in (joint.parent, joint.child):
            if end not in links:
                raise ConfigError(
                    f"{where}: joint '{joint.name}' names a link that is not there",
                    expected="a link of this file",
                    got=end,
                    fix=did_you_mean(end, links),
                )
    twice = [child for child, count in Counter(j.child for j in joints).items() if count > 1]
    if twice:
        raise ConfigError(
            f"{where}: a link hangs from two joints",
            expected="a tree: each link is the child of one joint",
            got=", ".join(twice),
            fix="a closed chain has to be opened: delete one of the joints",
        )
    carried = {joint.child: joint for joint in joints}
    roots = [link for link in links if link not in carried]
    if len(roots) != 1:
        raise ConfigError(
            f"{where}: {len(roots)} links are carried by no joint",
            expected="one root, from which every other link hangs",
            got=", ".join(roots) or "no link at all" if not links else ", ".join(roots) or "a ring",
            fix="connect them by a fixed joint, or delete what is not the arm",
        )
    found = Urdf(name, roots[0], links, carried)
    _check_reached(found, where)
    return found


def _check_reached(urdf: Urdf, where: str) -> None:
    """Refuse links that the root does not carry (a ring), and chains without end."""
    reached, level, depth = {urdf.root}, [urdf.root], 0
    while level:
        level = [joint.child for name in level for joint in urdf.children[name]]
        reached.update(level)
        depth += 1
    lost = sorted(urdf.links.keys() - reached)
    if lost or depth > MOST_LEVELS:
        raise ConfigError(
            f"{where}: " + ("links that carry each other" if lost else "a chain too long"),
            expected=f"every link behind the root '{urdf.root}', at most {MOST_LEVELS} joints away",
            got=", ".join(lost)[:200] if lost else f"{depth} joints",
            fix="delete the joint that closes the ring" if lost else "delete what is not the arm",
        )


def _link(element: Xml.Element) -> UrdfLink:
    name = _name(element)
    inertial, mass = element.find("inertial"), None
    if inertial is not None:
        where = f"link '{name}'"
        kg = _number(inertial.find("mass"), "value", where) or 0.0
        if kg < 0.0:
            raise ConfigError(
                f"{where}: the mass is negative", expected="0 kg or more", got=f"{kg:g} kg",
                fix="correct <mass value> in the URDF",
            )  # fmt: skip
        given = inertial.find("inertia")
        xx, yy, zz, xy, xz, yz = (
            _number(given, key, where, 0.0) or 0.0
            for key in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
        )
        tensor = np.array(((xx, xy, xz), (xy, yy, yz), (xz, yz, zz)))
        mass = Mass(kg, _origin(inertial, where), tensor)
    return UrdfLink(name, mass, tuple(_shapes(element, f"link '{name}'")))


def _shapes(element: Xml.Element, where: str) -> Iterable[Shape]:
    for collision in element.findall("collision"):
        origin, geometry = _origin(collision, where), collision.find("geometry")
        for found in () if geometry is None else geometry:
            kind, size, file = found.tag.lower(), (), ""
            if kind == "box":
                size = _three(found, "size", where, None)
            elif kind in ("cylinder", "capsule"):
                size = tuple(_number(found, key, where) or 0.0 for key in ("radius", "length"))
            elif kind == "sphere":
                size = (_number(found, "radius", where) or 0.0,)
            elif kind == "mesh":
                size, file = (
                    _three(found, "scale", where, (1.0, 1.0, 1.0)),
                    found.get("filename", ""),
                )
            else:
                continue
            yield Shape(kind, origin, tuple(size), file)


def _joint(element: Xml.Element) -> UrdfJoint:
    name = _name(element)
    where, kind = f"joint '{name}'", element.get("type", "")
    if kind not in KINDS:
        raise ConfigError(
            f"{where} has an unknown type",
            expected=", ".join(KINDS),
            got=repr(kind),
            fix=did_you_mean(kind, KINDS),
        )
    ends = [element.find(key) for key in ("parent", "child")]
    parent, child = ("" if end is None else end.get("link", "") for end in ends)
    axis = np.array(_three(element.find("axis"), "xyz", where, (1.0, 0.0, 0.0)))
    length = float(np.linalg.norm(axis))
    if kind != "fixed" and length < 1e-9:
        raise ConfigError(
            f"{where} has no axis", expected="a direction", got="0 0 0", fix='<axis xyz="0 0 1"/>'
        )
    limit, mimic = element.find("limit"), element.find("mimic")
    keys = ("lower", "upper", "velocity", "effort")
    lower, upper, velocity, effort = (_number(limit, key, where, None) for key in keys)
    if kind == "revolute" and lower is not None and upper is not None:
        _refuse_range(where, lower, upper)
    return UrdfJoint(
        name, kind, parent, child, _origin(element, where), axis / max(length, 1e-9),
        lower, upper, velocity, effort, "" if mimic is None else mimic.get("joint", "?"),
    )  # fmt: skip


def _refuse_range(where: str, lower_rad: float, upper_rad: float) -> None:
    """Raise `ConfigError` for a range that is none, or that was written in degrees."""
    got = f"lower={lower_rad:g} upper={upper_rad:g}"
    if lower_rad > upper_rad:
        raise ConfigError(
            f"{where}: its lower limit lies above the upper one",
            expected="lower <= upper, in radians",
            got=got,
            fix="exchange the two, or look at their signs",
        )
    if MOST_RAD < max(-lower_rad, upper_rad) < NO_LIMIT:
        raise ConfigError(
            f"{where}: its limits do not look like radians",
            expected=f"at most {MOST_RAD:g} rad to either side",
            got=got,
            fix="divide degrees by 57.3; a joint without an end has type='continuous'",
        )


def _name(element: Xml.Element) -> str:
    name = element.get("name", "")
    if not name:
        raise ConfigError(
            f"a {element.tag} has no name", expected="name='...'", got="nothing", fix="give it one"
        )
    return _printable(name, f"a {element.tag}")


def _printable(name: str, where: str) -> str:
    """The name; what breaks a line in it could write into the robot's file what it likes."""
    if not name.isprintable():
        raise ConfigError(
            f"{where}: a name with characters that cannot be printed",
            expected="letters, digits and signs on one line",
            got=ascii(name)[:100],
            fix="rename it in the URDF",
        )
    return name


def _origin(element: Xml.Element, where: str) -> Pose:
    origin = element.find("origin")
    xyz = _three(origin, "xyz", where, (0.0, 0.0, 0.0))
    roll, pitch, yaw = _three(origin, "rpy", where, (0.0, 0.0, 0.0))
    return pose(xyz, quat_from_rpy(roll, pitch, yaw))


def quat_from_rpy(roll: float, pitch: float, yaw: float) -> F64:
    """Unit quaternion xyzw of turns about fixed x, then y, then z (rad)."""
    x, y, z = ((roll, 0, 0), (0, pitch, 0), (0, 0, yaw))
    return quat_multiply(
        quat_from_rotvec(z), quat_multiply(quat_from_rotvec(y), quat_from_rotvec(x))
    )


_REQUIRED = math.nan


def _number(
    element: Xml.Element | None, key: str, where: str, default: float | None = _REQUIRED
) -> float | None:
    """A finite number of an element; `default` when it is not said."""
    words = None if element is None else element.get(key)
    if words is None and default is not _REQUIRED:
        return default
    try:
        found = float(words or "")
        if abs(found) <= MOST:
            return found
    except ValueError:
        pass
    raise ConfigError(
        f"{where}: {key} is no number", expected="a finite number", got=repr(words),
        fix=f'e.g. {key}="1.0"; an expression in $() has to be expanded: {XACRO}',
    )  # fmt: skip


def _three(
    element: Xml.Element | None, key: str, where: str, default: tuple[float, float, float] | None
) -> tuple[float, float, float]:
    words = None if element is None else element.get(key)
    if words is None and default is not None:
        return default
    try:
        x, y, z = (float(word) for word in (words or "").split())
        if max(abs(x), abs(y), abs(z)) <= MOST and not math.isnan(x + y + z):
            return (x, y, z)
    except ValueError:
        pass
    raise ConfigError(
        f"{where}: {key} is wrong", expected="three finite numbers", got=repr(words),
        fix=f'e.g. {key}="0 0 0.1"; an expression in $() has to be expanded: {XACRO}',
    )  # fmt: skip
