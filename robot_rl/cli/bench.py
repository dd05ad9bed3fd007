"""`robot-rl bench`: measure speed; each figure is saved with the machine it was measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.progress import ProgressBar
from robot_rl.config import provenance
from robot_rl.errors import ConfigError, did_you_mean

TEXT = """
Measure speed on this machine:
  env      environment steps per second, from state and with two cameras
  learner  gradient updates per second
  heads    time of one decision of each head, without its base policy, on one core
  link     steps per second and round trip of the encrypted link
  store    a store of many steps: rows written per second, restart of a learner up to its first
           update, summaries, verification, memory; an actor's with pictures: size of the file
           and time of a commit, with and without removing what the learner has
  gate     time of one judgement of the gate, with the collision check
  loop     jitter of the control loop in real time
  ik       joint targets for an arm that takes no others: the solver alone, and the node on
           doubles with kill -9 of it (a minute and a half)
  arms     what works with which arm, on its double: up, demos, learn, deploy, kill -9
           (about four minutes an arm)
  actors   rows per second of 1 and 4 simulated actors paced at 10 Hz, and of 1 and 2 unpaced
  exam     how often the exam that ends practice decides wrongly, by simulation
  reward   the client's cost of asking a vision-language model; a stand-in acts as the server
  console  the operator's page and its targets: key to gate, server killed, video, memory, review
           (a real browser and, for key, hand and kill, the whole ROS 2 graph; 14 minutes in all)
  person   the operator's page and a stand-in for a person, who sees only the page: time from
           opening it to the first demonstration and to the tenth (the same needs; up to an hour)
  styles   two scripted people who pass a post on two sides: are they told apart, and does a clone
           profit from `robot-rl filter --compatible` (half an hour)
  inverse  demonstrations of which a fifth has actions, and the others get them from an inverse
           dynamics model: clones and practice with them (a quarter, and half of an hour)
  endurance  an hour at full speed with a kill -9 each minute, and 45 minutes of the whole ROS 2
           graph with the page open: rows lost or doubled, memory, descriptors, missed ticks;
           exit code 1 when something is lost or grows
"""
EXAMPLES = """
robot-rl bench env
robot-rl bench learner --seconds 20 --json learner.json
robot-rl bench learner --threads 2 --compile --peer-python ~/lerobot/bin/python
robot-rl bench learner --device cuda --compile           on a GPU, with CUDA graphs
robot-rl bench learner --only cameras_64 --profile       what an update's time goes to
robot-rl bench store --steps 1000000                     some minutes, 1 GB of disk
robot-rl bench gate --seconds 20                         20 s for each of two arms
robot-rl bench reward --frames 2000
robot-rl bench arms --only ur5e_forward,fr3_joint --columns up,kill
robot-rl bench console --only video,review --seconds 60
robot-rl bench console --only kill --trials 1000 --json kill.json      half an hour
robot-rl bench person --tasks lift --seeds 1 --out /tmp/person       what it saw and pressed is kept
robot-rl bench styles --seeds 3 --out /tmp/styles --json styles.json
robot-rl bench inverse --only clone --tasks pick_insert --out /tmp/inverse
robot-rl bench endurance --json endurance.json                         an hour and three quarters
robot-rl bench endurance --only graph --minutes 20
"""


def run(argv: Sequence[str]) -> int:
    """Run one benchmark and print its figures."""
    parser = Parser("bench", TEXT, EXAMPLES).with_json()
    parser.add_argument("what", metavar="|".join((*BENCHES, ENDURANCE)))
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="about how long each measurement takes (5)"
    )
    parser.add_argument("--threads", type=int, default=1, help="learner: threads of torch (1)")
    parser.add_argument(
        "--peer-python", default="", metavar="PYTHON", help="learner: a Python that has LeRobot"
    )
    parser.add_argument("--compile", action="store_true", help="learner: with torch.compile")
    parser.add_argument(
        "--profile", action="store_true", help="learner: also what the time of an update goes to"
    )
    parser.add_argument(
        "--device", default="cpu", metavar="cpu|cuda", help="learner: where it computes (cpu)"
    )
    parser.add_argument(
        "--frames", type=int, default=10_000, help="reward: frames; 0 = for --seconds (10000)"
    )
    parser.add_argument(
        "--steps", type=int, default=20_000, metavar="N", help="store: steps (20000)"
    )
    parser.add_argument(
        "--columns", default="", metavar="COLUMN,...", help="arms: up,demos,learn,deploy,kill (all)"
    )
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="arms: profiles of your own")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="endurance: of each part (lockstep 60, graph 45); person: of a sitting at most (11)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="endurance, person, styles, inverse: gets the run folders (runs/endurance, ...)",
    )
    person = parser.add_argument_group("person")
    person.add_argument(
        "--tasks",
        default="",
        metavar="TASK,...",
        help="some of lift,peg_insert_easy (all); of inverse: an experiment (peg_insert)",
    )
    person.add_argument(
        "--seeds",
        type=int,
        default=3,
        metavar="N",
        help="sittings at each task; also of styles and inverse (3)",
    )
    person.add_argument(
        "--demos", type=int, default=10, metavar="N", help="demonstrations of a sitting (10)"
    )
    person.add_argument(
        "--source",
        type=Path,
        metavar="FOLDER",
        help="a checkout of another commit, whose run and page are used",
    )
    console = parser.add_argument_group("console")
    console.add_argument(
        "--only",
        default="",
        metavar="PART,...",
        help="some of key,hand,kill,server,video,memory,review (all); of ik: alone,position,"
        "velocity,trajectory; of arms: their names; of endurance: lockstep,graph; of "
        "learner: its cases; of inverse: clone,rl",
    )
    for name, kind, default, text in CONSOLE:
        console.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{text} ({default})"
        )
    args = parser.read(argv)
    if args.what == ENDURANCE:
        out = args.out or Path("runs/endurance")
        return _endurance(out, args.json, minutes=args.minutes, only=args.only)
    if args.what not in BENCHES:
        raise ConfigError(
            f"unknown benchmark '{args.what}'",
            expected="robot-rl bench " + "|".join((*BENCHES, ENDURANCE)),
            got=args.what,
            fix=did_you_mean(args.what, (*BENCHES, ENDURANCE)),
        )
    options: dict[str, dict[str, Any]] = {
        "learner": {
            "threads": args.threads,
            "peer_python": args.peer_python,
            "compiled": args.compile,
            "device": args.device,
            "only": args.only,
            "profile": args.profile,
        },
        "store": {"steps": args.steps},
        "ik": {"only": args.only},
        "arms": {"only": args.only, "columns": args.columns, "config_dir": args.config_dir},
        "reward": {"frames": args.frames},
        "console": {name: getattr(args, name) for name in ("only", *(c[0] for c in CONSOLE))},
        "person": {
            name: getattr(args, name)
            for name in ("tasks", "seeds", "demos", "minutes", "out", "source")
        },
    }
    if args.what == "styles":
        options["styles"] = {"seeds": args.seeds, "folder": args.out or Path("runs/styles")}
    if args.what == "inverse":
        given = {"task": args.tasks} if args.tasks else {}
        place = {"folder": args.out or Path("runs/inverse"), "only": args.only}
        options["inverse"] = {"seeds": args.seeds, **place, **given}
    figures = BENCHES[args.what](args.seconds, **options.get(args.what, {}))
    targets = _targets(args.what, figures)
    for key, value in figures.items():
        text = f"{value:,.4g}" if isinstance(value, float) else str(value)
        say(f"{key:<44} {text:>14}{_beside(targets.get(key))}")
    more = {"targets": targets} if targets else {}
    facts = {"bench": args.what, "figures": dict(figures), **more, **provenance.collect()}
    write_json(args.json, facts)
    return 0


def _learner(seconds: float, **options: Any) -> Mapping[str, Any]:
    """Measure the learner; compiling a case takes half a minute, so the cases are counted."""
    with ProgressBar("cases") as bar:
        figures: Mapping[str, Any] = engine("robot_rl.bench.learner:bench")(
            seconds, progress=bar, **options
        )
    return figures


def _styles(_seconds: float, **options: Any) -> Mapping[str, Any]:
    """Two ways of one task; takes as long as it takes."""
    with ProgressBar("seeds") as bar:
        return engine("robot_rl.bench.styles:bench")(progress=bar, **options)


def _inverse(_seconds: float, **options: Any) -> Mapping[str, Any]:
    """Demonstrations with inferred actions; takes as long as it takes, and can go on."""
    with ProgressBar("policies") as bar:
        return engine("robot_rl.bench.inverse:bench")(progress=bar, **options)


def _endurance(out: Path, json: Path | None, **options: Any) -> int:
    """Run the long runs, print what was found; 1 when something is lost, doubled or grows."""
    bench = engine("robot_rl.bench.faults.endurance:bench")
    with ProgressBar("seconds") as bar:
        found = bench(out, progress=bar, **options)
    for line in engine("robot_rl.bench.faults.endurance:text")(found):
        say(line)
    wrong = engine("robot_rl.bench.faults.endurance:failed")(found)
    write_json(json, {"bench": ENDURANCE, "figures": found, "wrong": wrong, **provenance.collect()})
    return int(bool(wrong))


def _targets(what: str, figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Targets by figure: the most or the least that it may be, and whether the target is met."""
    if what == "actors":
        from robot_rl.bench.actors import TARGETS as least  # noqa: N811

        return {
            name: {"at_least": limit, "met": bool(figures[name] >= limit)}
            for name, limit in least.items()
        }
    if what == "console":
        from robot_rl.bench.console import TARGETS as limits  # noqa: N811
    elif what == "person":
        from robot_rl.bench.person import TARGETS as limits  # noqa: N811
    elif what == "reward":
        from robot_rl.bench.vlm import TARGETS as limits  # noqa: N811
    elif what == "store":
        from robot_rl.bench.store import TARGETS as limits  # noqa: N811
    elif what == "gate":
        from robot_rl.bench.gate import TARGETS as limits  # noqa: N811
    else:
        return {}
    return {
        name: {"at_most": limit, "met": bool(figures[name] <= limit)}  # NaN is not met
        for name, limit in limits.items()
        if name in figures
    }


def _beside(target: Mapping[str, Any] | None) -> str:
    """Text that is printed behind a figure: its target and whether it is met, or ""."""
    if target is None:
        return ""
    word, limit = next((key, value) for key, value in target.items() if key != "met")
    met = "ok" if target["met"] else "MISSED"
    return f"   {word.replace('_', ' ')} {limit:>7,g}  {met}"


def _env(seconds: float) -> Mapping[str, Any]:
    """Lockstep speed of the demo's task, and what a randomised scene costs."""
    from robot_rl.run.experiment import Experiment

    bench = engine("robot_rl.bench.env:bench_env")
    figures: dict[str, Any] = {}
    cases = (
        ("state", "[]", ("none", "light")),
        ("two_images", "[wrist,front]", ("none", "light", "cameras")),
    )
    for name, images, presets in cases:
        for preset in presets:
            words = [f"task.images={images}", f"task.randomize={preset}", "task.image_size=128"]
            task: Any = Experiment.compose(["experiment=peg_insert", *words]).task
            case = name if preset == "none" else f"{name}_{preset}"
            result = bench(task, bool(task.images), seconds)
            figures |= {f"{case}/{key}": value for key, value in result.items()}
        speed = "env_steps_per_cpu_s"
        for preset in presets[1:]:
            share = figures[f"{name}_{preset}/{speed}"] / figures[f"{name}/{speed}"]
            figures[f"{name}/{preset}_vs_none"] = share
    return figures


def _from(target: str) -> Callable[..., Mapping[str, Any]]:
    """Return the benchmark "module:function", which is imported only when it runs."""

    def bench(seconds: float, **options: object) -> Mapping[str, Any]:
        return engine(target)(seconds, **options)

    return bench


CONSOLE: tuple[tuple[str, type, float, str], ...] = (
    ("presses", int, 500, "key: presses of the drive key"),
    ("trials", int, 20, "kill: times that the server is killed"),
    ("hours", float, 8.0, "memory: hours of telemetry, sent as fast as the page takes it"),
    ("episodes", int, 1000, "review: episodes in the store"),
)
"""Options of `bench console`: name, type, default, help."""

ENDURANCE = "endurance"  # its figures are tables, and some of them are promises

BENCHES: dict[str, Callable[..., Mapping[str, Any]]] = {
    "env": _env,
    "learner": _learner,
    "heads": _from("robot_rl.bench.heads:bench"),
    "link": _from("robot_rl.bench.link:bench"),
    "store": _from("robot_rl.bench.store:bench"),
    "gate": _from("robot_rl.bench.gate:bench"),
    "loop": _from("robot_rl.bench.loop:bench"),
    "ik": _from("robot_rl.bench.ik:bench"),
    "arms": _from("robot_rl.bench.arms:bench"),
    "actors": _from("robot_rl.bench.actors:bench"),
    "exam": _from("robot_rl.bench.exam:bench"),
    "reward": _from("robot_rl.bench.vlm:bench"),
    "console": _from("robot_rl.bench.console:bench"),
    "person": _from("robot_rl.bench.person:bench"),
    "styles": _styles,
    "inverse": _inverse,
}
"""name -> function(seconds) returning {figure: number}; names carry units ("updates_per_s")."""
