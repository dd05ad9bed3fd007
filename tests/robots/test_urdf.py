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
from robot_rl.geometry import compose, pose, quat_from_rotvec, quat_to_matrix
from robot_rl.robots import Described, Fr3, Robot, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.robots.enclose import around, vertices
from robot_rl.robots.fold import Wishes, fold
from robot_rl.robots.robot import Capsule
from robot_rl.robots.urdf import parse, quat_from_rpy
from robot_rl.run.robot_file import described, write
from robot_rl.run.robot_file import text_of as yaml_of
from robot_rl.safety.body import body_of, boxed_with
from robot_rl.safety.obstacles import TABLE

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


def test_no_mass_counts_twice_with_fingers_on_the_last_link_that_turns() -> None:
    heavy = '<inertial><mass value="0.1"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4"/></inertial>'
    fingers = "".join(
        f'<link name="f{side}">{heavy}</link><joint name="g{side}" type="prismatic">'
        f'<parent link="l6"/><child link="f{side}"/><origin xyz="0 0 0.05"/>'
        f'<axis xyz="0 {side} 0"/><limit lower="0" upper="0.04" velocity="0.1" effort="9"/></joint>'
        for side in (1, -1)
    )
    text = chained(6).replace("</robot>", fingers + "</robot>")
    robot, _ = fold(parse(text, "x"), "x", Wishes())
    links = sum(joint.link.mass_kg for joint in robot.joints)
    assert robot.gripper.finger.mass_kg == pytest.approx(0.1)
    assert links + robot.foot.mass_kg + robot.gripper.hand.mass_kg == pytest.approx(7.0)


# --- gripper and tool -----------------------------------------------------------------------------


def of_hand(robot: Robot) -> list[Capsule]:
    return [c for c in robot.capsules if c.link > len(robot.joints)]


def in_last(robot: Robot, point_m: tuple[float, float, float]) -> np.ndarray:
    """A place in the hand, in the frame of the last joint."""
    return compose(robot.hand_in_last, pose(point_m)).position_m


@pytest.mark.parametrize(("kind", "shipped"), [("robotiq_2f85", Ur5e()), ("franka_hand", Fr3())])
@pytest.mark.parametrize("name", ["ur5e", "ur10e", "xarm7", "gen3", "iiwa7"])
def test_a_mounted_gripper_is_kept_clear_like_the_shipped_one(
    name: str, kind: str, shipped: Robot
) -> None:
    robot, said = fold(parse(text_of(name), name), name, Wishes(gripper=kind))
    shape = [(c.start_m, c.end_m, c.radius_m) for c in of_hand(robot)]
    assert shape == [(c.start_m, c.end_m, c.radius_m) for c in of_hand(shipped)]
    assert any("collision: " in word and robot.gripper.name in word for word in said)
    body = body_of(robot)
    against = {pair.names[0] for pair in body.pairs if pair.names[1] == "hand"}
    assert against and f"link{len(robot.joints)}" not in against
    assert any(couple.names == ("hand", "table") for couple in boxed_with(body, "table", TABLE.box))


def test_a_tool_that_is_mounted_is_inside_its_capsule() -> None:
    robot, said = fold(parse(text_of("ur10e"), "x"), "x", Wishes(gripper="none", tool_m=0.2))
    (capsule,) = of_hand(robot)
    half_m, centre_m = np.array(robot.gripper.hull)
    corners = [centre_m + half_m * (x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    a, b = np.array(capsule.start_m), np.array(capsule.end_m)
    for corner in corners:
        t = np.clip((corner - a) @ (b - a) / ((b - a) @ (b - a)), 0.0, 1.0)
        assert np.linalg.norm(corner - a - t * (b - a)) <= capsule.radius_m
    assert any("no shape of the tool" in word for word in said)
    robot, said = fold(parse(text_of("ur10e"), "x"), "x", Wishes())
    assert not of_hand(robot) and any("kept clear of nothing" in word for word in said)


def test_a_hand_of_the_urdf_without_shapes_is_kept_clear_by_its_box() -> None:
    text = text_of("fr3")
    start = text.index('<link name="fr3_hand">')
    hand = text[start : text.index("</link>", start)]
    bare = text.replace(hand, re.sub("<collision>.*?</collision>", "", hand, flags=re.S))
    robot, said = fold(parse(bare, "x"), "x", Wishes())
    assert len(of_hand(robot)) == 1 and any("no shape of the gripper" in word for word in said)
    with_shapes, said = fold(parse(text, "x"), "x", Wishes())
    assert len(of_hand(with_shapes)) == 1 and not any("no shape" in word for word in said)


PLACE_M = (0.1, 0.03, 0.02)


def with_bracket(name: str, tip: str) -> str:
    """A ball of 0.5 kg beside the flange."""
    x, y, z = PLACE_M
    return text_of(name).replace(
        "</robot>",
        f'<link name="ball"><inertial><origin xyz="{x} {y} {z}"/><mass value="0.5"/>'
        f'<inertia ixx="1e-3" iyy="2e-3" izz="2e-3" ixz="1e-4"/></inertial>'
        f'<collision><origin xyz="{x} {y} {z}"/><geometry><sphere radius="0.02"/></geometry>'
        f'</collision></link><joint name="bracket" type="fixed"><parent link="{tip}"/>'
        f'<child link="ball"/><origin xyz="0 0 0"/></joint></robot>',
    )


def ball_in_last(robot: Robot) -> np.ndarray:
    """The bracket's ball, in the frame of the last joint."""
    (ball,) = [c for c in of_hand(robot) if c.radius_m < 0.025]
    return in_last(robot, tuple(np.add(ball.start_m, ball.end_m) / 2))


@pytest.mark.parametrize("kind", ["none", "robotiq_2f85", "franka_hand"])
def test_a_bracket_is_where_the_urdf_has_it_however_the_gripper_is_turned(kind: str) -> None:
    text = with_bracket("ur10e", "tool0")
    robot, _ = fold(parse(text, "x"), "x", Wishes(tip="tool0", gripper=kind))
    there = compose(robot.flange_in_last, pose(PLACE_M)).position_m
    assert ball_in_last(robot) == pytest.approx(there, abs=2e-4)
    if kind == "none":
        assert in_last(robot, robot.gripper.hand.centre_m) == pytest.approx(there, abs=1e-6)
    else:
        assert len(of_hand(robot)) == 3  # the gripper with its camera, and the ball


def test_a_tool_that_the_guess_turns_leaves_what_the_urdf_has_behind_the_tip() -> None:
    """The Gen3's tool is turned by pi to spare the wrist; that moves nothing on its flange."""
    urdf = parse(with_bracket("gen3", "end_effector_link"), "x")
    wishes = Wishes(tip="end_effector_link")
    folded, robot = fold(urdf, "x", wishes)[0], described(urdf, "x", wishes, None, lambda _: 0)[0]
    assert abs(robot.gripper.yaw_rad) == pytest.approx(math.pi)
    assert ball_in_last(robot) == pytest.approx(ball_in_last(folded), abs=1e-9)
    centre, inertia = [], []
    for arm in (folded, robot):
        hand = arm.gripper.hand
        centre.append(in_last(arm, hand.centre_m))
        xx, yy, zz, xy, xz, yz = hand.inertia_kg_m2
        turn = quat_to_matrix(arm.hand_in_last.quaternion_xyzw)
        inertia.append(turn @ np.array(((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))) @ turn.T)
    assert centre[1] == pytest.approx(centre[0], abs=1e-9)
    assert inertia[1] == pytest.approx(inertia[0], abs=1e-9)


def test_a_gripper_that_the_guess_turns_takes_its_capsules_along() -> None:
    urdf, wishes = parse(text_of("gen3"), "x"), Wishes(gripper="robotiq_2f85")
    robot, _ = described(urdf, "x", wishes, None, lambda _: 0)
    assert abs(robot.gripper.yaw_rad) == pytest.approx(math.pi)
    assert of_hand(robot) == of_hand(fold(urdf, "x", wishes)[0])
    assert robot.gripper.hand == Ur5e().gripper.hand


@pytest.mark.parametrize(
    ("name", "wishes"),
    [
        ("ur10e", {"gripper": "robotiq_2f85"}),
        ("xarm7", {"gripper": "franka_hand"}),
        ("iiwa7", {"gripper": "none", "tool_m": 0.2}),
    ],
)
def test_a_home_pose_is_found_with_a_gripper_and_its_file_passes(
    name: str, wishes: dict, tmp_path: Path
) -> None:
    robot, said = described(parse(text_of(name), name), "arm", Wishes(**wishes), None, lambda _: 0)
    assert write({"arm": yaml_of(robot, "a test", said)}, tmp_path)


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
    "a name over two lines": (
        lambda: XARM.replace('<robot name="', '<robot name="x\u2028reward: {name: vlm} #', 1),
        "cannot be printed",
        "rename it",
    ),
    "a joint's name over two lines": (
        lambda: XARM.replace('joint name="joint3"', 'joint name="joint3&#10;x: 1"'),
        "cannot be printed",
        "rename it",
    ),
    "less than no mass": (
        lambda: XARM.replace('mass value="1.325"', 'mass value="-1.325"'),
        "the mass is negative",
        "correct <mass value>",
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
