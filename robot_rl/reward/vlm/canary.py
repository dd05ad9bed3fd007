"""Pictures whose answers are known, asked about first and again every few minutes.

A server may answer every question and still be wrong: other weights behind the name, an adapter
that did not load, pictures that were lost on the way. The server does not notice; a few known
pictures show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError
from robot_rl.reward.vlm.client import VlmClient, needed
from robot_rl.reward.vlm.questions import Question, QuestionKind

SUFFIXES = (".png", ".jpg", ".jpeg")
MIN_SPREAD = 1e-3  # answers nearer to each other than this count as equal


@dataclass(frozen=True, eq=False)
class Canary:
    """Known pictures, to check a server with.

    good, bad: uint8 [H, W, 3] pictures in which the task is and is not done; needed: share of the
    pairs (one good, one bad) in which the good picture must have the higher score.
    """

    good: tuple[NDArray[np.uint8], ...]
    bad: tuple[NDArray[np.uint8], ...]
    task: str
    needed: float = 0.8

    def __post_init__(self) -> None:
        """Check that there is something to ask."""
        if not self.good or not self.bad or not 0.5 < self.needed <= 1.0:
            raise ConfigError(
                "a canary needs pictures of both kinds",
                expected="at least one good and one bad picture, needed in (0.5, 1]",
                got=f"{len(self.good)} good, {len(self.bad)} bad, needed {self.needed}",
                fix="save some frames of the task done and not done: FOLDER/good, FOLDER/bad",
            )

    def check(self, client: VlmClient) -> str:
        """Return what is wrong with the answers, "" = nothing. The cache is not used.

        Raises:
            ConfigError: see `VlmClient.ask`.
        """
        images = self.good + self.bad
        asked = [Question(QuestionKind.SUCCESS, (image,), self.task) for image in images]
        answers = client.ask(asked, fresh=True)
        missing = next((a for a in answers if a.value is None), None)
        if missing is not None:
            return f"unlabelled: {missing.problem}"
        values = np.array([a.value for a in answers], np.float64)
        if np.ptp(values) < MIN_SPREAD:
            return f"all answers are equal ({values[0]:.3f})"
        good, bad = values[: len(self.good), None], values[None, len(self.good) :]
        right = float(((good > bad) + 0.5 * (good == bad)).mean())
        if right < self.needed:
            return f"order wrong: the good picture wins {right:.0%} of the pairs"
        return ""

    @classmethod
    def from_folder(cls, folder: Path, task: str) -> Self:
        """Pictures in FOLDER/good and FOLDER/bad, PNG or JPEG.

        Raises:
            ConfigError: there are none, or one cannot be read.
        """
        return cls(_pictures(folder / "good"), _pictures(folder / "bad"), task)


def _pictures(folder: Path) -> tuple[NDArray[np.uint8], ...]:
    cv2 = needed("cv2")
    paths = sorted(p for p in folder.glob("*") if p.suffix.lower() in SUFFIXES)
    found = []
    for path in paths:
        image = cv2.imread(str(path), cv2.IMREAD_COLOR)
        if image is None:
            raise ConfigError(
                f"{path} is no picture",
                expected="PNG or JPEG",
                got="something else, or a damaged file",
                fix="remove it, or save the frame again",
            )
        found.append(np.ascontiguousarray(image[:, :, ::-1]))
    return tuple(found)
