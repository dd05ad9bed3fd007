"""Made-up specs and rows for benchmarks and tests; never shown as results."""

from __future__ import annotations

import numpy as np

from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.types import (
    Driver,
    Ending,
    EpisodeId,
    EpisodeStart,
    Frame,
    Observation,
    Outcome,
    Row,
    Step,
)

PERIOD_NS = 100_000_000  # 10 Hz


def sample_spec(images: int = 0, state_size: int = 24, image_size: int = 128) -> Spec:
    """A spec with a float32 state and `images` square uint8 RGB images."""
    observation = {"state": TensorSpec((state_size,), "float32")}
    for index in range(images):
        observation[f"image/{index}"] = TensorSpec((image_size, image_size, 3), "uint8")
    action = ActionSpec(translation_m=0.01, rotation_rad=0.05, gripper=True)
    return Spec(task="sample", control_hz=10.0, observation=observation, action=action)


def sample_observation(spec: Spec, rng: np.random.Generator) -> Observation:
    """Random tensors that fit the spec."""
    return {
        key: rng.integers(0, 256, tensor.shape, np.uint8)
        if tensor.dtype == "uint8"
        else rng.normal(size=tensor.shape).astype(tensor.dtype)
        for key, tensor in spec.observation.items()
    }


def start_row(spec: Spec, id: EpisodeId, purpose: str = "train") -> EpisodeStart:
    """Header of a made-up episode."""
    return EpisodeStart(id, purpose, spec.task, spec.hash, "limits", 0, id.episode * 10**12)


def frame_row(spec: Spec, id: EpisodeId, frame: int, rng: np.random.Generator) -> Frame:
    """Frame `frame` with a random observation."""
    return Frame(id, frame, _stamp_ns(id, frame), sample_observation(spec, rng))


def step_row(
    spec: Spec,
    id: EpisodeId,
    step: int,
    rng: np.random.Generator,
    *,
    ending: Ending | None = None,
    driver: Driver = Driver.POLICY,
) -> Step:
    """Step `step` from frame `step` to `step + 1` with a random action."""
    action = rng.uniform(-1, 1, spec.action.size).astype(np.float32)
    return Step(
        id=id,
        step=step,
        frame=step,
        next_frame=step + 1,
        segment=0,
        driver=driver,
        action=action,
        policy_action=-action,
        outcome=Outcome.PASS,
        reason="",
        reward=None if step % 2 else 0.0,
        ending=ending,
        success=None if ending is None else ending is Ending.TERMINATED,
        weights_version=step,
        stamp_ns=_stamp_ns(id, step),
    )


def episode_rows(
    spec: Spec, id: EpisodeId, steps: int, *, ending: Ending | None = Ending.TRUNCATED
) -> list[Row]:
    """Header, frames and steps in the order in which a loop records them; seeded by the id."""
    rng = np.random.default_rng(id.episode)
    rows: list[Row] = [start_row(spec, id), frame_row(spec, id, 0, rng)]
    for step in range(steps):
        last = ending if step == steps - 1 else None
        rows += [step_row(spec, id, step, rng, ending=last), frame_row(spec, id, step + 1, rng)]
    return rows


def _stamp_ns(id: EpisodeId, index: int) -> int:
    return id.episode * 10**12 + index * PERIOD_NS
