"""`robot-rl check NAME --run`: does a simulated task do what a task has to?

Scene, starts, observation and expert are tried one after the other. The first thing that is wrong
ends the check, because later errors would only follow from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robot_rl.errors import RobotRLError, SafetyError, SpecError
from robot_rl.ports import BringsSimulator, ResetPlan
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import make_rig
from robot_rl.run.parts import Discard, Still, session_of, simulated_task
from robot_rl.tasks.common import WRIST
from robot_rl.tasks.described import DescribedTask
from robot_rl.tasks.goals import KnowsGoal, goal_words
from robot_rl.types import Outcome, Row, Step

STARTS = 20  # drawn and placed
EPISODES = 3  # that the expert drives


def check_task(experiment: Experiment) -> Iterator[str]:
    """Try the task with its robot; yields a line for each part that is as it should be.

    Raises:
        RobotRLError: the first part that is wrong, with what was expected, what came, and the fix.
    """
    task: Any = simulated_task(experiment)
    rows: list[Row] = []
    rig: Any = make_rig(_with_script(experiment), Still(task.spec.action.size), record=rows.extend)
    yield _simulated_by(task, rig.robot)
    rng = np.random.default_rng(experiment.seed)
    for number in range(STARTS):
        _check_start(experiment, rig, task.sample_reset(rng), number)
    yield f"starts: {STARTS} drawn, each within the limits, none a success or a failure"
    yield _check_observation(experiment, rig)
    if isinstance(task, DescribedTask) and task.success(rig.robot.read()) is None:
        yield f"expert: not tried, because judge is {task.judge}, and there is no scene to judge"
        return
    session = session_of(experiment, rig.loop, rig.reset, metrics=Discard())
    ended = [session.episode("demo", number) for number in range(EPISODES)]
    steps = [row for row in rows if isinstance(row, Step)]
    solved = sum(bool(episode.success) for episode in ended)
    if solved < EPISODES:
        raise SpecError(
            f"the expert solves {solved} of {EPISODES} episodes",
            expected="all of them with skill 1: demonstrations and corrections come from it",
            got="; ".join(f"{e.ending} after {e.steps} steps {e.reason}".rstrip() for e in ended),
            fix=f"what the gate said: {_gate(steps)}; look at it with robot-rl record and review",
        )
    _check_truth(task, rig)
    mean = np.mean([episode.steps for episode in ended])
    yield f"expert: {solved} of {EPISODES} episodes, {mean:.0f} steps each; gate: {_gate(steps)}"


def _simulated_by(task: Any, robot: Any) -> str:
    if isinstance(task, BringsSimulator):
        return f"simulator: {type(robot).__name__}, of the task's own"
    return f"scene: {len(task.parts())} parts, cameras {', '.join((WRIST, *task.cameras()))}"


def _with_script(experiment: Experiment) -> Experiment:
    """The same experiment with the scripted operator at skill 1, without model reward and base."""
    config = dict(experiment.config) | {"operator": {"name": "scripted", "skill": 1.0}}
    config["reward"] = {"name": "predicate"}
    config["base"] = {"name": "none"}
    return Experiment.from_dict(config | {"run_dir": str(experiment.run_dir)})


def _check_start(experiment: Experiment, rig: Any, plan: ResetPlan, number: int) -> None:
    task, limits = experiment.task, experiment.limits
    at = plan.tcp_in_base.position_m
    low, high = np.array(limits.workspace_min_m), np.array(limits.workspace_max_m)
    if (at < low).any() or (at > high).any():
        raise SafetyError(
            f"start {number} lies outside the workspace",
            expected=f"tcp_in_base within {low.tolist()} to {high.tolist()} m",
            got=f"{at.round(3).tolist()} m",
            fix="draw it nearer in sample_reset, or widen workspace_min_m / workspace_max_m",
        )
    rig.robot.reset(plan)
    state = rig.robot.read()
    for word, true in (("success", task.success(state)), ("failure", task.failure(state))):
        if true:
            raise SpecError(
                f"start {number} is a {word} already",
                expected="something left to do, and nothing lost",
                got=f"{word}() is true for {_places(plan)}",
                fix=f"make {word}() stricter, or draw the start further away in sample_reset",
            )


def _check_observation(experiment: Experiment, rig: Any) -> str:
    """The observation fits the spec, and so do progress, goal, mirror and the expert's action."""
    task: Any = experiment.task
    state = rig.robot.read()
    images = {camera.name: camera.read()[1] for camera in rig.loop.cameras}
    observation = task.observe(state, images)
    named = sum(size for _, size, _ in task.spec.state_layout)
    if len(observation["state"]) != named:
        raise SpecError(
            "the state is not as long as its layout says",
            expected=f"{named} numbers: "
            + ", ".join(f"{name} {size}" for name, size, _ in task.spec.state_layout),
            got=f"{len(observation['state'])} numbers",
            fix="let own_layout() and own_state() say the same parts, in the same order",
        )
    task.spec.check(observation)
    progress = task.progress(state)
    if not np.isfinite((progress.remaining_m, progress.deviation_m)).all():
        raise SpecError(
            "progress() is not finite",
            expected="metres that are left, and metres beside the safe way",
            got=str(progress),
            fix="look for a division by zero, or an object that is not there",
        )
    goal = task.goal(state) if isinstance(experiment.task, KnowsGoal) else None
    if goal is not None:
        goal_words(goal)
    mirror = experiment.mirror_signs
    if mirror is not None:
        sizes = {name: size for name, size, _ in task.spec.state_layout}
        wrong = {k: len(v) for k, v in mirror.items() if len(v) != sizes.get(k)}
        if wrong:
            raise SpecError(
                "the mirror has other parts than the state",
                expected=str({k: sizes.get(k) for k in wrong}),
                got=str(wrong),
                fix="one sign for each number of the layout, in own_mirror()",
            )
    expert = task.expert(1.0)
    expert.reset(np.random.default_rng(0))
    action = np.asarray(expert.act(state))
    if action.shape != (task.spec.pose_action.size,) or not np.isfinite(action).all():
        raise SpecError(
            "the expert's action is no action of this task",
            expected=f"{task.spec.pose_action.size} finite numbers in [-1, 1]",
            got=f"shape {action.shape}: {action}",
            fix="let Hand.move turn a target pose into an action",
        )
    return f"observation: {named} numbers, {len(images)} pictures, as the spec says"


def _check_truth(task: Any, rig: Any) -> None:
    """What a described task calls a success must be one by the rule of its scene, too."""
    if isinstance(task, DescribedTask) and task.truth(rig.robot.read()) is False:
        raise SpecError(
            "the task has succeeded, but its scene says that it has not",
            expected="success of the task = success of its scene",
            got=f"judge {task.judge}, tolerance {task.tolerance_m:g} m, scene {task.scene['name']}",
            fix="move goal_in_base to where the scene's task is done, or lessen tolerance_m",
        )


def _gate(steps: Sequence[Step]) -> str:
    """What the gate did, most frequent first."""
    said = Counter(s.reason or "passed" for s in steps if s.outcome is not Outcome.PASS)
    passed = len(steps) - sum(said.values())
    return ", ".join((f"{passed} passed", *(f"{n} {why}" for why, n in said.most_common(3))))


def _places(plan: ResetPlan) -> str:
    objects = {k: v.position_m.round(3).tolist() for k, v in plan.objects.items()}
    return f"tcp {plan.tcp_in_base.position_m.round(3).tolist()}, objects {objects}"


def faults(experiment: Experiment) -> tuple[list[str], RobotRLError | None]:
    """(what is as it should be, the first thing that is not)."""
    fine: list[str] = []
    try:
        fine.extend(check_task(experiment))
    except RobotRLError as error:
        return fine, error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return fine, _broken(error)
    return fine, None


def _broken(error: Exception) -> RobotRLError:
    """An exception of the task's own code, with where it was raised."""
    trace, where = error.__traceback__, "?"
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f"{code.co_filename}:{trace.tb_lineno}, in {code.co_name}"
        trace = trace.tb_next
    return SpecError(
        "the task's own code fails",
        expected="parts, starts, observation, success and expert that work on any start",
        got=f"{type(error).__name__}: {error}",
        fix=f"look at {where}",
    )
