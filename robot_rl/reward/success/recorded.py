"""A success classifier judges recordings: where each ends, and whether it succeeded.

As in practice, an episode succeeds, and ends, when the score has been at the model's threshold or
above for `hold_steps` frames in a row; what comes later is left out. One that never does ran out
of time. Each score is kept as a label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from robot_rl.reward.success.model import SuccessModel
from robot_rl.store.labels import SUCCESS_SCORE, of_step
from robot_rl.types import Ending, Frame, Label, Row, Step

SOURCE = "classifier"


def judged(model: SuccessModel, rows: Sequence[Row]) -> list[Row]:
    """The rows of an episode as the model judges it; rewards and ending of before do not count.

    rows: header, frames and steps, without a gap.
    """
    frames = {r.frame: r for r in rows if isinstance(r, Frame)}
    found: list[Row] = [r for r in rows if not isinstance(r, Frame | Step)]
    steps = [r for r in rows if isinstance(r, Step)]
    found.append(frames[steps[0].frame])
    held = 0
    for step in steps:
        logit = model.logit(frames[step.next_frame].observation)
        held = held + 1 if logit >= model.threshold else 0
        success = held >= model.hold_steps
        over = success or step is steps[-1]
        ending = (Ending.TERMINATED if success else Ending.TRUNCATED) if over else None
        said = replace(
            step, reward=float(success), ending=ending, success=success if over else None
        )
        score = 1.0 / (1.0 + math.exp(-max(min(logit, 60.0), -60.0)))
        found += [frames[step.next_frame], said]
        found.append(
            Label(
                id=step.id,
                label=of_step(step.step),
                step=step.step,
                kind=SUCCESS_SCORE,
                value=score,
                source=SOURCE,
                author=model.author,
                stamp_ns=step.stamp_ns,
            )
        )
        if over:
            break
    return found
