"""PhysX moves the arm as MuJoCo does. Skipped where PhysX is not installed; `.ci/physx` runs it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.cli.main import main
from robot_rl.config.registry import resolve
from robot_rl.control.env import RobotEnv
from robot_rl.errors import ConfigError, SetupError
from robot_rl.ports import Clock
from robot_rl.run import engines, parity
from robot_rl.run.evaluations import with_evaluation
from robot_rl.run.experiment import Experiment
from robot_rl.safety.limits import Limits
from robot_rl.safety.local import LocalGate, WatchedClock
from robot_rl.tasks import ReachTask
from robot_rl.tasks.common import SimTask, tool_down
from robot_rl.tasks.peg_insert import DEPTH_M
from robot_rl.types import Command, Driver, RobotState
from robot_rl_sim import parity_physx, physx_world
from robot_rl_sim.parity import Check
from robot_rl_sim.physx import PhysxRobot
from robot_rl_sim.robot import MujocoRobot
from robot_rl_sim.usd import JOINTS, build_stage
from tests.robots.test_urdf import ARMS, arm_of

TASKS = ("reach", "peg_insert", "lift", "pick_insert")
ROBOTS = ("fr3", "ur5e")
BOTH = {"peak", "impulse"}
needs_physx = pytest.mark.skipif(
    importlib.util.find_spec("ovphysx") is None, reason="PhysX is not installed: .ci/physx"
)


def made(task: str = "lift", robot: str = "fr3", **fields: str) -> tuple[SimTask, PhysxRobot]:
    arm = resolve("robot", {"name": robot})
    made_task = resolve("task", {"name": task, **fields}).with_robot(arm)
    return made_task, PhysxRobot(made_task, arm)


def env_of(task: SimTask, simulated: MujocoRobot) -> RobotEnv:
    """The arm behind its gate, as in training."""
    gate = LocalGate(Limits.of(simulated.robot).narrow_to(task), simulated)

    def reset(plan: object) -> None:
        simulated.reset(plan)  # pyright: ignore[reportArgumentType]
        gate.reset()

    clock: Clock = WatchedClock(simulated, gate)
    return RobotEnv(task, simulated, clock, reset, gate=gate)


# --- the same motion ------------------------------------------------------------------------------


@needs_physx
@pytest.mark.parametrize(("task", "robot"), [*itertools.product(TASKS, ROBOTS)])
def test_every_gate_is_met(task: str, robot: str) -> None:
    arm = resolve("robot", {"name": robot})
    measured = parity_physx.engine_checks(resolve("task", {"name": task}).with_robot(arm), arm)
    assert [check for check in measured.checks if not check.passed] == []
    names = {check.name for check in measured.checks}
    assert "drives follow a sine" in names
    assert ("the peg rests in the hole" in names) == (task == "peg_insert")
    grasps = task in ("lift", "pick_insert")
    assert ("a part slides down a slope" in names) == grasps
    assert ("the hand lands on the table, impulse" in names) == grasps
    assert all(len(t.time_s) == len(t.mujoco) == len(t.physx) for t in measured.traces)


@needs_physx
@pytest.mark.parametrize("arm", [name for name in ARMS if name != "so101"])
def test_every_gate_is_met_by_an_arm_from_a_urdf(arm: str) -> None:
    robot = arm_of(arm)
    measured = parity_physx.engine_checks(ReachTask().with_robot(robot), robot)
    assert [check for check in measured.checks if not check.passed] == []


def altered(monkeypatch: pytest.MonkeyPatch, path: str, name: str, change: Any) -> None:
    """Let PhysX have a stage in which one attribute is another."""

    def build(*args: Any) -> Any:
        stage = build_stage(*args)
        attribute = stage.GetPrimAtPath(path).GetAttribute(name)
        attribute.Set(change(attribute.Get()))
        return stage

    monkeypatch.setattr(physx_world, "build_stage", build)


def static_of(task: str) -> dict[str, Check]:
    """What PhysX makes of the stage of a task."""
    arm = resolve("robot", {"name": "fr3"})
    checks = parity_physx._static(resolve("task", {"name": task}).with_robot(arm), arm)
    return {check.name: check for check in checks}


@needs_physx
def test_gravity_that_points_upwards_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, "/World/physics", "physics:gravityDirection", lambda down: -down)
    checks = static_of("reach")
    assert not checks["PhysX: torques of gravity"].passed and checks["PhysX: mass matrix"].passed


@needs_physx
def test_a_peg_that_is_turned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from pxr import Gf

    eighth = Gf.Quatf(math.cos(math.pi / 8), 0.0, 0.0, math.sin(math.pi / 8))
    altered(monkeypatch, f"{JOINTS}/peg_fixed", "physics:localRot0", lambda turn: turn * eighth)
    checks = static_of("peg_insert")
    assert checks["PhysX: kinematics, turn"].difference == pytest.approx(math.pi / 4, abs=1e-4)
    assert checks["PhysX: kinematics, place"].passed


@needs_physx
def test_a_drive_answers_a_step_as_the_guide_says() -> None:
    """As MuJoCo's does: `test_usd`."""
    arm = resolve("robot", {"name": "fr3"})
    task = resolve("task", {"name": "peg_insert"}).with_robot(arm)
    simulated = parity_physx._scene(task, arm)
    model, data = simulated.model, simulated.data
    world = physx_world.PhysxWorld(task, arm, model, data, driven=True)
    start = {name: float(data.joint(name).qpos[0]) for name in world.joint_names}
    first, step = start["fr3_joint1"], math.radians(10.0)
    world.drive_to(start | {"fr3_joint1": first + step})
    way = np.zeros(500)
    for index in range(len(way)):
        world.step(np.zeros(model.nv))
        way[index] = (data.qpos[0] - first) / step
    world.close()
    assert way.max() == pytest.approx(1.17, abs=0.02)
    late_s = model.opt.timestep * (np.flatnonzero(np.abs(way - 1.0) > 0.02)[-1] + 1)
    assert late_s == pytest.approx(0.58, abs=0.02)


@needs_physx
def test_a_randomised_task_meets_the_gates_of_its_nominal_scene() -> None:
    words = ["task=lift", "task.ranges={joint_friction: [0.05, 0.05], wrench_bias_n: [9, 9]}"]
    assert parity.measure(Experiment.compose(words), "physx")["passed"]


@needs_physx
@pytest.mark.parametrize(("task", "robot"), [*itertools.product(TASKS, ROBOTS)])
def test_the_expert_succeeds_behind_the_gate(task: str, robot: str) -> None:
    made_task, simulated = made(task, robot)
    env, expert = env_of(made_task, simulated), made_task.expert(1.0)
    for seed in range(2):
        env.reset(seed=seed)
        expert.reset(np.random.default_rng(seed))
        for _ in range(made_task.max_steps):
            _, reward, done, cut, _ = env.step(expert.act(simulated.read()))
            if done or cut:
                break
        assert reward > 0.0


@needs_physx
def test_the_wrench_is_that_of_mujoco() -> None:
    """Two edges of the peg press onto the rim of the hole: force, its sign, and the torque.

    Without friction, whose force at rest depends on the way there.
    """
    felt = []
    for engine in (MujocoRobot, PhysxRobot):
        task = resolve("task", {"name": "peg_insert", "friction": 0.0})
        simulated = engine(task)
        plan = task.sample_reset(np.random.default_rng(0))
        hole = plan.objects["hole"].position_m
        start = hole + np.array((0.006, 0.0, 0.042))
        simulated.reset(replace(plan, tcp_in_base=tool_down(start)))
        target = tool_down(start - np.array((0.0, 0.0, 0.007)))
        simulated.apply(Command(0, 0.0, Driver.POLICY, "test", target))
        simulated.advance(2.0)
        felt.append(simulated.read().wrench_in_tcp)
    mujoco, physx = felt
    assert mujoco[2] < -5.0 and abs(mujoco[3]) + abs(mujoco[4]) > 0.02
    assert physx[:3] == pytest.approx(mujoco[:3], abs=0.5)
    assert physx[3:] == pytest.approx(mujoco[3:], abs=0.05)


@needs_physx
def test_a_grasped_cube_weighs_what_it_weighs() -> None:
    task, simulated = made("lift")
    env, expert = env_of(task, simulated), task.expert(1.0)
    env.reset(seed=1)
    expert.reset(np.random.default_rng(1))
    for _ in range(40):
        _, _, done, _, _ = env.step(expert.act(simulated.read()))
        if done:
            break
    simulated.apply(Command(9, 0.0, Driver.POLICY, "test", simulated.read().tcp_in_base, 0.0))
    simulated.advance(1.0)
    assert simulated.read().wrench_in_tcp[2] == pytest.approx(9.81 * 0.1, abs=0.1)


@needs_physx
def test_a_push_moves_the_hand_and_the_wrench_does_not_tell_of_it() -> None:
    ways = []
    for engine in (MujocoRobot, PhysxRobot):
        simulated = engine(resolve("task", {"name": "reach"}))
        before = simulated.read().tcp_in_base.position_m
        simulated.push((5.0, 0.0, 0.0))
        simulated.advance(1.0)
        state = simulated.read()
        ways.append(state.tcp_in_base.position_m - before)
        assert not state.wrench_in_tcp.any()
    assert ways[0][0] > 1e-3
    assert ways[1] == pytest.approx(ways[0], abs=2e-4)


@needs_physx
def test_joint_actions_follow_their_targets() -> None:
    task, simulated = made("reach", action="joint")
    goal = simulated.read().joint_position_rad + 0.05
    tcp = simulated.tcp_at(goal)
    simulated.apply(Command(0, 0.0, Driver.POLICY, "test", tcp, None, goal))
    simulated.advance(1.0)
    assert simulated.read().joint_position_rad == pytest.approx(goal, abs=2e-3)
    assert task.moves_joints


@needs_physx
def test_another_world_takes_the_place_and_the_first_goes_on_where_it_was() -> None:
    _, first = made("lift")
    first.advance(0.1)
    there = first.read()
    _, second = made("reach")
    second.advance(0.1)
    first.advance(0.1)
    assert first.read().tcp_in_base.position_m == pytest.approx(
        there.tcp_in_base.position_m, abs=1e-4
    )
    assert first.read().objects["cube"].position_m == pytest.approx(
        there.objects["cube"].position_m, abs=1e-4
    )


@needs_physx
def test_what_is_drawn_once_per_run_is_what_moves() -> None:
    """The same draw as in MuJoCo, at every start, and another in another run."""
    ranges = {"gains": [0.7, 1.3, "run"], "object_mass": [0.5, 2.0, "run"]}
    asked, found = resolve("task", {"name": "lift", "ranges": ranges}), []
    for engine, seed in ((MujocoRobot, 1), (PhysxRobot, 1), (PhysxRobot, 2)):
        simulated = engine(asked.of_run(seed))
        for start in range(2):
            simulated.reset(asked.sample_reset(np.random.default_rng(start)))
            simulated.advance(0.05)
            model = simulated.model
            found.append((model.actuator("spring_x").biasprm[1], model.body("cube").mass[0]))
    assert len({*found[:4]}) == 1 and len({*found}) == 2


@needs_physx
def test_a_snapshot_comes_back() -> None:
    task, simulated = made("lift")
    simulated.reset(task.sample_reset(np.random.default_rng(2)))
    simulated.advance(0.2)
    kept, before = simulated.snapshot(), simulated.read()
    simulated.apply(Command(0, 0.0, Driver.POLICY, "test", tool_down(np.array((0.5, 0.0, 0.2)))))
    simulated.advance(0.3)
    simulated.restore(kept)
    after = simulated.read()
    assert after.joint_position_rad == pytest.approx(before.joint_position_rad, abs=1e-9)
    assert after.objects["cube"].position_m == pytest.approx(before.objects["cube"].position_m)


@needs_physx
def test_robot_rl_eval_measures_there_and_leaves_the_first_figures_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["experiment=reach", "runtime=lockstep", f"run_dir={run}", "train.max_env_steps=300"]
    words += ["train.min_env_steps=1", "train.eval_episodes=4", "train.stochastic_eval_episodes=2"]
    words += ["learner.utd=1", "algo.critics=2"]
    assert main(["train", *words, "train.video=false", "train.demos=2"]) == 0
    before = json.loads((run / "eval.json").read_text())
    assert main(["eval", str(run), "--engine", "physx", "--episodes", "5", "--no-video"]) == 0
    after = json.loads((run / "eval.json").read_text())
    assert after["deterministic"] == before["deterministic"]
    assert after["evaluated_in"] == "lockstep"
    assert after["evaluations"][-1]["evaluated_in"] == "physx"
    assert after["evaluations"][-1]["deterministic"]["episodes"] == 5


# --- without PhysX --------------------------------------------------------------------------------


class Felt(MujocoRobot):
    """In the place of PhysX: the wrench sensor's share of the first 0.3 s of a contact."""

    share = 1.0

    def read(self) -> RobotState:
        state = super().read()
        if not state.wrench_in_tcp.any():
            self._quiet_s = self.now_s()
        early = self.now_s() - self._quiet_s < 0.3
        share = self.share if early else 1.0
        return replace(state, wrench_in_tcp=share * state.wrench_in_tcp)


@pytest.mark.parametrize(
    ("share", "missed"), [(1.0, set()), (0.6, {"impulse"}), (0.2, BOTH), (-1.0, BOTH)]
)
def test_a_landing_is_compared_by_its_impact(
    share: float, missed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity_physx, "PhysxRobot", type("", (Felt,), {"share": share}))
    found = parity_physx.Measured([], [])
    arm = resolve("robot", {"name": "fr3"})
    parity_physx._land(resolve("task", {"name": "lift"}).with_robot(arm), arm, found)
    names = {check.name.partition(", ")[2] for check in found.checks if not check.passed}
    assert names == missed
    assert found.traces[0].mujoco.max() > 25.0 and abs(found.traces[0].mujoco[-1]) < 2.0


def test_a_part_that_is_nowhere_misses_its_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = np.full((5, 3), 1e-4), np.full((5, 3), np.nan)
    monkeypatch.setattr(parity_physx, "_drop", lambda *_: lost)
    found = parity_physx.Measured([], [])
    parity_physx._contacts(
        resolve("task", {"name": "lift"}), resolve("robot", {"name": "fr3"}), found
    )
    assert len(found.checks) == 3 and not any(check.passed for check in found.checks)


def test_a_peg_that_is_nowhere_misses_its_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two engines the second one has lost it."""
    monkeypatch.setattr(parity_physx, "PhysxRobot", MujocoRobot)
    task, asked = resolve("task", {"name": "peg_insert"}), itertools.count()
    ticks = round(parity_physx.INSERT_S / parity_physx.TICK_S)

    def tip_in_hole(_state: RobotState) -> tuple[tuple[float, float, float], float]:
        return (0.0, 0.0, -DEPTH_M if next(asked) < ticks else np.nan), 0.0

    object.__setattr__(task, "tip_in_hole", tip_in_hole)  # it is frozen
    found = parity_physx.Measured([], [])
    parity_physx._insert(task, resolve("robot", {"name": "fr3"}), found)
    assert len(found.checks) == 2 and not any(check.passed for check in found.checks)


def test_without_physx_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ovphysx", None)  # `import` then raises
    monkeypatch.setattr(physx_world, "_running", [])
    with pytest.raises(SetupError) as error:
        PhysxRobot(resolve("task", {"name": "reach"}))
    assert "robot-rl[physx]" in error.value.fix and "terms" in error.value.fix


def test_engines_that_there_are_not_and_tasks_without_a_scene() -> None:
    arm = resolve("robot", {"name": "fr3"})
    with pytest.raises(ConfigError, match="bullet"):
        engines.simulate(resolve("task", {"name": "reach"}), arm, "bullet")

    class Own:
        def simulate(self, robot: object) -> object:
            return robot

    with pytest.raises(ConfigError, match="simulator of its own"):
        engines.simulate(Own(), arm, "physx")


def test_eval_on_an_arm_takes_no_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("name: reach\n")
    assert main(["eval", str(tmp_path), "--on", "robot", "--engine", "physx"]) == 2
    assert "--engine is for simulation" in capsys.readouterr().err


def test_figures_of_physx_are_shown_only_where_there_are_no_others() -> None:
    part = {"successes": 5, "episodes": 5, "cycle_time_s_mean": None}
    more = {"successes": 50, "episodes": 50, "cycle_time_s_mean": None}

    def one(place: str, size: dict[str, object]) -> dict[str, object]:
        facts = {"seed": 1, "weights_version": 7, "evaluated_in": place}
        return {"deterministic": size, "stochastic": size, **facts}

    only = with_evaluation({}, one("physx", more), "now")
    assert only["evaluated_in"] == "physx"
    both = with_evaluation(only, one("lockstep", part), "later")
    assert both["evaluated_in"] == "lockstep" and both["deterministic"] == part
    again = with_evaluation(both, one("physx", more), "last")
    assert again["evaluated_in"] == "lockstep"
    assert [e["evaluated_in"] for e in again["evaluations"]] == ["physx", "lockstep", "physx"]
