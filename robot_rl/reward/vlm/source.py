"""`reward=vlm`: in the loop nobody says what an episode is worth; a model that sees does, later.

Every practice step is recorded unlabelled. `worker.RewardWorker`, beside the learner, asks about
finished episodes; one is learned from once a model, or a person, has said how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.ports import RewardResult
from robot_rl.reward.predicate import PredicateReward
from robot_rl.reward.vlm.canary import Canary
from robot_rl.reward.vlm.client import VlmClient
from robot_rl.reward.vlm.worker import RewardWorker
from robot_rl.spec import IMAGE
from robot_rl.store.store import Store
from robot_rl.types import Observation, RobotState

if TYPE_CHECKING:
    from robot_rl.reward.config import VlmRewardConfig


class VlmReward:
    """`RewardSource` that says nothing of practice. The task's own predicate judges evaluation, and
    demonstrations, of which a person would say that they are good; what it says of practice is
    recorded beside, and not learned from."""

    def __init__(self, truth: PredicateReward) -> None:
        self._truth, self._practises = truth, True

    def begin_episode(self, purpose: str) -> None:
        """See `ports.RewardSource`."""
        self._practises = purpose == "train"
        self._truth.begin_episode(purpose)

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """Unlabelled, and never over: the time limit or a person ends an episode."""
        truth = self._truth.score(state, observation)
        if not self._practises:
            return truth
        return RewardResult(None, None, False, truth=bool(truth.success), progress=truth.progress)


@contextmanager
def labelling(config: VlmRewardConfig, store: Store) -> Iterator[Callable[[], str]]:
    """A worker on a store while a run lasts; yields what troubles it, "" = nothing.

    Raises:
        ConfigError: see `VlmClient` and `Canary`.
        SetupError: httpx or OpenCV is not installed.
        SpecError: the run has no such camera.
    """
    with ExitStack() as stack:
        client = stack.enter_context(VlmClient(config.server))
        canary = Canary.from_folder(Path(config.canary), config.task) if config.canary else None
        camera = config.camera or (IMAGE + store.spec.cameras[0] if store.spec else "")
        worker = stack.enter_context(
            RewardWorker(store, client, canary, config.worker, task=config.task, camera=camera)
        )
        worker.start()
        yield lambda: worker.trouble
