"""`robot-rl train runtime=ros`: the ROS 2 graph and the learner under one supervisor.

This process only starts, watches and stops the others. Everything that matters happens in them, and
their results are read from the run folder. Killing any process, this one included, loses nothing.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import math
import os
import re
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from robot_rl.config.run_folder import EVALUATION, LEARNER_METRICS, METRICS, RUN, read_facts
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.link.auth import need_port
from robot_rl.link.panel import link_file
from robot_rl.operate.devices import AtPage
from robot_rl.ros.enclaves import secured
from robot_rl.ros.graph import (
    Graph,
    NodeSpec,
    RealGraphConfig,
    SimGraphConfig,
    real_graph,
    sim_graph,
)
from robot_rl.ros.input_config import Hears
from robot_rl.ros.parameters import Value
from robot_rl.ros.supervise import Exit, Supervisor
from robot_rl.run.pairing import link_state
from robot_rl.run.pooled import pool
from robot_rl.run.preflight import keep_findings, refuse_unready
from robot_rl.safety.advice import ASKED
from robot_rl.system.files import Tail, TextTail
from robot_rl.system.priority import APART, Cores

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

POLL_S = 0.1
LOOK_S = 1.0  # between two looks at the link to another machine
TELL = ("gate", "watchdog", "arm")  # processes whose warnings reach the terminal
ASKS = "actor"  # and this one's question of a person, when nobody has answered for a while
AGAIN_S = 30.0  # the same warning is not told sooner
FRAMES_PER_TICK = 2  # of simulated cameras by default: pictures are half a control period old


def learner_spec(run_dir: Path, *, released: bool = False) -> NodeSpec:
    """The learner as one more supervised process; it speaks the link, not ROS.

    On a shared machine it gives way to the nodes that have deadlines, except in released time, in
    which everybody waits for the learner.
    """
    return NodeSpec(
        module="robot_rl.run.learner",
        name="learner",
        arguments=(str(run_dir),),
        stop_s=2.5,  # it finishes an update and writes a checkpoint
        nice=0 if released else 10,
    )


def sim_actor_spec(run_dir: Path, arm: str) -> NodeSpec:
    """An arm of a lockstep run with several: loop, simulator and gate in one process."""
    return NodeSpec(
        module="robot_rl.run.sim_actor",
        name="actor",
        arm=arm,
        arguments=(str(run_dir),),
        finishes=True,
        stop_s=2.0,
    )


def console_spec(run_dir: Path) -> NodeSpec:
    """The operator's page as one more process; without it the robot side goes on."""
    return NodeSpec(
        module="robot_rl.run.console",
        name="console",
        arguments=(str(run_dir),),
        critical=False,
        stop_s=2.0,  # open pages are told that it ends
    )


def with_console(experiment: Experiment) -> bool:
    """Whether a person works at the page."""
    return any(isinstance(arm.operator, AtPage) and arm.operator.at_page for arm in experiment.arms)


def graph_of(experiment: Experiment, **given: Any) -> Graph:
    """The nodes of an experiment, without learner and console; of several arms, all of them.

    given: values that override its `ros` section.
    """
    nodes = [_nodes_of(arm, **given) for arm in experiment.arms]
    return tuple(spec for of_one in nodes for spec in of_one)


def heard_topics(experiment: Experiment) -> tuple[str, ...]:
    """Topics of people's devices that other nodes publish, of all arms."""
    operators = [arm.operator for arm in experiment.arms]
    return tuple(name for op in operators if isinstance(op, Hears) for name in op.heard)


def _nodes_of(experiment: Experiment, **given: Any) -> Graph:
    specs = _one_arm(experiment, **given)
    if experiment.arm:
        specs = tuple(dataclasses.replace(spec, arm=experiment.arm) for spec in specs)
    keystore = dataclasses.replace(experiment.ros, **given).keystore
    return secured(specs, Path(keystore)) if keystore else specs


def _one_arm(experiment: Experiment, **given: Any) -> Graph:
    run_dir = str(experiment.run_dir.resolve())
    config = dataclasses.replace(experiment.ros, **given)
    if with_console(experiment):
        config = dataclasses.replace(config, with_view=True)
    if isinstance(config, RealGraphConfig):
        experiment.refuse_script_on_a_real_arm()
        return real_graph(
            config,
            run_dir,
            experiment.robot,
            driver=experiment.driver,
            cameras=bool(experiment.cameras or experiment.task.spec.cameras),
            devices=list(experiment.devices),
        )
    if with_console(experiment) and not getattr(experiment.operator, "with_script", False):
        config = dataclasses.replace(config, unattended=False)  # a person is there to look
    if not config.camera_hz and experiment.task.spec.cameras:
        rate_hz = FRAMES_PER_TICK * experiment.task.spec.control_hz
        config = dataclasses.replace(config, camera_hz=rate_hz)
    return sim_graph(config, run_dir, experiment.robot)


def system_of(
    experiment: Experiment, *, learner: bool = True, console: bool = True, **given: Any
) -> Graph:
    """All processes of a run: learner, nodes, and the page where a person works at it.

    learner, console: False = it runs elsewhere, as a learner does with link=remote; given: values
    that override its `ros` section.
    """
    run_dir = experiment.run_dir.resolve()
    graph, released = graph_of(experiment, **given), False
    if learner and not experiment.link.paired:
        ros = dataclasses.replace(experiment.ros, **given)
        released = isinstance(ros, SimGraphConfig) and ros.real_time_factor == 0.0
        graph = (learner_spec(run_dir, released=released), *graph)
    if console and with_console(experiment):
        graph = (*graph, console_spec(run_dir))
    if not released:  # who keeps real time needs whichever core is free
        return graph
    return tuple(dataclasses.replace(s, env={**s.env, **APART}) for s in graph)


class Beside(Protocol):
    """What runs beside the supervised processes: actors on a cluster."""

    @property
    def labels(self) -> set[str]:
        """Their names."""
        ...

    def poll(self) -> list[Exit]:
        """Notice ends, as `Supervisor.poll` does."""
        ...


class Nobody:
    """`Beside` of a run whose processes are all on this machine."""

    labels: set[str] = set()  # noqa: RUF012 - nobody adds to it

    def poll(self) -> list[Exit]:
        """Nothing ends."""
        return []


def train_simulated(
    experiment: Experiment, watch: Callable[[dict[str, Any]], None], ray: str | None = None
) -> dict[str, Any]:
    """Run a learner and the simulated actors of a lockstep run with several; returns eval.json.

    ray: address of a Ray cluster that runs the actors, "" = one of this machine; None = without.

    Raises:
        RobotRLError: a process cannot be kept alive; its log file is named.
    """
    arms = [sim_actor_spec(arm.run_dir.resolve(), arm.arm) for arm in experiment.arms]
    learner = learner_spec(experiment.run_dir.resolve(), released=not experiment.pace_hz)
    if ray is None:
        run(experiment, (learner, *arms), watch)
        return result_of(experiment)
    from robot_rl.run.on_ray import RayActors, cluster

    with cluster(ray, len(arms)) as connected:
        run(experiment, (learner,), watch, RayActors(connected, experiment))
    return result_of(experiment)


def need_ros() -> None:
    """Raise `SetupError` when rclpy is missing: here, not in the restart loop of each process."""
    try:
        importlib.import_module("rclpy")
    except ImportError as error:
        raise SetupError(
            "ROS 2 (rclpy) is not installed",
            expected="a sourced ROS 2, or the wheels of the 'ros' extra",
            got=str(error),
            fix="run make setup, or: pip install 'robot-rl[ros]'",
        ) from error


def log_file(run_dir: Path, name: str) -> Path:
    """Where a process of the graph writes its log."""
    return run_dir / "logs" / f"{name}.log"


def last_words(death: Exit, run_dir: Path) -> str:
    """How a process ended, for an error message: its exit code and the end of its log."""
    path = log_file(run_dir, death.name)
    tail = path.read_text(errors="replace").splitlines()[-12:] if path.is_file() else []
    return "\n    ".join([f"exit code {death.code}; its last words:", *tail])


def train_ros(experiment: Experiment, watch: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the whole system until the actor has finished its session; returns eval.json.

    Raises:
        SetupError: rclpy is missing.
        RobotRLError: a critical process cannot be kept alive; its log file is named.
    """
    need_ros()
    look_at_arms(experiment)
    run(experiment, system_of(experiment), watch)
    return result_of(experiment)


def record_ros(experiment: Experiment, watch: Callable[[dict[str, Any]], None]) -> None:
    """Run the system without a learner, until the demonstrations are recorded.

    Raises:
        SetupError, RobotRLError: see `train_ros`.
    """
    need_ros()
    look_at_arms(experiment)
    run(experiment, _without_learner(experiment, demos_only=True), watch)


def deploy_ros(experiment: Experiment, watch: Callable[[dict[str, Any]], None]) -> None:
    """Run the system without a learner, until a deployment or a comparison has ended.

    Beside a double the objects are put where the plan says; a person is asked all the same.

    Raises:
        SetupError, RobotRLError: see `train_ros`.
    """
    need_ros()
    look_at_arms(experiment)
    ros = experiment.ros
    places = {"sim_name": "sim"} if isinstance(ros, RealGraphConfig) and ros.double else {}
    run(experiment, _without_learner(experiment, deploys=True, **places), watch)


def _without_learner(experiment: Experiment, **params: Value) -> Graph:
    """The processes of a run that learns nothing; params: of its actors."""
    return tuple(
        dataclasses.replace(spec, params={**spec.params, **params})
        if spec.name == "actor"
        else spec
        for spec in system_of(experiment, learner=False)
    )


def look_at_arms(experiment: Experiment) -> None:
    """Refuse to start beside a driver that is not ready; leave what was found in its arm's folder.

    Raises:
        SetupError: see `refuse_unready`.
    """
    found = [(arm, refuse_unready(arm)) for arm in experiment.arms]
    for arm, findings in found:
        keep_findings(findings, arm.run_dir)


def run(
    experiment: Experiment,
    graph: Graph,
    watch: Callable[[dict[str, Any]], None],
    beside: Beside | None = None,
) -> None:
    """Keep the graph alive until every actor has finished; tell the console's link."""
    beside = beside or Nobody()
    run_dir = experiment.run_dir.resolve()
    link_file(run_dir).unlink(missing_ok=True)  # of a console that was killed
    link, left = "", {spec.label for spec in graph if spec.finishes} | beside.labels
    remote = _Remote(experiment, watch) if experiment.link.paired else None
    files = [("", run_dir / LEARNER_METRICS)]
    files += [(arm.arm, arm.run_dir / METRICS) for arm in experiment.arms]
    tails = [(arm, Tail(path, new_only=True)) for arm, path in files]
    stops = _Stops(run_dir, [spec.label for spec in graph if spec.name in (*TELL, ASKS)])
    cores = Cores({s.label: s.name for s in graph if APART.items() <= s.env.items()})
    if any(spec.name == "learner" for spec in graph):
        need_port(experiment.link)
    with Supervisor(graph, run_dir, experiment.ros.domain_id) as supervisor:
        while left:
            for death in (*supervisor.poll(), *beside.poll()):
                _explain(death, run_dir)
                if death.code == 0:
                    left.discard(death.name)
            for arm, tail in tails:
                for line in tail.lines():
                    watch(line | {"arm": arm})
            if remote is not None:
                remote.look()
            stops.look()
            cores.look(supervisor.pids())
            link = _tell(link_file(run_dir), link)
            time.sleep(POLL_S)


class _Stops:
    """Tells in the terminal why the arm stands still, and what to do: see `TELL` and `ASKS`."""

    def __init__(self, run_dir: Path, labels: Sequence[str]) -> None:
        self._tails = {name: TextTail(log_file(run_dir, name), new_only=True) for name in labels}
        self._said: dict[str, float] = {}

    def look(self) -> None:
        """Pass on what is new; the same words again only after `AGAIN_S`."""
        for name, tail in self._tails.items():
            for line in tail.read():
                level, _, said = line.decode(errors="replace").partition(" ")
                if level not in ("WARNING", "ERROR"):
                    continue
                words = f"{name}: {said.partition(': ')[2]}"
                if name.endswith(ASKS) and ASKED not in words:
                    continue
                now_s = time.monotonic()
                if now_s - self._said.get(words, -math.inf) > AGAIN_S:
                    self._said[words] = now_s
                    log.warning("%s", words)


class _Remote:
    """Shows the link to a learner on another machine, and that learner's figures."""

    def __init__(self, experiment: Experiment, watch: Callable[[dict[str, Any]], None]) -> None:
        self._experiment, self._watch = experiment, watch
        self._looked_s, self._said = -math.inf, ""

    def look(self) -> None:
        """Read the state of the link, once a second; what changes more than a number is logged."""
        now_s = time.monotonic()
        if now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        state, figures = link_state(self._experiment)
        self._watch({"detail": state, **figures})
        if (kind := re.sub(r"\d+", "", state)) != self._said:
            self._said = kind
            log.warning("%s", state)


def _tell(path: Path, before: str) -> str:
    """Print the console's link when there is a new one, and open it; returns the newest."""
    link = path.read_text().strip() if path.is_file() else before
    if link != before:
        log.warning("the console is open (the link works once): %s", link)
        if not before and on_a_desktop(os.environ):
            webbrowser.open(link)
    return link


def on_a_desktop(env: Mapping[str, str]) -> bool:
    """Whether a browser would open in front of the person who started this."""
    return bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")) and "SSH_CONNECTION" not in env


def _explain(death: Exit, run_dir: Path) -> None:
    """Raise if the run cannot go on after a death."""
    if not death.fatal:
        return
    if not (run_dir / RUN).is_file():
        raise RobotRLError(
            "the run's folder was moved or deleted while the run was at work",
            expected=str(run_dir),
            got=f"no {RUN} in it",
            fix="give the folder's new place: the run goes on where it stopped",
        )
    raise RobotRLError(
        f"the {death.name} process cannot be kept alive",
        expected="a running process",
        got=last_words(death, run_dir),
        fix=f"read {log_file(run_dir, death.name)}; then give the same run_dir again, the run goes "
        "on where it stopped",
    )


def result_of(experiment: Experiment) -> dict[str, Any]:
    """eval.json of a run that has ended; of several arms, their results pooled.

    Raises:
        RobotRLError: an arm's evaluation is missing.
    """
    if not experiment.actors:
        return _result(experiment.run_dir.resolve())
    return pool(experiment, {arm.arm: _result(arm.run_dir) for arm in experiment.arms})


def _result(run_dir: Path) -> dict[str, Any]:
    path = run_dir / EVALUATION
    if not path.is_file():
        raise RobotRLError(
            "the session was stopped before its evaluation",
            expected=str(path),
            got="no such file",
            fix="give the same run_dir again: the run goes on where it stopped",
        )
    return read_facts(path)
