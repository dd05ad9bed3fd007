"""A success classifier, learned from recorded episodes (as HIL-SERL's, arXiv 2410.21845).

    loss        mean over a batch, half of it successes, of BCE(logit(images), y)
    y = 1       the last `positives` frames of an episode that succeeded
    y = 0       every frame of an episode that failed; of one that succeeded, those more than
                `margin` frames before the first success
    neither     the frames between, and episodes about which nobody has said anything

What a person says of a moment (`shows`) overrides all that for its frame: one failure that looks
like a success, and is labelled as none, teaches more than a hundred failures that do not.

In episodes recorded in simulation with `reward.hold_steps` above 1, or with a classifier as reward,
each step carries the predicate's own score of its moment, and these scores decide: a success that
is lost again counts while it lasts, and what only a classifier took for a success does not count.
On a robot a person decides, and a person who contradicts all these scores is believed. Episodes
that ended ABORTED or STALE are not learned from, since nobody judged them.

Whole episodes are held out, the same share of successes and of failures, and not used before the
end. They choose the threshold: the one that recognises most successes while at most
`max_false_rate` of the episodes are wrongly taken for a success, with the score held for
`hold_steps` ticks. An episode that succeeds counts on both sides: its end must be recognised, and
its way must not be, except for the last second. The rates in the figures are not those at this
threshold, which fits these episodes: each half of them is judged by what the other half chooses.

Deviations: HIL-SERL starts from a ResNet-10 with ImageNet's weights (`encoder.trunk` and
`encoder.weights` take one) and chooses its threshold by eye. Here pictures also change in
brightness, and some failures have a grey patch over part of the picture, since a hand before the
lens looks like no failure ever seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from robot_rl.errors import ConfigError
from robot_rl.nets.encoder import EncoderConfig, random_shift
from robot_rl.nets.picture import PictureNet
from robot_rl.reward.metrics import Strip, auc, calibration_error, held, operating_point
from robot_rl.reward.success.model import SuccessModel
from robot_rl.spec import Spec
from robot_rl.store.labels import PREDICATE, PROGRESS, SUCCESS_SCORE, review
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Label

EARLY = 10  # frames: a success that is recognised no more than this too early is no mistake

Pictures = NDArray[np.uint8]
Told = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class SuccessConfig:
    """What is learned from, and how long."""

    updates: int = 1500
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    hidden: tuple[int, ...] = (64,)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    positives: int = 5  # frames at the end of a success that show it
    margin: int = 5  # frames before them that are neither
    brightness: float = 0.3  # pictures get up to this much darker or brighter
    covered: float = 0.2  # share of the failures in a batch with a patch over the picture
    held_out: float = 0.3  # share of the episodes
    hold_steps: int = 3
    max_false_rate: float = 0.02  # of episodes
    seed: int = 0

    def __post_init__(self) -> None:
        """Check ranges."""
        if min(self.updates, self.batch_size, self.positives, self.hold_steps) < 1:
            raise ValueError("updates, batch_size, positives, hold_steps must be at least 1")
        if self.hold_steps > self.positives:
            raise ValueError("hold_steps must not be more than positives: no success is that long")
        if not 0.0 < self.held_out < 1.0 or not 0.0 <= self.max_false_rate < 1.0:
            raise ValueError("held_out must lie in (0, 1), max_false_rate in [0, 1)")
        if self.margin < 0 or not all(0.0 <= x < 1.0 for x in (self.brightness, self.covered)):
            raise ValueError("margin must not be negative; brightness, covered lie in [0, 1)")


@dataclass(frozen=True, slots=True)
class Footage:
    """The frames of one episode, of which somebody has said how it ended or what frames show.

    images: camera key -> uint8 [T, H, W, C]; success: as was said, or is seen in a frame; shows:
    int8 [T], whether a frame shows success: 1 yes, 0 no, -1 neither; progress: float64 [T], how far
    the task really was, as the simulator says, NaN where nobody knows.
    """

    id: EpisodeId
    images: dict[str, NDArray[np.uint8]]
    success: bool
    shows: NDArray[np.int8]
    progress: NDArray[np.float64]

    @property
    def failed(self) -> bool:
        """Whether the episode is known to have failed; of some only a few frames are known."""
        return not self.shows.any()


def footage(
    store: Store,
    keys: Sequence[str],
    config: SuccessConfig,
    told: Told = lambda done, total: None,
) -> Iterator[Footage]:
    """Yield the episodes of a store from which a model of pictures may learn.

    These are the episodes that ended in a success or a failure (`Review.outcome`), and those of
    which a person has said what some of their frames show. Evaluation episodes are left out: they
    judge what comes of this. So are aborted ones, whose last step says success=False although
    nobody has judged them.
    """
    starts = [s for s in store.episodes() if s.purpose != "eval"]
    for done, start in enumerate(starts):
        told(done, len(starts))
        if store.ending(start.id) in (Ending.ABORTED, Ending.STALE):
            continue
        steps, labels = store.steps(start.id), store.labels(start.id)
        said, recorded = review(labels), steps[-1].success if steps else None
        success = said.outcome(recorded)
        frames = sorted(store.frames(start.id), key=lambda f: f.frame)
        unknown = success is None and not said.shows
        if unknown or said.excluded or len(frames) <= config.positives:
            continue
        images = {k: np.stack([f.observation[k] for f in frames]) for k in keys}
        scored = [x for x in labels if x.kind == SUCCESS_SCORE]
        now = {x.step: x.value for x in scored if x.source == PREDICATE}
        at = {s.next_frame: now.get(s.step, -1) for s in steps}
        rule = np.array([at.get(f.frame, 0) for f in frames], np.int8)
        # without a classifier, a success recorded against the rule came from a person's key
        key = recorded and not any(x.source == "classifier" for x in scored)
        word = said.success if said.success is not None else (key or None)
        shows = np.full(len(frames), -1 if success is None else 0, np.int8)
        if now and word in (None, bool((rule == 1).any())):
            shows, success = rule, bool((rule == 1).any())
        elif success:
            shows[-config.positives :] = 1
        told_of = {s.next_frame: said.shows[s.step] for s in steps if s.step in said.shows}
        words = np.array([told_of.get(f.frame, -1) for f in frames], np.int8)
        shows = np.where(words < 0, shows, words)
        if told_of:
            success = bool((shows == 1).any())
        shows = np.where(words < 0, _with_margin(shows, config.margin), words)
        progress = true_progress(labels, [f.frame for f in frames])
        yield Footage(start.id, images, bool(success), shows, progress)
    told(len(starts), max(len(starts), 1))


def true_progress(labels: Sequence[Label], frames: Sequence[int]) -> NDArray[np.float64]:
    """How far the task was in each of these frames, as the simulator recorded it, else NaN.

    Progress is counted from the first frame of an episode.
    """
    known = {x.step: x.value for x in labels if (x.kind, x.source) == (PROGRESS, PREDICATE)}
    begin = {0: 0.0} if known else {}
    return np.array([(begin | known).get(f, np.nan) for f in frames])


def _with_margin(shows: NDArray[np.int8], margin: int) -> NDArray[np.int8]:
    """Return `shows` with -1 in the `margin` frames before one that shows success."""
    out = shows.copy()
    for t in np.flatnonzero(shows == 1):
        before = out[max(0, t - margin) : t]
        before[before == 0] = -1
    return out


def split(
    episodes: Sequence[Footage], share: float, rng: np.random.Generator
) -> tuple[list[Footage], list[Footage]]:
    """(to learn from, held out): whole episodes, both kinds in both.

    Raises:
        ConfigError: fewer than two episodes of a kind.
    """
    learned: list[Footage] = []
    held_out: list[Footage] = []
    for success in (True, False):
        kind = [e for e in episodes if e.success is success]
        if len(kind) < 2:
            raise ConfigError(
                "too few episodes to learn what success looks like",
                expected="at least 2 that succeeded and 2 that failed; some 20 of each are good",
                got=f"{len(kind)} that {'succeeded' if success else 'failed'}",
                fix="robot-rl record ... operator.skill=0.3 also records failures; label others",
            )
        order = rng.permutation(len(kind))
        count = min(max(1, round(share * len(kind))), len(kind) - 1)
        held_out += [kind[i] for i in order[:count]]
        learned += [kind[i] for i in order[count:]]
    return learned, held_out


def learn_success(
    episodes: Sequence[Footage],
    spec: Spec,
    config: SuccessConfig,
    *,
    source: Sequence[str] = (),
    told: Told = lambda done, total: None,
) -> SuccessModel:
    """Learn from some of the episodes, choose the threshold with the others.

    Raises:
        ConfigError: too few episodes of a kind.
    """
    rng, generator = np.random.default_rng(config.seed), torch.Generator().manual_seed(config.seed)
    learned, held_out = split(episodes, config.held_out, rng)
    net = PictureNet(spec, config.encoder, config.hidden)
    tensors = net.init(generator)
    yes, no = (Pool([(e, np.flatnonzero(e.shows == y)) for e in learned]) for y in (1, 0))
    half = config.batch_size // 2
    target = torch.cat((torch.ones(half), torch.zeros(half)))

    def loss() -> Tensor:
        drawn = [*yes.draw(half, rng), *no.draw(half, rng)]
        patched = half + round(config.covered * half)
        images = {k: changed(drawn, k, config, generator) for k in net.keys}
        for picture in (v[i] for v in images.values() for i in range(half, patched)):
            cover(picture, rng)
        return binary_cross_entropy_with_logits(net(images, tensors)[:, 0], target)

    fit(list(tensors.values()), loss, config, told)
    tensors = {k: v.detach() for k, v in tensors.items()}
    model = SuccessModel(net, tensors, {}, tuple(source), hold_steps=config.hold_steps)
    _, _, ends, ways = scores(model, held_out)
    threshold, _, _ = operating_point(ends, ways, config.max_false_rate)
    model = replace(model, threshold=threshold)
    figures = judge(model, held_out) | crossed(ends, ways, config.max_false_rate)
    return replace(model, figures=figures | {"learned_episodes": len(learned)})


def crossed(
    ends: Sequence[float], ways: Sequence[float], max_false_rate: float
) -> dict[str, float]:
    """Rates of each half of the episodes at the threshold that the other half chooses, together.

    ends, ways: see `scores`. Nothing where there is one episode of a kind only.
    """
    if min(len(ends), len(ways)) < 2:
        return {}
    right = wrong = 0
    for half in (0, 1):
        others = ends[1 - half :: 2], ways[1 - half :: 2]
        threshold, _, _ = operating_point(*others, max_false_rate)
        right += int((np.array(ends[half::2]) >= threshold).sum())
        wrong += int((np.array(ways[half::2]) >= threshold).sum())
    return {"true_positive_rate": right / len(ends), "false_positive_rate": wrong / len(ways)}


class FitSchedule(Protocol):
    """How long something is fitted, and how fast: part of a config."""

    @property
    def updates(self) -> int:
        """Gradient steps in all."""
        ...

    @property
    def learning_rate(self) -> float:
        """Learning rate at the beginning; it falls to 0 as a cosine."""
        ...

    @property
    def weight_decay(self) -> float:
        """Weight decay of AdamW."""
        ...


def fit(
    trained: Sequence[Tensor], loss: Callable[[], Tensor], how: FitSchedule, told: Told
) -> None:
    """Move tensors down a loss that draws its own batches."""
    for tensor in trained:
        tensor.requires_grad_()
    optimizer = torch.optim.AdamW(trained, how.learning_rate, weight_decay=how.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.updates)
    for update in range(how.updates):
        told(update, how.updates)
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    told(how.updates, how.updates)


def scores(
    model: SuccessModel, episodes: Sequence[Footage]
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[float], list[float]]:
    """Scores of frames and of episodes, from which figures and thresholds are made.

    Returns the logits of frames that show success, those of frames that do not, and of each episode
    the highest logit that was held: at its end (if it succeeds), and on its way.

    Raises:
        ConfigError: no frame shows success, or none shows anything else.
    """
    yes_frames, no_frames, ends, ways = [], [], [], []
    for episode in episodes:
        logit = logits(model, episode)
        shows = _with_margin(episode.shows, EARLY)
        yes_frames.append(logit[shows == 1])
        no_frames.append(logit[shows == 0])
        way = np.where(shows == 0, logit, -np.inf)  # a window with a success in it is no mistake
        ways.append(held(way, model.hold_steps).max(initial=-np.inf))
        if episode.success:
            end = held(logit, model.hold_steps)[shows == 1]
            ends.append(end.max(initial=-np.inf))
    yes, no = (np.concatenate([*frames, np.zeros(0)]) for frames in (yes_frames, no_frames))
    if not yes.size or not no.size:
        raise ConfigError(
            "these episodes cannot tell a good classifier from a poor one",
            expected="successes, and frames that show none",
            got=f"{len(ends)} successes in {len(episodes)} episodes somebody has judged",
            fix="give runs with both, or label episodes in review",
        )
    return yes, no, ends, ways


def judge(model: SuccessModel, episodes: Sequence[Footage]) -> dict[str, Any]:
    """Figures on episodes that were not learned from.

    Raises:
        ConfigError: see `scores`.
    """
    yes, no, ends, ways = scores(model, episodes)
    at_ninety = float(np.quantile(ends, 0.1))  # 90 % of the successes are recognised here
    probability = 1.0 / (1.0 + np.exp(-np.concatenate((yes, no)).clip(-60, 60)))
    truth = np.concatenate((np.ones(len(yes)), np.zeros(len(no))))
    return {
        "frame_auc": auc(yes, no),
        "episode_auc": auc(ends, ways),
        "true_positive_rate": float(np.mean(np.array(ends) >= model.threshold)),
        "false_positive_rate": float(np.mean(np.array(ways) >= model.threshold)),
        "false_positive_rate_at_90": float(np.mean(np.array(ways) >= at_ninety)),
        "calibration_error": calibration_error(probability, truth),
        "successes": len(ends),
        "episodes": len(ways),
        "frames": len(yes) + len(no),
    }


def deceive(
    model: SuccessModel, episodes: Sequence[Footage], emptied: Sequence[Footage] = ()
) -> dict[str, float]:
    """Share of the episodes that each of `HACKS` makes look like a success.

    Only frames that show no success are changed, alike for every camera. emptied: successes drawn
    again without their objects (`reward.success.staged`).
    """
    taken: dict[str, list[bool]] = {name: [] for name in HACKS}
    taken |= {"objects not there": [_is_taken(model, e) for e in emptied]} if emptied else {}
    for episode in episodes:
        way = _with_margin(episode.shows, EARLY) == 0
        if way.sum() < model.hold_steps:
            continue
        for name, hack in HACKS.items():
            images = {k: hack(v[way]) for k, v in episode.images.items()}
            taken[name].append(_is_taken(model, replace(episode, images=images)))
    return {name: float(np.mean(found)) for name, found in taken.items()}


def _is_taken(model: SuccessModel, episode: Footage) -> bool:
    """Whether an episode is taken for a success at any moment."""
    score = held(logits(model, episode), model.hold_steps)
    return bool(score.max(initial=-np.inf) >= model.threshold)


def strips(model: SuccessModel, episodes: Sequence[Footage], count: int) -> list[Strip]:
    """What `report.rewards` shows of at most `count` episodes, wrongly judged ones first."""
    found = []
    for episode in episodes:
        logit = logits(model, episode)
        taken = held(logit, model.hold_steps) >= model.threshold
        way = _with_margin(episode.shows, EARLY) == 0
        wrong = "taken for a success" if (taken & way).any() else ""
        if episode.success and not taken[episode.shows == 1].any():
            wrong = "not recognised"
        truth = np.where(episode.shows < 0, np.nan, episode.shows).astype(np.float64)
        found.append(
            Strip(
                f"episode {episode.id.episode} of {episode.id.run}: "
                + ("success" if episode.success else "failure"),
                next(iter(episode.images.values())),
                {"score": 1.0 / (1.0 + np.exp(-logit.clip(-60, 60))), "truth": truth},
                wrong,
                1.0 / (1.0 + float(np.exp(-np.clip(model.threshold, -60, 60)))),
            )
        )
    return sorted(found, key=lambda s: not s.wrong)[:count]


def _dark(images: Pictures) -> Pictures:
    return images // 6


def _glare(images: Pictures) -> Pictures:
    return np.clip(images.astype(np.float32) * 1.6 + 60, 0, 255).astype(np.uint8)


def _covered(images: Pictures, share: float, grey: int) -> Pictures:
    """Something in front of the middle of the picture."""
    out = images.copy()
    height, width = out.shape[1:3]
    dy, dx = round(height * (1 - share) / 2), round(width * (1 - share) / 2)
    out[:, dy : height - dy, dx : width - dx] = grey
    return out


HACKS: dict[str, Callable[[Pictures], Pictures]] = {
    "lights off": _dark,
    "glare": _glare,
    "hand before the lens": lambda images: _covered(images, 0.7, 60),
    "white sheet before the lens": lambda images: _covered(images, 0.7, 230),
    "lens covered": lambda images: _covered(images, 1.0, 0),
    "camera upside down": lambda images: images[:, ::-1, ::-1].copy(),
    "grey pictures": lambda images: np.repeat(
        images.mean(-1, keepdims=True).astype(np.uint8), images.shape[-1], -1
    ),
}
"""What a policy, or a lab, may do to the pictures of a failure, uint8 [T, H, W, C]."""


@torch.no_grad()
def logits(model: SuccessModel, episode: Footage) -> NDArray[np.float64]:
    """The logit of every frame of an episode, [T]."""
    return model.net(episode.images, model.tensors)[:, 0].double().numpy()


class Pool:
    """Frames to draw from, each as likely as any other."""

    def __init__(self, parts: Sequence[tuple[Footage, NDArray[np.intp]]]) -> None:
        self._frames = [(episode, t) for episode, frames in parts for t in frames]

    def draw(self, count: int, rng: np.random.Generator) -> list[tuple[Footage, int]]:
        return [self._frames[i] for i in rng.integers(len(self._frames), size=count)]


def cover(picture: Tensor, rng: np.random.Generator) -> None:
    """Draw a grey patch somewhere on a picture [H, W, C], a third to all of each side long."""
    height, width, _ = picture.shape
    h, w = rng.integers(height // 3, height + 1), rng.integers(width // 3, width + 1)
    y, x = rng.integers(height - h + 1), rng.integers(width - w + 1)
    picture[y : y + h, x : x + w] = int(rng.integers(256))


def changed(
    drawn: Sequence[tuple[Footage, int]],
    key: str,
    config: SuccessConfig,
    generator: torch.Generator,
) -> Tensor:
    """Pictures [B, H, W, C] of one camera, shifted, darker or brighter."""
    images = torch.from_numpy(np.stack([episode.images[key][t] for episode, t in drawn]))
    images = random_shift(images, config.encoder.shift_px, generator)
    gain = 1.0 + config.brightness * (2.0 * torch.rand(len(drawn), generator=generator) - 1.0)
    return (images.float() * gain[:, None, None, None]).clamp_(0, 255).to(torch.uint8)
