"""Progress without training: CLIP compares each frame with two sentences (VLM-RM).

    g, b, s    embeddings of the goal's text, of the baseline's text and of the frame, unit length
    R_t        1 - 1/2 ||alpha proj_L(s) + (1 - alpha) s - g||^2, L the line through b and g
    phi_t      (R_t - low) / (high - low), clipped to [0, 1]                  (arXiv 2310.12921)

The baseline says what the scene looks like anyway. The nearer alpha is to 1, the less counts what
has nothing to do with the way from baseline to goal; alpha = 0 is the cosine similarity of s and g.
low and high are the 5 % and 95 % quantiles of R over recorded frames, frozen when the model is
made: R itself hardly varies, and its size differs from one CLIP to another.

`robot-rl reward clip` makes such a model; it can be used wherever a `reward.progress` model can.

    clip.json           where CLIP is, the hashes of its files, texts, alpha, low and high
    clip.safetensors    "goal" and "baseline", float32 [D] each

Deviation: VLM-RM uses R as the reward. Here it is a potential, which cannot change the best policy,
because CLIP is poor at telling where things are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.nets.clip import ClipNet
from robot_rl.nets.observation import image_shapes
from robot_rl.nets.tensor_file import read_tensors
from robot_rl.reward.model import Stored, check_inputs
from robot_rl.reward.progress.model import Past, ProgressModel
from robot_rl.spec import Spec
from robot_rl.store.labels import PROGRESS
from robot_rl.system import plain_json

FORMAT = 1
SPREAD = 1e-6  # of R, or between two texts: below it there is only rounding


def goal_baseline(frames: Tensor, goal: Tensor, baseline: Tensor, alpha: float) -> Tensor:
    """R [T] of frames [T, D], goal [D] and a baseline [D] unlike it, all unit; alpha in [0, 1]."""
    along = goal - baseline
    share = (frames - baseline) @ along / along.square().sum()
    on_line = baseline + share[:, None] * along
    return 1.0 - 0.5 * (alpha * on_line + (1.0 - alpha) * frames - goal).square().sum(-1)


@dataclass(frozen=True)
class ClipModel(Stored):
    """phi of one camera; see the module.

    inputs: camera key -> (H, W, 3); tensors: of the texts; figures, source: as in
    `reward.model.ScoreModel`.
    """

    kind: ClassVar[str] = "clip"
    title: ClassVar[str] = "progress by CLIP"
    label: ClassVar[str] = PROGRESS
    needs_past: ClassVar[bool] = False

    net: ClipNet
    inputs: dict[str, tuple[int, ...]]
    task: str
    baseline: str
    tensors: dict[str, Tensor]
    alpha: float
    low: float = 0.0
    high: float = 1.0
    source: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """Entry of the observation that is looked at: one camera."""
        return tuple(self.inputs)

    @cached_property
    def version(self) -> str:
        """First 12 hex digits of the SHA-256 of all that decides about the numbers."""
        facts = (FORMAT, self.net.sha256, self.inputs, self.alpha, self.low, self.high)
        said = json.dumps(facts, sort_keys=True).encode() + safetensors.torch.save(self.tensors)
        return hashlib.sha256(said).hexdigest()[:12]

    def reward(self, images: Mapping[str, NDArray]) -> NDArray[np.float64]:
        """R [T] of T frames; images: camera key -> uint8 [T, H, W, 3]."""
        goal, baseline = (self.tensors[k].double() for k in ("goal", "baseline"))
        seen = self.net.look(images[self.keys[0]])
        return goal_baseline(seen, goal, baseline, self.alpha).numpy()

    def curve(self, images: Mapping[str, NDArray], past: Past | None = None) -> NDArray[np.float64]:
        """phi [T] in [0, 1]; see `reward`. No frame's phi depends on the frames before it."""
        return np.clip((self.reward(images) - self.low) / (self.high - self.low), 0.0, 1.0)

    def save(self, folder: Path) -> None:
        """Write the two files."""
        net = self.net
        facts = {
            "clip": {"where": net.where, "revision": net.revision, "sha256": net.sha256},
            **{k: getattr(self, k) for k in ("inputs", "task", "baseline", "alpha", "low", "high")},
            "source": list(self.source),
            "figures": self.figures,
        }
        self.write(folder, FORMAT, self.tensors, **facts)

    @classmethod
    def load(cls, folder: Path, spec: Spec) -> Self:
        """Read what `save` wrote, for a run that observes the same.

        Raises:
            CheckpointError: the model is not there or damaged, or CLIP has changed since.
            ConfigError: the run observes something else.
            SetupError: transformers is not installed.
        """
        try:
            facts = plain_json.loads((folder / f"{cls.kind}.json").read_text())
            data = (folder / f"{cls.kind}.safetensors").read_bytes()
            if facts["format"] != FORMAT:
                raise ValueError(f"format {facts['format']}")
            if hashlib.sha256(data).hexdigest() != facts["sha256"]:
                raise ValueError(f"{cls.kind}.safetensors is damaged")
            tensors = read_tensors(data)
            shown = {k: tuple(v) for k, v in facts["inputs"].items()}
            task, baseline = str(facts["task"]), str(facts["baseline"])
            alpha, low, high = (float(facts[k]) for k in ("alpha", "low", "high"))
            if not (0.0 <= alpha <= 1.0 and low < high and len(shown) == 1):
                raise ValueError(f"alpha {alpha}, low {low}, high {high}, cameras {list(shown)}")
            source, figures = tuple(facts["source"]), dict(facts["figures"])
            clip = facts["clip"]
            where, sha256 = (str(clip["where"]), str(clip["revision"])), dict(clip["sha256"])
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
        ) as error:
            raise CheckpointError(
                f"{folder} is not a model of {cls.title}",
                expected=f"{cls.kind}.json and {cls.kind}.safetensors of `robot-rl reward clip`",
                got=str(error),
                fix="robot-rl reward clip RUN --task TEXT --baseline TEXT --clip FOLDER --out ...",
            ) from error
        check_inputs(cls.title, shown, spec)
        net = ClipNet(*where, sha256)
        return cls(net, shown, task, baseline, tensors, alpha, low, high, source, figures)


def make_clip(
    net: ClipNet,
    spec: Spec,
    episodes: Sequence[Mapping[str, NDArray]],
    *,
    task: str,
    baseline: str,
    alpha: float = 0.5,
    camera: str = "",
    source: Sequence[str] = (),
    told: Callable[[int, int], None] = lambda done, total: None,
) -> ClipModel:
    """Make a model whose quantiles are those of all frames of these episodes.

    Args:
        episodes: the images of each.
        camera: entry of the observation; "" = the first.

    Raises:
        ConfigError: alpha is no share, a text says nothing or both say the same, there is no such
            camera in colour, or all frames look alike.
    """
    if not 0.0 <= alpha <= 1.0:
        raise _wrong("alpha is a share", "a number in [0, 1]", str(alpha), "--alpha 0.5")
    shapes = {k: v for k, v in image_shapes(spec).items() if v[-1] == 3}
    camera = camera or next(iter(shapes), "")
    if camera not in shapes:
        there = ", ".join(shapes) or "no camera in colour"
        raise _wrong(f"the runs have no camera '{camera}'", there, camera, "--camera NAME")
    tensors = {"goal": net.read(task).float(), "baseline": net.read(baseline).float()}
    if (tensors["goal"] - tensors["baseline"]).norm() < SPREAD:
        texts = "two texts that CLIP tells apart", repr((task, baseline))
        raise _wrong("the baseline is the goal", *texts, "say what the scene looks like anyway")
    shape = {camera: shapes[camera]}
    model = ClipModel(net, shape, task, baseline, tensors, alpha, source=tuple(source))
    found: list[NDArray[np.float64]] = []
    for done, images in enumerate(episodes):
        told(done, len(episodes))
        found.append(model.reward(images))
    told(len(episodes), max(len(episodes), 1))
    all_of_them = np.concatenate([*found, np.empty(0)])
    low, high = np.quantile(all_of_them, (0.05, 0.95)) if len(all_of_them) else (0.0, 0.0)
    if not high - low > SPREAD:
        raise _wrong(
            "CLIP sees no difference between these frames",
            "R whose 5 % and 95 % quantiles differ",
            f"{low:.6f} and {high:.6f} of {len(all_of_them)} frames",
            "give runs in which the task is done, another --camera, or other texts",
        )
    return replace(model, low=float(low), high=float(high))


def load_progress(folder: Path, spec: Spec) -> ProgressModel | ClipModel:
    """Load what tells progress from its folder: a trained model, or CLIP.

    Raises what their `load` raises, and:

    Raises:
        ConfigError: the folder holds both.
    """
    if not ClipModel.is_in(folder):
        return ProgressModel.load(folder, spec)
    if ProgressModel.is_in(folder):
        both = f"{ProgressModel.kind}.json and {ClipModel.kind}.json"
        raise _wrong(f"two models in {folder} tell progress", "one", both, "move one elsewhere")
    return ClipModel.load(folder, spec)


def _wrong(summary: str, expected: str, got: str, fix: str) -> ConfigError:
    return ConfigError(summary, expected=expected, got=got, fix=fix)
