"""`robot-rl replay`: play recorded episodes again in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, existing_run, say, write_json
from robot_rl.cli.progress import ProgressBar

if TYPE_CHECKING:
    from robot_rl.run.replay import Replayed

TEXT = """
Play recorded episodes again in the simulator: from the recorded start, with the executed actions,
one per control tick, through the same gate. For each episode it prints the gate's verdicts (what
was clipped then mostly passes now), whether the episode ends as it was recorded, and how far the
replay departs from the recording. Nothing is written into the run.

An episode that was recorded in lockstep is replayed exactly. The replay of an episode of a real
arm, or of the ROS 2 graph, departs from the recording; how far shows what the simulator does not
model. With task.ranges={...} it is played in another scene as well, for example with what
`robot-rl identify` found, and the two departures stand side by side. Exit code 1: an episode ended
otherwise than recorded.
"""
EXAMPLES = """
robot-rl replay runs/peg_insert/20260101-120000-s0                  the newest episode
robot-rl replay RUN --episode 3,7 --video both.mp4
robot-rl replay RUN --all --json replay.json
robot-rl replay RUN --all 'task.ranges={action_delay_s: [0.06, 0.06]}'
"""
FAR_MM = 5.0  # a start that is further away than this from the recorded one is reported


def run(argv: Sequence[str]) -> int:
    """Replay the episodes; return 0 when every one ends as it was recorded, else 1."""
    parser = Parser("replay", TEXT, EXAMPLES).with_run().with_json()
    parser.add_argument("scene", nargs="*", metavar="key=value", help="task.randomize, task.ranges")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--episode", default="", metavar="N[,N]", help="default: the newest")
    which.add_argument("--all", action="store_true", help="all episodes that have ended")
    parser.add_argument("--actor", default="", metavar="NAME", help="only this robot's episodes")
    parser.add_argument("--video", type=Path, metavar="FILE.mp4", help="film the replay")
    args = parser.read(argv)
    words = [word for word in args.episode.split(",") if word]
    if not all(word.isdecimal() for word in words):
        parser.error(f"--episode takes numbers, as in 3 or 3,7, not {args.episode}")
    run_dir = existing_run(args.run)
    if args.video is not None:
        if args.video.suffix != ".mp4":
            parser.error(f"--video writes an .mp4 file, not {args.video.name}")
        engine("robot_rl.data.video:VideoWriter")  # names its extra before anything is played

    def played(title: str, **more: Any) -> list[Replayed]:
        with ProgressBar(title) as progress:
            return engine("robot_rl.run.replay:replay")(
                run_dir,
                numbers=list(dict.fromkeys(map(int, words))),
                every=args.all,
                actor=args.actor,
                progress=progress,
                **more,
            )

    own = played("steps replayed in the run's scene") if args.scene else []
    replayed = played("steps replayed", video=args.video, scene=args.scene)
    told = {"episodes": [one.as_dict() for one in replayed]}
    write_json(args.json, told | ({"own_scene": [one.as_dict() for one in own]} if own else {}))
    for one, before in zip_longest(replayed, own):
        say(line(one, before))
    say(summary(replayed, own))
    if args.video is not None:
        say(f"video  {args.video}")
    return 0 if all(one.as_recorded for one in replayed) else 1


def line(one: Replayed, own: Replayed | None = None) -> str:
    """Text about one episode for a person; own: the same in the run's scene, to compare."""
    ended = _ended(one.success)
    if one.before is None:
        ended += ", nobody said before"
    else:
        ended += ", as before" if one.as_recorded else f", BEFORE: {_ended(one.before)}"
    verdicts = _said(one.outcomes)
    if one.outcomes != one.outcomes_before:
        verdicts += f" (before: {_said(one.outcomes_before)})"
    text = f"episode {one.episode:<4} {one.purpose:<5}  {ended}; {one.steps} steps, {verdicts};"
    text += f" off by {_reach(one, max(one.off))} at most, {_reach(one, one.off[-1])} at the end"
    if own is not None:
        text += f" (run's scene: {_reach(own, max(own.off))}, {_reach(own, own.off[-1])})"
    if one.held:
        text += f"\n              first held because of {one.held}"
    if one.unit and one.off[0] > FAR_MM:
        text += f"\n              it started {_reach(one, one.off[0])} off the recorded start"
    return text


def summary(replayed: Sequence[Replayed], own: Sequence[Replayed] = ()) -> str:
    """Text about all episodes for a person; own: the same in the run's scene."""
    same = sum(one.as_recorded for one in replayed)
    far = max(replayed, key=lambda one: max(one.off))
    where = f"in '{far.entry}'" if far.entry else "in an entry of the state"
    text = f"{same} of {len(replayed)} end as before; off by {_reach(far, max(far.off))} at most"
    text += f" {where} (episode {far.episode})"
    if own:
        furthest = max(own, key=lambda one: max(one.off))
        text += f"; in the run's scene by {_reach(furthest, max(furthest.off))}"
    return text


def _ended(success: bool) -> str:
    return "success" if success else "no success"


def _said(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items())


def _reach(one: Replayed, off: float) -> str:
    return f"{off:.2f} mm" if one.unit else f"{off:.3g}"
