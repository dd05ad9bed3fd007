"""`robot-rl bench arms`: what works with which arm, on its double. Arms x up, demos, learn, ...

    up      the graph starts, everything is ready, the gate arms, and the TCP follows
    demos   a person (another process) records two demonstrations of `reach`
    learn   the run goes on: practice, corrections by the person, evaluation
    deploy  the learned policy works without learning
    kill    kill -9 of ik, gate and driver in mid motion: the arm stands, and goes on when a person
            has looked (how it stands when the driver is gone is not looked at: a double's arm ends
            with its driver)

Nothing here says that an arm works: a double shows the vendor's names, types and habits, as far as
they are written down.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.bench.choice import some_of
from robot_rl.bench.ik import STANDS_RAD_S, TRIES, running, set_going
from robot_rl.config.compose import options
from robot_rl.config.run_folder import EVALUATION
from robot_rl.console.address import HOST
from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose
from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from robot_rl.system.ports import probe
from robot_rl.system.supervised import end
from robot_rl.types import Pose

log = logging.getLogger(__name__)

TASK = "task=reach"
MOVES_M = 0.01  # the TCP must follow this far
GOES_S = 5.0  # wall, to get there, in each of `TRIES` attempts, which are armed anew
UP_M = np.array((0.0, 0.0, 0.008))  # ten times a second: the motion in which processes are killed
STANDS_S = 1.0  # wall; after a kill, with the time in which the machine starts the process again
DEMOS = 2
STEPS = 60  # of practice: the chain works; it is no claim about learning
JOIN_S, STOP_S = 300.0, 30.0  # wall; for one command, and for its end when it is stopped
FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Arm:
    """One line of the table. words: profile and what differs; config_dir: of the profile."""

    words: tuple[str, ...]
    config_dir: Path | None = None

    def compose(self, *more: str) -> Experiment:
        """The experiment with these words."""
        return Experiment.compose([*self.words, TASK, *more], self.config_dir)


MORE = {
    "ur5e_velocity": (
        "robot=ur5e_forward",
        "driver.joints.kind=velocity",
        "driver.topics.joint_target=forward_velocity_controller/commands",
        "driver.controllers.cartesian=forward_velocity_controller",
    ),
    "ur5e_joint_actions": ("robot=ur5e_forward", "task.action=joint"),
}
"""Lines of the table that have no profile of their own."""


def arms(config_dir: Path | None = None) -> dict[str, Arm]:
    """Every arm with a driver: shipped profiles, and those of `config_dir`."""
    lines = {name: Arm(words) for name, words in MORE.items()}
    for name in options("robot", config_dir):
        arm = Arm((f"robot={name}",), config_dir)
        if arm.compose().driver.is_vendors:
            lines[name] = arm
    return lines


def bench(
    _: float, *, only: str = "", columns: str = "", config_dir: Path | None = None
) -> dict[str, str]:
    """The table, as `arm/column` -> "ok ..." or "FAILED: why".

    Args:
        only: some of `arms`; columns: some of `COLUMNS`.

    Raises:
        ConfigError: a name that is not there.
    """
    table: dict[str, str] = {}
    lines = arms(config_dir)
    for name in some_of(only, lines, "arm"):
        with tempfile.TemporaryDirectory(prefix="robot-rl-arms-") as folder:
            for column in some_of(columns, COLUMNS, "column"):
                table[f"{name}/{column}"] = _cell(column, lines[name], Path(folder))
                log.warning("%s %s: %s", name, column, table[f"{name}/{column}"])
    return table


def _cell(column: str, arm: Arm, folder: Path) -> str:
    begun_s = time.monotonic()
    try:
        said = COLUMNS[column](arm, folder)
    except Exception as error:  # the other cells tell something all the same
        why = f"{error.summary}; {error.got}" if isinstance(error, RobotRLError) else repr(error)
        return f"{FAILED}: {why}".splitlines()[0]
    return said if said.startswith("-") else f"ok {said} ({time.monotonic() - begun_s:.0f} s)"


# --- columns -------------------------------------------------------------------------------------


def up(arm: Arm, folder: Path) -> str:
    """The graph without an actor; the TCP goes one centimetre and stays.

    A machine that stalls makes the gate stop the arm, rightly. Then a person looks and it is armed
    again, which the cell tells.
    """
    with running(arm.compose) as (person, _):
        person.wait_until(lambda: not person.why_not(), 60.0, "the graph is ready")
        start = person.tcp()
        goal = pose(start.position_m + np.array((0.0, 0.0, MOVES_M)), start.quaternion_xyzw)
        for time_armed in range(1, TRIES + 1):
            person.wait_until(lambda: not person.why_not(), 60.0, "the graph is ready")
            lease = f"up{time_armed}"
            person.arm(lease)
            if _goes(person, lease, goal):
                return "" if time_armed == 1 else f"armed {time_armed} times"
        why_not = person.why_not() or f"gate: {person.mode()}"
    raise RobotRLError(
        "the TCP does not go where it is sent",
        expected=f"{MOVES_M:g} m up within {GOES_S:g} s, in one of {TRIES} attempts",
        got=why_not,
        fix="logs/*.log in the run folder",
    )


def _goes(person: Any, lease: str, goal: Pose) -> bool:
    """Ask for `goal` ten times a second; whether the TCP gets there."""
    give_up_s = time.monotonic() + GOES_S
    while time.monotonic() < give_up_s:
        person.ask(lease, goal)
        person.turn(0.05)
        time.sleep(0.05)
        if float(np.linalg.norm(person.tcp().position_m - goal.position_m)) < 0.002:
            return True
    return False


def kill(arm: Arm, folder: Path) -> str:
    """Each process that has the arm in its hands, once."""
    experiment = arm.compose("operator=none")
    victims = ["gate", "sim"]
    victims += ["ik"] if experiment.driver.joints.is_used else []
    with running(arm.compose) as (person, supervisor):
        for victim in victims:
            _kill(person, supervisor, victim, len(experiment.robot.joints))
    return ", ".join(victims)


def _kill(person: Any, supervisor: Any, victim: str, joints: int) -> None:
    set_going(person, victim, UP_M, 5)
    os.kill(supervisor.pids()[victim], signal.SIGKILL)
    time.sleep(STANDS_S)
    if victim != "sim" and (speed := person.joint_speed_rad_s(joints)) > STANDS_RAD_S:
        raise RobotRLError(f"the arm moves after kill -9 of {victim}", got=f"{speed:.2f} rad/s")
    if not person.why_not():  # nobody has looked yet
        raise RobotRLError(f"nothing holds the arm after kill -9 of {victim}", got=person.mode())
    person.wait_until(lambda: not person.why_not(), 60.0, f"a person gets it going after {victim}")


def demos(arm: Arm, folder: Path) -> str:
    """`robot-rl record`, and a person beside it."""
    _helped(arm, folder, ["record", "--demos", str(DEMOS), *_run(folder)])
    with Store(folder / "run" / "actor.sqlite") as store:
        found = [e for e in store.episode_summaries() if e.purpose == "demo" and e.success]
    if len(found) < DEMOS:
        raise RobotRLError("too few demonstrations", got=f"{len(found)} of {DEMOS}")
    return f"{len(found)} of {DEMOS}"


def learn(arm: Arm, folder: Path) -> str:
    """`robot-rl train` goes on with the demonstrations."""
    _helped(arm, folder, ["train", *_run(folder)])
    evaluated = json.loads((folder / "run" / EVALUATION).read_text())
    with Store(folder / "run" / "actor.sqlite") as store:
        steps = sum(e.steps for e in store.episode_summaries() if e.purpose == "train")
    if not steps:
        raise RobotRLError("nothing was practised", got=str(evaluated))
    return f"{steps} steps"


def deploy(arm: Arm, folder: Path) -> str:
    """`robot-rl deploy`: the policy works, and the person may take over."""
    said = folder / "deployed.json"
    verb = ["deploy", str(folder / "run"), "--episodes", str(DEMOS), "--stop-after", "0"]
    _helped(arm, folder, [*verb, "--json", str(said)])
    figures = json.loads(said.read_text())
    return f"{figures['episodes']} episodes"


COLUMNS: dict[str, Callable[[Arm, Path], str]] = {
    "up": up,
    "demos": demos,
    "learn": learn,
    "deploy": deploy,
    "kill": kill,
}
"""Column -> what fills it: from an arm and its folder, in this order; "-..." = not applicable."""


def _run(folder: Path) -> list[str]:
    """Words of the run, the same for demonstrations and practice: it is one run."""
    kept = folder / "words.json"
    if not kept.is_file():
        words = [TASK, f"run_dir={folder / 'run'}", f"train.demos={DEMOS}",
                 "train.min_env_steps=20", f"train.max_env_steps={STEPS}", "train.eval_episodes=1",
                 "train.stochastic_eval_episodes=0", "train.video=false", "runtime=ros",
                 f"link.port={probe(HOST, 0)}"]  # fmt: skip
        kept.write_text(json.dumps(words))
    return json.loads(kept.read_text())


def _domain(folder: Path) -> int:
    """The ROS domain of all commands of a run."""
    from robot_rl.ros.graph import free_domain

    kept = folder / "domain.json"
    if not kept.is_file():
        kept.write_text(str(free_domain()))
    return int(kept.read_text())


def _helped(arm: Arm, folder: Path, verb: Sequence[str]) -> None:
    """Run a command of ours while a person drives the arm to the target.

    Raises:
        RobotRLError: the command failed, or did not end.
    """
    from robot_rl.ros.rehearse import Person, target_of
    from robot_rl.ros.runtime import visitor

    domain_id = _domain(folder)
    own = ["double=true", "operator=twist", f"ros.domain_id={domain_id}"]
    experiment = arm.compose(*own)
    said = folder / f"{verb[0]}.log"
    command = [sys.executable, "-m", "robot_rl.cli.main", *verb, *arm.words, *own]
    command += ["--config-dir", str(arm.config_dir)] if arm.config_dir else []
    with (
        said.open("w") as out,
        visitor("person", domain_id, remaps=experiment.driver.topics) as node,
    ):
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            person = Person(node, target_of(node))
            give_up_s = time.monotonic() + JOIN_S
            while process.poll() is None and time.monotonic() < give_up_s:
                person.turn()
                time.sleep(0.02)
            code = process.poll()
        finally:
            end(process, STOP_S)
    if code != 0:
        raise RobotRLError(
            f"robot-rl {verb[0]} " + ("did not end" if code is None else f"ended with {code}"),
            got=" | ".join(said.read_text().splitlines()[-3:]),
        )
