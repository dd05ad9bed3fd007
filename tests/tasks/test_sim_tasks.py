"""Tasks: geometry of success, reproducible starts, observations from RobotState alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError
from robot_rl.geometry import compose, inverse, pose
from robot_rl.ports import Task
from robot_rl.tasks import LiftTask, PegInsertTask, PickInsertTask, ReachTask, SimTask
from robot_rl.tasks.common import tool_down, upright
from robot_rl.types import Pose, RobotState

TASKS = ("peg_insert", "lift", "pick_insert", "reach")


def state_of(task: SimTask, tcp: Pose, objects: dict[str, Pose], **fields: Any) -> RobotState:
    """A RobotState as it would come over ROS topics: no simulator involved."""
    return RobotState(
        stamp_s=0.0,
        joint_position_rad=np.zeros(7),
        joint_velocity_rad_s=np.zeros(7),
        tcp_in_base=tcp,
        tcp_twist_in_base=fields.get("twist", np.zeros(6)),
        wrench_in_tcp=fields.get("wrench", np.zeros(6)),
        gripper_width_m=fields.get("width", task.gripper_start_m),
        objects=objects,
    )


def with_tip_at(task: PegInsertTask, xyz: tuple[float, float, float], yaw: float = 0.0):
    """State whose nominal peg tip is at `xyz` in the hole frame."""
    hole = upright(np.array((0.51, -0.01, 0.03)), 0.2)
    tip = compose(hole, pose(xyz))
    aligned = tool_down(tip.position_m, 0.2 + yaw)
    tcp = compose(aligned, inverse(task.nominal_held_in_tcp))
    return state_of(task, tcp, {"hole": hole})


@pytest.mark.parametrize("name", TASKS)
def test_task_is_found_by_name_and_is_a_task(name: str) -> None:
    task = resolve("task", {"name": name})
    assert isinstance(task, Task)
    assert task.name == task.spec.task == name


@pytest.mark.parametrize("name", TASKS)
def test_observation_matches_the_spec_for_any_state(name: str) -> None:
    task = resolve("task", {"name": name, "images": ["wrist", "front"], "image_size": 32})
    rng = np.random.default_rng(3)
    picture = np.zeros((32, 32, 3), np.uint8)
    for _ in range(20):
        plan = task.sample_reset(rng)
        state = state_of(
            task,
            plan.tcp_in_base,
            plan.objects,
            twist=rng.normal(size=6),
            wrench=1e3 * rng.normal(size=6),
        )
        observation = task.observe(state, {"wrist": picture, "front": picture})
        task.spec.check(observation)
        assert np.abs(observation["state"]).max() < 60.0  # roughly unit scaled, wrench clipped
    assert sum(size for _, size, _ in task.spec.state_layout) == observation["state"].size


@pytest.mark.parametrize("name", TASKS)
def test_without_a_wrench_force_and_torque_are_left_out_and_nothing_else(name: str) -> None:
    whole, deaf = (resolve("task", {"name": name, "wrench": wrench}) for wrench in (True, False))
    plan = whole.sample_reset(np.random.default_rng(0))
    state = state_of(
        whole, plan.tcp_in_base, plan.objects, twist=np.full(6, 0.2), wrench=np.full(6, 3.0)
    )
    seen = deaf.observe(state, {})
    deaf.spec.check(seen)
    np.testing.assert_array_equal(seen["state"], whole.observe(state, {})["state"][:-6])
    assert deaf.spec.state_layout == whole.spec.state_layout[:-2]
    if whole.mirror is not None:
        assert list(deaf.mirror) == [part for part, _, _ in deaf.spec.state_layout]
        assert deaf.mirror.items() <= whole.mirror.items()


@pytest.mark.parametrize(("given", "size"), [(32, (32, 32)), ([48, 64], (48, 64))])
def test_pictures_are_square_or_as_high_and_wide_as_asked(
    given: object, size: tuple[int, int]
) -> None:
    task = resolve("task", {"name": "reach", "images": ["wrist"], "image_size": given})
    assert task.spec.picture_size("wrist") == size


@pytest.mark.parametrize("given", [0, [48, 0], [48], [48, 64, 3], 1.5, "big"])
def test_a_picture_size_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="image_size"):
        resolve("task", {"name": "reach", "images": ["wrist"], "image_size": given})


@pytest.mark.parametrize("name", TASKS)
def test_starts_are_reproducible_and_inside_the_workspace(name: str) -> None:
    task = resolve("task", {"name": name})
    for seed in range(50):
        first, second = (task.sample_reset(np.random.default_rng(seed)) for _ in range(2))
        assert np.array_equal(first.tcp_in_base.position_m, second.tcp_in_base.position_m)
        assert first.objects.keys() == second.objects.keys()
        assert (first.tcp_in_base.position_m >= task.workspace_min_m).all()
        assert (first.tcp_in_base.position_m <= task.workspace_max_m).all()
        assert not task.success(state_of(task, first.tcp_in_base, first.objects))


def test_importing_tasks_does_not_import_the_simulator() -> None:
    code = "import sys, robot_rl.tasks; sys.exit('mujoco' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("variant", "harder"),
        ("images", ["side"]),
        ("timestep_s", 0.01),
        ("control_hz", 0.0),
        ("start_height_m", -1.0),
        ("impedance", {"clip_m": [0.0, 0.1, 0.1]}),
    ],
)
def test_nonsense_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        resolve("task", {"name": "peg_insert", key: value})


def test_overriding_one_gain_keeps_the_tasks_own_clipping() -> None:
    task = resolve("task", {"name": "peg_insert", "impedance": {"stiffness_n_m": 1000.0}})
    assert task.impedance.stiffness_n_m == 1000.0
    assert task.impedance.clip_m == PegInsertTask().impedance.clip_m


@pytest.mark.parametrize(
    ("variant", "width_mm", "clearance_mm"), [("easy", 16, 2.0), ("std", 8, 0.5), ("hard", 8, 0.1)]
)
def test_peg_variants_have_the_stated_sizes(
    variant: str, width_mm: float, clearance_mm: float
) -> None:
    task = PegInsertTask(variant=variant)
    assert task.peg_width_m * 1e3 == pytest.approx(width_mm)
    assert (task.hole_width_m - task.peg_width_m) * 1e3 == pytest.approx(clearance_mm)
    assert (variant == "hard") == (task.timestep_s <= 0.001)


def test_peg_success_needs_depth_inside_the_hole() -> None:
    task = PegInsertTask()
    assert task.success(with_tip_at(task, (0.0, 0.0, -0.0231)))
    assert not task.success(with_tip_at(task, (0.0, 0.0, -0.0229)))
    assert not task.success(with_tip_at(task, (0.008, 0.0, -0.0240)))  # beside the block


def test_peg_tip_is_seen_relative_to_the_hole_whatever_the_hole_yaw() -> None:
    task = PegInsertTask()
    state = with_tip_at(task, (0.003, -0.002, 0.01), yaw=0.05)
    position, rotation = task.tip_in_hole(state)
    assert position == pytest.approx((0.003, -0.002, 0.01), abs=1e-12)
    assert np.abs(rotation) == pytest.approx((0.0, 0.0, 0.05), abs=1e-9)
    vector = task.observe(state, {})["state"]
    assert vector[:3] == pytest.approx((0.06, -0.04, 0.2), rel=1e-5)
    assert vector[3] == pytest.approx(np.tanh(1.5), rel=1e-5)  # 3 mm on the 2 mm scale


def test_start_of_peg_insert_is_above_and_beside_the_hole() -> None:
    task = PegInsertTask()
    tips, holes = [], []
    for seed in range(200):
        plan = task.sample_reset(np.random.default_rng(seed))
        tips.append(task.pose_error(plan.tcp_in_base, plan.objects["hole"]))
        holes.append(plan.objects["hole"].position_m)
    position = np.array([p for p, _ in tips])
    yaw = np.array([r[2] for _, r in tips])
    assert np.allclose(position[:, 2], 0.05)
    assert 0.018 < np.abs(position[:, :2]).max() <= 0.02
    assert 0.08 < np.abs(yaw).max() <= 0.1
    assert 0.008 < np.ptp(np.array(holes)[:, 0]) / 2 <= 0.01


def test_unseen_shift_in_the_hand_is_in_the_plan_but_not_in_the_observation() -> None:
    task = PegInsertTask(in_hand_m=0.002)
    held = [task.sample_reset(np.random.default_rng(s)).held_in_tcp for s in range(20)]
    shifts = np.array([h.position_m - task.nominal_held_in_tcp.position_m for h in held if h])
    assert 0.001 < np.abs(shifts).max() <= 0.002
    state = with_tip_at(task, (0.0, 0.0, 0.0))
    assert task.tip_in_hole(state)[0] == pytest.approx((0, 0, 0), abs=1e-12)


def test_lift_success_needs_the_cube_up_and_in_the_hand() -> None:
    task = LiftTask()
    high = np.array((0.5, 0.0, 0.125))
    up = {"cube": upright(high)}
    assert task.success(state_of(task, tool_down(high), up))
    assert not task.success(state_of(task, tool_down(high + np.array((0.1, 0, 0))), up))
    low = np.array((0.5, 0.0, 0.115))
    assert not task.success(state_of(task, tool_down(low), {"cube": upright(low)}))


def test_pick_insert_is_done_when_the_cube_lies_in_the_pocket_and_nobody_holds_it() -> None:
    task, pocket = PickInsertTask(), np.array((0.5, 0.09, 0.0))
    half = task.cube_m / 2

    def state(cube: tuple[float, float, float], width_m: float = 0.06) -> RobotState:
        objects = {"cube": upright(pocket + np.array(cube)), "pocket": upright(pocket)}
        hand = tool_down(pocket + np.array((0.0, 0.0, 0.1)))
        return state_of(task, hand, objects, width=width_m)

    assert task.success(state((0.002, -0.002, half)))
    assert not task.success(state((0.0, 0.0, half), width_m=0.038))  # still held
    assert not task.success(state((0.0, 0.0, half + 0.012)))  # on the walls
    assert not task.success(state((0.02, 0.0, half)))  # beside it
    far, near = (task.progress(state((x, 0.0, half))).remaining_m for x in (-0.2, -0.1))
    held, done = (task.progress(state((0.0, 0.0, half), w)).remaining_m for w in (0.038, 0.06))
    assert far > near > held > done == 0.0


def test_a_post_stands_before_the_pocket_clear_of_the_cube_and_must_not_be_pushed() -> None:
    task = PickInsertTask(post_m=0.05, cube_xy_m=0.02, pocket_xy_m=0.01)
    (solid,) = task.parts()[-1].primitives
    for seed in range(100):
        plan = task.sample_reset(np.random.default_rng(seed))
        cube, pocket, post = (plan.objects[k].position_m for k in ("cube", "pocket", "post"))
        assert cube[1] + task.cube_m < post[1] - solid.size_m[1] < post[1] < pocket[1]
        assert post[2] == solid.size_m[2] == 0.025
    hand = tool_down(np.array((0.5, 0.0, 0.2)))
    for moved, failed in (((0.0, 0.005, 0.0), False), ((0.0, 0.02, 0.0), True),
                          ((0.0, 0.0, -0.018), True)):  # fmt: skip
        objects = plan.objects | {"post": upright(post + np.array(moved))}
        assert task.failure(state_of(task, hand, objects)) == failed
    with pytest.raises(ValueError, match="post_m"):
        PickInsertTask(post_m=0.1, cube_xy_m=0.02, pocket_xy_m=0.01)
    with pytest.raises(ValueError, match="cube_xy_m"):
        PickInsertTask(post_m=0.05)


def test_lift_fails_when_the_cube_is_off_the_table() -> None:
    task, hand = LiftTask(), tool_down(np.array((0.5, 0.0, 0.2)))
    assert not task.failure(state_of(task, hand, {"cube": upright(np.array((0.6, 0.1, 0.02)))}))
    assert task.failure(state_of(task, hand, {"cube": upright(np.array((0.5, 0.3, 0.02)))}))
    assert task.failure(state_of(task, hand, {"cube": upright(np.array((0.5, 0.0, -0.3)))}))


def test_cube_yaw_repeats_every_quarter_turn() -> None:
    task, hand = LiftTask(), tool_down(np.array((0.5, 0.0, 0.2)), 0.1)
    errors = [
        task.yaw_error_rad(
            state_of(task, hand, {"cube": upright(np.array((0.5, 0, 0.02)), 0.4 + k * np.pi / 2)})
        )
        for k in range(4)
    ]
    assert errors == pytest.approx([0.3] * 4, abs=1e-9)


def test_reach_success_is_a_ball_around_the_goal() -> None:
    task, goal = ReachTask(), np.array((0.5, 0.0, 0.2))
    objects = {"target": upright(goal)}
    assert task.success(state_of(task, tool_down(goal + np.array((0, 0, 0.0099))), objects))
    assert not task.success(state_of(task, tool_down(goal + np.array((0, 0, 0.0101))), objects))


def test_progress_falls_along_the_way_and_ends_at_zero() -> None:
    task = PegInsertTask()
    way = [(0.02, 0.01, 0.05), (0.01, 0.0, 0.03), (0.0, 0.0, 0.005), (0, 0, -0.01), (0, 0, -0.024)]
    progress = [task.progress(with_tip_at(task, point)) for point in way]
    remaining = [p.remaining_m for p in progress]
    assert remaining == sorted(remaining, reverse=True)
    assert remaining[-1] == 0.0
    assert progress[0].deviation_m == pytest.approx(np.hypot(0.02, 0.01), abs=1e-9)
    assert progress[2].deviation_m == pytest.approx(0.0, abs=1e-9)


def test_skill_outside_the_unit_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="skill"):
        PegInsertTask().expert(1.5)
