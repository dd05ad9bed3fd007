"""`robot-rl identify`: fit the simulated scene to a recorded run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, existing_run, say, write_json

TEXT = """
Find what the simulated arm has to be like for a recorded run to come out of it: the delay of
commands, factors on the controller's gains, the joints' damping and the motors' inertia, and the
joints' dry friction as a share of each one's greatest torque; with --cameras, where its cameras
are, too. Recorded episodes are played again and again, through the gate, and observations and
angles of joints compared (docs/isaac.md). Intervals tell how much the motion says of a quantity.
The run is only read. With --out the result is a task of your own: a twin of the recorded arm, to
train and to evaluate in.
"""
EXAMPLES = """
robot-rl identify runs/peg_insert/20260101-120000-s0
robot-rl identify RUN --fit action_delay_s,gains --seconds 30
robot-rl identify RUN --cameras                               from the recorded pictures
robot-rl identify RUN --out my_configs/task/my_twin.yaml
robot-rl train experiment=peg_insert task=my_twin --config-dir my_configs runtime=lockstep
robot-rl replay RUN --all 'task.ranges={action_delay_s: [0.06, 0.06]}'     the gap that is left
"""
FIT = """
which of action_delay_s, gains, joint_damping, joint_friction, armature (default: these), friction
(of surfaces) and object_mass, which need contact
"""


def run(argv: Sequence[str]) -> int:
    """Fit, and print what was found; return 0."""
    parser = Parser("identify", TEXT, EXAMPLES).with_run().with_json()
    parser.add_argument("--fit", default="", metavar="NAME[,NAME]", help=FIT)
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="of recorded motion (60)"
    )
    parser.add_argument("--cameras", action="store_true", help="find the poses of cameras, too")
    parser.add_argument("--out", type=Path, metavar="FILE.yaml", help="write a task")
    args = parser.read(argv)
    if not 5.0 <= args.seconds <= 3600.0:
        parser.error("--seconds must lie between 5 and 3600")
    if args.out is not None and args.out.suffix != ".yaml":
        parser.error(f"--out writes a .yaml file, not {args.out.name}")
    if args.out is not None and args.out.exists():
        parser.error(f"--out: {args.out} is there already; name another file, or delete that one")
    run_dir = existing_run(args.run)
    names = [word for word in args.fit.split(",") if word]
    chosen = {"quantities": names} if names else {}
    identify = engine("robot_rl.run.identify:identify")
    result = identify(run_dir, seconds=args.seconds, cameras=args.cameras, tell=say, **chosen)
    say(f"\n{result.episodes} episodes, {result.seconds:.0f} s")
    for one in result.found:
        say(f"{one.name:<16} {one.value:<8.4g} (95 % interval {one.low:.4g} to {one.high:.4g})")
    for line in result.gaps():
        say(line)
    if not result.explains:
        say("the gap hardly closed: these quantities do not explain it, intervals count for little")
    for camera in result.cameras:
        say(f"camera {camera.name} is off its nominal pose by (95 % interval)")
        for values, halves, unit, scale in (
            (camera.place_m, camera.place_half_m, "mm along the axes of its mount", 1e3),
            (camera.turn_rad, camera.turn_half_rad, "degrees about its own", math.degrees(1.0)),
        ):
            pairs = zip(values, halves, strict=True)
            said = ", ".join(f"{scale * v:.2f} (+-{scale * h:.2f})" for v, h in pairs)
            say(f"  {said} {unit}")
    ranges = ", ".join(f"{name}: {ends}" for name, ends in result.ranges().items())
    say(f"'task.ranges={{{ranges}}}'")
    if args.out is not None:
        say(f"task    {engine('robot_rl.run.identify:write_twin')(run_dir, result, args.out)}")
    write_json(args.json, {"ranges": result.ranges()} | result.as_dict())
    return 0
