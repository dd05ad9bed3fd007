"""Lockstep speed of a task on one core: robot, cameras and observation, without gate or store."""

from __future__ import annotations

import time

import numpy as np

from robot_rl.tasks.common import WRIST, SimTask
from robot_rl.types import Command, Driver
from robot_rl_sim.camera import MujocoCamera
from robot_rl_sim.robot import MujocoRobot


def bench_env(task: SimTask, images: bool, seconds: float) -> dict[str, float]:
    """Step a task with random actions for `seconds`; episodes end at `max_steps` or success.

    Args:
        images: also read both cameras (128 x 128) each step, as an image policy would.

    Returns:
        env_steps_per_s (resets included), env_steps_per_cpu_s (per second of processor time: what
        a core would do if nobody else used it), reset_ms, steps.
    """
    robot = MujocoRobot(task)
    cameras = [MujocoCamera(robot, name, 128) for name in (WRIST, "front")] if images else []
    rng, period_s = np.random.default_rng(0), 1 / task.control_hz
    action_spec = task.spec.pose_action
    steps = resets = 0
    reset_s = 0.0
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    try:
        while time.perf_counter() - wall_s < seconds:
            began_s = time.perf_counter()
            robot.reset(task.sample_reset(rng))
            resets, reset_s = resets + 1, reset_s + time.perf_counter() - began_s
            state = robot.read()
            for _ in range(task.max_steps):
                action = rng.uniform(-1, 1, action_spec.size).astype(np.float32)
                target = action_spec.target(action, state.tcp_in_base)
                width_m = action_spec.gripper_width_m(action)
                command = Command(steps, robot.now_s(), Driver.POLICY, "bench", target, width_m)
                robot.apply(command)
                robot.advance(period_s)
                state = robot.read()
                pictures = {camera.name: camera.read()[1] for camera in cameras}
                task.observe(state, pictures)
                steps += 1
                if task.success(state) or time.perf_counter() - wall_s > seconds:
                    break
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    finally:
        for camera in cameras:
            camera.close()
    return {
        "env_steps_per_s": steps / wall_s,
        "env_steps_per_cpu_s": steps / cpu_s,
        "reset_ms": 1e3 * reset_s / resets,
        "steps": float(steps),
    }
