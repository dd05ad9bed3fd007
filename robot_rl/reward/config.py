"""The sources of reward that `reward=...` names. Importing this imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robot_rl.config.api_key import without_old_keys
from robot_rl.config.registry import UPGRADES, register
from robot_rl.errors import ConfigError
from robot_rl.ports import RewardSource, Task
from robot_rl.reward.assembly import Assembly, widened
from robot_rl.reward.predicate import PredicateReward
from robot_rl.reward.vlm.client import author_of
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.questions import QuestionKind
from robot_rl.reward.vlm.worker import HELD, WorkerConfig
from robot_rl.store.labels import PREDICATE

if TYPE_CHECKING:
    from robot_rl.reward.scorer import FrameScorer
    from robot_rl.spec import Spec
    from robot_rl.store.store import Store


@dataclass(frozen=True, kw_only=True)
class RewardConfig(ABC):
    """A source of reward, and how a reward is made of what was recorded (`reward.assembly`)."""

    shaping: float = 0.0  # weight of the potential; needs `progress`
    progress: str = ""  # folder of a progress model or CLIP: labels each frame, beside the learner
    smooth_steps: int = 5  # progress is the mean of so many frames
    step_cost: float = 0.0  # charged each step
    preference: str = ""  # folder of a reward learned from preferences, which replaces this one

    tells_progress: ClassVar[bool] = False  # whether the source itself gives phi

    def __post_init__(self) -> None:
        """Check ranges."""
        if min(self.shaping, self.step_cost) < 0.0:
            raise ValueError("shaping and step_cost must not be negative")
        if self.smooth_steps < 1:
            raise ValueError(f"smooth_steps must be at least 1, got {self.smooth_steps}")
        if self.shaping and not self.progress and not self.tells_progress:
            raise ValueError(
                "shaping needs progress=FOLDER, of robot-rl reward train --kind progress, or of "
                "robot-rl reward clip"
            )

    @abstractmethod
    def open(self, task: Task) -> RewardSource:
        """A source for one actor."""

    @property
    def assembly(self) -> Assembly:
        """How a reward is made of what was recorded, as far as this is known without a model."""
        return Assembly(
            shaping=self.shaping, step_cost=self.step_cost, smooth_steps=self.smooth_steps
        )

    def value_range(self, given: tuple[float, float], gamma: float) -> tuple[float, float]:
        """Bounds of the value, from those of the value of recorded rewards."""
        if self.preference:  # rewards in [-1, 0]
            given = (-1.0 / (1.0 - gamma), 0.0)
        return widened(given, self.assembly, gamma)

    def beside(self, store: Store) -> AbstractContextManager[Callable[[], str]]:
        """A context that labels a run's store; yields a function that names trouble, "" = none."""
        return nullcontext(lambda: "")

    def own_progress(self) -> str:
        """Author of the progress that this source itself tells, for shaping without `progress`."""
        return ""

    def shaped_by(self, store: Store, spec: Spec) -> tuple[Assembly, list[FrameScorer]]:
        """Return the assembly, and the scorers that label the frames of a store for it.

        Raises:
            CheckpointError: `progress` or `preference` is no model.
            ConfigError: a model looks at something that the run does not observe.
        """
        assembly, scorers = self.assembly, []
        if self.shaping and not self.progress:
            assembly = replace(assembly, progress_by=self.own_progress())
        if not self.progress and not self.preference:
            return assembly, scorers
        from robot_rl.reward.preference.model import PreferenceModel
        from robot_rl.reward.progress.clip import load_progress
        from robot_rl.reward.scorer import FrameScorer

        if self.progress:
            phi = load_progress(Path(self.progress), spec)
            assembly = replace(assembly, progress_by=phi.author)
            scorers.append(FrameScorer(store, phi))
        if self.preference:
            worth = PreferenceModel.load(Path(self.preference), spec)
            assembly = replace(assembly, rewards_by=worth.author)
            scorers.append(FrameScorer(store, worth))
        return assembly, scorers


@register("reward", "predicate")
@dataclass(frozen=True, kw_only=True)
class PredicateRewardConfig(RewardConfig):
    """The task's own rule on the measured state."""

    hold_steps: int = 1  # ticks in a row; above 1, moments are scored, too, for a classifier

    tells_progress = True

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.hold_steps < 1:
            raise ValueError(f"hold_steps must be at least 1, got {self.hold_steps}")

    def open(self, task: Task) -> PredicateReward:
        """See `RewardConfig`."""
        return PredicateReward(task, self.hold_steps, tells=self.shaping > 0.0)

    def own_progress(self) -> str:
        """See `RewardConfig`: the task's."""
        return PREDICATE


@register("reward", "classifier")
@dataclass(frozen=True, kw_only=True)
class ClassifierRewardConfig(RewardConfig):
    """A model of `robot-rl reward train`; evaluation is by the task's own rule."""

    model: str = ""  # its folder; there is no default
    hold_steps: int = 0  # the last n ticks count; 0 = as it was trained
    agree: int = 0  # so many of them have to show success; 0 = all
    where: dict[str, tuple[float, float]] = field(default_factory=dict)  # part of the state: bounds

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.hold_steps < 0 or self.agree < 0 or self.agree > (self.hold_steps or self.agree):
            raise ValueError("hold_steps and agree must be >= 0, agree at most hold_steps")

    def open(self, task: Task) -> RewardSource:
        """See `RewardConfig`.

        Raises:
            CheckpointError: `model` is no model.
            ConfigError: it sees other cameras than the task has, or is held shorter than `agree`.
        """
        from robot_rl.reward.success.model import ClassifierReward, SuccessModel, Where

        model = SuccessModel.load(Path(self.model or "(no reward.model given)"), task.spec)
        return ClassifierReward(
            model,
            PredicateReward(task, tells=True),
            hold_steps=self.hold_steps,
            agree=self.agree,
            where=Where.of(self.where, task.spec),
        )


def _upgraded(section: Mapping[str, Any]) -> Mapping[str, Any]:
    server = section.get("server")
    if not isinstance(server, Mapping):
        return section
    return {**section, "server": without_old_keys(server, "reward.server", "key_file", "key_env")}


UPGRADES["reward"] = _upgraded


@register("reward", "vlm")
@dataclass(frozen=True, kw_only=True)
class VlmRewardConfig(RewardConfig):
    """A vision-language model says how episodes ended, some time later; docs/vlm.md."""

    server: VlmConfig = field(default_factory=VlmConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    task: str = ""  # what the robot shall do, in words; there is no default
    camera: str = ""  # image entry; "" = the first
    canary: str = ""  # folder with good/ and bad/ pictures; "" = nobody checks the model

    tells_progress = True

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.shaping and not self.progress and not (self.worker.fill and self.worker.period_s):
            raise ValueError(
                "shaping needs progress of every frame: worker.fill=true and worker.period_s above "
                "0, or progress=FOLDER; nothing could be learned from"
            )

        if self.worker.way == QuestionKind.CHANGE and self.server.protocol == "heads":
            raise ValueError("worker.way=change is for a chat model: a head counts from the start")

    def open(self, task: Task) -> RewardSource:
        """See `RewardConfig`.

        Raises:
            ConfigError: nobody has said what the task is, or there is nothing to look at.
        """
        from robot_rl.reward.vlm.source import VlmReward

        self._check(task.spec)
        return VlmReward(PredicateReward(task, tells=True))

    def beside(self, store: Store) -> AbstractContextManager[Callable[[], str]]:
        """See `RewardConfig`. Raises as `vlm.source.labelling`."""
        from robot_rl.reward.vlm.source import labelling

        if store.spec is not None:
            self._check(store.spec)
        return labelling(
            store,
            self.server,
            self.worker,
            task=self.task,
            camera=self.camera,
            canary=self.canary,
        )

    def _check(self, spec: Spec) -> None:
        if not self.task.strip() or not spec.cameras:
            raise ConfigError(
                "a vision-language model has to see the task, and to be told what it is",
                expected="reward.task='put the peg into the hole', and a camera",
                got=f"task {self.task!r}, cameras {', '.join(spec.cameras) or 'none'}",
                fix="reward.task='...'; an experiment that ends in _pixels, or task.images=[front]",
            )

    def own_progress(self) -> str:
        """See `RewardConfig`: the server's."""
        return author_of(self.server, QuestionKind(self.worker.way)) + HELD
