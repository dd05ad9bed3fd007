"""Training at full speed for an hour, and a kill -9 each minute.

The run is `robot-rl train runtime=lockstep actors=1`: the command itself, the learner's process and
the actor's, with simulator, gate and loop in it, over the encrypted link. Simulated time goes as
fast as it is computed. What is killed: in the first 25 of 60 minutes the actor, so that one learner
can be watched for long; in the next 20 the learner, for the same reason; in the last 15 the actor,
the learner or the command, by lot. A command that was killed is given again.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from robot_rl.bench.faults.soak_memory import SAMPLES, Sampler, children, judge, words_of
from robot_rl.bench.faults.soak_rows import Ledger, damage
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.config.run_folder import ACTOR_STORE, ARMS, LEARNER_STORE
from robot_rl.console.address import HOST
from robot_rl.errors import RobotRLError
from robot_rl.system.files import Tail
from robot_rl.system.ports import probe

log = logging.getLogger(__name__)

LONG = 10_000_000_000  # steps and minutes that no soak reaches
WORDS = (
    *("experiment=reach", "runtime=lockstep", "operator=none", "actors=1", "train.demos=0"),
    *("algo.hidden=[64,64]", "algo.batch_size=64", "learner.utd=1"),
    "learner.capacity=5000",  # full within the warm-up: what grows after it is a leak
    *(f"train.max_env_steps={LONG}", f"train.min_env_steps={LONG}", f"train.max_minutes={LONG}"),
    "train.video=false",
)
MODULES = {"learner": "robot_rl.run.learner", "actor": "robot_rl.run.sim_actor"}
COMMAND = "command"
PARTS = (  # until which part of the time, who
    (25 / 60, ("actor",)),
    (45 / 60, ("learner",)),
    (1.0, ("actor", "learner", COMMAND)),
)
NICE = 5  # the graph that may run beside has deadlines
START_S = 120.0
BACK_S = 150.0  # until everything of before a kill is at the learner, and more comes
END_S = 180.0  # on a busy machine
LOOK_S = 0.05

Tell = Callable[[float], object]
"""Is told how many seconds have passed."""


class Run:
    """The command and its processes. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.actor_store = self.run_dir / ARMS / "arm1" / ACTOR_STORE
        self.learner_store = self.run_dir / LEARNER_STORE
        self._words = [*WORDS, f"link.port={probe(HOST, 0)}", f"run_dir={self.run_dir}"]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "robot_rl.cli.main", "train", *self._words]
        with (self.folder / "command.log").open("ab") as output:
            return subprocess.Popen(
                ["nice", "-n", str(NICE), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def pids(self) -> dict[str, int]:
        """Name -> process id of what runs now."""
        found = {COMMAND: self._process.pid} if self._process.poll() is None else {}
        for pid in children(self._process.pid):
            words = words_of(pid)
            found |= {name: pid for name, module in MODULES.items() if module in words}
        return found

    def kill(self, name: str) -> float:
        """kill -9. Of the command: wait until its processes have ended, too, and give it again.

        Returns the seconds that those processes lived on.
        """
        before = self.pids()
        os.kill(before[name], signal.SIGKILL)
        if name != COMMAND:
            wait_for(lambda: not runs(before[name]), END_S, f"the {name} is dead")
            return 0.0
        began_s = time.monotonic()
        self._process.wait()
        wait_for(lambda: not any(map(runs, before.values())), END_S, "its processes have ended")
        took_s = time.monotonic() - began_s
        self._process = self._start()
        return took_s

    def finish(self) -> None:
        """Ask the actor to end, which ends the run."""
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.kill(self.pids()["actor"], signal.SIGTERM)
            self._process.wait(END_S)

    def others(self) -> list[str]:
        """What the command said of processes that ended without a kill of ours."""
        text = (self.folder / "command.log").read_text(errors="replace")
        return [line for line in text.splitlines() if " ended with code " in line
                and f"code -{signal.SIGKILL:d}," not in line]  # fmt: skip

    def alive(self) -> bool:
        """Whether the command runs. Raises `RobotRLError` when it has ended by itself."""
        if self._process.poll() is not None:
            text = (self.folder / "command.log").read_text(errors="replace")
            raise RobotRLError("the run has ended by itself", got=text[-2000:])
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        left = self.pids()
        for pid in left.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        for pid in left.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def runs(pid: int) -> bool:
    """Whether a process runs; one that is dead and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def soak(
    minutes: float, folder: Path, tell: Tell = lambda _s: None, kill_every_s: float = 60.0
) -> dict[str, Any]:
    """Run it; figures and verdicts. The run folder and its logs stay in `folder`.

    Raises:
        RobotRLError: the run does not start, or does not go on after a kill.
    """
    dice = random.Random(0)
    kills = dict.fromkeys((*MODULES, COMMAND), 0)
    back_s: list[float] = []
    outlived_s = [0.0]
    failed_after: list[str] = []
    with Run(folder) as run:
        ledger = Ledger(run.actor_store, run.learner_store)
        wait_for(lambda: run.alive() and ledger.learner.last() > 0, START_S, "rows arrive")
        began_s = time.monotonic()
        with Sampler(run.pids, folder / SAMPLES) as sampler:
            for name, at_s in victims(minutes, kill_every_s, dice):
                _wait(began_s + at_s, began_s, tell, run)
                wait_for(lambda name=name: name in run.pids(), START_S, f"the {name} runs")
                killed_s = time.monotonic()
                outlived_s.append(run.kill(name))
                kills[name] += 1
                back_s.append(_came_back(run, ledger, killed_s))
                wrong = {k: v for k, v in ledger.counts().items() if v and k != "rows_foreign"}
                if wrong:
                    failed_after.append(f"kill {sum(kills.values())} ({name}): {wrong}")
            _wait(began_s + 60 * minutes, began_s, tell, run)
            took_s = time.monotonic() - began_s
            lives = sampler.lives()
        run.finish()
    ledger.read()
    damaged = damage(run.actor_store, run.learner_store)
    others = run.others()
    updates = [x["learner/updates"] for x in Tail(run.run_dir / "learner.jsonl").lines()]
    return {
        "minutes": took_s / 60,
        "kills": sum(kills.values()),
        **{f"kills_of_{name}": n for name, n in kills.items()},
        "rows": ledger.rows,
        **ledger.counts(),
        "kills_after_which_rows_were_wrong": len(failed_after),
        "processes_that_ended": len(others),
        "wrong": [*failed_after, *others, *damaged],
        "stores_damaged": len(damaged),
        "back_s_p50": sorted(back_s)[len(back_s) // 2] if back_s else 0.0,
        "back_s_max": max(back_s, default=0.0),
        "processes_outlived_their_command_s_max": max(outlived_s),
        "gradient_updates": max(updates, default=0),
        "processes": {name: judge(each) for name, each in sorted(lives.items())},
    }


def victims(minutes: float, every_s: float, dice: random.Random) -> Sequence[tuple[str, float]]:
    """Who is killed, and when: seconds since the beginning; none in the last interval."""
    count = max(0, round(60 * minutes / every_s) - 1)
    at_s = [(i + 1) * every_s for i in range(count)]
    return [(dice.choice(_may_be_killed(each / (60 * minutes))), each) for each in at_s]


def _may_be_killed(share: float) -> Sequence[str]:
    return next(who for until, who in PARTS if share <= until)


def _wait(until_s: float, began_s: float, tell: Tell, run: Run) -> None:
    while (now_s := time.monotonic()) < until_s and run.alive():
        tell(now_s - began_s)
        time.sleep(min(1.0, max(0.0, until_s - now_s)))


def _came_back(run: Run, ledger: Ledger, killed_s: float) -> float:
    """Seconds from a kill until all rows of before are at the learner, and newer ones, too.

    Rows that are not there after `BACK_S` stay in the ledger as lost.
    """
    before = ledger.actor.last()
    give_up_s = time.monotonic() + BACK_S
    ledger.read()
    while time.monotonic() < give_up_s and run.alive():
        if ledger.actor.last() > before and ledger.learner.last() > before:
            break
        time.sleep(LOOK_S)
    took_s = time.monotonic() - killed_s
    while ledger.waiting and time.monotonic() < give_up_s:
        ledger.read_learner()
        time.sleep(LOOK_S)
    return took_s
