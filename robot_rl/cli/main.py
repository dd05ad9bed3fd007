"""The `robot-rl` command: picks the verb, and turns every error into one readable block."""

from __future__ import annotations

import contextlib
import errno
import importlib
import keyword
import logging
import os
import signal
import sys
from collections.abc import Sequence

from robot_rl.cli import node

VERBS = {
    "demo": "teach a simulated arm to insert a peg, and watch it learn (start here)",
    "practice": "learn takeover and release in two minutes, on a simulated arm",
    "train": "train an experiment: demonstrations, practice with corrections, evaluation",
    "up": "start the ROS 2 graph of an experiment and keep it running",
    "sim": "node: simulated arm and cameras, with the topics of a real one",
    "gate": "node: limits and watchdogs, the only publisher of robot commands",
    "watchdog": "node: stops the arm when the gate dies",
    "operator": "node: the person (or the script) who corrects",
    "actor": "process: control loop of one robot",
    "learner": "process: replay, gradient updates, weights",
    "pause": "let a run wait between two episodes, and go on",
    "pair": "invite another machine to be the learner of a run",
    "studio": "one web page over all runs: watch, compare, start, finish, put away",
    "console": "the operator's web page: watch, take over, label, stop, review",
    "review": "look through the episodes of a run on a web page, and label them",
    "devices": "gamepads and SpaceMice of this machine: list, watch, calibrate",
    "leader": "a leader arm (GELLO, SO-101): find, watch, calibrate",
    "keyboard": "drive from a terminal, on a machine without a browser",
    "camera": "cameras: what is connected, what the network sees of it, what is cut out",
    "calibrate": "find where cameras are, how late they are, and where a gripper ends",
    "record": "record demonstrations",
    "base": "does a policy server (openpi, GR00T, LeRobot) fit a task? asked before anything moves",
    "serve-policy": "serve a base policy to other processes and machines",
    "eval": "measure a trained policy, or compare several blindly on the arm",
    "deploy": "let a trained policy work on the arm, for hours or for days",
    "generate": "demonstrations by policies that have learned a task: of each start the smoothest",
    "replay": "play recorded episodes again in the simulator, through the gate",
    "report": "write report.html of a run",
    "export": "write episodes for other programs: LeRobot dataset, MCAP bags, Rerun",
    "reward": "learn reward models from recorded episodes (success, progress, preferences)",
    "filter": "leave demonstrations that contradict others out of training",
    "import": "import demonstrations of another program (LeRobot or Minari) to learn from",
    "study": "learn a task with parts of the method left out: the ablation table",
    "task": "write a task for an arm by answering questions or by showing poses",
    "robot": "an arm of your own from its URDF: write, show, list",
    "keys": "make the keys by which actor and learner recognise each other",
    "doctor": "check this machine and say how to fix what is missing",
    "verify": "is a run as it was written? every row, checkpoint and policy, by checksums",
    "check": "load every experiment and explain it",
    "identify": "fit the simulated scene to a recorded run: delay, gains, damping",
    "usd": "write a task's scene as a USD stage, for Isaac Sim and Isaac Lab",
    "parity": "is a task's scene the same in another physics engine?",
    "faults": "break every part of the system and measure what it does then",
    "bench": "measure speed; `robot-rl bench --help` lists what",
}

HELP_HEAD = """\
robot-rl: real arms learn skills by reinforcement learning, with a person in the loop.

usage: robot-rl VERB [key=value ...] [options]

"""
HELP_TAIL = """
examples:
  robot-rl doctor                                  is everything installed?
  robot-rl demo                                    4 to 9 minutes, no robot, no GPU
  robot-rl practice                                take over and let go, two minutes
  robot-rl train experiment=peg_insert runtime=lockstep seed=1
  robot-rl train experiment=lift algo.gamma=0.98 --config     show, do not run
  robot-rl eval runs/peg_insert/... --episodes 100 --json eval.json

`robot-rl VERB --help` explains a verb. Every key=value is checked; if one is wrong, the error
suggests the right one.
"""


_PLACE = "give a place of yours, such as run_dir=FOLDER or the option that names the file"
PERSONS = {
    errno.EACCES: f"{_PLACE}, or ask its owner for the right",
    errno.EPERM: f"{_PLACE}, or ask its owner for the right",
    errno.EROFS: f"this file system is read-only: {_PLACE}",
    errno.ENOSPC: "free some space on this disk",
    errno.EDQUOT: "free some of your space on this disk",
    errno.ENOENT: "see whether it is written right, and whether its folder is there",
    errno.ENOTDIR: f"a file stands where a folder is meant: {_PLACE}",
    errno.EISDIR: f"a folder stands where a file is meant: {_PLACE}",
    errno.EEXIST: f"something of this name is there already: {_PLACE}",
    errno.ENAMETOOLONG: "give a shorter name",
}
"""What a person can do about an error of the operating system that names a file."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of writing to an open file, which do not name it, and whose fix needs no name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. Never raises, so tests and programs can call it.

    0 = done; 1 = the command ran and the answer is "no" (for example a failed check), or there was
    an unexpected error; 2 = wrong usage, configuration or machine; 130 = interrupted, and so 143
    and 129 where SIGTERM (systemd, docker stop) or SIGHUP (a terminal that is closed) has ended it.
    """
    if argv is None:
        _end_in_order()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or bool(os.environ.get("ROBOT_RL_DEBUG"))
    words = [w for w in words if w != "--debug"]
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO,
        format="%(levelname).1s %(name)s: %(message)s",
    )
    logging.getLogger("OpenGL").setLevel(logging.WARNING)  # "no accelerator" helps nobody
    try:
        return _dispatch(words)
    except SystemExit as stop:  # argparse: 0 after --help, 2 after wrong usage
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt as end:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print("\ninterrupted; what was recorded is safe", file=sys.stderr)
        return 128 + (end.number if isinstance(end, EndedError) else signal.SIGINT)
    except BrokenPipeError:  # `robot-rl ... | head`
        return 0
    except Exception as error:  # the last resort of the program; --debug shows the traceback
        return _explain(error, debug)


class EndedError(KeyboardInterrupt):
    """A signal asks this program to end, as Ctrl-C does: everything that it runs ends in order."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def _end_in_order() -> None:
    """Once: a shell and the kernel may both send SIGHUP, and what ends must not be cut short."""
    asked: list[int] = []
    shown = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def end(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            _say_nowhere(shown)
        if not asked:
            asked.append(number)
            raise EndedError(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not where nohup has it ignored
            signal.signal(number, end)


def _say_nowhere(descriptors: Sequence[int]) -> None:
    """What is still said to a terminal that is gone must not cut short what ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP_HEAD + _verb_list() + HELP_TAIL, end="")
        return 0
    if words[0] == "--version":
        from robot_rl import __version__

        print(f"robot-rl {__version__}")
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        from robot_rl.errors import ConfigError, did_you_mean

        raise ConfigError(
            f"unknown verb '{verb}'",
            expected="robot-rl VERB ...",
            got=verb,
            fix=did_you_mean(verb, VERBS),
        )
    if verb in node.TEXTS:
        return node.run(verb, rest)
    module = f"{verb}_" if keyword.iskeyword(verb) else verb.replace("-", "_")
    return importlib.import_module(f"robot_rl.cli.{module}").run(rest)


def _verb_list() -> str:
    return "verbs:\n" + "".join(f"  {verb:<14}{text}\n" for verb, text in VERBS.items())


def _explain(error: Exception, debug: bool) -> int:
    """Print an error in a form that helps a person; return the exit code."""
    from robot_rl.errors import RobotRLError

    if debug:
        logging.getLogger(__name__).error("traceback (--debug)", exc_info=error)
    if isinstance(error, RobotRLError):
        from robot_rl.cli.common import printable

        print(f"error: {printable(str(error))}", file=sys.stderr)  # it may quote a server
        return 2
    fix = PERSONS.get(error.errno or 0) if isinstance(error, OSError) else None
    if isinstance(error, OSError) and fix and (error.filename is not None or error.errno in FULL):
        file = f": {error.filename}" if error.filename is not None else ""
        print(f"error: {error.strerror}{file}", file=sys.stderr)
        print(f"  fix:      {fix}", file=sys.stderr)
        return 2
    print(f"unexpected error: {type(error).__name__}: {error}", file=sys.stderr)
    print("  fix:      run it again with --debug and report what it prints", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
