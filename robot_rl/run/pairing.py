"""Two machines for one run: what each side of `link.pairing` reads and keeps.

The robot's side offers the run of its folder. The learner's side makes a folder of the same name
with the same configuration, its own key pair and its own store; from then on `robot-rl learner RUN`
goes on there, and `robot-rl train ... run_dir=RUN` here, whichever of them was switched off.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl import __version__
from robot_rl.config.run_folder import LINK, PAIRING, config_hash, read_facts, run_name
from robot_rl.errors import ConfigError, LinkError
from robot_rl.link.auth import (
    fingerprint,
    keep_public,
    keys_for,
    load_keys,
    make_keys,
    role_of,
    run_keys,
)
from robot_rl.link.config import WILDCARDS, LinkConfig
from robot_rl.link.frames import Accepted, Offer
from robot_rl.link.invitation import Invitation, new_invitation, read_invitation
from robot_rl.link.pairing import LASTS_S, Inviter, await_robot
from robot_rl.spec import diff
from robot_rl.system import plain_json
from robot_rl.system.audit import audit, audit_into
from robot_rl.system.files import replace_json

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")  # of a folder, from another machine
ACTOR = re.compile(r"actor(-[A-Za-z0-9_-]{1,64})?")
MAX_ACTORS = 64
LINK_OLD_S = 10.0  # an actor at work writes its state every second


# -- the robot's side ------------------------------------------------------------------------------


def is_paired(experiment: Experiment) -> bool:
    """Whether the learner's key of a run with link=remote is here."""
    return (run_keys(experiment.run_dir) / "learner.public").is_file()


def invite(experiment: Experiment, lasts_s: float = LASTS_S) -> Inviter:
    """An invitation for the machine at `link.host`; enter it to begin. Saves the run if it is new.

    Raises:
        ConfigError: the run's learner is not on another machine.
    """
    need_remote(experiment)
    run_dir, link, spec = experiment.save(), experiment.link, experiment.spec
    audit_into(run_dir)
    keys = keys_for(link, run_dir, link.actor_key)
    actors = {n: k.decode() for k, n in keys.peers.items() if role_of(n) == "actor"}
    offer = Offer(
        run=run_name(run_dir),
        version=__version__,
        config=json.loads(json.dumps(experiment.resolved())),
        config_hash=experiment.hash,
        spec=spec.as_dict(),
        actors=actors,
    )
    invitation = new_invitation(link.host, link.port, spec.hash, keys.public)
    audit.info("pairing: %s invited for %.0f s", f"{link.host}:{link.port}", lasts_s)
    return Inviter(invitation, keys, offer, partial(_adopt, run_dir), lasts_s)


def need_remote(experiment: Experiment) -> None:
    """Raise `ConfigError` unless the run's learner is to be on another machine."""
    if experiment.runtime == "ros" and experiment.link.paired:
        return
    link = (experiment.config.get("link") or {}).get("name")
    raise ConfigError(
        "this run has no learner on another machine to pair with",
        expected="a run over ROS 2 with link=remote link.host=ADDRESS",
        got=f"runtime={experiment.runtime} link={link}",
        fix="robot-rl train experiment=... runtime=ros link=remote link.host=ADDRESS",
    )


def _adopt(run_dir: Path, learner: str, machine: str) -> None:
    keep_public(run_keys(run_dir), "learner", learner)
    words = (fingerprint(learner), machine)
    audit.info("pairing: learner's key %s of %r is kept", *words)
    log.warning("paired: the learner's key is %s (%s)", *words)


def link_state(experiment: Experiment) -> tuple[str, Mapping[str, Any]]:
    """The link in words for a person, and the learner's figures as metric lines name them."""
    link = experiment.link
    where = f"learner at {link.host}:{link.port}"
    path = experiment.run_dir / LINK
    try:
        status = plain_json.loads(path.read_text())
        if time.time() - path.stat().st_mtime > LINK_OLD_S:  # of an actor before this one
            status = {"pending_rows": status.get("pending_rows", 0)}
    except (OSError, ValueError):  # the actor has not said anything yet
        status = {}
    rows = f"{status.get('pending_rows', 0)} rows wait here"
    learner = {f"learner/{k}": v for k, v in (status.get("learner") or {}).items()}
    if not is_paired(experiment):
        return f"{where}: not paired, {rows}", {}
    if status.get("connected"):
        round_trip = status.get("round_trip_ms")
        took = f", {round_trip:.0f} ms there and back" if round_trip else ""
        done = learner.get("learner/updates")
        learned = f", {done} updates" if done is not None else ""
        return f"{where}: connected, {rows}{took}{learned}", learner
    why = str(status.get("refused") or "not reached").partition("\n")[0]
    return f"{where}: {why}, {rows}; the robot goes on", learner


# -- the learner's side ----------------------------------------------------------------------------


def pair(text: str, folder: Path | None, bind: str | None, hint: Callable[[str], None]) -> Path:
    """Wait for the robot's machine that printed this string, take its run; return the folder.

    Args:
        folder: of the run on this machine; None = runs/<experiment>/<name of the robot's folder>.
        bind: address to listen on; None = the one in the string.
        hint: is told what is waited for, and what may be wrong when nobody comes.

    Raises:
        LinkError: a bad or used string, an address of another machine, nobody came.
        RobotRLError: this machine cannot take the run; the robot's side reads why, too.
    """
    invitation = read_invitation(text)
    _refuse_used(invitation, folder)
    address = _own_address(bind or invitation.host, given=bind is not None)
    found: list[Path] = []

    def take(offer: Offer) -> Accepted:
        run_dir, accepted = _take(offer, invitation, folder, address)
        found.append(run_dir)
        return accepted

    hint("waiting for the robot's machine ...")
    offer = await_robot(invitation, address, take, hint)
    audit.info("pairing: run %s of robot's key %s", offer.run, fingerprint(invitation.robot))
    return found[0]


def learner_fingerprint(run_dir: Path) -> str:
    """The learner's key in eight digits, as the robot's side shows it."""
    return fingerprint(load_keys(run_keys(run_dir), "learner").public)


def listening(link: LinkConfig, run_dir: Path) -> str:
    """The address on which a run's learner listens: where it was paired, if it was."""
    path = run_dir / PAIRING
    kept = read_facts(path) if link.paired and path.is_file() else {}
    return str(kept.get("bind", link.host))


def _take(
    offer: Offer, invitation: Invitation, folder: Path | None, bind: str
) -> tuple[Path, Accepted]:
    """Make the run folder of an offer, with everything that a restart needs."""
    from robot_rl.run.experiment import Experiment

    config = dict(offer.config)
    name = str(config.get("name"))
    for word in (offer.run, name):
        if not NAME.fullmatch(word):
            raise _misfit("a folder cannot have the run's name", NAME.pattern, repr(word)[:80])
    if config_hash(config) != offer.config_hash:
        raise _misfit("the configuration has another hash", offer.config_hash, config_hash(config))
    actors = {str(k): str(v) for k, v in offer.actors.items()}
    known = invitation.robot.decode() in actors.values() and len(actors) <= MAX_ACTORS
    if not known or not all(ACTOR.fullmatch(actor) for actor in actors):
        raise _misfit("the actors' keys are not as expected", ACTOR.pattern, ", ".join(actors)[:80])
    run_dir = folder or Path("runs") / name / offer.run
    experiment = Experiment.from_dict(config | {"run_dir": str(run_dir)})
    for section in ("task", "reward", "base", "algo", "learner", "link"):
        experiment.section(section)  # a missing package is one error, with its extra
    _same_spec(experiment, offer, invitation)
    experiment.algorithm.make_actor(experiment.spec)  # its files are here, its network fits
    experiment.keep(config)
    keys = run_keys(run_dir)
    if not (keys / "learner.secret").exists():
        make_keys(keys, ("learner",))
    for actor, key in actors.items():
        keep_public(keys, actor, key)
    told = {"bind": bind, "used": invitation.mark, "version": offer.version}
    replace_json(run_dir / PAIRING, told)
    audit_into(run_dir)
    own = load_keys(keys, "learner")
    return run_dir, Accepted(own.public.decode(), socket.gethostname())


def _same_spec(experiment: Experiment, offer: Offer, invitation: Invitation) -> None:
    """Raise `ConfigError` with what differs when this machine understands the run differently."""
    lines = diff(offer.spec, experiment.spec.as_dict())
    if lines or experiment.spec.hash != invitation.spec_hash:
        raise ConfigError(
            "the same configuration gives another spec on this machine (robot -> learner)",
            expected=f"the robot's spec {invitation.spec_hash}",
            got="; ".join(lines) or experiment.spec.hash,
            fix="install the same robot-rl version, and the same files of your own tasks, on both"
            f" machines (robot: {offer.version}, here: {__version__})",
        )


def _misfit(what: str, expected: str, got: str) -> LinkError:
    return LinkError(
        f"the robot's offer is refused: {what}",
        expected=expected,
        got=got,
        fix="run the same robot-rl version on both machines; name the run's folder plainly",
    )


def _refuse_used(invitation: Invitation, folder: Path | None) -> None:
    """Raise `LinkError` when a run on this machine was paired with this very string."""
    files = [folder / PAIRING] if folder else sorted(Path("runs").glob(f"*/*/{PAIRING}"))
    for path in files:
        if path.is_file() and read_facts(path).get("used") == invitation.mark:
            raise LinkError(
                "this pairing string was used already: it works once",
                expected="a fresh string, or the run that it was used for",
                got=f"a string that made {path.parent}",
                fix=f"robot-rl learner {shlex.quote(str(path.parent))}",
            )


def _own_address(address: str, *, given: bool) -> str:
    """The address in numbers. Raises `LinkError` unless others reach this machine there.

    Many machines know their own name as 127.0.1.1, where nobody else reaches them.
    """
    try:
        if address in WILDCARDS:
            raise OSError("it opens every network")
        number = socket.gethostbyname(address)
        if number.startswith("127.") and address not in (number, "localhost"):
            raise OSError(f"here that is {number}, which no other machine reaches")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((number, 0))
    except OSError as error:
        raise LinkError(
            f"{address} is not an address of this machine",
            expected="an address of a network interface here (`hostname -I` shows them)",
            got=f"{'--bind' if given else 'the pairing string says'} {address}: {error}",
            fix="behind a router or a tunnel: --bind ADDRESS, one of those;"
            " otherwise start the robot's side with link.host=ADDRESS",
        ) from error
    return number
