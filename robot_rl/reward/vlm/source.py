"""`reward=vlm`: in the loop nobody says what an episode is worth; a model that sees does, later.

Every practice step is recorded unlabelled. `worker.RewardWorker`, beside the learner, asks about
finished episodes; one is learned from once a model, or a person, has said how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from robot_rl.ports import RewardResult
from robot_rl.reward.predicate import PredicateReward
from robot_rl.reward.vlm.canary import Canary
from robot_rl.reward.vlm.client import VlmClient
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.worker import RewardWorker, WorkerConfig
from robot_rl.spec import IMAGE
from robot_rl.store.store import Store
from robot_rl.types import Observation, RobotState


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
def labelling(
    store: Store, server: VlmConfig, worker: WorkerConfig, *, task: str, camera: str, canary: str
) -> Iterator[Callable[[], str]]:
    """A worker on a store while a run lasts; yields what troubles it, "" = nothing.

    Args:
        task, camera, canary: see `reward.config.VlmRewardConfig`.

    Raises:
        ConfigError: see `VlmClient` and `Canary`.
        SetupError: httpx or OpenCV is not installed.
        SpecError: the run has no such camera.
    """
    with ExitStack() as stack:
        client = stack.enter_context(VlmClient(server))
        guard = Canary.from_folder(Path(canary), task) if canary else None
        seen = camera or (IMAGE + store.spec.cameras[0] if store.spec else "")
        labeller = stack.enter_context(
            RewardWorker(store, client, guard, worker, task=task, camera=seen)
        )
        labeller.start()
        yield lambda: labeller.trouble
