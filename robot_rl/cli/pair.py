"""`robot-rl pair`: invite another machine to be the learner of a run that exists."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from robot_rl.cli.common import Parser, engine, existing_run, say

if TYPE_CHECKING:
    from robot_rl.link.pairing import Inviter
    from robot_rl.run.experiment import Experiment

TEXT = """
Invite another machine to be the learner of a run (link=remote): prints the command to type there,
and waits until that machine has taken the run. `robot-rl train` and `robot-rl up` do the same for a
new run. Use this when the invitation has expired, or when another machine is to learn from now on:
it gets every row of the run again. The robot may be running meanwhile.
"""
EXAMPLES = "robot-rl pair runs/reach/20260101-120000-s0"

INVITATION = """
The learner of this run is another machine. On {host}, type this
(it works once, within {minutes:.0f} minutes):

  robot-rl learner --pair {text}

The robot records meanwhile, and what it records is sent later. The line is a password until then.
"""


def run(argv: Sequence[str]) -> int:
    """Invite, wait; return 0 when the machines are paired, 1 when nobody has come in time."""
    args = (
        Parser("pair", TEXT, EXAMPLES)
        .with_run("run folder on this machine, the robot's")
        .read(argv)
    )
    from robot_rl.run.experiment import Experiment

    experiment = Experiment.load(existing_run(args.run))
    inviter = engine("robot_rl.run.pairing:invite")(experiment)
    _print(inviter)
    said = ""
    with inviter:
        while not inviter.over:
            if inviter.state != said:
                said = inviter.state
                say(said)
            time.sleep(0.1)
    if inviter.state != said:
        say(inviter.state)
    return 0 if inviter.paired else 1


@contextmanager
def inviting(experiment: Experiment) -> Iterator[None]:
    """Invite while a run goes on, if its learner is to be on another machine and none is known."""
    if experiment.runtime != "ros" or not experiment.link.paired:
        yield
        return
    if engine("robot_rl.run.pairing:is_paired")(experiment):
        say(f"the learner on {experiment.link.host} is paired; there: robot-rl learner RUN")
        yield
        return
    inviter = engine("robot_rl.run.pairing:invite")(experiment)
    _print(inviter)
    with inviter:
        yield


def _print(inviter: Inviter) -> None:
    from robot_rl.link.pairing import LASTS_S

    invitation = inviter.invitation
    text = invitation.encode()
    say(INVITATION.format(host=invitation.host, text=text, minutes=LASTS_S / 60))
