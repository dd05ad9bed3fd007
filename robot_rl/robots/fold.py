"""From the tree of a URDF to an arm: the chain of turning joints between base and tip.

Whatever was guessed on the way is said, in remarks for the person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.geometry import compose, inverse, pose, quat_from_rotvec
from robot_rl.robots.bodies import (
    EFFORT_NM,
    HERE,
    Frames,
    capsules,
    inertial_of,
    massive,
    quaternion,
    vec,
)
from robot_rl.robots.described import FEWEST, MOST, Described, bare_tool
from robot_rl.robots.fingers import (
    KINDS,
    NO_HAND,
    Fingers,
    fingers_of,
    gripper_of,
    hull_of,
    mounted,
)
from robot_rl.robots.robot import Capsule, Gripper, Inertial, Placement
from robot_rl.robots.urdf import TURNING, Urdf, UrdfJoint
from robot_rl.types import Pose

TOOL = "tool0"  # ROS-Industrial's name of the flange
FOOT = Inertial(1.0, (0.0, 0.0, 0.0), (0.01, 0.01, 0.01, 0.0, 0.0, 0.0))
"""Where the URDF says nothing of the foot; it never moves."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a person may say of the chain; "" = guess it, and say so.

    gripper: urdf (two sliding fingers behind the tip), none, or one of `KINDS`. tcp: link between
    the fingertips. tool_m, tool_kg: of a tool without fingers. find: the file of a mesh.
    """

    base: str = ""
    tip: str = ""
    gripper: str = ""
    tcp: str = ""
    tool_m: float = 0.0
    tool_kg: float = 0.0
    find: Callable[[str], Path | None] = field(default=lambda _: None)


def fold(urdf: Urdf, called: str, wishes: Wishes) -> tuple[Described, list[str]]:
    """(the arm, what was guessed). Home and workspace are placeholders: see `run.robot_guess`.

    Raises:
        ConfigError: no arm of 5 to 7 turning joints can be read from it.
    """
    remarks: list[str] = []
    base = urdf.link(wishes.base, "--base") if wishes.base else _base(urdf, remarks)
    fingers = fingers_of(urdf)
    tip = urdf.link(wishes.tip, "--tip") if wishes.tip else _tip(urdf, base, fingers, remarks)
    path = urdf.path(base, tip)
    arm = [joint for joint in path if joint.moves]
    _check(urdf, base, tip, arm)
    _say_what_is_missing(arm, remarks)
    frames = Frames(urdf, base, path)
    tool = urdf.behind(tip)[1:] if path[-1].moves else urdf.behind(tip)
    gripper, in_tip = _gripper(urdf, tip, fingers, wishes, remarks)
    flange = compose(frames.tip, in_tip)
    turned = pose((0.0, 0.0, 0.0), quat_from_rotvec((0.0, 0.0, gripper.yaw_rad)))
    seen = inverse(compose(flange, turned))  # all that is said of the hand is told in its frame
    parts = frames.parts(but=tool)
    hand = [(compose(seen, frames.places[name][1]), name) for name in tool]
    sliding = {n for f in fingers for joint in f.joints for n in urdf.behind(joint.child)}
    still = [(at, name) for at, name in hand if name not in sliding or not gripper.fingers]
    if wishes.gripper not in KINDS and (gripper.fingers or not wishes.tool_kg):
        mass = inertial_of(still, urdf, remarks) or (gripper.hand if still else NO_HAND)
        gripper = replace(gripper, hand=mass)
    joints = frames.joints(lambda n, joint: massive(parts.get(n, []), urdf, joint, remarks))
    reach_m, number = frames.reach_m, len(joints) + 1
    around = capsules(urdf, frames, parts | {number: still}, wishes.find, remarks)
    around += _around_gripper(gripper, number, any(c.link == number for c in around), remarks)
    found = Described(
        called=called,
        title=f"{urdf.name} with {gripper.name}" if gripper.fingers else urdf.name,
        joints=joints,
        foot=inertial_of(parts.get(0, []), urdf, remarks) or FOOT,
        flange=Placement(vec(flange.position_m), quaternion(flange.quaternion_xyzw)),
        home_rad=tuple(round(sum(joint.range_rad) / 2, 4) for joint in joints),
        gripper=gripper,
        workspace_min_m=(-reach_m, -reach_m, 0.0),
        workspace_max_m=(reach_m, reach_m, reach_m),
        base_frame=base,
        capsules=tuple(around),
    )
    return found, remarks


def _gripper(
    urdf: Urdf, tip: str, fingers: Sequence[Fingers], wishes: Wishes, remarks: list[str]
) -> tuple[Gripper, Pose]:
    """(gripper or tool, where it is mounted in the tip)."""
    behind = urdf.behind(tip)
    mine = next((f for f in fingers if f.mount in behind), None)
    kind = wishes.gripper or ("urdf" if mine else "none")
    if kind not in (known := ("urdf", "none", *KINDS)):
        fix = did_you_mean(kind, known)
        raise ConfigError(f"unknown gripper '{kind}'", expected=", ".join(known), got=kind, fix=fix)
    if kind == "urdf" and mine is None:
        raise ConfigError(
            "the URDF has no gripper behind the tip",
            expected=f"two sliding joints that one link behind {tip} carries",
            got=f"links from it on: {', '.join(behind)}",
            fix=f"--gripper none, or one of: {', '.join(KINDS)}",
        )
    if kind == "urdf" and mine is not None:
        return gripper_of(urdf, tip, mine, wishes.tcp, remarks)
    if not wishes.gripper:
        remarks.append("gripper: none, for there are no two sliding fingers (--gripper)")
    return KINDS.get(kind) or bare_tool(wishes.tool_m, wishes.tool_kg), HERE


def _around_gripper(
    gripper: Gripper, link: int, has_shape: bool, remarks: list[str]
) -> list[Capsule]:
    """Capsules of the gripper or tool itself, where the URDF does not show it.

    has_shape: the URDF has shapes behind the tip. Of a gripper that it describes they are enough;
    one that a person mounts there comes on top of them.
    """
    found = mounted(gripper, link)
    if found:
        remarks.append(
            f"collision: {gripper.name} and its camera get {len(found)} capsules, as on the robot "
            "that is shipped with them"
        )
    elif gripper.tcp_m > 0.0 and not (gripper.fingers and has_shape):
        found = hull_of(gripper, link)
        remarks.append(
            f"collision: no shape of the {gripper.name} in the URDF, a capsule of "
            f"{found[0].radius_m:.3f} m radius around its box instead: check it"
        )
    elif not has_shape:
        remarks.append(
            "collision: no tool, so what you mount is kept clear of nothing (--gripper, --tool-m)"
        )
    return found


def _base(urdf: Urdf, remarks: list[str]) -> str:
    """The root; behind a `world` the one link that is fixed to it."""
    base = urdf.root
    if base == "world" and len(urdf.children[base]) == 1 and not urdf.children[base][0].moves:
        base = urdf.children[base][0].child
    remarks.append(f"base: {base}, the root of the tree (--base)")
    return base


def _tip(urdf: Urdf, base: str, fingers: Sequence[Fingers], remarks: list[str]) -> str:
    """The end of the arm: what carries the fingers, or the one end of the tree."""
    carrying = [f.mount for f in fingers if f.mount in urdf.behind(base)]
    if len(carrying) == 1:
        remarks.append(f"tip: {carrying[0]}, which carries the fingers (--tip)")
        return carrying[0]
    ends = _ends(urdf, base)
    names = [name for name, count in ends.items() if count > 0]
    if len(names) > 1 and TOOL in names:
        names = [TOOL]
    if len(names) == 1:
        remarks.append(f"tip: {names[0]}, the end of the chain (--tip)")
        return names[0]
    raise ConfigError(
        "the URDF does not say which link the tool is mounted on",
        expected="--tip LINK, a link whose z axis points out of the tool",
        got=_candidates(ends) or "no link behind a joint that moves",
        fix=f"--tip {names[0]}" if names else "--base LINK",
    )


def _ends(urdf: Urdf, base: str) -> dict[str, int]:
    """Link that carries nothing -> joints of the arm from `base` to it; no fingers, no mimics."""
    found: dict[str, int] = {}
    fingers = {joint.name for pair in fingers_of(urdf) for joint in pair.joints}

    def is_arm(joint: UrdfJoint) -> bool:
        further = [j for n in urdf.behind(joint.child) for j in urdf.children[n] if j.moves]
        follows = joint.mimic and all(j.mimic for j in further)
        return not follows and joint.name not in fingers

    def walk(link: str, count: int) -> None:
        carried = [j for j in urdf.children[link] if is_arm(j)]
        if not carried:
            found[link] = count
        for joint in carried:
            walk(joint.child, count + joint.moves)

    walk(base, 0)
    return found


def _candidates(ends: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count} joints)" for name, count in ends.items() if count)


def _check(urdf: Urdf, base: str, tip: str, arm: Sequence[UrdfJoint]) -> None:
    """Refuse what is no arm of ours, with the joints' names and the way out."""
    for joint in arm:
        if joint.mimic:
            raise ConfigError(
                f"joint '{joint.name}' follows another one and is part of the arm",
                expected=f"joints of their own between {base} and {tip}",
                got=f"<mimic joint='{joint.mimic}'/>",
                fix=f"--tip {joint.parent}: what moves with another joint belongs behind the tip",
            )
        if joint.kind not in TURNING:
            raise ConfigError(
                f"joint '{joint.name}' does not turn",
                expected=f"turning joints between {base} and {tip}",
                got=joint.kind,
                fix=f"--base {joint.child} or --tip {joint.parent}: a linear axis is not driven",
            )
    if not FEWEST <= len(arm) <= MOST:
        names = [joint.name for joint in arm]
        bases = [j.parent for j in arm[max(len(arm) - MOST, 0) : len(arm) - FEWEST + 1]]
        way = f"--base {', or --base '.join(bases)}; or a nearer --tip"
        raise ConfigError(
            f"{len(arm)} joints between {base} and {tip}",
            expected=f"{FEWEST} to {MOST} turning joints",
            got=", ".join(names) or "none",
            fix=way
            if len(arm) > MOST
            else f"--tip a link further out: {_candidates(_ends(urdf, base))}",
        )
    bare = [
        j.name
        for j in arm
        if j.kind == "revolute" and (j.lower is None or j.upper is None or j.lower >= j.upper)
    ]
    slow = [j.name for j in arm if not j.velocity or j.velocity <= 0.0]
    for names, what, example in (
        (bare, "range", '<limit lower="-3.1" upper="3.1" velocity="2.0" effort="50"/>'),
        (slow, "velocity", '<limit velocity="2.0" .../>'),
    ):
        if names:
            raise ConfigError(
                f"joints without a {what}: {', '.join(names)}",
                expected=f"a limit with its {what}: the gate must know what the arm can do",
                got="none, or one that leaves no room",
                fix=f"write what the data sheet says (rad, rad/s): {example}",
            )


def _say_what_is_missing(arm: Sequence[UrdfJoint], remarks: list[str]) -> None:
    endless = [j.name for j in arm if j.kind == "continuous"]
    if endless:
        remarks.append(f"{', '.join(endless)}: continuous, range taken as +-2 pi rad")
    weak = [j.name for j in arm if not j.effort]
    if weak:
        remarks.append(f"{', '.join(weak)}: no effort, {EFFORT_NM:g} Nm in simulation")
