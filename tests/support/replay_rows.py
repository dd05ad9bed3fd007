"""Rows for a replay, with numbers in them that say where they belong."""

from __future__ import annotations

import numpy as np

from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.types import (
    Driver,
    Ending,
    EpisodeId,
    EpisodeStart,
    Frame,
    Outcome,
    Row,
    Step,
)

SPEC = Spec(
    task="fake",
    control_hz=10.0,
    observation={
        "state": TensorSpec((2,), "float32"),
        "image/wrist": TensorSpec((2, 2, 3), "uint8"),
    },
    action=ActionSpec(translation_m=0.01, rotation_rad=0.1, gripper=True),
)


def episode_id(number: int) -> EpisodeId:
    return EpisodeId("run", "actor", number)


def start(number: int, purpose: str = "train", spec_hash: str = SPEC.hash) -> EpisodeStart:
    return EpisodeStart(episode_id(number), purpose, "fake", spec_hash, "", 0, 0)


def frame(number: int, index: int) -> Frame:
    """A frame that carries its own identity in the state and, modulo 256, in the image."""
    tag = 100 * number + index
    image = np.full((2, 2, 3), tag % 256, np.uint8)
    state = np.array([number, index], np.float32)
    return Frame(episode_id(number), index, 0, {"state": state, "image/wrist": image})


def step(
    number: int,
    index: int,
    driver: Driver = Driver.POLICY,
    *,
    reward: float | None = 0.0,
    ending: Ending | None = None,
    gripper: float = 0.0,
) -> Step:
    action = np.array([number, index, 0, 0, 0, 0, gripper], np.float32)
    return Step(
        id=episode_id(number),
        step=index,
        frame=index,
        next_frame=index + 1,
        segment=0,
        driver=driver,
        action=action,
        policy_action=action,
        outcome=Outcome.PASS,
        reason="",
        reward=reward,
        ending=ending,
        success=None,
        weights_version=0,
        stamp_ns=0,
    )


def episode(
    number: int,
    length: int = 5,
    purpose: str = "train",
    driver: Driver = Driver.POLICY,
    ending: Ending = Ending.TRUNCATED,
) -> list[Row]:
    rows: list[Row] = [start(number, purpose), frame(number, 0)]
    for index in range(length):
        last = ending if index == length - 1 else None
        rows += [step(number, index, driver, ending=last), frame(number, index + 1)]
    return rows


def gappy_stream(rng: np.random.Generator) -> list[Row]:
    """Episodes interleaved, frames and steps missing, drivers changing, rows delivered twice."""
    streams: list[list[Row]] = []
    for number in range(12):
        purpose = str(rng.choice(["train", "train", "demo", "eval"]))
        rows: list[Row] = [start(number, purpose)]
        length = int(rng.integers(1, 15))
        for index in range(length):
            driver = Driver(rng.choice(list(Driver)))
            ending = Ending(rng.choice(list(Ending))) if index == length - 1 else None
            reward = None if rng.random() < 0.1 else float(rng.random())
            rows.append(frame(number, index))
            rows.append(step(number, index, driver, reward=reward, ending=ending))
        rows.append(frame(number, length))
        kept = [r for r in rows[1:] if rng.random() > 0.15]  # gaps
        streams.append(rows[:1] + kept)
    merged: list[Row] = []
    while streams:
        stream = streams[int(rng.integers(len(streams)))]
        merged.append(stream.pop(0))
        if rng.random() < 0.2:
            merged.append(merged[int(rng.integers(len(merged)))])  # delivered twice
        streams = [s for s in streams if s]
    return merged
