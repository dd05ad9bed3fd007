"""Lockstep runtime: simulator, gate, actor and learner in one process, no ROS and no wall clock.

Every control tick is followed by the learning the update budget allows, so a run is deterministic:
same seed, same curve. The ports are those of the ROS runtime; only their implementations differ.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import DRAWS, METRICS
from robot_rl.control.actions import actions_of
from robot_rl.control.arbiter import Arbiter
from robot_rl.control.gym_ports import EnvPorts, GymRig
from robot_rl.control.loop import ControlLoop, Policy
from robot_rl.control.session import Session
from robot_rl.errors import SetupError
from robot_rl.learn.metrics import MetricSink
from robot_rl.operate.devices import Here, make_operator
from robot_rl.operate.pace import AtTheirPace
from robot_rl.ports import BringsSimulator, HandDevice, InputDevice, ResetPlan, SimulatedRobot
from robot_rl.run import engines
from robot_rl.run.gym_view import shown
from robot_rl.run.parts import scene_log, session_of, simulated_task
from robot_rl.run.pause import is_paused
from robot_rl.safety.local import LocalGate, WatchedClock
from robot_rl.store.store import Store
from robot_rl.tasks.gym import GymTask
from robot_rl.types import EpisodeStart, Frame, RobotState, Row, Step

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)
LEASE = "lockstep"


@dataclass(slots=True)
class Rig:
    """A lockstep rig: the loop, with simulator and gate.

    draws: file that keeps what is drawn for each episode of a randomised task. calibrated: cameras
    that stand where `cameras.NAME.pose` says; the others stand where the task has them.
    """

    loop: ControlLoop
    robot: SimulatedRobot
    gate: LocalGate
    draws: Path | None = None
    calibrated: frozenset[str] = frozenset()

    def reset(self, plan: ResetPlan, start: EpisodeStart) -> None:
        """Teleport robot and objects to the start, then arm the gate."""
        self.robot.reset(plan)
        randomizer = getattr(self.robot, "randomizer", None)
        if randomizer is not None and self.draws is not None:
            which = {"run": start.id.run, "episode": start.id.episode, "purpose": start.purpose}
            with self.draws.open("a") as file:
                file.write(json.dumps(which | {"seed": start.seed} | randomizer.drawn) + "\n")
        self.gate.reset()
        self.gate.arm(LEASE)

    def camera(self, height: int, width: int) -> Any:
        """A `VideoCamera` on the scene; the caller closes it.

        Raises:
            SetupError: no OpenGL, or the task has a simulator of its own, which draws no films.
        """
        if isinstance(self.loop.task, BringsSimulator):
            raise SetupError(
                "the task's own simulator draws no films",
                expected="a MuJoCo scene",
                got=type(self.robot).__name__,
                fix="train.video=false keeps this quiet",
            )
        from robot_rl_sim.camera import VideoCamera

        robot: Any = self.robot
        return VideoCamera(robot, height, width)


def make_rig(
    experiment: Experiment,
    policy: Policy,
    *,
    record: Callable[[list[Row]], object],
    operator: InputDevice | None = None,
    on_step: Callable[[Step], None] = lambda _step: None,
    on_frame: Callable[[Frame, RobotState], None] = lambda _frame, _state: None,
    stopping: Callable[[], str] = lambda: "",
    engine: str = "",
) -> Rig | GymRig:
    """Put simulator or environment, gate, operator and loop together.

    engine: what moves the simulated arm, in the place of the experiment's `sim`; an environment
    brings its own physics.

    Raises:
        ConfigError: the task can only be run on a real arm, or not on this engine.
        SetupError: the simulation extra, or that of the engine, is not installed.
    """
    is_gym = isinstance(experiment.task, GymTask)
    task: Any = experiment.task if is_gym else simulated_task(experiment)
    operator = operator or _operator_of(experiment, task)
    action = task.spec.action
    common: dict[str, Any] = {
        "task": task,
        "policy": policy,
        "operator": operator,
        "arbiter": Arbiter(experiment.arbiter, action.size, motion=action.motion),
        "record": record,
        "lease": LEASE,
        "on_step": on_step,
        "on_frame": on_frame,
        "stopping": stopping,
        "actions": actions_of(task.spec, experiment.robot),
    }
    engine = engine or experiment.sim
    if is_gym and engine != engines.MUJOCO:
        raise engines.one_simulator(engine, type(task).__name__)
    if is_gym:
        at_device = operator.pause if isinstance(operator, AtTheirPace) else time.sleep
        env = EnvPorts(task, pause=at_device if experiment.has_person else None)
        loop = ControlLoop(robot=env, cameras=(), gate=env, clock=env, reward=env, **common)
        return GymRig(loop, env)
    robot = engines.simulate(task, experiment.robot, engine)
    calibrated = _place_cameras(experiment, task, robot)
    gate = LocalGate(experiment.limits, robot)
    loop = ControlLoop(
        robot=robot,
        cameras=[robot.camera(name, task.spec.picture_size(name)) for name in task.spec.cameras],
        gate=gate,
        clock=WatchedClock(robot, gate),
        reward=experiment.reward.open(task),
        **common,
    )
    return Rig(loop, robot, gate, experiment.run_dir / DRAWS, calibrated)


def _place_cameras(experiment: Experiment, task: Any, robot: Any) -> frozenset[str]:
    """Put the cameras of a scene where their calibration says; which ones that are.

    Before any camera is opened, because it reads its angle of view then, and before the first
    reset: from then on randomised poses are offsets from where the cameras are now.
    """
    if isinstance(task, BringsSimulator) or not task.spec.cameras:
        return frozenset()
    from robot_rl_sim.camera import place_cameras

    place_cameras(robot.model, experiment.cameras, experiment.robot)
    return frozenset(name for name, config in experiment.cameras.items() if config.pose)


def _operator_of(experiment: Experiment, task: Any) -> InputDevice:
    """Who helps; an environment waits for a person with a device."""
    waits = isinstance(experiment.task, GymTask) and experiment.has_person
    device = make_operator(experiment.operator, task, Here(experiment.run_dir) if waits else None)
    return AtTheirPace(device) if isinstance(device, HandDevice) else device


@contextmanager
def recorded_session(
    experiment: Experiment,
    policy: Policy,
    store: Store,
    *,
    on_step: Callable[[Step], None] = lambda _step: None,
    on_episode: Callable[[dict[str, Any]], None] = lambda _stats: None,
) -> Iterator[Session]:
    """A session on a rig of its own that leaves rows, metrics and scenes in the run folder.

    Raises:
        SetupError: see `make_rig`.
    """
    scenes, metrics = scene_log(experiment), MetricSink(experiment.run_dir / METRICS)
    rig = make_rig(experiment, policy, record=store.append, on_step=on_step, on_frame=scenes.saw)
    try:
        with shown(rig.loop, experiment.run_dir):
            yield session_of(
                experiment,
                rig.loop,
                rig.reset,
                metrics=metrics,
                store=store,
                before_episode=scenes.flush,
                on_episode=on_episode,
                paused=partial(is_paused, experiment.home),
            )
    finally:
        scenes.flush()
        metrics.close()
