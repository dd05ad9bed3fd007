"""`robot-rl bench ik`: from TCP targets to joint targets, alone and on doubles of real arms.

Alone: the time of a step, and how the joints behave where they must not jump: at a straight arm,
at the end of a joint, in front of the arm itself. On a double: rate and processor share of the node
`ik`, how well the TCP follows random targets, and how soon the arm stands after kill -9 of `ik`.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.bench.choice import some_of
from robot_rl.config.registry import resolve
from robot_rl.control.actions import JointActions, actions_of
from robot_rl.errors import RobotRLError
from robot_rl.geometry import compose, pose, quat_from_rotvec, step_towards
from robot_rl.run.experiment import Experiment
from robot_rl.safety.limits import Limits
from robot_rl.types import Pose

F64 = NDArray[np.float64]

ROBOTS = ("ur5e", "fr3")
DT_S = 0.008
TICK_S = 0.1  # of the random targets
STEP_M, BOX_M = 0.015, 0.06  # way of a target per tick; half of the box they stay in
STEADY_M_S = 0.1  # of the motion in which `ik` is killed
GOES, TRIES = 0.2, 3  # share of its last step that an arm in motion makes; attempts
STANDS_RAD_S = 0.01  # slower is standing: the double's encoders have 0.0001 rad/s of noise
STOOD_S = 0.3  # who stands for so long stands
GIVE_UP_S = 5.0  # who moves so long after a kill does not stand
PROFILES = {
    "position": ("ur5e_forward", ()),
    "velocity": (
        "ur5e_forward",
        (
            "driver.joints.kind=velocity",
            "driver.topics.joint_target=forward_velocity_controller/commands",
            "driver.controllers.cartesian=forward_velocity_controller",
        ),
    ),
    "trajectory": ("fr3_joint", ()),
}
"""kind of joint target -> profile, and the words that make it so."""


def bench(seconds: float, *, only: str = "", trials: int = 5) -> dict[str, Any]:
    """All figures, or those of `only`: alone, position, velocity, trajectory.

    Args:
        seconds: of random targets on each double.
        trials: kills on each double.

    Raises:
        ConfigError: an unknown part.
    """
    figures: dict[str, Any] = {}
    for part in some_of(only, ["alone", *PROFILES], "part"):
        if part == "alone":
            for name in ROBOTS:
                figures |= {f"{name}/{key}": value for key, value in alone(name).items()}
        else:
            found = on_double(part, seconds, trials)
            figures |= {f"{part}/{key}": value for key, value in found.items()}
    return figures


# --- alone ---------------------------------------------------------------------------------------


def alone(name: str, steps: int = 3000) -> dict[str, Any]:
    """Figures of the solver of robot `name`."""
    from robot_rl_sim.inverse_kinematics import MinkKinematics

    robot = resolve("robot", {"name": name})
    solver = MinkKinematics(robot, Limits.of(robot))
    home = np.array(robot.home_rad)
    figures: dict[str, Any] = random_walk(solver, robot, steps)
    here, _ = solver.forward(home, np.zeros_like(home))
    last = 2.5 if name == "ur5e" else 2.9  # rad; both beyond what is left to the last joint
    places = {
        "straight_arm": pose((2.0, 0.0, 0.3), here.quaternion_xyzw),
        "at_the_foot": pose((0.05, 0.0, 0.3), here.quaternion_xyzw),
        "turned": compose(here, pose((0.0, 0.0, 0.0), quat_from_rotvec((0.0, 0.0, last)))),
    }
    for place, target in places.items():
        found = there_and_back(solver, home, target, here)
        figures |= {f"{place}/{key}": value for key, value in found.items()}
    return figures


def random_walk(solver: Any, robot: Any, steps: int) -> dict[str, Any]:
    """Targets at 10 Hz through the whole workspace, 20 mm and 0.1 rad apart."""
    rng = np.random.default_rng(0)
    low, high = np.array(robot.workspace_min_m), np.array(robot.workspace_max_m)
    down = quat_from_rotvec((np.pi, 0.0, 0.0))
    q = np.array(robot.home_rad)
    v = np.zeros_like(q)
    target, far = solver.forward(q, v)[0], solver.forward(q, v)[0]
    took_s, step_rad, change = [], 0.0, 0.0
    for i in range(steps):
        if i % 500 == 0:
            far = pose(low + (high - low) * rng.random(3), down)
        if i % round(TICK_S / DT_S) == 0:
            target = step_towards(target, far, 0.02, 0.1)
        begun_s = time.perf_counter()
        step = solver.step(q, v, target, DT_S)
        took_s.append(time.perf_counter() - begun_s)
        step_rad = max(step_rad, float(np.abs(step.position_rad - q).max()))
        change = max(change, float(np.abs(step.velocity_rad_s - v).max()))
        q, v = step.position_rad, step.velocity_rad_s
    p50_s, p99_s = np.percentile(took_s, (50, 99)).tolist()
    return {
        "solve_ms_p50": 1e3 * p50_s,
        "solve_ms_p99": 1e3 * p99_s,
        "joint_step_mrad_max": 1e3 * step_rad,
        "acceleration_rad_s2_max": change / DT_S,
    }


def there_and_back(solver: Any, home: F64, target: Pose, back: Pose) -> dict[str, Any]:
    """Eight seconds towards a target that cannot be reached, eight seconds back."""
    q, v = home.copy(), np.zeros_like(home)
    step_rad = change = 0.0
    held, left, step = "", [0.0, 0.0], None
    for turn, goal in enumerate((target, back)):
        for _ in range(round(8.0 / DT_S)):
            step = solver.step(q, v, goal, DT_S)
            step_rad = max(step_rad, float(np.abs(step.position_rad - q).max()))
            change = max(change, float(np.abs(step.velocity_rad_s - v).max()))
            q, v = step.position_rad, step.velocity_rad_s
        assert step is not None
        held, left[turn] = held or step.held_by, 1e3 * step.left_m
    return {
        "held_by": held or "nothing",
        "joint_step_mrad_max": 1e3 * step_rad,
        "acceleration_rad_s2_max": change / DT_S,
        "left_mm": left[0],
        "left_mm_after_the_way_back": left[1],
    }


# --- on a double ---------------------------------------------------------------------------------


@contextmanager
def running(compose: Callable[..., Experiment]) -> Iterator[tuple[Any, Any]]:
    """A graph without an actor on its double, and a person; yields (person, supervisor).

    compose: of the robot and task, with the words that it is given besides.
    """
    from robot_rl.ros.graph import free_domain
    from robot_rl.ros.rehearse import Person
    from robot_rl.ros.runtime import visitor
    from robot_rl.ros.supervise import Supervisor
    from robot_rl.run.graph import graph_of, need_ros

    need_ros()
    with tempfile.TemporaryDirectory(prefix="robot-rl-bench-") as folder:
        own = [f"run_dir={folder}/run", f"ros.domain_id={free_domain()}", "ros.with_actor=false"]
        experiment = compose("double=true", "operator=none", *own)
        experiment.save()
        graph = graph_of(experiment)
        done = threading.Event()
        with Supervisor(graph, Path(folder) / "run", experiment.ros.domain_id) as supervisor:

            def watch() -> None:
                while not done.wait(0.02):
                    supervisor.poll()

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            remaps = next(spec.remaps for spec in graph if spec.name == "gate")
            try:
                with visitor("person", experiment.ros.domain_id, remaps=remaps) as node:
                    found = actions_of(experiment.task.spec, experiment.robot)
                    actions = found if isinstance(found, JointActions) else None
                    yield Person(node, actions=actions), supervisor
            finally:
                done.set()
                watcher.join()


def on_double(kind: str, seconds: float, trials: int) -> dict[str, Any]:
    """Figures of one kind of joint target."""
    profile, words = PROFILES[kind]
    chosen = [f"robot={profile}", "task=reach", *words]
    joints = len(Experiment.compose(chosen).robot.joints)
    with running(lambda *more: Experiment.compose([*chosen, *more])) as (person, supervisor):
        person.wait_until(lambda: not person.why_not(), 60.0, "the graph is ready")
        figures = follow(person, seconds)
        kills = [kill(person, supervisor, f"kill{i}", joints) for i in range(trials)]
    stands_ms = sorted(1e3 * stands_s for stands_s, _ in kills)
    ways_mrad = sorted(1e3 * way_rad for _, way_rad in kills)
    return {
        **figures,
        "kill_stands_ms_median": stands_ms[len(stands_ms) // 2],
        "kill_stands_ms_max": stands_ms[-1],
        "kill_way_mrad_max": ways_mrad[-1],
    }


def follow(person: Any, seconds: float) -> dict[str, Any]:
    """Random targets at 10 Hz; how far the TCP is from each when the next one comes."""
    from robot_rl.ros import topics

    rng, told = np.random.default_rng(0), _diagnostics(person.node)
    person.arm("random")
    start = person.tcp()
    target, speed, away = start, np.zeros(3), []
    due_s = time.monotonic()
    for _ in range(round(seconds / TICK_S)):
        speed = np.clip(speed + rng.normal(0.0, STEP_M / 2, 3), -STEP_M / 2, STEP_M / 2)
        next_m = np.clip(target.position_m + speed, start.position_m - BOX_M / 2,
                         start.position_m + BOX_M / 2)  # fmt: skip
        target = pose(next_m, start.quaternion_xyzw)
        person.ask("random", target)
        due_s += TICK_S
        while time.monotonic() < due_s:
            person.turn(0.005)
        away.append(float(np.linalg.norm(person.tcp().position_m - target.position_m)))
    for _ in range(10):  # the last one again and again: what is left at rest
        person.ask("random", target)
        person.turn(TICK_S)
        time.sleep(TICK_S)
    rest_mm = 1e3 * float(np.linalg.norm(person.tcp().position_m - target.position_m))
    person.newest(topics.CURRENT_POSE)
    values = told()
    p50_m, p99_m = np.percentile(away, (50, 99)).tolist()
    names = ("rate_hz", "cpu_share", "solve_p50_ms", "solve_p99_ms", "late")
    return {
        **{f"node_{name}": float(values.get(name, "nan")) for name in names},
        "tracking_mm_p50": 1e3 * p50_m,
        "tracking_mm_p99": 1e3 * p99_m,
        "rest_mm": rest_mm,
    }


def _diagnostics(node: Any) -> Any:
    """Newest key-values of `ik` on /diagnostics, as a function."""
    from robot_rl.ros import topics
    from robot_rl.ros.endpoints import Newest

    newest, kept = Newest(node, topics.DIAGNOSTICS), {}

    def read() -> dict[str, str]:
        for message in newest.arrived():
            status = message.status[0]
            if status.name.endswith("/ik"):
                kept.update({pair.key: pair.value for pair in status.values})
        return kept

    return read


def kill(person: Any, supervisor: Any, lease: str, joints: int) -> tuple[float, float]:
    """kill -9 of `ik` in the middle of a steady motion.

    Returns:
        wall seconds until the arm stands, and the most that one of its first `joints` joints moved
        meanwhile (rad).

    Raises:
        RobotRLError: the arm does not move before, or does not stand afterwards.
    """
    from robot_rl.ros import topics

    back = -1.0 if person.tcp().position_m[0] > 0.45 else 1.0
    set_going(person, lease, np.array((back * STEADY_M_S * TICK_S, 0.0, 0.0)), 8)
    before = person.newest(topics.JOINT_STATES)
    os.kill(supervisor.pids()["ik"], signal.SIGKILL)
    killed_s = moved_s = wall_s = time.monotonic()
    most_rad = 0.0
    while wall_s - moved_s < STOOD_S:
        message = person.newest(topics.JOINT_STATES)
        wall_s = time.monotonic()
        if (speed := person.joint_speed_rad_s(joints)) > STANDS_RAD_S:
            moved_s = wall_s
        if wall_s > killed_s + GIVE_UP_S:
            raise RobotRLError(
                "the arm moves on after kill -9 of ik",
                expected=f"within {GIVE_UP_S:g} s: every joint slower than {STANDS_RAD_S} rad/s",
                got=f"{speed:.2f} rad/s",
                fix="logs/*.log in the run folder",
            )
        ways = (abs(message.position[i] - before.position[i]) for i in range(joints))
        most_rad = max(most_rad, *ways)
        time.sleep(0.002)
    return moved_s - killed_s, most_rad


def set_going(person: Any, lease: str, step_m: F64, steps: int) -> None:
    """Bring the arm into motion: so many steps [3] of the TCP, ten a second.

    A machine that stalls makes the gate stop the arm, rightly. Then a person looks, and it is armed
    again.

    Raises:
        RobotRLError: it does not move. Whatever is killed then, it stands: that would say nothing.
    """
    way_m = 0.0
    for _ in range(TRIES):
        person.wait_until(lambda: not person.why_not(), 60.0, "the graph is ready")
        person.arm(lease)
        start = last = person.tcp()
        for i in range(1, steps + 1):
            last = person.tcp()
            person.ask(lease, pose(start.position_m + i * step_m, start.quaternion_xyzw))
            until_s = time.monotonic() + TICK_S
            while time.monotonic() < until_s:
                person.turn(0.005)
        way_m = float(np.linalg.norm(person.tcp().position_m - last.position_m))
        if way_m > GOES * float(np.linalg.norm(step_m)):
            return
    raise RobotRLError(
        "the arm does not move: there is no motion to kill anything in",
        expected=f"of a step of {np.linalg.norm(step_m):g} m at least {GOES:.0%}",
        got=f"{way_m:.4f} m in {TRIES} attempts; {person.why_not() or f'gate: {person.mode()}'}",
        fix="logs/*.log in the run folder",
    )
