"""What differs from episode to episode: what is drawn, and what it changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.cli.main import main
from robot_rl.config.registry import resolve
from robot_rl.config.run_folder import DRAWS
from robot_rl.errors import ConfigError
from robot_rl.ros.wire import decode_plan, encode_plan
from robot_rl.tasks import LiftTask
from robot_rl.tasks.common import Part, tool_down
from robot_rl.tasks.randomize import PRESETS, QUANTITIES, draw, preset_of, ranges_of
from robot_rl.types import Command, Driver
from robot_rl_sim.camera import MujocoCamera
from robot_rl_sim.robot import MujocoRobot

Ranges = dict[str, tuple[float, float]]


def made(task: str = "lift", preset: str = "none", ranges: Ranges | None = None, **fields: Any):
    built = resolve("task", {"name": task, "randomize": preset, "ranges": ranges or {}, **fields})
    return built, MujocoRobot(built)


def start(task: Any, seed: int = 0) -> Any:
    return task.sample_reset(np.random.default_rng(seed))


def only(name: str, value: float) -> Ranges:
    return {name: (value, value)}


# --- what is drawn --------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_sane_ranges_around_the_nominal_value(preset: str) -> None:
    for name, (low, high) in ranges_of(preset, {}).items():
        quantity = QUANTITIES[name]
        assert low <= high
        if quantity.kind != "amount":
            assert low < quantity.nominal < high
        else:
            assert low >= 0.0
    assert bool(ranges_of(preset, {})) == (preset != "none")


def test_light_lies_within_real() -> None:
    for quantity in QUANTITIES.values():
        assert quantity.light[1] <= quantity.real[1]
        if quantity.kind != "amount":
            assert quantity.real[0] <= quantity.light[0]


@given(st.integers(0, 2**31), st.integers(0, 2**31))
@settings(max_examples=50)
def test_equal_starts_give_equal_draws_and_others_give_others(one: int, other: int) -> None:
    task = resolve("task", {"name": "lift", "randomize": "real", "images": ["wrist", "front"]})
    ranges = task.drawn_ranges
    first = draw(ranges, start(task, one), task.images)
    assert first == draw(ranges, start(task, one), task.images)
    travelled = decode_plan(encode_plan(start(task, one)))  # over ROS 2
    assert not isinstance(travelled, int)
    assert first == draw(ranges, travelled, task.images)
    for name, value in first.items():
        quantity = next(q for q in ranges if name.startswith(q))
        low, high = ranges[quantity]
        assert low <= value <= high
    if one != other:
        assert first != draw(ranges, start(task, other), task.images)


def test_another_quantity_changes_no_draw() -> None:
    task = resolve("task", {"name": "lift"})
    few = {"friction": (0.5, 1.5), "gains": (0.8, 1.2)}
    more = few | {"armature": (0.5, 2.0)}
    drawn = draw(more, start(task), ())
    assert {name: drawn[name] for name in few} == draw(few, start(task), ())


def test_a_range_may_name_one_draw() -> None:
    """What draws.jsonl shows can be asked for again."""
    own = {"camera_place_m": (0.01, 0.01), "camera_place_m_x/wrist": (0.02, 0.02)}
    plan = resolve("task", {"name": "lift"}).sample_reset(np.random.default_rng(0))
    cameras = ("wrist", "front")
    found = draw(ranges_of("none", own, cameras), plan, cameras)
    assert found["camera_place_m_x/wrist"] == 0.02
    assert found["camera_place_m_y/wrist"] == found["camera_place_m_x/front"] == 0.01
    assert draw(ranges_of("none", found_again(found), cameras), plan, cameras) == found

    kept = ranges_of("real", {"camera_place_m_x/wrist": (0.0, 0.0)}, ("wrist",))
    assert draw(kept, plan, ("wrist", "front"))["camera_place_m_x/wrist"] == 0.0


@pytest.mark.parametrize(
    "name",
    ["camera_place_m_w/wrist", "camera_place_m/wrist", "camera_place_m_x", "friction/wrist",
     "wrench_bias_n_x/wrist", "camera_focal/wrst", "camera_focal/"],
)  # fmt: skip
def test_a_name_that_is_never_drawn_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"did you mean|known: "):
        ranges_of("none", {name: (0.0, 0.1)}, ("wrist", "front"))


def found_again(drawn: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Ranges that leave no choice."""
    return {name: (value, value) for name, value in drawn.items()}


def test_each_camera_has_draws_of_its_own() -> None:
    task = resolve("task", {"name": "lift", "randomize": "real", "images": ["wrist", "front"]})
    drawn = draw(task.drawn_ranges, start(task), task.images)
    assert drawn["camera_place_m_x/wrist"] != drawn["camera_place_m_x/front"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"randomize": "rael"}, "did you mean 'real'"),
        ({"ranges": {"frction": [1, 1]}}, "did you mean 'friction'"),
        ({"ranges": {"friction": [1.2, 0.8]}}, "low <= high"),
        ({"ranges": {"friction": [0.0, 1.0]}}, "0.1 <= low"),
        ({"ranges": {"action_delay_s": [-0.1, 0.1]}}, "0.0 <= low"),
        ({"ranges": {"action_delay_s": [0.0, 80]}}, "in seconds"),
        ({"ranges": {"friction": [1, float("nan")]}}, "[1, nan]"),
        ({"ranges": {"friction": [1]}}, "friction"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve("task", {"name": "lift", **fields})
    assert told in f"{error.value}"


def test_the_guide_has_every_quantity_with_its_ranges() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "isaac.md").read_text()
    for name, quantity in QUANTITIES.items():
        ranges = [preset_of(name, preset) for preset in PRESETS[1:]]
        cells = [f"`{name}`", quantity.text, f"{quantity.kind}, {quantity.when}"]
        row = f"| {' | '.join([*cells, *(f'{low:g} to {high:g}' for low, high in ranges)])} |"
        assert row in guide, row


# --- what it changes ------------------------------------------------------------------------------


def test_nothing_changes_without_ranges() -> None:
    task, robot = made()
    assert robot.randomizer is None
    robot.reset(start(task))
    plain, other = made(ranges={"friction": (1.0, 1.0)})
    assert other.randomizer is None and plain.drawn_ranges == {}


CHANGES = {
    "object_mass": (1.3, lambda m: m.body("cube").mass[0]),
    "friction": (0.5, lambda m: m.geom("cube_0").friction[0]),
    "object_size": (1.1, lambda m: m.geom("cube_0").size[0]),
    "joint_damping": (2.0, lambda m: m.dof_damping[0]),
    "armature": (1.5, lambda m: m.dof_armature[3]),
    "gains": (0.8, lambda m: m.actuator("spring_x").biasprm[1]),
    "light": (0.7, lambda m: m.light("lamp").diffuse[0]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_factor_multiplies_the_nominal_value_and_never_piles_up(name: str) -> None:
    factor, read = CHANGES[name]
    nominal = read(made()[1].model)
    task, robot = made(ranges=only(name, factor))
    for seed in range(3):
        robot.reset(start(task, seed))
        assert read(robot.model) == pytest.approx(factor * nominal)


def test_dry_friction_is_a_share_of_what_a_joint_can_do() -> None:
    task, robot = made("reach", ranges=only("joint_friction", 0.02))
    torque_nm = np.array([joint.torque_nm for joint in robot.robot.joints])
    for seed in range(2):
        robot.reset(start(task, seed))
        friction_nm = robot.model.dof_frictionloss[: len(torque_nm)]
        assert friction_nm == pytest.approx(0.02 * torque_nm)


@pytest.mark.parametrize(("delay_s", "ticks"), [(0.0, 0), (0.004, 0), (0.037, 4), (0.043, 4)])
def test_a_command_acts_at_the_nearest_tick(delay_s: float, ticks: int) -> None:
    _, robot = made("reach", ranges=only("action_delay_s", delay_s) | {"friction": (0.9, 0.9)})
    robot.reset(start(robot.task))
    randomizer = robot.randomizer
    assert randomizer is not None
    randomizer.order(Command(0, 0.0, Driver.POLICY, "test", tool_down(np.zeros(3))), 0.2)
    acts = [n for n in range(10) if randomizer.due(0.2 + 0.01 * n)[0] is not None]
    assert acts == [ticks]


def test_the_gripper_keeps_its_force() -> None:
    task, robot = made(ranges=only("gains", 0.5))
    robot.reset(start(task))
    assert (
        robot.model.actuator("gripper").forcerange[1]
        == made()[1].model.actuator("gripper").forcerange[1]
    )


def test_a_heavier_cube_falls_into_the_constants_of_the_model() -> None:
    task, robot = made(ranges=only("object_mass", 3.0))
    before = float(robot.model.body("cube").invweight0[0])
    robot.reset(start(task))
    assert float(robot.model.body("cube").invweight0[0]) == pytest.approx(before / 3.0, rel=0.01)


def test_a_larger_cube_lies_higher() -> None:
    heights = []
    for factor in (1.0, 1.2):
        task, robot = made(ranges=only("object_size", factor))
        robot.reset(start(task))
        robot.advance(0.5)
        heights.append(robot.read().objects["cube"].position_m[2])
    assert heights[1] == pytest.approx(1.2 * heights[0], abs=2e-4)


def test_the_boxes_that_mujoco_asks_first_grow_with_the_cube() -> None:
    found = []
    for factor in (1.0, 1.2):
        task, robot = made(ranges=only("object_size", factor))
        robot.reset(start(task))
        model, body = robot.model, robot.model.body("cube").id
        first, count = model.body_bvhadr[body], model.body_bvhnum[body]
        assert count > 0
        found.append(model.bvh_aabb[first : first + count].copy())
    assert found[1] == pytest.approx(1.2 * found[0])


@pytest.mark.parametrize("mass", [1.0, 1.3])
def test_a_larger_part_is_harder_to_turn(mass: float) -> None:
    """And its centre of mass is farther from its origin; its mass is another quantity."""
    found = []
    for size in (1.0, 1.2):
        task = OffCentre(ranges={"object_size": (size, size), "object_mass": (mass, mass)})
        robot = MujocoRobot(task)
        for seed in range(2):
            robot.reset(start(task, seed))
        body = robot.model.body("cube")
        found.append((body.mass[0], body.inertia.copy(), body.ipos.copy()))
    (mass_kg, inertia, centre), (same_kg, harder, farther) = found
    assert same_kg == mass_kg
    assert harder == pytest.approx(1.44 * inertia)
    assert centre.any() and farther == pytest.approx(1.2 * centre)


class OffCentre(LiftTask):
    """A cube with a weight on one side."""

    def parts(self) -> tuple[Part, ...]:
        cube, *rest = super().parts()
        weight = replace(cube.primitives[0], position_m=(0.01, 0.0, 0.0))
        return (replace(cube, primitives=(*cube.primitives, weight)), *rest)


def moved(robot: MujocoRobot, seconds: float) -> float:
    """How far the TCP has come of 30 mm, so long after the command."""
    before = robot.read().tcp_in_base.position_m.copy()
    target = tool_down(before + np.array((0.0, 0.0, 0.03)))
    robot.apply(Command(0, 0.0, Driver.POLICY, "test", target))
    robot.advance(seconds)
    return float(robot.read().tcp_in_base.position_m[2] - before[2])


def test_a_delayed_command_acts_so_much_later() -> None:
    task, prompt = made("reach")
    late_task, late = made("reach", ranges=only("action_delay_s", 0.08))
    prompt.reset(start(task))
    late.reset(start(late_task))
    assert abs(moved(late, 0.07)) < 1e-4
    at_once = [moved(prompt, 0.1)]
    late.advance(0.01)
    late.advance(0.1)
    assert late.read().tcp_in_base.position_m[2] > 0.0
    behind = late.read().tcp_in_base.position_m[2] - start(late_task).tcp_in_base.position_m[2]
    assert behind == pytest.approx(at_once[0], abs=2e-3)


def test_jitter_never_lets_a_command_overtake_another() -> None:
    task, robot = made(
        "reach", ranges={"action_delay_s": (0.0, 0.0), "action_jitter_s": (0.2, 0.2)}
    )
    robot.reset(start(task))
    randomizer = robot.randomizer
    assert randomizer is not None
    for number in range(200):
        pose = tool_down(np.array((0.5, 0.0, 0.2)))
        randomizer.order(Command(number, 0.0, Driver.POLICY, "test", pose), 0.01 * number)
    seen = []
    for tick in range(400):
        command, _ = randomizer.due(0.01 * tick)
        seen += [command.sequence] if command is not None else []
    assert seen == sorted(seen) and seen[-1] == 199


def test_a_slow_gripper_closes_later_and_the_arm_moves_at_once() -> None:
    task, robot = made("lift", ranges=only("gripper_latency_s", 0.3))
    robot.reset(start(task))
    open_m = robot.gripper_width_m
    tcp = robot.read().tcp_in_base
    lower = replace(tcp, position_m=tcp.position_m - np.array((0.0, 0.0, 0.02)))
    robot.apply(Command(0, 0.0, Driver.POLICY, "test", lower, 0.02))
    robot.advance(0.29)
    assert robot.gripper_width_m == pytest.approx(open_m, abs=1e-3)
    assert robot.read().tcp_in_base.position_m[2] < tcp.position_m[2] - 0.01
    robot.advance(0.5)
    assert robot.gripper_width_m < open_m - 0.02


def test_sensors_are_noisy_and_biased_and_objects_are_not() -> None:
    ranges = {"encoder_noise_rad": (1e-3, 1e-3), "wrench_noise_n": (0.5, 0.5)}
    task, robot = made("lift", ranges=ranges | {"wrench_bias_n": (1.0, 1.0)})
    robot.reset(start(task))
    states = []
    for _ in range(500):
        robot.advance(0.002)  # one moment has one reading
        states.append(robot.read())
        assert np.array_equal(robot.read().joint_position_rad, states[-1].joint_position_rad)
    joints = np.array([s.joint_position_rad for s in states])
    assert np.diff(joints, axis=0).std(0) == pytest.approx(2**0.5 * 1e-3, rel=0.2)
    wrench = np.array([s.wrench_in_tcp for s in states])
    assert wrench[:, :3].mean(0) == pytest.approx(1.0, abs=0.1)
    assert wrench[:, :3].std(0) == pytest.approx(0.5, rel=0.2)
    assert wrench[:, 3:].mean(0) == pytest.approx(0.02, abs=0.005)
    tcp = np.array([s.tcp_in_base.position_m for s in states])
    assert 1e-4 < tcp.std(0).max() < 2e-3
    # the pose that is told is that of the angles that are told
    told = states[0]
    assert robot.tcp_at(told.joint_position_rad.tolist()).position_m == pytest.approx(
        told.tcp_in_base.position_m, abs=1e-5
    )
    cubes = np.array([s.objects["cube"].position_m for s in states])
    assert np.ptp(cubes[250:], axis=0).max() < 1e-5


def test_a_snapshot_comes_back_in_a_randomised_scene() -> None:
    task, robot = made("lift", "light")
    robot.reset(start(task))
    robot.advance(0.1)
    kept = robot.snapshot()
    before = robot.data.qpos.copy()
    robot.advance(0.2)
    robot.restore(kept)
    assert np.array_equal(robot.data.qpos, before)


# --- pictures -------------------------------------------------------------------------------------


@pytest.fixture
def plain() -> np.ndarray:
    return picture({})


def picture(ranges: Ranges, seed: int = 0, camera: str = "front") -> np.ndarray:
    task, robot = made("lift", ranges=ranges, images=["wrist", "front"], image_size=64)
    robot.reset(start(task, seed))
    shown = MujocoCamera(robot, camera, 64)
    try:
        return shown.read()[1].astype(int)
    finally:
        shown.close()


@pytest.mark.gl
@pytest.mark.parametrize(
    "ranges",
    [
        {"camera_place_m": (0.02, 0.02)},
        {"camera_turn_rad": (0.03, 0.03)},
        {"camera_focal": (1.1, 1.1)},
        {"light": (0.5, 0.5)},
        {"light_turn_rad": (0.5, 0.5)},
        {"colour": (0.15, 0.15)},
        {"brightness": (0.8, 0.8)},
        {"image_noise": (6.0, 6.0)},
        {"jpeg_loss": (40.0, 40.0)},
    ],
    ids=lambda r: next(iter(r)),
)
def test_a_picture_shows_what_was_drawn(ranges: Ranges, plain: np.ndarray) -> None:
    assert np.abs(picture(ranges) - plain).mean() > 0.5
    assert np.array_equal(picture(ranges), picture(ranges))  # equal seeds, equal pictures


@pytest.mark.gl
def test_the_camera_of_films_shows_the_scene_as_it_is() -> None:
    ranges = {"brightness": (0.5, 0.5), "camera_place_m": (0.05, 0.05), "image_noise": (9.0, 9.0)}
    assert np.array_equal(picture(ranges, camera="video"), picture({}, camera="video"))


@pytest.mark.gl
def test_a_late_picture_shows_the_past() -> None:
    task, robot = made("reach", ranges=only("image_delay_s", 0.1), images=["front"], image_size=64)
    robot.reset(start(task))
    robot.advance(0.2)
    shown = MujocoCamera(robot, "front", 64)
    try:
        before = shown.read()[1]
        tcp = robot.read().tcp_in_base
        target = replace(tcp, position_m=tcp.position_m + np.array((0.0, 0.05, 0.03)))
        robot.apply(Command(0, 0.0, Driver.POLICY, "test", target))
        robot.advance(0.1)
        there = shown.read()[1]
        robot.advance(0.3)
        after = shown.read()[1]
    finally:
        shown.close()
    assert np.abs(there.astype(int) - before).mean() < 0.05  # as it was 0.1 s ago: nothing moved
    assert np.abs(after.astype(int) - before).mean() > 0.5


def seen_ages_s(ranges: Ranges, seconds: float, pictures: int = 1) -> list[float]:
    """How old the pictures of a moving arm are, every 10 ms after so much time."""
    task, robot = made("reach", ranges=ranges, images=["front"])
    robot.reset(start(task))
    robot.data.qvel[0] = 0.5
    assert robot.randomizer is not None
    past: list[np.ndarray] = []
    ages_s = []
    while len(ages_s) < pictures:
        robot.advance(0.01)
        past.append(robot.data.qpos.copy())
        if robot.now_s() >= seconds:
            shown = robot.randomizer.seen(robot.now_s(), robot.data)
            ticks = [n for n, qpos in enumerate(reversed(past)) if np.array_equal(qpos, shown.qpos)]
            ages_s.append(0.01 * ticks[0])
    return ages_s


@pytest.mark.parametrize(
    ("delay_s", "age_s"),
    [(0.003, 0.0), (0.006, 0.01), (0.1, 0.1), (0.104, 0.1), (0.8, 0.8), (1.0, 1.0)],
)
def test_a_picture_is_as_old_as_the_nearest_tick(delay_s: float, age_s: float) -> None:
    assert seen_ages_s(only("image_delay_s", delay_s), 1.5) == [pytest.approx(age_s)]


def test_a_lost_picture_is_a_frame_older_and_no_other_is_old() -> None:
    ages_s = seen_ages_s(only("dropped_frames", 0.02), 0.1, pictures=400)
    assert np.mean([age_s == 0.0 for age_s in ages_s]) >= 0.9
    assert {age_s for age_s in ages_s if age_s} == {0.03}
    both = only("dropped_frames", 1.0) | only("image_delay_s", 0.8)
    assert seen_ages_s(both, 1.5) == [pytest.approx(0.83)]


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_keeps_its_draws_and_another_scene_can_be_asked_for(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["experiment=reach", "runtime=lockstep", f"run_dir={run}", "train.max_env_steps=150"]
    words += ["train.min_env_steps=1", "train.eval_episodes=3", "train.stochastic_eval_episodes=2"]
    words += ["learner.utd=1", "algo.critics=2", "train.video=false", "train.demos=2"]
    assert main(["train", *words, "task.randomize=light"]) == 0
    lines = [json.loads(line) for line in (run / DRAWS).read_text().splitlines()]
    assert {line["purpose"] for line in lines} == {"demo", "train", "eval"}
    assert all(0.85 <= line["friction"] <= 1.15 for line in lines)
    assert len({line["friction"] for line in lines}) == len({line["seed"] for line in lines})
    shown = json.loads((run / "eval.json").read_text())
    asked = ["task.randomize=none", "task.ranges={action_delay_s: [0.08, 0.08]}"]
    assert main(["eval", str(run), *asked, "--episodes", "4", "--no-video"]) == 0
    after = json.loads((run / "eval.json").read_text())
    assert after["deterministic"] == shown["deterministic"]
    assert after["evaluations"][-1]["evaluated_in"] == " ".join(asked)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("task.max_steps=3", "cannot change 'task.max_steps'"),
        ("task.randomize=rael", "did you mean 'real'"),
        ("task.ranges={friction", "cannot be read"),
    ],
)
def test_an_evaluation_changes_the_scene_only(
    word: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.scene import in_scene

    experiment = Experiment.compose(["experiment=reach", f"run_dir={tmp_path}"])
    with pytest.raises(ConfigError) as error:
        assert in_scene(experiment, [word]).task
    assert told in f"{error.value}"


def test_masses_that_a_model_shares_are_put_back() -> None:
    """`mj_setConst` and the nominal values leave a scene as it was made."""
    task, robot = made("lift", "real")
    fresh = made("lift")[1].model
    robot.reset(start(task))
    assert robot.randomizer is not None
    robot.vary({})
    robot.reset(start(task))
    for name in ("body_mass", "geom_friction", "dof_armature", "actuator_biasprm", "cam_pos"):
        assert np.array_equal(getattr(robot.model, name), getattr(fresh, name)), name
    assert isinstance(fresh, mujoco.MjModel)


# --- pictures of the draws ------------------------------------------------------------------------


@pytest.mark.gl
@pytest.mark.parametrize(("count", "size"), [(16, (68 * 4 - 4, 132 * 4 - 4)), (1, (64, 128))])
def test_a_sheet_shows_every_start(count: int, size: tuple[int, int], tmp_path: Path) -> None:
    out = tmp_path / "new" / "draws.png"
    words = ["task", "draws", "lift_pixels", "task.randomize=real", "--count", str(count)]
    assert main([*words, "--out", str(out)]) == 0
    picture = cv2.imread(str(out))
    assert picture is not None and picture.shape == (*size, 3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lift"], "no cameras"),
        (["lift_pixels", "--out", "draws.gif"], "not the name of a picture"),
        (["lift_pixels", "--count", "0"], "between 1 and 400"),
    ],
)
def test_a_sheet_that_cannot_be_made(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["task", "draws", *words]) == 2
    assert told in capsys.readouterr().err
