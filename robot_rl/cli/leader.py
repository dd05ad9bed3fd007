"""`robot-rl leader`: find, watch and calibrate a leader arm."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, say
from robot_rl.errors import ConfigError, SetupError, did_you_mean

if TYPE_CHECKING:
    from robot_rl_hardware.leader import SerialLeading
    from robot_rl_hardware.servos import ServoLine

TEXT = """
Find the serial lines that leader arms are on, watch a leader's joints, or calibrate it: put it into
the pose that is named, press Enter, turn each joint a little the way that is told, press Enter, let
go of its trigger, press Enter, pull the trigger, press Enter. The calibration is kept for every
later run with this leader. Nothing is written to the servos, and no robot is moved.
"""
EXAMPLES = """
robot-rl leader                                          the serial lines of this machine
robot-rl leader gello --robot fr3 --calibrate            once for each leader
robot-rl leader so101 --watch 20
robot-rl leader gello --robot ur5e --calibrate --signs 1 1 -1 1 1 1
"""
KINDS = {"gello": "GelloConfig", "so101": "So101Config"}
AVERAGED = 25  # readings of one measurement
PERIOD_S = 0.05


def run(argv: Sequence[str]) -> int:
    """List, watch or calibrate; return 1 when there is no line."""
    parser = Parser("leader", TEXT, EXAMPLES)
    parser.add_argument("kind", nargs="?", default="", metavar="KIND", help="gello or so101")
    parser.add_argument("--robot", default="fr3", help="which robot a GELLO is a copy of")
    parser.add_argument("--port", default="", help="path or part of the adapter's name")
    parser.add_argument("--baud", type=int, default=0, metavar="N", help="default: as delivered")
    parser.add_argument("--ids", type=int, nargs="+", default=[], help="servos from foot to tool")
    parser.add_argument("--signs", type=int, nargs="+", default=[], help="1 or -1 for each joint")
    parser.add_argument("--calibrate", action="store_true", help="measure and save the zeros")
    parser.add_argument("--watch", type=float, default=0.0, metavar="SECONDS")
    args = parser.read(argv)
    if not args.kind:
        return _list()
    if args.kind not in KINDS:
        raise ConfigError(
            f"unknown leader '{args.kind}'",
            expected=" or ".join(KINDS),
            got=args.kind,
            fix=did_you_mean(args.kind, KINDS),
        )
    config = engine(f"robot_rl_hardware.leader:{KINDS[args.kind]}")(
        port=args.port, baud=args.baud, ids=tuple(args.ids)
    )
    robot = engine("robot_rl.config.registry:resolve")("robot", {"name": args.robot})
    if args.calibrate:
        _calibrate(config, robot, tuple(args.signs))
    if args.watch > 0 or not args.calibrate:
        _watch(config, config.joints(robot), args.watch or PERIOD_S)
    return 0


def _list() -> int:
    found = engine("robot_rl_hardware.servos:find_ports")()
    say("\n".join(map(str, found)) or "no serial line on USB (/dev/serial/by-id)")
    return 0 if found else 1


def _calibrate(config: SerialLeading, robot: Any, signs: tuple[int, ...]) -> None:
    """Measure zeros and trigger, check the signs, and save them."""
    from robot_rl_hardware import leader_map
    from robot_rl_hardware.leader import map_name

    n = config.joints(robot)
    known_rad, default, words = config.known_pose(robot)
    signs = signs or tuple(default)
    if len(signs) != n or set(signs) - {1, -1}:
        raise ConfigError(
            "these are not the signs of this leader's joints",
            expected=f"{n} numbers, each 1 or -1",
            got=" ".join(map(str, signs)),
            fix="one for each joint from foot to tool: --signs 1 1 -1 ...",
        )
    line = config.line(n)
    try:
        _wait(f"Put the leader {words} ({_degrees(known_rad)}), then press Enter.")
        measured = _measure(line)
        zero_rad = leader_map.solve(measured[:n], known_rad, signs, quarters=config.quarters)
        aside_rad, motions = config.second_pose(robot)
        say("From this pose turn each joint by about 20 degrees, one after the other:")
        for number, motion in enumerate(motions, start=1):
            say(f"  joint {number}: {motion}")
        _wait("(as seen from behind the foot, along x of the base). Hold it so, then press Enter.")
        leader_map.check_signs(measured[:n], _measure(line)[:n], signs, aside_rad)
        ends = None
        if len(line.ids) > n:
            _wait("Let go of the trigger, then press Enter.")
            opened = float(_measure(line)[n])
            _wait("Pull the trigger all the way, then press Enter.")
            ends = leader_map.trigger_ends(opened, float(_measure(line)[n]))
    finally:
        line.close()
    found = leader_map.LeaderMap(zero_rad=zero_rad, signs=signs, trigger_rad=ends)
    path = leader_map.save(map_name(config.kind, line.path), found)
    off = [
        s * (m - z) - k for m, z, s, k in zip(measured, zero_rad, signs, known_rad, strict=False)
    ]
    say(f"beside the pose by {_degrees(off)}\nwritten to {path}")


def _measure(line: ServoLine) -> Any:
    """Mean position of each servo in radians, over half a second.

    Raises:
        OSError, SetupError: servos fall silent, or the leader is moved.
    """
    import numpy as np

    from robot_rl_hardware.servos import radians

    rows: list[list[float]] = []
    while len(rows) < AVERAGED:
        ticks = line.ticks()
        rows += [[radians(ticks[n]) for n in line.ids]] if ticks else []
    spread = float(np.ptp(np.array(rows), axis=0).max())
    if spread > 0.05:
        raise SetupError(
            "the leader was moved while it was measured",
            expected="all joints at rest for half a second",
            got=f"{np.degrees(spread):.0f} degrees of motion",
            fix="hold it still, or support it, and repeat",
        )
    return np.mean(rows, axis=0)


def _watch(config: SerialLeading, joints: int, seconds: float) -> None:
    """Show the joints live."""
    from rich.live import Live

    from robot_rl_hardware.leader import LeaderReader

    reader = LeaderReader(config, joints)
    try:
        with Live(auto_refresh=False) as live:
            _every(seconds, lambda: live.update(_picture(reader), refresh=True))
    finally:
        reader.close()


def _picture(reader: Any) -> str:
    found = None
    end_s = time.monotonic() + 1.0
    while found is None and time.monotonic() < end_s:
        found = reader.read()
        time.sleep(0.005)
    if found is None:
        return f"{reader.name}: nothing heard"
    trigger = "" if found.trigger is None else f"   trigger {100 * found.trigger:.0f} %"
    return f"{reader.name}: {_degrees(found.position_rad)}{trigger}"


def _degrees(angles_rad: Any) -> str:
    import numpy as np

    return " ".join(f"{a:+.0f}" for a in np.degrees(np.asarray(angles_rad, float))) + " deg"


def _wait(words: str) -> None:
    """Ask for Enter. Raises `SetupError` when nobody can press it."""
    say(words)
    if not sys.stdin.readline():
        raise SetupError(
            "calibration needs somebody at the keyboard",
            expected="Enter before each measurement",
            got="the end of the input",
            fix="run it in a terminal",
        )


def _every(seconds: float, action: Callable[[], None]) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        action()
        time.sleep(PERIOD_S)
