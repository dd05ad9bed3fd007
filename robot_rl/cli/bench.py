"""`robot-rl bench`: measure speed; each figure is saved with the machine it was measured on."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
           (about four minutes an arm; exit code 1 when something FAILED)
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
    """Run one benchmark and print its figures; 1 when `arms` or `endurance` found a failure."""
    parser = Parser("bench", TEXT, EXAMPLES).with_json()
    known = (*BENCHES, ENDURANCE)
    parser.add_argument("what", metavar="|".join(known))
    for name, option in OPTIONS.items():
        option.add_to(parser, name)
    given = vars(parser.read(argv))
    what, json = given.pop("what"), given.pop("json")
    if what not in known:
        raise ConfigError(
            f"unknown benchmark '{what}'",
            expected="robot-rl bench " + "|".join(known),
            got=what,
            fix=did_you_mean(what, known),
        )
    for name, value in given.items():
        OPTIONS[name].check(what, name, value)
    options = {
        name: given.get(name, o.default) for name, o in OPTIONS.items() if what in o.of.split()
    }
    if what == ENDURANCE:
        return _endurance(json, **options)
    figures = BENCHES[what](options.pop("seconds", 0.0), **options)
    targets = _targets(what, figures)
    for key, value in figures.items():
        text = f"{value:,.4g}" if isinstance(value, float) else str(value)
        say(f"{key:<44} {text:>14}{_beside(targets.get(key))}")
    more = {"targets": targets} if targets else {}
    facts = {"bench": what, "figures": _as_json(figures), **more, **provenance.collect()}
    write_json(json, facts)
    if what != "arms":
        return 0
    from robot_rl.bench.arms import FAILED

    return int(any(cell.startswith(FAILED) for cell in figures.values()))


def _as_json(value: Any) -> Any:
    """The same with null in the place of NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _learner(seconds: float, *, compile: bool, **options: Any) -> Mapping[str, Any]:
    """Measure the learner; compiling a case takes half a minute, so the cases are counted."""
    with ProgressBar("cases") as bar:
        figures: Mapping[str, Any] = engine("robot_rl.bench.learner:bench")(
            seconds, compiled=compile, progress=bar, **options
        )
    return figures


def _styles(_seconds: float, *, out: Path | None, seeds: int) -> Mapping[str, Any]:
    """Two ways of one task; takes as long as it takes."""
    folder = out or Path("runs/styles")
    with ProgressBar("seeds") as bar:
        return engine("robot_rl.bench.styles:bench")(folder=folder, seeds=seeds, progress=bar)


def _inverse(_seconds: float, *, out: Path | None, tasks: str, **options: Any) -> Mapping[str, Any]:
    """Demonstrations with inferred actions; takes as long as it takes, and can go on."""
    options |= {"task": tasks} if tasks else {}
    folder = out or Path("runs/inverse")
    with ProgressBar("policies") as bar:
        return engine("robot_rl.bench.inverse:bench")(folder=folder, progress=bar, **options)


def _endurance(json: Path | None, *, out: Path | None, **options: Any) -> int:
    """Run the long runs, print what was found; 1 when something is lost, doubled or grows."""
    bench = engine("robot_rl.bench.faults.endurance:bench")
    with ProgressBar("seconds") as bar:
        found = bench(out or Path("runs/endurance"), progress=bar, **options)
    for line in engine("robot_rl.bench.faults.endurance:text")(found):
        say(line)
    wrong = engine("robot_rl.bench.faults.endurance:failed")(found)
    facts = {"bench": ENDURANCE, "figures": _as_json(found), "wrong": wrong}
    write_json(json, {**facts, **provenance.collect()})
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
        from robot_rl.bench.store import TARGET_STEPS, TARGETS

        limits = TARGETS if figures["steps"] >= TARGET_STEPS else {}
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


@dataclass(frozen=True, slots=True)
class Option:
    """An option of some benchmarks.

    of: their names; default: when it is not given; over: its number must be more than this;
    type, metavar, choices: as in `argparse`.
    """

    of: str
    text: str
    default: Any = ""
    over: float | None = None
    type: Callable[[str], Any] = str
    metavar: str = "N"
    choices: tuple[str, ...] | None = None

    def add_to(self, parser: Parser, name: str) -> None:
        """Let the parser take it; what it reads has it only where it is given."""
        if self.default is False:
            how: dict[str, Any] = {"action": "store_true"}
        else:
            how = {"type": self.type, "metavar": self.metavar, "choices": self.choices}
        text = f"{self.text} ({self.default})" if self.default else self.text
        parser.add_argument(_flag(name), default=argparse.SUPPRESS, help=text, **how)

    def check(self, what: str, name: str, value: Any) -> None:
        """Refuse it for another benchmark, and a number with which there is nothing to measure.

        Raises:
            ConfigError: one of both.
        """
        if what not in self.of.split():
            raise ConfigError(
                f"bench {what} has no option {_flag(name)}",
                expected=", ".join(_flag(n) for n, o in OPTIONS.items() if what in o.of.split())
                or "none",
                got=_flag(name),
                fix=f"leave it out: it is an option of bench {', '.join(self.of.split())}",
            )
        if self.over is not None and not self.over < value < math.inf:
            raise ConfigError(
                f"{_flag(name)} leaves nothing to measure",
                expected=f"more than {self.over:g}",
                got=f"{value:g}",
                fix=f"leave {_flag(name)} out: it has a default",
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


TIMED = [n for n in BENCHES if n not in ("store", "arms", "exam", "person", "styles", "inverse")]
OPTIONS: dict[str, Option] = {
    "seconds": Option(
        " ".join(TIMED), f"{', '.join(TIMED)}: about how long each measurement takes", 5, 0, float
    ),
    "threads": Option("learner", "learner: threads of torch", 1, 0, int),
    "peer_python": Option("learner", "learner: a Python that has LeRobot", metavar="PYTHON"),
    "compile": Option("learner", "learner: with torch.compile", False),
    "profile": Option("learner", "learner: also what the time of an update goes to", False),
    "device": Option(
        "learner", "learner: where it computes", "cpu", metavar="cpu|cuda", choices=("cpu", "cuda")
    ),
    "frames": Option("reward", "reward: frames; 0 = for --seconds", 10_000, -1, int),
    "steps": Option("store", "store: steps", 20_000, 9, int),
    "columns": Option("arms", "arms: up,demos,learn,deploy,kill (all)", metavar="COLUMN,..."),
    "config_dir": Option("arms", "arms: profiles of your own", None, None, Path, "DIR"),
    "minutes": Option(
        "endurance person",
        "endurance: of each part (lockstep 60, graph 45); person: of a sitting at most (11)",
        None,
        0,
        float,
    ),
    "out": Option(
        "endurance person styles inverse",
        "endurance, person, styles, inverse: gets the run folders (runs/endurance, ...)",
        None,
        None,
        Path,
        "FOLDER",
    ),
    "tasks": Option(
        "person inverse",
        "person: some of lift,peg_insert_easy (all); inverse: an experiment (peg_insert)",
        metavar="TASK,...",
    ),
    "seeds": Option(
        "person styles inverse",
        "person: sittings at each task; styles, inverse: how often all is done",
        3,
        0,
        int,
    ),
    "demos": Option("person", "person: demonstrations of a sitting", 10, 0, int),
    "source": Option(
        "person",
        "person: a checkout of another commit, whose run and page are used",
        None,
        None,
        Path,
        "FOLDER",
    ),
    "only": Option(
        "console ik arms learner inverse endurance",
        "console: some of key,hand,kill,server,video,memory,review (all); ik: alone,position,"
        "velocity,trajectory; arms: their names; endurance: lockstep,graph; learner: its cases; "
        "inverse: clone,rl",
        metavar="PART,...",
    ),
    "presses": Option("console", "console, key and hand: presses of the drive key", 500, 0, int),
    "trials": Option("console", "console, kill: times that the server is killed", 20, 0, int),
    "hours": Option(
        "console",
        "console, memory: hours of telemetry, sent as fast as the page takes it",
        8,
        0,
        float,
    ),
    "episodes": Option("console", "console, review: episodes in the store", 1000, 1, int),
}
"""Options by their names as keywords of the benchmarks."""
