"""Successes drawn again without their objects: the arm does everything, but moves nothing.

A model that takes such an episode for a success has learned how the arm stands at the end, and a
policy will find that out. Only a simulator can draw such episodes, from the recorded scenes of a
run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import pose
from robot_rl.spec import IMAGE
from robot_rl.store.scenes import SCENES, Scenes

if TYPE_CHECKING:
    from robot_rl.reward.success.train import Footage

AWAY = pose((0.0, 0.0, -50.0))  # far below the floor


def without_objects(
    run: Path, episodes: Sequence[Footage], mirror_of: Callable[[str, int, int], Any]
) -> list[Footage]:
    """The successes among a run's episodes, drawn again without objects: all are failures now.

    Empty where no scenes were kept, as on a real robot.

    Args:
        mirror_of: (camera, height, width) -> what draws the run's scene.

    Raises:
        SetupError: no OpenGL on this machine.
    """
    scenes = Scenes(run / SCENES)
    known, emptied = [], []  # episodes, and their states without objects
    for episode in episodes:
        if not episode.success or not scenes.has(episode.id.episode):
            continue
        found = [scenes.state(episode.id.episode, t) for t in range(len(episode.shows))]
        states = [replace(s, objects=dict.fromkeys(s.objects, AWAY)) for s in found if s]
        if len(states) == len(found):
            known.append(episode)
            emptied.append(states)
    if not known:
        return []
    drawn: list[dict[str, NDArray[np.uint8]]] = [{} for _ in known]
    for key, (_, height, width, _) in ((k, v.shape) for k, v in known[0].images.items()):
        mirror = mirror_of(key.removeprefix(IMAGE), height, width)
        try:
            for states, images in zip(emptied, drawn, strict=True):
                images[key] = np.stack([mirror.picture(state) for state in states])
        finally:
            mirror.close()
    return [
        replace(e, images=images, success=False, shows=np.zeros(len(e.shows), np.int8))
        for e, images in zip(known, drawn, strict=True)
    ]
