"""Progress as a critic sees it, and the steps that undo it (GR-RL, arXiv 2512.01801).

    progress   phi_t = mean_i Q_i(s_t, a_t), of a sparse 0/1 reward: how near success is; or what a
               progress model says of the frame (`reward.progress.model`)
    harmful    a step t after which phi falls by more than `drop` within the next `ahead` steps

What a person did on the way to a success is not all worth cloning: hesitations, slips, ways back.
Labels of the author "critic", one per step, leave such steps out of training, whether a critic or a
progress model judged (`store.left_out`). They can be taken back; nothing recorded is changed.

Deviations: GR-RL's critic is distributional and of chunks; here it is any critic of single steps
that a run has learned (`algo=calql` offline, say). A bad stretch is left out as a whole only if phi
falls after each of its steps. GR-RL does not say how it chooses its threshold; here it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.types import Driver, EpisodeId, Frame, Step

Phi = Callable[[Sequence[Step], dict[int, Frame]], NDArray[np.float32]]
"""Steps of an episode [T] and its frames by number -> progress [T] of where each step begins."""

AUTHOR = "critic"  # of the labels


@dataclass(frozen=True, slots=True)
class Judged:
    """An episode with its progress float32 [T], and the numbers of its harmful steps."""

    id: EpisodeId
    progress: NDArray[np.float32]
    harmful: list[int]


def harmful(progress: NDArray[np.float32], drop: float, ahead: int) -> list[int]:
    """Steps after which progress [T] falls by more than `drop` within `ahead` steps."""
    return [
        t
        for t in range(len(progress) - 1)
        if progress[t] - progress[t + 1 : t + 1 + ahead].min() > drop
    ]


def phi_of_model(folder: Path, spec: Spec) -> Phi:
    """Progress as a model of `robot-rl reward train --kind progress` sees frames of this spec.

    Raises:
        CheckpointError: there is no model.
        ConfigError: the run has other cameras.
    """
    from robot_rl.reward.progress.model import ProgressModel

    model = ProgressModel.load(folder, spec)

    def phi(steps: Sequence[Step], frames: dict[int, Frame]) -> NDArray[np.float32]:
        seen = [frames[s.frame].observation for s in steps]
        images = {k: np.stack([o[k] for o in seen]) for k in model.keys}
        return model.curve(images).astype(np.float32)

    return phi


def find_harmful(
    store: Store,
    phi_of: Phi,
    *,
    drop: float,
    ahead: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Judged]:
    """Yield every episode except evaluation, with the steps of people that undo progress.

    Raises:
        SpecError: the episodes do not fit the critic.
    """
    starts = [s for s in store.episodes() if s.purpose != "eval"]
    for done, start in enumerate(starts):
        progress(done, len(starts))
        steps, frames = store.steps(start.id), {f.frame: f for f in store.frames(start.id)}
        steps = [s for s in steps if s.frame in frames and s.driver is not Driver.RESET]
        if not steps:
            continue
        phi = phi_of(steps, frames)
        human = {i for i, s in enumerate(steps) if s.driver is not Driver.POLICY}
        found = [steps[i].step for i in harmful(phi, drop, ahead) if i in human]
        yield Judged(start.id, phi, found)
    progress(len(starts), max(len(starts), 1))


def phi_of_critic(algo: Any) -> Phi:
    """Progress as critics see it; algo: of `critic_of`."""
    import torch

    def phi(steps: Sequence[Step], frames: dict[int, Frame]) -> NDArray[np.float32]:
        seen = [frames[s.frame].observation for s in steps]
        algo.spec.check(seen[0])
        batch = {k: np.stack([o[k] for o in seen]) for k in algo.observation_keys}
        pose = np.stack([s.action[: algo.net.pose_size] for s in steps])
        with torch.no_grad():
            moment, action = algo.moment(batch), torch.from_numpy(pose).to(algo.device)
            return algo.q(moment, action, algo.critic).mean(0).cpu().numpy()

    return phi
