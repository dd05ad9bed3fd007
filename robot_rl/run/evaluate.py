"""`robot-rl eval`: how often a trained policy succeeds on held-out starts, and a video of it.

Runs in lockstep whatever runtime trained the policy: the same task, gate and loop, no ROS needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.control.gym_ports import GymRig
from robot_rl.control.session import EVAL_SEED, Session
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.operate.scripted import NoOperator
from robot_rl.policy.runtime import load_policy
from robot_rl.run.at_work import at_work
from robot_rl.run.evaluations import write_eval
from robot_rl.run.experiment import Experiment
from robot_rl.run.film import film
from robot_rl.run.lockstep import Rig, make_rig
from robot_rl.run.parts import Discard, forget, policy_of, session_of
from robot_rl.run.scene import in_scene
from robot_rl.system.files import need_writable
from robot_rl.types import Row, Step

log = logging.getLogger(__name__)

VIDEO_EPISODES = 3


def make_eval_session(
    experiment: Experiment,
    run_dir: Path,
    hooks: dict[str, Any] | None = None,
    engine: str = "",
    record: Callable[[list[Row]], object] = forget,
) -> tuple[Session, Rig | GymRig]:
    """A lockstep session over the run's saved policy, with nobody at the controls.

    record: is given the rows.

    Raises:
        CheckpointError: the run has no usable policy.
    """
    task = experiment.task
    policy = policy_of(experiment)
    policy.load(load_policy(run_dir, experiment.spec))
    alone = NoOperator(task)
    rig = make_rig(
        experiment, policy, record=record, operator=alone, engine=engine, **(hooks or {})
    )
    session = session_of(experiment, rig.loop, rig.reset, metrics=Discard())
    return session, rig


def evaluate(
    run_dir: Path,
    *,
    episodes: int = 100,
    seed: int = EVAL_SEED,
    video: bool = True,
    simulated: bool = False,
    engine: str = "",
    scene: Sequence[str] = (),
) -> dict[str, Any]:
    """Deterministic and stochastic success with Wilson intervals; returns what eval.json holds now.

    Writes eval.json, which shows a larger evaluation of the same policy if there is one
    (`run.evaluations`; the one just made is the last of `evaluations`), and eval.mp4.

    seed: of the first start; the others follow. simulated: the policy of a real arm is to be
    measured in the simulation of its task. engine: of `run.engines`; "" = the run's. scene:
    `task.randomize=...` and `task.ranges=...` in the place of the run's own.

    Raises:
        CheckpointError: the run has no usable policy.
        ConfigError: the run is a real arm's, and a simulation was not asked for; the engine cannot
            build its scene; or something else than the scene is to be changed.
        SetupError: the engine is not installed.
    """
    experiment = Experiment.load(run_dir)
    if experiment.is_real and not simulated:
        raise ConfigError(
            f"{run_dir} was trained on a real arm",
            expected="figures of that arm",
            got="robot-rl eval, which measures in simulation",
            fix="add --on robot to measure it there, or "
            "--simulated to measure the policy in the simulation of its task",
        )
    need_writable(run_dir)  # or all episodes would be for nothing
    home = "simulation" if experiment.is_real else "lockstep"  # not the arm's own figures
    other = [*([engine] if engine not in ("", experiment.sim) else []), *scene]
    with at_work(run_dir, "eval"):
        session, rig = make_eval_session(in_scene(experiment, scene), run_dir, engine=engine)
        result = write_eval(
            run_dir,
            {
                "deterministic": session.evaluate(episodes, seed).as_dict(),
                "stochastic": session.evaluate(episodes, seed, deterministic=False).as_dict(),
                "seed": seed,
                "weights_version": session.loop.policy.version,
                "evaluated_in": " ".join(other) or home,
            },
        )
        end = getattr(getattr(rig, "robot", None), "close", None)
        if end is not None:  # a second Isaac Sim, for the film, would not fit beside the first
            end()
        if video and not other:  # eval.mp4 shows what eval.json does
            record_video(run_dir, experiment)
        return result


def record_video(run_dir: Path, experiment: Experiment | None = None) -> Path | None:
    """Film a few deterministic episodes into eval.mp4 (H.264); None when pictures cannot be made.

    A missing OpenGL or codec costs the video, not the evaluation: it is logged with its fix.
    """
    experiment = experiment or Experiment.load(run_dir)
    shows: list[Callable[[], None]] = []

    def on_step(_step: Step) -> None:
        for show in shows:
            show()

    session, rig = make_eval_session(experiment, run_dir, {"on_step": on_step})
    path = run_dir / "eval.mp4"
    try:
        with film(rig, path, experiment.task.spec.control_hz) as made:
            shows.append(made.show)
            for index in range(VIDEO_EPISODES):
                session.evaluate(1, EVAL_SEED + index)
                made.pause()
    except RobotRLError as error:
        log.warning("no video: %s", error)
        return None
    return path
