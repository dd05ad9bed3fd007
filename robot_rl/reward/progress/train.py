"""A progress model, learned from recorded episodes: `model` says what it is and does.

    value      cross entropy of HL-Gauss against y_t = gamma^k, k steps before the next moment that
               shows success, 0 where none comes any more (GR-RL's Q as progress, as a Monte Carlo
               return); with discount = 1: 1 - k / longest way       (RECAP, arXiv 2511.14759)
    pair       squared error against c, the share of what was left (of what was reached, backwards)
               between two frames of a success at most `gap` apart, in either order, progress taken
               as linear in time                                      (VLAC)

With `failures` above 0 that share of a batch comes from episodes that failed: then `value` says how
likely success still is (GR-RL), and does not order the moments of a failure at all. With 0, `value`
says how far the task looks, in failures, too. Pictures are shifted, brightened and partly covered
as in `reward.success.train`, which also reads the data.

Deviations: GR-RL bootstraps, RECAP conditions a policy on its value; VLAC is a vision-language
model and sees the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.errors import ConfigError
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.reward.metrics import Strip, auc, direction_accuracy, kendall, mean_known, spearman
from robot_rl.reward.progress.model import WAYS, ProgressModel, ProgressNet
from robot_rl.reward.success.train import (
    Footage,
    Pool,
    SuccessConfig,
    Told,
    changed,
    cover,
    fit,
    split,
)
from robot_rl.spec import Spec

GAPS_S = (0.5, 1.0, 2.0)  # between two frames whose order is checked
MISLEADING = 0.5  # rank correlation with true progress below which an episode is shown first


@dataclass(frozen=True, kw_only=True)
class ProgressConfig:
    """What is learned, and how long."""

    way: str = "value"
    discount: float = 1.0  # per step; 1 = linear in the steps that are left
    failures: float = 0.0  # share of a batch from episodes that failed; see the module
    bins: int = 21
    gap: int = 10  # frames; VLAC: a second
    updates: int = 1500
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    hidden: tuple[int, ...] = (64,)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    brightness: float = 0.3
    covered: float = 0.2  # share of a batch with a patch over the picture
    held_out: float = 0.3  # share of the episodes
    seed: int = 0

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.way not in WAYS:
            raise ValueError(f"way must be one of {WAYS}, got {self.way!r}")
        if not 0.0 < self.discount <= 1.0 or not 0.0 < self.held_out < 1.0:
            raise ValueError("discount must lie in (0, 1], held_out in (0, 1)")
        if not 0.0 <= self.failures < 1.0:
            raise ValueError(f"failures must lie in [0, 1), got {self.failures}")
        if min(self.bins - 1, self.gap, self.updates, self.batch_size // 2) < 1:
            raise ValueError("bins, batch_size >= 2; gap, updates >= 1")
        if not all(0.0 <= x < 1.0 for x in (self.brightness, self.covered)):
            raise ValueError("brightness and covered must lie in [0, 1)")


def targets(episode: Footage, discount: float, longest: int) -> NDArray[np.float32]:
    """y [T] of `value`, see the module; longest: steps of the longest way, for discount = 1."""
    left, out = np.inf, np.zeros(len(episode.shows), np.float32)
    for t in reversed(range(len(out))):
        left = 0.0 if episode.shows[t] == 1 else left + 1.0
        if np.isfinite(left):
            out[t] = discount**left if discount < 1.0 else max(1.0 - left / longest, 0.0)
    return out


def way_length(episode: Footage) -> int:
    """Steps to the first moment that shows success."""
    return int(np.argmax(episode.shows == 1))


def learn_progress(
    episodes: Sequence[Footage],
    spec: Spec,
    config: ProgressConfig,
    *,
    source: Sequence[str] = (),
    told: Told = lambda done, total: None,
) -> ProgressModel:
    """Learn from some of the episodes, judge the model on the others.

    Raises:
        ConfigError: too few episodes of a kind.
    """
    rng, generator = np.random.default_rng(config.seed), torch.Generator().manual_seed(config.seed)
    episodes = [e for e in episodes if e.success or e.failed]  # how the others end, nobody knows
    learned, held_out = split(episodes, config.held_out, rng)
    bins, gap = (0, config.gap) if config.way == "pair" else (config.bins, 0)
    own = {"way": config.way, "bins": bins, "gap": gap}
    net = ProgressModel.make_net(spec, config.encoder, config.hidden, **own)
    tensors = net.init(generator)
    loss_of = _pair_loss if config.way == "pair" else _value_loss
    loss = loss_of(net, learned, config, rng, generator)
    fit([tensors[k] for k in ("encoder", "head")], lambda: loss(tensors), config, told)
    tensors = {k: v.detach() for k, v in tensors.items()}
    model = ProgressModel(net, tensors, {}, tuple(source), **own)
    figures = judge_progress(model, held_out, spec.control_hz) | {"learned_episodes": len(learned)}
    return replace(model, figures=figures)


def _pictures(
    net: ProgressNet,
    drawn: Sequence[tuple[Footage, int]],
    config: ProgressConfig,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """The pictures of each (episode, frame), changed in brightness; some with a patch."""
    change = SuccessConfig(encoder=config.encoder, brightness=config.brightness)
    images = {k: changed(drawn, k, change, generator) for k in net.keys}
    for picture in (v[i] for v in images.values() for i in range(round(config.covered * len(v)))):
        cover(picture, rng)
    return images


def _value_loss(
    net: ProgressNet,
    episodes: Sequence[Footage],
    config: ProgressConfig,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Any:
    longest = max(way_length(e) for e in episodes if e.success) or 1
    goal = {id(e): targets(e, config.discount, longest) for e in episodes}  # runs may share a name
    pools = [
        Pool([(e, np.arange(len(e.shows))) for e in episodes if e.success is success])
        for success in (True, False)
    ]
    assert net.histogram is not None

    def loss(tensors: dict[str, Tensor]) -> Tensor:
        failed = round(config.failures * config.batch_size)
        sizes = (config.batch_size - failed, failed)
        drawn = [x for pool, n in zip(pools, sizes, strict=True) for x in pool.draw(n, rng)]
        order = rng.permutation(len(drawn))  # the first get a patch: of both kinds
        drawn = [drawn[i] for i in order]
        y = torch.tensor([goal[id(e)][t] for e, t in drawn])
        images = _pictures(net, drawn, config, rng, generator)
        return net.histogram.loss(net(images, tensors)[None], y)  # type: ignore[union-attr]

    return loss


def _pair_loss(
    net: ProgressNet,
    episodes: Sequence[Footage],
    config: ProgressConfig,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Any:
    good = [e for e in episodes if e.success and way_length(e) > 1]
    pool = Pool([(e, np.arange(way_length(e) + 1)) for e in good])

    def loss(tensors: dict[str, Tensor]) -> Tensor:
        first = pool.draw(config.batch_size, rng)
        apart = rng.integers(1, config.gap + 1, len(first)) * rng.choice((-1, 1), len(first))
        second = [
            (e, int(np.clip(t + d, 0, way_length(e))))
            for (e, t), d in zip(first, apart, strict=True)
        ]
        share = [[t / way_length(e) for e, t in some] for some in (first, second)]
        c = torch.tensor([_change(a, b) for a, b in zip(*share, strict=True)])
        one, other = (
            net.look(_pictures(net, some, config, rng, generator), tensors)
            for some in (first, second)
        )
        return (net.change(one, other, tensors) - c).square().mean()

    return loss


def _change(before: float, after: float) -> float:
    """c between two shares of the way, as `assembly.after_change` takes it."""
    if after >= before:
        return (after - before) / max(1.0 - before, 1e-6)
    return (after - before) / max(before, 1e-6)


def judge_progress(
    model: ProgressModel, episodes: Sequence[Footage], control_hz: float
) -> dict[str, Any]:
    """Figures on episodes that were not learned from; NaN where nothing could be measured.

    Raises:
        ConfigError: no episode succeeds, or all do.
    """
    curves = [model.curve(e.images) for e in episodes]
    good = [(c, e) for c, e in zip(curves, episodes, strict=True) if e.success]
    poor = [(c, e) for c, e in zip(curves, episodes, strict=True) if e.failed]
    if not good or len(good) == len(episodes):
        raise ConfigError(
            "these episodes cannot tell a good progress model from a poor one",
            expected="successes and failures",
            got=f"{len(good)} successes in {len(episodes)} episodes",
            fix="give runs with both, or label episodes in review",
        )
    figures: dict[str, Any] = {
        "episodes": len(episodes),
        "successes": len(good),
        "episode_auc": auc([c.max() for c, _ in good], [c.max() for c, _ in poor]),
    }
    figures |= _order_figures([(c, e) for c, e in good], control_hz)
    for name, some in (("success", good), ("failure", poor)):
        voc = [spearman(c, e.progress) for c, e in some]
        figures[f"voc_truth_{name}"], figures[f"voc_truth_{name}_episodes"] = mean_known(voc)
    pairs = [(c[-1], e.progress[-1]) for c, e in good + poor if np.isfinite(e.progress[-1])]
    figures["kendall_end"] = kendall(*zip(*pairs, strict=True)) if pairs else float("nan")
    return figures


def strips(model: ProgressModel, episodes: Sequence[Footage], count: int) -> list[Strip]:
    """What `report.rewards` shows of at most `count` episodes, the most misleading first."""
    found = []
    for episode in episodes:
        curve = model.curve(episode.images)
        order = spearman(curve, episode.progress)
        known = np.isfinite(order)
        wrong = f"order {order:.2f}" if known and order < MISLEADING else ""
        title = f"episode {episode.id.episode} of {episode.id.run}: "
        title += "success" if episode.success else "failure"
        title += f", order {order:.2f}" if known and not wrong else ""
        pictures = next(iter(episode.images.values()))
        lines = {"progress": curve, "true progress": episode.progress}
        found.append((order if known else 1.0, Strip(title, pictures, lines, wrong)))
    return [strip for _, strip in sorted(found, key=lambda x: x[0])[:count]]


def _order_figures(
    good: Sequence[tuple[NDArray[np.float64], Footage]], control_hz: float
) -> dict[str, Any]:
    """How well the order of frames is kept in successes, up to the first that shows success."""
    ways = [c[: way_length(e) + 1] for c, e in good]
    voc, count = mean_known([spearman(c, np.arange(len(c))) for c in ways])
    right = {
        f"direction_{gap_s:g}_s": direction_accuracy(ways, max(1, round(gap_s * control_hz)))
        for gap_s in GAPS_S
    }
    return {"voc_success": voc, "voc_success_episodes": count} | right


def controls(
    model: ProgressModel, episodes: Sequence[Footage], emptied: Sequence[Footage] = ()
) -> dict[str, float]:
    """Figures that unmask a poor model, first the VOC of successes (order in time) for ...

    ramp: a clock instead of the model (1 by construction; ramp_auc is its AUC of episodes);
    shuffled: frames in random order (0 is wanted); reversed: frames from the end (minus the
    model's own VOC is wanted).

    Then the mean progress at the end of successes that are run forwards and then backwards
    (undone_progress; start_progress, that of their beginning, is wanted), and emptied_auc: the AUC
    of the highest progress of successes against the same without their objects
    (`reward.success.staged`; 1 is wanted).
    """
    good = [e for e in episodes if e.success and way_length(e) > 1]
    rng = np.random.default_rng(0)
    out: dict[str, list[float]] = {"shuffled": [], "reversed": []}
    ends: list[tuple[float, float, float]] = []  # at the start, at most, after it was undone
    for episode in good:
        frames = np.arange(way_length(episode) + 1)
        there_and_back = np.concatenate((frames, frames[-2::-1]))
        curve = model.curve({k: v[there_and_back] for k, v in episode.images.items()})
        ends.append((curve[0], curve.max(), curve[-1]))
        for name, order in (("shuffled", rng.permutation(frames)), ("reversed", frames[::-1])):
            curve = model.curve({k: v[order] for k, v in episode.images.items()})
            out[name].append(spearman(curve, frames))
    kinds = [[e for e in episodes if e.success], [e for e in episodes if e.failed]]
    ramps = [[len(e.shows) / 1000.0 for e in kind] for kind in kinds]
    found = {"ramp_voc": 1.0, "ramp_auc": auc(*ramps)}
    found |= {f"{name}_voc": mean_known(values)[0] for name, values in out.items()}
    if ends:
        start, most, undone = np.array(ends).T
        found |= {"start_progress": float(start.mean()), "undone_progress": float(undone.mean())}
        if emptied:
            found["emptied_auc"] = auc(most, [model.curve(e.images).max() for e in emptied])
    return found
