"""`robot-rl deploy`: a trained policy at work, without a learner, for hours or for days.

The folder of a deployment is a run folder of its own (by default RUN/deploy): configuration and
limits, the policy, a store for each day, `deploy.json`. The same command goes on in it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import DEPLOYMENT, PLAN, POLICY, read_facts, run_name
from robot_rl.control.session import ACTOR
from robot_rl.errors import CheckpointError, ConfigError, RobotRLError
from robot_rl.report.tally import Ledger, Tally
from robot_rl.run.at_work import at_work
from robot_rl.run.parts import policy_of
from robot_rl.run.rounds import Recording, Rounds, Side, Watch, lockstep_side, robot_side
from robot_rl.store.cycles import CONTINUED
from robot_rl.store.daily import DailyStore
from robot_rl.system.files import replace_json
from robot_rl.types import EpisodeId

if TYPE_CHECKING:
    from robot_rl.policy.runtime import PolicyRuntime
    from robot_rl.ports import ActorPorts
    from robot_rl.run.experiment import Experiment
    from robot_rl.types import Weights

log = logging.getLogger(__name__)

DEPLOY = "deploy"  # kind of plan, purpose of its episodes
DEPLOY_SEED = 3_000_000  # starts that neither practice nor evaluation has seen
SHOWN = ("episodes", "labelled", "unlabelled", "successes", "success", "success_low")
SHOWN += ("success_high", "unaided", "unaided_success", "cycle_time_s_median", "cycle_time_s_p90")
SHOWN += ("interventions", "mtbi_s", "autonomy_steps", "autonomy_episodes", "failures_in_a_row")
"""Figures of `Tally` that are told after each episode, as `deploy/NAME`."""


@dataclass(frozen=True, kw_only=True)
class DeployPlan:
    """What a deployment is to do.

    episodes: of this deployment in all, earlier starts included; 0 = until somebody ends it;
    stop_after: failures in a row after which a person has to look, 0 = never; stochastic: with the
    noise of practice; run: the trained run.
    """

    kind: str = DEPLOY
    run: str = ""
    episodes: int = 0
    stop_after: int = 3
    stochastic: bool = False

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.episodes < 0 or self.stop_after < 0:
            raise ValueError("episodes and stop_after must not be negative")


def write_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    """Leave the plan where the actor process reads it."""
    replace_json(folder / PLAN, plan)


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan of a folder, {} when there is none."""
    path = folder / PLAN
    return read_facts(path) if path.is_file() else {}


def install_policy(experiment: Experiment, weights: Weights) -> None:
    """Put a policy into a folder that has none, or has the same one.

    Raises:
        CheckpointError: the folder has been used with another policy, whose figures these are.
    """
    from robot_rl.policy.runtime import load_policy, save_policy

    folder = experiment.run_dir
    if not (folder / POLICY).with_suffix(".json").is_file():  # it is written last
        save_policy(folder, weights, experiment.spec)
        return
    before = load_policy(folder, experiment.spec)
    if before.sha256 != weights.sha256:
        raise CheckpointError(
            f"{folder} is the deployment of another policy",
            expected=f"policy {before.sha256[:12]} (version {before.version}), as before",
            got=f"policy {weights.sha256[:12]} (version {weights.version}): it has learned since",
            fix=f"--out ANOTHER_FOLDER, or go on with --policy {folder / POLICY}",
        )


def deploy(
    experiment: Experiment,
    weights: Weights,
    plan: DeployPlan,
    watch: Watch = lambda _line: None,
    *,
    now_s: Callable[[], float] = time.time,
    stopping: Callable[[], str] = lambda: "",
) -> dict[str, Any]:
    """Let a policy work until the plan is done; returns the content of deploy.json.

    Args:
        experiment: of the folder; see `deploy_setup.experiment_on`.
        watch: gets the figures of each episode.
        now_s, stopping: in lockstep: the calendar's clock; a reason to end.

    Raises:
        RobotRLError: see the message; the same command goes on where it stopped.
    """
    experiment.check()
    folder = experiment.save()
    refuse_other_plan(folder, DEPLOY)
    with at_work(folder, DEPLOY):
        install_policy(experiment, weights)
        write_plan(folder, asdict(plan))
        with DailyStore(folder, experiment.spec, now_s=now_s) as store:
            store.turn()  # a full disk, or a store of another run: said before anything starts
        if experiment.runtime == "ros":
            from robot_rl.run.graph import deploy_ros

            deploy_ros(experiment, watch)
        else:
            _in_lockstep(experiment, plan, watch, now_s, stopping)
    return figures_of(folder)


def refuse_other_plan(folder: Path, kind: str) -> None:
    """Raise `ConfigError` when a folder belongs to another kind of work."""
    before = read_plan(folder).get("kind", kind)
    if before != kind:
        raise ConfigError(
            f"{folder} is no folder of a {kind}",
            expected=f"a new folder, or one of a {kind}",
            got=f"one of a {before}",
            fix="choose another folder with --out",
        )


def figures_of(folder: Path) -> dict[str, Any]:
    """What a deployment has come to, read from its stores; also written to deploy.json."""
    ledger = Ledger(folder, run_name(folder), ACTOR)
    try:
        return write_figures(folder, ledger.read())
    finally:
        ledger.close()


def write_figures(folder: Path, tally: Tally) -> dict[str, Any]:
    """Write deploy.json, and return its content."""
    plan = read_plan(folder)
    figures = {"run": plan.get("run", ""), **_policy_facts(folder), **tally.figures()}
    replace_json(folder / DEPLOYMENT, figures)
    return figures


def _policy_facts(folder: Path) -> dict[str, Any]:
    path = (folder / POLICY).with_suffix(".json")
    facts = read_facts(path) if path.is_file() else {}
    return {"policy_version": facts.get("version"), "policy_sha256": facts.get("sha256")}


def _in_lockstep(
    experiment: Experiment,
    plan: DeployPlan,
    watch: Watch,
    now_s: Callable[[], float],
    stopping: Callable[[], str],
) -> None:
    policy = loaded_policy(experiment)
    with ExitStack() as stack:
        recording = Recording(experiment, now_s=now_s)
        stack.callback(recording.close)
        stack.callback(policy.close)
        side = stack.enter_context(lockstep_side(experiment, policy, recording, stopping=stopping))
        Deployment(experiment, side, recording, plan, watch).run()


def deploy_on_ports(experiment: Experiment, ports: ActorPorts) -> None:
    """The actor's part of a deployment over ROS 2."""
    plan = DeployPlan(**read_plan(experiment.run_dir))
    policy = loaded_policy(experiment, real_time=True)
    with ExitStack() as stack:
        recording = Recording(experiment, background=True)
        stack.callback(recording.close)
        stack.callback(policy.close)
        side = robot_side(experiment, ports, policy, recording)
        Deployment(experiment, side, recording, plan).run()


def loaded_policy(experiment: Experiment, *, real_time: bool = False) -> PolicyRuntime:
    """The policy in the folder of an experiment. Raises `CheckpointError` when there is none."""
    from robot_rl.policy.runtime import load_policy

    policy = policy_of(experiment, real_time=real_time)
    policy.load(load_policy(experiment.run_dir, experiment.spec))
    return policy


class Deployment:
    """Episode after episode until the plan is done, or a person has to look."""

    def __init__(
        self,
        experiment: Experiment,
        side: Side,
        recording: Recording,
        plan: DeployPlan,
        watch: Watch = lambda _line: None,
    ) -> None:
        self._folder, self._side, self._recording = experiment.run_dir, side, recording
        self._plan = plan
        self._tally = recording.tally()
        self._rounds = Rounds(experiment, side, recording, self._figures, watch)
        self._rounds.session.state = "deployment"

    def run(self) -> None:
        """Raises `RobotRLError` when an episode cannot begin, or nobody is there to ask."""
        plan, side = self._plan, self._side
        write_figures(self._folder, self._tally)
        try:
            if side.ask is None and self._stuck:
                self._go_on()  # whoever gave the command again has looked
            while not side.stopping() and not self._done:
                if self._stuck:
                    self._ask()
                seed = DEPLOY_SEED + self._rounds.next_episode
                self._rounds.one(DEPLOY, seed, deterministic=not plan.stochastic)
        finally:
            self._rounds.close()

    @property
    def _done(self) -> bool:
        return 0 < self._plan.episodes <= self._tally.episodes

    @property
    def _stuck(self) -> bool:
        return 0 < self._plan.stop_after <= self._tally.failures_in_a_row

    def _ask(self) -> None:
        """Wait for a person; the gate holds the arm where it stands."""
        failures = self._tally.failures_in_a_row
        why = "; ".join(dict.fromkeys(c.reason for c in list(self._tally.failed)[-failures:]))
        text = f"{failures} failures in a row ({why}): look at the arm and at the parts"
        log.warning("%s", text)
        if self._side.ask is None:
            raise RobotRLError(
                f"stopped after {failures} failures in a row",
                expected="a success now and then (--stop-after)",
                got=why,
                fix="look at the last episodes (robot-rl review); the same command goes on",
            )
        self._side.ask(text)
        self._go_on()

    def _go_on(self) -> None:
        """Record that a person has said so: a restart does not ask again."""
        run = self._recording.run
        last = EpisodeId(run, ACTOR, self._rounds.next_episode - 1)
        self._recording.note(last, 0, CONTINUED, f"{self._tally.failures_in_a_row} failures")
        self._tally = self._recording.tally()

    def _figures(self) -> dict[str, Any]:
        """Figures and words for the line of an episode that has just been recorded."""
        self._tally = self._recording.tally()
        figures = write_figures(self._folder, self._tally)
        told = {f"deploy/{name}": figures[name] for name in SHOWN if figures[name] is not None}
        if self._plan.episodes:
            told["progress"] = min(1.0, figures["episodes"] / self._plan.episodes)
        return told | {"deploy_failed": json.dumps(figures["failed"])}
