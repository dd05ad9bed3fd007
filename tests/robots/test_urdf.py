"""URDFs: what is read from seven arms, and what is said of descriptions that are none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest

from robot_rl.errors import ConfigError
from robot_rl.geometry import quat_from_rotvec, quat_to_matrix
from robot_rl.robots import Described, Fr3, Robot, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.robots.enclose import around, vertices
from robot_rl.robots.fold import Wishes, fold
from robot_rl.robots.urdf import parse, quat_from_rpy

URDFS = Path(__file__).parent / "urdf"
ARMS = ("ur5e", "ur10e", "fr3", "xarm7", "gen3", "so101", "iiwa7")
TIPS = {"so101": "gripper_frame_link"}
each = pytest.mark.parametrize("name", ARMS)


def text_of(name: str) -> str:
    return (URDFS / f"{name}.urdf").read_text()


def arm_of(name: str, **wishes: object) -> Described:
    given = {"tip": TIPS.get(name, "")} | wishes
    return fold(parse(text_of(name), name), name, Wishes(**given))[0]  # type: ignore[arg-type]


def by_hand(name: str, q: np.ndarray) -> np.ndarray:
    """Pose [4, 4] of the tip, from the XML alone: Rodrigues' formula, no code of the reader."""
    robot = Xml.fromstring(text_of(name))
    joints = {j.find("child").get("link"): j for j in robot.findall("joint")}  # type: ignore[union-attr]
    link = TIPS.get(name) or {"fr3": "fr3_hand_tcp", "ur5e": "tool0", "ur10e": "tool0"}.get(name)
    link = link or {"xarm7": "link_eef", "gen3": "end_effector_link", "iiwa7": "lbr_link_ee"}[name]
    chain = []
    while link in joints:
        chain.insert(0, joints[link])
        link = joints[link].find("parent").get("link")  # type: ignore[union-attr]
    here, angles = np.eye(4), iter(q)
    for joint in chain:
        origin = joint.find("origin")
        xyz, rpy = (np.array(origin.get(k).split(), float) for k in ("xyz", "rpy"))  # type: ignore[union-attr]
        step = np.eye(4)
        for axis, angle in zip(np.eye(3)[::-1], rpy[::-1], strict=True):
            step[:3, :3] = step[:3, :3] @ rodrigues(axis, angle)
        step[:3, 3] = xyz
        here = here @ step
        if joint.get("type") != "fixed":
            axis = np.array(joint.find("axis").get("xyz").split(), float)  # type: ignore[union-attr]
            turn = np.eye(4)
            turn[:3, :3] = rodrigues(axis, next(angles))
            here = here @ turn
    return here


def rodrigues(axis: np.ndarray, angle: float) -> np.ndarray:
    x, y, z = axis
    k = np.array(((0, -z, y), (z, 0, -x), (-y, x, 0)))
    return np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * (k @ k)


@each
def test_the_folded_arm_is_where_the_urdf_says(name: str) -> None:
    chain, rng = Chain(arm_of(name)), np.random.default_rng(0)
    for _ in range(20):
        q = rng.uniform(chain.low_rad, chain.high_rad)
        there, mine = by_hand(name, q), chain.frames(q)[-1]
        assert mine[:3, 3] == pytest.approx(there[:3, 3], abs=1e-7)
        if name != "fr3":  # there the tool is turned like the hand: fingers close along y
            assert mine[:3, :3] == pytest.approx(there[:3, :3], abs=1e-7)


@pytest.mark.parametrize(("name", "shipped"), [("fr3", Fr3()), ("ur5e", Ur5e())])
def test_a_described_arm_agrees_with_the_shipped_one(name: str, shipped: Robot) -> None:
    kind = "urdf" if name == "fr3" else "robotiq_2f85"
    robot = arm_of(name, gripper=kind)
    one, other, rng = Chain(robot), Chain(shipped), np.random.default_rng(1)
    for _ in range(20):
        q = rng.uniform(one.low_rad, one.high_rad)
        assert one.frames(q)[-1] == pytest.approx(other.frames(q)[-1], abs=1e-6)
    assert robot.joint_names == shipped.joint_names
    for mine, theirs in zip(robot.joints, shipped.joints, strict=True):
        assert mine.range_rad == pytest.approx(theirs.range_rad, abs=1e-5)
        assert mine.velocity_rad_s == pytest.approx(theirs.velocity_rad_s, abs=1e-4)
        assert mine.link.mass_kg == pytest.approx(theirs.link.mass_kg, rel=1e-5)
        assert mine.link.centre_m == pytest.approx(theirs.link.centre_m, abs=1e-6)
        assert mine.link.inertia_kg_m2 == pytest.approx(theirs.link.inertia_kg_m2, abs=1e-6)
    assert robot.gripper.stroke_m == shipped.gripper.stroke_m
    assert robot.gripper.tcp_m == pytest.approx(shipped.gripper.tcp_m)


def test_the_franka_capsules_come_back_from_cylinders_with_balls() -> None:
    mine = arm_of("fr3").capsules
    theirs = [c for c in Fr3().capsules if c.radius_m != 0.0265]  # the description has no camera
    assert len(theirs) == len(Fr3().capsules) - 1
    for capsule in theirs:
        near = min(
            np.abs(np.subtract(c.start_m + c.end_m, capsule.start_m + capsule.end_m)).max()
            + abs(c.radius_m - capsule.radius_m)
            for turned in mine
            for c in (
                turned,
                type(turned)(turned.link, turned.end_m, turned.start_m, turned.radius_m),
            )
            if c.link == capsule.link
        )
        assert near < 1e-3


def test_masses_that_move_together_are_one() -> None:
    text = text_of("xarm7")
    heavy = text.replace(
        '<link name="link_eef"/>',
        '<link name="link_eef"/><link name="camera"><inertial><origin xyz="0 0 0"/>'
        '<mass value="0.35"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4"/></inertial></link>'
        '<joint name="mount" type="fixed"><parent link="link6"/><child link="camera"/>'
        '<origin xyz="0.1 0 0"/></joint>',
    )
    before, after = (
        fold(parse(t, "x"), "x", Wishes(tip="link_eef"))[0].joints[5].link for t in (text, heavy)
    )
    assert after.mass_kg == pytest.approx(before.mass_kg + 0.35)
    centre = (
        before.mass_kg * np.array(before.centre_m) + 0.35 * np.array((0.1, 0, 0))
    ) / after.mass_kg
    assert after.centre_m == pytest.approx(centre, abs=1e-6)
    assert after.inertia_kg_m2[1] > before.inertia_kg_m2[1] + 1e-4


def test_rpy_are_turns_about_fixed_axes() -> None:
    turn = quat_to_matrix(quat_from_rpy(0.3, -0.5, 1.1))
    parts = [quat_to_matrix(quat_from_rotvec(v)) for v in ((0, 0, 1.1), (0, -0.5, 0), (0.3, 0, 0))]
    assert turn == pytest.approx(parts[0] @ parts[1] @ parts[2])


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_capsule_holds_all_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(50, 3)) * rng.uniform(0.01, 0.3, 3)
    a, b, radius = around(points)
    way = b - a
    t = np.clip((points - a) @ way / max(way @ way, 1e-12), 0, 1)
    assert np.linalg.norm(points - a - t[:, None] * way, axis=1).max() <= radius + 1e-9


def test_meshes_are_read_without_a_library(tmp_path: Path) -> None:
    corners = np.array([(0, 0, 0), (0.1, 0, 0), (0, 0.2, 0.3)])
    text = "solid x\n" + "".join(f"vertex {x} {y} {z}\n" for x, y, z in corners) + "endsolid\n"
    (tmp_path / "a.stl").write_text(text)
    row = np.zeros(1, np.dtype([("n", "<f4", 3), ("c", "<f4", (3, 3)), ("a", "<u2")]))
    row["c"][0] = corners
    (tmp_path / "b.stl").write_bytes(b"\0" * 80 + np.uint32(1).tobytes() + row.tobytes())
    (tmp_path / "c.obj").write_text("".join(f"v {x} {y} {z}\n" for x, y, z in corners))
    for name in ("a.stl", "b.stl", "c.obj"):
        assert vertices(tmp_path / name) == pytest.approx(corners, abs=1e-7)
    (tmp_path / "d.stl").write_bytes(b"\xff" * 100)
    assert vertices(tmp_path / "d.stl") is None and vertices(tmp_path / "c.obj") is not None
    (tmp_path / "e.dae").write_text("<COLLADA/>")
    assert vertices(tmp_path / "e.dae") is None


def test_a_mesh_that_is_not_there_becomes_a_capsule_along_the_link_and_is_said() -> None:
    text = text_of("iiwa7")
    start = text.index("<collision>", text.index('name="lbr_link_3"'))
    end = text.index("</link>", start)
    mesh = (
        '<collision><geometry><mesh filename="package://iiwa/link_3.stl"/></geometry></collision>'
    )
    robot, said = fold(parse(text[:start] + mesh + text[end:], "x"), "x", Wishes())
    assert any("link_3.stl" in word for word in said) and any("check it" in word for word in said)
    assert [c.end_m for c in robot.capsules if c.link == 3] == [(0.0, 0.0, 0.1925)]


# --- what is refused ------------------------------------------------------------------------------


def cut(text: str, start: str, end: str) -> str:
    i = text.index(start)
    return text[:i] + text[text.index(end, i) + len(end) :]


def chained(count: int) -> str:
    links = "".join(
        f'<link name="l{i}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/>'
        f"</inertial></link>"
        for i in range(count + 1)
    )
    joints = "".join(
        f'<joint name="j{i}" type="revolute"><parent link="l{i}"/><child link="l{i + 1}"/>'
        f'<origin xyz="0 0 0.1"/><axis xyz="{"0 1 0" if i % 2 else "0 0 1"}"/>'
        f'<limit lower="-2" upper="2" velocity="1" effort="10"/></joint>'
        for i in range(count)
    )
    return f'<robot name="long">{links}{joints}</robot>'


XARM = text_of("xarm7")
FAULTS: dict[str, tuple[Callable[[], str], str, str]] = {
    "no range": (
        lambda: re.sub(r'lower="-2.059\d*" upper="2.09\d*" ', "", XARM),
        "joints without a range: joint2",
        "lower=",
    ),
    "range the wrong way": (
        lambda: re.sub(r'lower="-2.059\d*" upper="2.09\d*"', 'lower="2" upper="-2"', XARM),
        "its lower limit lies above the upper one",
        "exchange",
    ),
    "degrees": (
        lambda: re.sub(r'lower="-2.059\d*" upper="2.09\d*"', 'lower="-118" upper="120"', XARM),
        "do not look like radians",
        "57.3",
    ),
    "no velocity": (
        lambda: XARM.replace('velocity="3.14159" effort="20"', 'effort="20"'),
        "joints without a velocity: joint6, joint7",
        "velocity=",
    ),
    "mimic": (
        lambda: XARM.replace(
            '<joint name="joint4" type="revolute">',
            '<joint name="joint4" type="revolute"><mimic joint="joint2"/>',
        ),
        "joint 'joint4' follows another one",
        "--tip link3",
    ),
    "two roots": (
        lambda: XARM.replace("</robot>", '<link name="table"/></robot>'),
        "2 links are carried by no joint",
        "connect them",
    ),
    "twelve joints": (lambda: chained(12), "12 joints between l0 and l12", "--base l5"),
    "two arms": (
        lambda: chained(6).replace(
            "</robot>",
            '<link name="r"/><joint name="rj" type="revolute"><parent link="l0"/>'
            '<child link="r"/><axis xyz="0 0 1"/><limit lower="-1" upper="1" velocity="1"/>'
            "</joint></robot>",
        ),
        "does not say which link",
        "--tip",
    ),
    "three joints": (lambda: chained(3), "3 joints between", "--tip"),
    "sliding": (
        lambda: chained(6).replace('name="j2" type="revolute"', 'name="j2" type="prismatic"'),
        "joint 'j2' does not turn",
        "--base l3 or --tip l2",
    ),
    "no XML": (lambda: "link: base", "is not XML", ".urdf"),
    "xacro": (
        lambda: '<robot xmlns:xacro="http://ros.org/wiki/xacro" name="x"><xacro:arm/></robot>',
        "is a xacro",
        "xacro FILE.urdf.xacro",
    ),
    "entities": (
        lambda: '<!DOCTYPE robot [<!ENTITY a "b">]><robot name="&a;"/>',
        "declares a document type",
        "delete",
    ),
    "another format": (lambda: "<sdf><model/></sdf>", "is not a URDF", "turned into a URDF"),
    "names twice": (
        lambda: XARM.replace('joint name="joint3"', 'joint name="joint2"'),
        "two joints have one name",
        "rename",
    ),
    "a link that is not there": (
        lambda: XARM.replace('<child link="link4"/>', '<child link="lnik4"/>'),
        "names a link that is not there",
        "link4",
    ),
    "no mass": (
        lambda: cut(
            XARM, '<inertial>\n      <origin xyz="0.06469 0.03278 0.02141"/>', "</inertial>"
        ),
        "link 'link6' has no mass",
        "data sheet",
    ),
    "no number": (
        lambda: XARM.replace('mass value="1.325"', 'mass value="${m}"'),
        "value is no number",
        "xacro",
    ),
    "no axis": (
        lambda: XARM.replace('<axis xyz="0 0 1"/>', '<axis xyz="0 0 0"/>', 1),
        "has no axis",
        "<axis",
    ),
    "nothing": (lambda: "<robot name='x'/>", "0 links", "connect"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_description_gets_one_error_with_its_fix(fault: str) -> None:
    make, summary, fix = FAULTS[fault]
    with pytest.raises(ConfigError) as caught:
        fold(parse(make(), "arm.urdf"), "x", Wishes())
    assert summary in caught.value.summary and fix in caught.value.fix
    assert caught.value.expected and caught.value.got


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"tip": "link_eff"}, "link_eef"),
        ({"base": "link_eef", "tip": "link1"}, "is not behind"),
        ({"gripper": "robotic_2f85"}, "robotiq_2f85"),
        ({"gripper": "urdf"}, "no gripper behind the tip"),
    ],
)
def test_wishes_that_the_urdf_cannot_grant(wishes: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fold(parse(XARM, "x"), "x", Wishes(**wishes))


def test_a_continuous_joint_and_a_missing_effort_are_said() -> None:
    _, said = fold(parse(text_of("gen3").replace('effort="9"', ""), "x"), "x", Wishes())
    assert any("joint_1, joint_3, joint_5, joint_7: continuous" in word for word in said)
    assert any("joint_5, joint_6, joint_7: no effort, 50 Nm" in word for word in said)
    assert arm_of("gen3").joints[0].range_rad == (-2 * math.pi, 2 * math.pi)
