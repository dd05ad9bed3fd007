"""PhysX moves the arm as MuJoCo does. Skipped where PhysX is not installed; `.ci/physx` runs it."""

from __future__ import annotations

import importlib.util
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robot_rl.cli.main import main
from robot_rl.config.registry import resolve
from robot_rl.control.env import RobotEnv
from robot_rl.errors import ConfigError, SetupError
from robot_rl.ports import Clock
from robot_rl.run import engines
from robot_rl.run.evaluations import with_evaluation
from robot_rl.safety.limits import Limits
from robot_rl.safety.local import LocalGate, WatchedClock
from robot_rl.tasks import ReachTask
from robot_rl.tasks.common import SimTask, tool_down
from robot_rl.types import Command, Driver
from robot_rl_sim import physx_world
from robot_rl_sim.physx import PhysxRobot
from robot_rl_sim.robot import MujocoRobot
from tests.robots.test_urdf import ARMS, arm_of

TASKS = ("reach", "peg_insert", "lift", "pick_insert")
ROBOTS = ("fr3", "ur5e")
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
    from robot_rl_sim.parity_physx import engine_checks

    arm = resolve("robot", {"name": robot})
    measured = engine_checks(resolve("task", {"name": task}).with_robot(arm), arm)
    assert [check for check in measured.checks if not check.passed] == []
    names = {check.name for check in measured.checks}
    assert "drives follow a sine" in names
    assert ("the peg rests in the hole" in names) == (task == "peg_insert")
    grasps = task in ("lift", "pick_insert")
    assert ("a part slides down a slope" in names) == grasps
    assert ("the hand lands on the table, peak" in names) == grasps
    assert all(len(t.time_s) == len(t.mujoco) == len(t.physx) for t in measured.traces)


@needs_physx
@pytest.mark.parametrize("arm", [name for name in ARMS if name != "so101"])
def test_every_gate_is_met_by_an_arm_from_a_urdf(arm: str) -> None:
    from robot_rl_sim.parity_physx import engine_checks

    robot = arm_of(arm)
    measured = engine_checks(ReachTask().with_robot(robot), robot)
    assert [check for check in measured.checks if not check.passed] == []


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
