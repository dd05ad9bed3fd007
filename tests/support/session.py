"""A session over kinematic stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from robot_rl.control.session import Others, Session
from robot_rl.run.experiment import TrainConfig
from robot_rl.run.parts import session_of
from robot_rl.safety.limits import Limits
from robot_rl.types import EpisodeStart
from tests.support.fakes import TASK, make_loop

TRAIN = TrainConfig(
    demos=2, max_env_steps=400, min_env_steps=50, exam_every_steps=50, target_success=0.4
)


class Lines:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def write(self, env_steps: int, values: dict[str, float], **text: str) -> None:
        self.lines.append({"env_steps": env_steps} | values | text)


def experiment(train: TrainConfig, actors: tuple[str, ...] = ()) -> Any:
    """The part of an experiment that a session reads."""
    return SimpleNamespace(
        own_train=train,
        limits=Limits(),
        draws_seed=0,
        run_name="r",
        spec=TASK.spec,
        actor="a",
        actors=actors,
    )


def make_session(**changes: object) -> tuple[Session, list[EpisodeStart], Lines]:
    """A session over a kinematic robot that stands at its goal: every episode succeeds at once.

    succeeds=False: none does; every=N: each Nth.
    """
    loop, robot, _ = make_loop()
    starts: list[EpisodeStart] = []

    def reset(plan: object, start: EpisodeStart) -> None:
        starts.append(start)
        robot.tcp, robot.objects = plan.tcp_in_base, plan.objects  # type: ignore[attr-defined]
        if changes.get("succeeds", True) and not len(starts) % changes.get("every", 1):  # type: ignore[operator]
            robot.tcp = robot.objects["target"]

    lines = Lines()
    session = session_of(
        experiment(changes.get("train", TRAIN), changes.get("actors", ())),  # type: ignore[arg-type]
        loop,
        reset,
        metrics=lines,
        others=changes.get("others", Others),
        on_stuck=changes.get("on_stuck", lambda _error: False),
    )
    return session, starts, lines
