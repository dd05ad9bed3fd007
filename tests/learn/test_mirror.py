"""Mirror augmentation: the mirrored world does the mirrored thing, and rows become its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from robot_rl.errors import ConfigError
from robot_rl.geometry import AXIAL, POLAR
from robot_rl.learn.mirror import SHARE, Reflection
from robot_rl.learn.replay import Batch
from robot_rl.ports import ResetPlan
from robot_rl.run.experiment import Experiment
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.types import Pose

TASKS = ("Reach", "Lift", "PegInsert", "PickInsert")
LAYOUT = (("way", 3, "m"), ("turn", 3, "rad"), ("width", 1, "m"))
SIGNS = {"way": POLAR, "turn": AXIAL, "width": (1,)}
SPEC = Spec(
    "fake",
    10.0,
    {"state": TensorSpec((7,), "float32")},
    ActionSpec(0.01, 0.1, gripper=True),
    LAYOUT,
)


def reflected(pose: Pose) -> Pose:
    """On the other side of the plane y = 0, as the mirror shows it."""
    x, y, z, w = pose.quaternion_xyzw
    return Pose(pose.position_m * (1, -1, 1), np.array((-x, y, -z, w)))


def other_side(plan: ResetPlan) -> ResetPlan:
    return replace(
        plan,
        tcp_in_base=reflected(plan.tcp_in_base),
        objects={k: reflected(p) for k, p in plan.objects.items()},
        held_in_tcp=None if plan.held_in_tcp is None else reflected(plan.held_in_tcp),
    )


@pytest.mark.parametrize("name", TASKS)
def test_the_mirrored_world_does_the_mirrored_thing(name: str) -> None:
    pytest.importorskip("robot_rl_sim")
    import robot_rl_sim.envs  # noqa: F401 - registers them

    env: Any = gymnasium.make(f"robot_rl/{name}-v0").unwrapped
    env.reset(seed=0)
    mirror = Reflection.of(env.task.mirror, env.task.spec)

    def run(plan: ResetPlan, sign: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        env._reset(plan)
        env._state, first = env._observe()
        rng, seen = np.random.default_rng(1), [first["state"]]
        for action in rng.uniform(-0.3, 0.3, (12, env.task.spec.action.size)):
            seen.append(env.step(sign(action.astype(np.float32)))[0]["state"])
        return np.stack(seen)

    for seed in range(3):
        plan = env.task.sample_reset(np.random.default_rng(seed))
        here = run(plan, lambda action: action)
        there = run(other_side(plan), lambda action: action * mirror.action)
        assert np.abs(here).max() > 0.3  # something happened
        gap = np.abs(here * mirror.state - there)
        assert np.abs(here - there).max() > 0.3  # and it was not the same on both sides
        assert np.median(gap.max(0)) < 0.05 and gap.max() < 0.5, gap.max(0).round(2)
    env.close()


def batch_of(n: int, chunk: int = 0) -> Batch:
    rng = np.random.default_rng(0)
    zero = np.zeros(n, np.float32)
    seen = [{"state": rng.normal(size=(n, 7)).astype(np.float32)} for _ in range(2)]
    action = rng.uniform(-1, 1, (n, 7)).astype(np.float32)
    plan = rng.uniform(-1, 1, (n, chunk, 7)).astype(np.float32) if chunk else None
    return Batch(
        seen[0], action, zero + 1, seen[1], zero, zero > -1, zero, zero + 1, zero, zero,
        plan, None if plan is None else np.ones((n, chunk), np.bool_),
    )  # fmt: skip


def test_half_of_the_rows_are_mirrored_whole_and_the_rest_stay() -> None:
    mirror, batch = Reflection.of(SIGNS, SPEC), batch_of(400, chunk=3)
    before = batch.action.copy()
    found = mirror(batch, np.random.default_rng(3))
    signs = np.array((*POLAR, *AXIAL, 1))
    flipped = (found.action != batch.action).any(1)
    assert abs(flipped.mean() - SHARE) < 0.1
    assert batch.chunk is not None and found.chunk is not None
    for one, other in (
        (batch.action, found.action),
        (batch.observation["state"], found.observation["state"]),
        (batch.next_observation["state"], found.next_observation["state"]),
        (batch.chunk, found.chunk),
    ):
        assert other.dtype == np.float32
        np.testing.assert_array_equal(other[~flipped], one[~flipped])
        np.testing.assert_array_equal(other[flipped], one[flipped] * signs)
    np.testing.assert_array_equal(batch.action, before)  # replay's own rows are not touched
    assert found.reward is batch.reward


@pytest.mark.parametrize(
    ("signs", "spec", "said"),
    [
        (None, SPEC, "no signs"),
        (SIGNS, SPEC.with_base(2), "base's plan"),
        (
            SIGNS,
            replace(SPEC, observation={"image/front": TensorSpec((8, 8, 3), "uint8")}),
            "image/front",
        ),
        ({"way": POLAR, "turn": AXIAL}, SPEC, "as many signs as numbers"),
        (SIGNS | {"turn": (1,)}, SPEC, "as many signs as numbers"),
    ],
)
def test_what_has_no_mirror_image_is_refused(signs: Any, spec: Spec, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Reflection.of(signs, spec)


def test_a_run_learns_from_both_sides(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    from robot_rl.run.train import train

    words = [
        "experiment=reach", "runtime=lockstep", "train.demos=1", "train.max_env_steps=40",
        "train.eval_episodes=1", "train.stochastic_eval_episodes=0", "train.video=false",
        "learner.min_steps=10", "algo.hidden=[16]", "learner.mirror=true",
    ]  # fmt: skip
    train(Experiment.compose([*words, f"run_dir={tmp_path / 'run'}"]))
    with pytest.raises(ConfigError, match="does not fit"):
        pixels = ["experiment=lift_pixels", "runtime=lockstep", "learner.mirror=true"]
        train(Experiment.compose([*pixels, f"run_dir={tmp_path / 'pixels'}"]))
