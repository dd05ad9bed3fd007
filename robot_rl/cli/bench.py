"""`robot-rl bench`: speed, each figure with the machine it was measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robot_rl import provenance
from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.errors import ConfigError, did_you_mean

TEXT = """
Measure speed on this machine:
  env      environment steps per second, from state and with two cameras
  learner  gradient updates per second
  link     steps per second and round trip of the encrypted link
  loop     jitter of the control loop in real time
"""
EXAMPLES = """
robot-rl bench env
robot-rl bench learner --seconds 20 --json learner.json
robot-rl bench learner --threads 2 --compile --peer-python ~/lerobot/bin/python
"""


def run(argv: Sequence[str]) -> int:
    """Run one benchmark and print its figures."""
    parser = Parser("bench", TEXT, EXAMPLES).with_json()
    parser.add_argument("what", metavar="|".join(BENCHES))
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="about how long each measurement takes (5)"
    )
    parser.add_argument("--threads", type=int, default=1, help="learner: threads of torch (1)")
    parser.add_argument(
        "--peer-python", default="", metavar="PYTHON", help="learner: one with LeRobot in it"
    )
    parser.add_argument("--compile", action="store_true", help="learner: with torch.compile")
    args = parser.read(argv)
    if args.what not in BENCHES:
        raise ConfigError(
            f"unknown benchmark '{args.what}'",
            expected="robot-rl bench " + "|".join(BENCHES),
            got=args.what,
            fix=did_you_mean(args.what, BENCHES),
        )
    options = (args.threads, args.peer_python, args.compile) if args.what == "learner" else ()
    figures = BENCHES[args.what](args.seconds, *options)
    for key, value in figures.items():
        text = f"{value:,.4g}" if isinstance(value, float) else str(value)
        say(f"{key:<44} {text:>14}")
    write_json(args.json, {"bench": args.what, "figures": dict(figures), **provenance.collect()})
    return 0


def _env(seconds: float) -> Mapping[str, Any]:
    """Lockstep speed of the demo's task."""
    from robot_rl.experiment import Experiment

    bench = engine("robot_rl_sim.bench:bench_env")
    task = Experiment.compose(["experiment=peg_insert"]).task
    figures: dict[str, Any] = {}
    for name, images in (("state", False), ("two_images", True)):
        result = bench(task, images, seconds)
        figures |= {f"{name}/{key}": value for key, value in result.items()}
    return figures


def _from(target: str) -> Callable[..., Mapping[str, Any]]:
    """A benchmark that lives beside what it measures, imported when it is run."""

    def bench(seconds: float, *options: object) -> Mapping[str, Any]:
        return engine(target)(seconds, *options)

    return bench


BENCHES: dict[str, Callable[..., Mapping[str, Any]]] = {
    "env": _env,
    "learner": _from("robot_rl.learn.bench:bench"),
    "link": _from("robot_rl.link.bench:bench"),
    "loop": _from("robot_rl.loop_bench:bench"),
}
"""name -> function(seconds) returning {figure: number}; names carry units ("updates_per_s")."""
