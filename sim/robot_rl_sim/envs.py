"""Our tasks for other libraries, known to Gymnasium once `robot_rl_sim` has been imported.

    gymnasium.make("robot_rl/PegInsert-v0", variant="easy")

Keyword arguments are the task's own fields, e.g. `images=["wrist"]`. The gate judges every action
and watches the robot between two actions, as in our own training.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from robot_rl.config.registry import resolve
from robot_rl.control.actions import actions_of
from robot_rl.control.env import RobotEnv
from robot_rl.ports import ResetPlan

TASKS = {"Reach": "reach", "Lift": "lift", "PegInsert": "peg_insert", "PickInsert": "pick_insert"}
PICTURE_SIZE = (480, 640)


def register() -> None:
    """Make `robot_rl/<name>-v0` known to Gymnasium; making one imports MuJoCo."""
    for name, task in TASKS.items():
        gymnasium.register(f"robot_rl/{name}-v0", f"{__name__}:make_env", kwargs={"task": task})


def make_env(
    task: str,
    *,
    robot: str = "fr3",
    render_mode: str | None = None,
    run_seed: int = 0,
    **fields: Any,
) -> RobotEnv:
    """A simulated task behind the Gymnasium API.

    Args:
        task: registered name, e.g. "peg_insert".
        robot: registered name, e.g. "ur5e".
        render_mode: "rgb_array" or None.
        run_seed: decides what is drawn once per run (`ranges` of scope "run").
        fields: of the task's dataclass.

    Raises:
        ConfigError: unknown task, robot or field.
        SetupError: pictures are asked for and there is no OpenGL.
    """
    from robot_rl.safety.limits import Limits
    from robot_rl.safety.local import LocalGate, WatchedClock
    from robot_rl_sim.camera import MujocoCamera
    from robot_rl_sim.robot import MujocoRobot

    arm: Any = resolve("robot", {"name": robot})
    sim_task: Any = resolve("task", {"name": task, **fields}).with_robot(arm).of_run(run_seed)
    simulated = MujocoRobot(sim_task, arm)
    limits = Limits.of(arm).narrow_to(sim_task)
    gate = LocalGate(limits.of_joints(arm) if sim_task.moves_joints else limits, simulated)
    size_of = sim_task.spec.picture_size
    cameras = [MujocoCamera(simulated, name, size_of(name)) for name in sim_task.images]
    video = MujocoCamera(simulated, "video", PICTURE_SIZE) if render_mode == "rgb_array" else None

    def reset(plan: ResetPlan) -> None:
        simulated.reset(plan)
        gate.reset()

    def close() -> None:
        for camera in (*cameras, *([video] if video else [])):
            camera.close()

    return RobotEnv(
        sim_task,
        simulated,
        WatchedClock(simulated, gate),
        reset,
        cameras=cameras,
        gate=gate,
        render=(lambda: video.read()[1]) if video else None,
        close=close,
        actions=actions_of(sim_task.spec, arm),
    )
