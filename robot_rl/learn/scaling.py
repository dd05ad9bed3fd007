"""When the scaling of the state is fitted, and to which data.

Networks see each number of the state standardised, with a mean and a scale that travel with the
weights. They are fitted before the first update, and again whenever the replay holds a quarter more
frames, until it is full: so each fit moves the moments by a part of what is new, and the networks,
which stay as they are, make up for it with the next updates. The first data alone would not do.
Before practice has begun to succeed, some numbers hardly move (a cube that nobody has grasped is
not between the fingers); standardised by that little, their values in a success lie beyond the
limit of `nets.observation`, and all look alike.

Half of the states that are fitted to were driven by people or came with recorded data, if there are
any, whatever the algorithm's `demo_fraction`: they show where practice shall lead. A run that
starts from another one's networks (`learner.init_from`) keeps their scaling, and so does a run that
an older version began.
"""

from __future__ import annotations

import numpy as np

from robot_rl.learn import ranks
from robot_rl.learn.algos.base import Algorithm
from robot_rl.learn.mirror import Reflection
from robot_rl.learn.replay import Replay

ROWS = 4096  # states that are fitted to
DEMO_FRACTION = 0.5  # of them
GROWTH = 1.25  # of the number of frames, from one fit to the next


class Scaling:
    """Fits an algorithm's scaling to a replay. frames: at the newest fit; None = never again."""

    def __init__(self) -> None:
        self.frames: int | None = 0

    def fit_again(self) -> None:
        """Fit at the next opportunity: the tensors went back to an earlier state."""
        self.frames = None if self.frames is None else 0

    def fit_if_due(
        self, algo: Algorithm, replay: Replay, mirror: Reflection | None, updates: int
    ) -> None:
        """Fit if the replay has grown enough since the newest fit; updates: done so far."""
        held, keys = replay.frames.held, algo.scaled_keys
        due = self.frames is not None and held >= max(1.0, GROWTH * self.frames)
        if not keys or not ranks.agree(due and replay.can_sample):
            return
        draws = np.random.default_rng((updates, ranks.rank()))  # their own: those of updates stay
        batch = replay.sample(ROWS, DEMO_FRACTION, draws, keys)
        if mirror is not None:
            batch = mirror(batch, draws)
        algo.standardize(batch.observation)
        self.frames = held
