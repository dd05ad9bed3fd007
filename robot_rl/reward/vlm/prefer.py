"""Which of two recorded moments is nearer to the goal, as a vision-language model sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.reward.vlm.client import VlmClient
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.questions import Question, QuestionKind
from robot_rl.spec import IMAGE
from robot_rl.store.scenes import SCENES, Scenes

if TYPE_CHECKING:
    from robot_rl.reward.preference.train import Judge, Moment

Picture = NDArray[np.uint8]


@contextmanager
def asking(
    run: Path,
    cameras: Sequence[str],
    mirror_of: Callable[[], Any],
    *,
    server: str,
    model: str,
    task: str,
    camera: str = "",
    cache: str = "",
    protocol: str = "chat",
) -> Iterator[Judge]:
    """Yield a judge of pairs of moments of a run.

    The pictures are the camera's; where a simulated run recorded none, they are drawn.

    Args:
        cameras: of the run's spec.
        mirror_of: makes what draws the scenes of a simulated run.
        protocol: see `VlmConfig`.

    Raises:
        ConfigError: no such camera, and nothing to draw; or see `VlmClient`.
        SetupError: httpx, OpenCV or OpenGL is missing.
    """
    with ExitStack() as stack:
        look = _looking(run, [IMAGE + name for name in cameras], mirror_of, camera, stack)
        config = VlmConfig(url=server, model=model, cache=cache, protocol=protocol)
        client = stack.enter_context(VlmClient(config))

        def judge(pairs: Sequence[tuple[Moment, Moment]]) -> list[float | None]:
            questions = [
                Question(QuestionKind.PREFERENCE, (look(*first), look(*second)), task)
                for first, second in pairs
            ]
            return [answer.value for answer in client.ask(questions)]

        yield judge


def _looking(
    run: Path,
    cameras: Sequence[str],
    mirror_of: Callable[[], Any],
    camera: str,
    stack: ExitStack,
) -> Callable[[Any, int], Picture]:
    """(reel, frame) -> its picture."""
    if cameras:
        name = camera or cameras[0]
        if name not in cameras:
            raise ConfigError(
                f"this run has no camera '{name}'",
                expected=", ".join(cameras),
                got=camera,
                fix=did_you_mean(camera, cameras),
            )
        return lambda reel, t: reel.observation[name][t]
    scenes = Scenes(run / SCENES)
    mirror = mirror_of()
    stack.callback(mirror.close)

    def draw(reel: Any, t: int) -> Picture:
        state = scenes.state(reel.id.episode, t)
        if state is None:
            raise ConfigError(
                f"nobody knows how frame {t} of episode {reel.id.episode} looked",
                expected="a run with cameras, or a simulated one with its scenes.bin",
                got=str(run),
                fix="record with task.images=[front]",
            )
        return mirror.picture(state)

    return draw
