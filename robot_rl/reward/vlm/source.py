"""`reward=vlm`: the loop records no reward; a vision-language model says later how episodes ended.

Every practice step is recorded unlabelled. `worker.RewardWorker`, beside the learner, asks about
finished episodes. An episode is learned from once a model, or a person, has said how it ended.
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
from robot_rl.types import HELPED, Observation, RobotState


class VlmReward:
    """`RewardSource` that leaves practice unlabelled.

    The task's own predicate judges evaluation, and demonstrations, which a person would call good.
    What it says of practice is recorded beside the steps, but not learned from.
    """

    def __init__(self, truth: PredicateReward) -> None:
        self._truth, self._practises = truth, True

    @property
    def knows(self) -> bool:
        """Whether the task's state tells; else a person is the judge of an evaluation."""
        return self._truth.knows

    def begin_episode(self, purpose: str) -> None:
        """See `ports.RewardSource`."""
        self._practises = purpose in HELPED
        self._truth.begin_episode(purpose)

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """In practice unlabelled and never terminated: the time limit or a person ends episodes."""
        truth = self._truth.score(state, observation)
        if not self._practises:
            return truth
        said = truth.success if self._truth.knows else None
        return RewardResult(None, None, False, truth=said, progress=truth.progress)


SPENT = "vlm_spent.txt"  # beside the store: when the model was asked, and what it cost


@contextmanager
def labelling(
    store: Store, server: VlmConfig, worker: WorkerConfig, *, task: str, camera: str, canary: str
) -> Iterator[Callable[[], str]]:
    """Run a worker on a store in this context; yields a function that names trouble, "" = none.

    Args:
        task, camera, canary: see `reward.config.VlmRewardConfig`.

    Raises:
        ConfigError: see `VlmClient` and `Canary`.
        SetupError: httpx or OpenCV is not installed.
        SpecError: the run has no such camera.
    """
    with ExitStack() as stack:
        client = stack.enter_context(VlmClient(server, spent=store.path.with_name(SPENT)))
        guard = Canary.from_folder(Path(canary), task) if canary else None
        seen = camera or (IMAGE + store.spec.cameras[0] if store.spec else "")
        labeller = stack.enter_context(
            RewardWorker(store, client, guard, worker, task=task, camera=seen)
        )
        labeller.start()
        yield lambda: labeller.trouble
