"""Learns a reward from preferences: answers to which of two moments is nearer to the goal.

Papers: RL-VLM-F (arXiv 2402.03681), and its use on recorded data (arXiv 2411.05273). Per member i
of the ensemble, over pairs (a, b) of moments and answers y in {a is nearer, b is nearer}:

    loss_i = -mean log sigmoid(+-(f_i(b) - f_i(a)))         f and the reward: `model`

Pairs are moments of any two episodes. In the first round they are drawn at random, later those of
many pairs are asked on which the members disagree most. Ties and unanswered questions are left out.
Only the answers are learned from: recorded rewards are not looked at.

Deviations: all rounds of questions use the same data, which does not grow; pictures are not
described in words first, instead the question is asked in both orders (`reward.vlm.questions`).

Whole episodes are held out, with a share of the questions, to say how often the reward agrees with
answers about moments that it does not know: two moments of one episode may look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from robot_rl.errors import ConfigError
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.reward.metrics import kendall, mean_known, spearman
from robot_rl.reward.preference.model import PreferenceModel, PreferenceNet
from robot_rl.reward.success.train import Told, true_progress
from robot_rl.spec import Spec
from robot_rl.store.labels import review
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId

FEWEST = 10  # answers of the first round
CANDIDATES = 10  # pairs that are considered for each pair that is asked


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig:
    """How much is asked and learned."""

    pairs: int = 500
    rounds: int = 4
    members: int = 3
    updates: int = 1000  # in all
    batch_size: int = 64
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (128, 128)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    held_out: float = 0.2  # share of episodes and questions, to say how often the reward agrees
    seed: int = 0

    def __post_init__(self) -> None:
        """Check ranges."""
        if min(self.rounds, self.members, self.batch_size) < 1 or self.pairs < 10 * self.rounds:
            raise ValueError("rounds, members, batch_size must be >= 1, pairs >= 10 a round")
        if self.updates < self.rounds or not 0.0 < self.held_out < 1.0:
            raise ValueError("updates must be at least rounds, held_out lie in (0, 1)")


@dataclass(frozen=True, slots=True)
class Reel:
    """One episode.

    observation: entry -> [T, ...]; progress: float64 [T] as the simulator knows it, NaN elsewhere.
    """

    id: EpisodeId
    observation: dict[str, NDArray]
    progress: NDArray[np.float64]


Moment = tuple[Reel, int]
Judge = Callable[[Sequence[tuple[Moment, Moment]]], Sequence[float | None]]
"""For each pair: +1 the second is nearer to the goal, -1 the first, 0 neither, None no answer."""


def reels(store: Store, keys: Sequence[str], told: Told = lambda _d, _t: None) -> Iterator[Reel]:
    """Yield the episodes of a store that nobody has excluded, without those of evaluation."""
    starts = [s for s in store.episodes() if s.purpose != "eval"]
    for done, start in enumerate(starts):
        told(done, len(starts))
        labels = store.labels(start.id)
        frames = sorted(store.frames(start.id), key=lambda f: f.frame)
        if review(labels).excluded or not frames:
            continue
        yield Reel(
            start.id,
            {k: np.stack([f.observation[k] for f in frames]) for k in keys},
            true_progress(labels, [f.frame for f in frames]),
        )
    told(len(starts), max(len(starts), 1))


def truthful(noise: float, seed: int = 0) -> Judge:
    """A judge that knows the simulator's progress, and errs in a share `noise` of the answers."""
    rng = np.random.default_rng(seed)

    def judge(pairs: Sequence[tuple[Moment, Moment]]) -> list[float | None]:
        out: list[float | None] = []
        for (a, s), (b, t) in pairs:
            gain = b.progress[t] - a.progress[s]
            wrong = -1.0 if rng.random() < noise else 1.0
            out.append(None if np.isnan(gain) else float(np.sign(gain)) * wrong)
        return out

    return judge


def learn_preference(
    episodes: Sequence[Reel],
    spec: Spec,
    judge: Judge,
    config: PreferenceConfig,
    *,
    source: Sequence[str] = (),
    told: Told = lambda done, total: None,
) -> PreferenceModel:
    """Ask, learn, ask about what is unclear, and so on; return the model.

    Its figures say how often the reward agrees with answers about episodes that it has not learned
    from.

    Raises:
        ConfigError: fewer than two episodes, or hardly any answers.
    """
    if len(episodes) < 2:
        raise ConfigError(
            "there is nothing to compare",
            expected="at least two episodes",
            got=f"{len(episodes)}",
            fix="give a run with practice or demonstrations in it",
        )
    rng, generator = np.random.default_rng(config.seed), torch.Generator().manual_seed(config.seed)
    net = PreferenceModel.make_net(spec, config.encoder, config.hidden, members=config.members)
    tensors = net.init(generator)
    _standardise(net, tensors, episodes)
    order = rng.permutation(len(episodes))
    count = min(max(1, round(config.held_out * len(episodes))), len(episodes) - 1)
    aside, learned = ([episodes[i] for i in part] for part in (order[:count], order[count:]))
    trained = [tensors[k].requires_grad_() for k in ("encoder", "head") if k in tensors]
    optimizer = torch.optim.Adam(trained, config.learning_rate)
    known: list[tuple[Moment, Moment, float]] = []
    kept: list[tuple[Moment, Moment, float]] = []  # not learned from
    asked = ties = silent = 0
    each, steps = config.pairs // config.rounds, config.updates // config.rounds
    tests = max(1, round(config.held_out * each))
    for turn in range(config.rounds):
        pairs = _pairs(net, tensors, learned, each - tests, rng, clear=turn == 0)
        pairs += _pairs(net, tensors, aside, tests, rng, clear=turn == 0)
        answers = judge(pairs)
        asked += len(pairs)
        silent += sum(y is None for y in answers)
        ties += sum(y == 0.0 for y in answers)
        for part, where in ((slice(-tests), known), (slice(-tests, None), kept)):
            said = zip(pairs[part], answers[part], strict=True)
            where += [(a, b, y) for (a, b), y in said if y]
        if len(known) < FEWEST:
            raise _too_few(len(known), asked, ties, silent)
        for update in range(steps):
            told(turn * steps + update, config.updates)
            drawn = [known[i] for i in rng.integers(len(known), size=config.batch_size)]
            loss = _loss(net, tensors, drawn, config, rng)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    told(config.updates, config.updates)
    tensors = {k: v.detach() for k, v in tensors.items()}
    figures: dict[str, Any] = {"asked": asked, "ties": ties, "silent": silent}
    figures |= {"answers": len(known), "held_out_answers": len(kept), "held_out_episodes": count}
    right = [_gap(net, tensors, [(a, b)]).mean().item() * y > 0 for a, b, y in kept]
    figures["agreement"] = float(np.mean(right)) if right else float("nan")
    model = PreferenceModel(net, tensors, figures, tuple(source), members=config.members)
    return model if not _has_truth(episodes) else _with_truth(model, episodes)


def _too_few(known: int, asked: int, ties: int, silent: int) -> ConfigError:
    return ConfigError(
        "hardly any question got an answer",
        expected="a preference in most of the pairs",
        got=f"{known} preferences in {asked} questions: {ties} ties, {silent} not answered",
        fix="is the goal to be seen in the pictures, and said in --task? Does the server answer? "
        "With --truth: was the run recorded with reward.hold_steps=2, so that it knows the truth?",
    )


def _standardise(net: PreferenceNet, tensors: dict[str, Tensor], episodes: Sequence[Reel]) -> None:
    """Set the scaling of the state, from all of the data."""
    if not net.net.state_size:
        return
    state = torch.cat([net.net.state(e.observation) for e in episodes])
    tensors["mean"] = state.mean(0)
    tensors["scale"] = 1.0 / state.std(0).clamp_min(1e-3)


def _pairs(
    net: PreferenceNet,
    tensors: dict[str, Tensor],
    episodes: Sequence[Reel],
    count: int,
    rng: np.random.Generator,
    *,
    clear: bool,
) -> list[tuple[Moment, Moment]]:
    """Draw `count` pairs; unless `clear`, of ten times as many those with most disagreement."""
    many = count if clear else CANDIDATES * count
    lengths = np.array([len(e.progress) for e in episodes])
    share = lengths / lengths.sum()

    def moments() -> list[Moment]:
        which = rng.choice(len(episodes), many, p=share)
        return [(episodes[i], int(rng.integers(lengths[i]))) for i in which]

    pairs = list(zip(moments(), moments(), strict=True))
    if clear:
        return pairs
    with torch.no_grad():
        spread = torch.cat(
            [_gap(net, tensors, pairs[i : i + 256]).sigmoid().std(0) for i in range(0, many, 256)]
        )
    return [pairs[i] for i in spread.argsort(descending=True)[:count].tolist()]


def _gap(
    net: PreferenceNet, tensors: dict[str, Tensor], pairs: Sequence[tuple[Moment, Moment]]
) -> Tensor:
    """f(b) - f(a) of each member: [E, B]."""
    sides = ([a for a, _ in pairs], [b for _, b in pairs])
    first, second = (
        net.score({k: np.stack([e.observation[k][t] for e, t in side]) for k in net.keys}, tensors)
        for side in sides
    )
    return second - first


def _loss(
    net: PreferenceNet,
    tensors: dict[str, Tensor],
    drawn: Sequence[tuple[Moment, Moment, float]],
    config: PreferenceConfig,
    rng: np.random.Generator,
) -> Tensor:
    """Mean over members, each of which sees its own random half of the batch."""
    y = torch.tensor([y for *_, y in drawn])
    wrong = softplus(-y * _gap(net, tensors, [(a, b) for a, b, _ in drawn]))  # [E, B]
    seen = torch.from_numpy(rng.random((config.members, len(drawn))) < 0.5)
    return (wrong * seen).sum() / seen.sum().clamp_min(1)


def _has_truth(episodes: Sequence[Reel]) -> bool:
    return any(np.isfinite(e.progress).any() for e in episodes)


def _with_truth(model: PreferenceModel, episodes: Sequence[Reel]) -> PreferenceModel:
    """The model with figures against the simulator's progress, which it did not learn from."""
    curves = [(model.curve(e.observation), e.progress) for e in episodes]
    voc, count = mean_known([spearman(c, p) for c, p in curves])
    ends = [(c[-1], p[-1]) for c, p in curves if np.isfinite(p[-1])]
    model.figures.update(voc_truth=voc, voc_truth_episodes=count)
    model.figures["kendall_end"] = kendall(*zip(*ends, strict=True))
    return model
