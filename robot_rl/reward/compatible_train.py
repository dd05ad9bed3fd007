"""Cloning the networks of `compatible`, and judging the episodes of a run by them.

    loss        mean over a batch of |out_i(s) - a|^2, of each network on a batch of its own
    a           the action, with the gripper's command as three numbers; see `compatible.encoded`

The networks differ in how they begin and in the order of what they see, and so agree where there
are demonstrations only (deep ensembles, arXiv 1612.01474).

Without a base, the episodes of a run judge each other. Each person's are judged by an ensemble of
what all others did; where only one name is known, each fifth of the episodes by one of the rest.
Then the odd ones show, as long as they are few: a way that many episodes share is known ground.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.errors import ConfigError
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.reward.compatible import (
    FAR,
    GRIPPER,
    MEMBERS,
    SCALED_LIMIT,
    SURE,
    USUAL,
    Array,
    Ensemble,
    encoded,
    inputs_of,
    known_mean,
    outputs_of,
)
from robot_rl.reward.success.train import Told, fit
from robot_rl.spec import Spec
from robot_rl.store.labels import DROVE, review, who_drove
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId

AUTHOR = "compatible"  # of the labels
STD_FLOOR = 1e-3  # of a number of the state that hardly moves
FEWEST = 3  # episodes of a base
TINY = 1e-6  # where a script repeats itself to the bit


def unheard(_done: int, _total: int) -> None:
    """A `Told` that tells nobody."""


@dataclass(frozen=True, kw_only=True)
class CompatibleConfig:
    """How the networks are cloned."""

    hidden: tuple[int, ...] = (64, 64)
    updates: int = 1000
    batch_size: int = 128  # of each network
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    held_out: float = 0.2  # share of the episodes
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Check ranges."""
        if min(self.updates, self.batch_size, self.folds - 1, len(self.hidden)) < 1:
            raise ValueError("updates, batch_size, layers must be at least 1, folds at least 2")
        if not 0.0 < self.held_out < 1.0 or self.learning_rate <= 0.0:
            raise ValueError("held_out must lie in (0, 1), learning_rate be positive")


@dataclass(frozen=True, slots=True)
class Driven:
    """The steps of an episode that people drove, as far as they are learned from.

    who: the person who drove most of it, as the console saw it; where it saw nobody, the run in
    which the episode was recorded. steps: their numbers; state [T, S]; action [T, A].
    """

    id: EpisodeId
    who: str
    steps: list[int]
    state: Array
    action: Array


@dataclass(frozen=True, slots=True)
class Judged:
    """An episode, the compatibility [T] of its steps, and where the ensemble was sure.

    usual: what episodes of the base reach; see `compatible`.
    """

    driven: Driven
    compatible: Array
    sure: NDArray[np.bool_]
    usual: float

    @property
    def mean(self) -> float:
        """Compatibility of the episode."""
        return known_mean(self.compatible, self.sure)


def driven(store: Store, spec: Spec, told: Told = unheard) -> Iterator[Driven]:
    """Yield what people drove in each episode that training would learn from.

    Left out are evaluation, what ended without a result, and what was excluded, trimmed or left out
    by anybody but `AUTHOR`: judging again judges the same steps.

    Raises:
        ConfigError: the run has cameras.
    """
    keys = tuple(inputs_of(spec))
    starts = [s for s in store.episodes() if s.purpose != "eval"]
    drove = who_drove(store.all_labels((DROVE,)))
    for done, start in enumerate(starts):
        told(done, len(starts))
        if store.ending(start.id) not in (Ending.TERMINATED, Ending.TRUNCATED):
            continue
        said = review(x for x in store.labels(start.id) if x.author != AUTHOR)
        frames = {f.frame: f.observation for f in store.frames(start.id)}
        steps = [
            s
            for s in store.steps(start.id)
            if s.driver.is_human
            and s.frame in frames
            and said.keeps(s.step)
            and s.step not in said.left_out
        ]
        if not steps:
            continue
        people = drove.get(start.id, {})
        seen = [np.concatenate([frames[s.frame][k].ravel() for k in keys]) for s in steps]
        yield Driven(
            start.id,
            max(people, key=lambda who: people[who]) if people else start.id.run,
            [s.step for s in steps],
            np.stack(seen),
            np.stack([s.action for s in steps]),
        )
    told(len(starts), max(len(starts), 1))


def learn_ensemble(
    episodes: Sequence[Driven],
    spec: Spec,
    config: CompatibleConfig | None = None,
    *,
    source: Sequence[str] = (),
    told: Told = unheard,
) -> Ensemble:
    """Clone the networks from most of the episodes; the others say what is sure, and what is far.

    Raises:
        ConfigError: the run has cameras, or there are too few episodes.
    """
    config = config or CompatibleConfig()
    if len(episodes) < FEWEST:
        raise ConfigError(
            "too few demonstrations to compare others with",
            expected=f"at least {FEWEST} episodes that people drove, better 10",
            got=str(len(episodes)),
            fix="record more of them: robot-rl record, with the run_dir of the base",
        )
    rng, generator = np.random.default_rng(config.seed), torch.Generator()
    generator.manual_seed(config.seed)
    held = max(1, round(config.held_out * len(episodes)))
    order = rng.permutation(len(episodes))
    known, left = ([episodes[i] for i in some] for some in (order[held:], order[:held]))
    state, action = _steps(known)
    mean, scale = state.mean(0), 1.0 / np.maximum(state.std(0), STD_FLOOR)
    seen = torch.from_numpy(np.clip((state - mean) * scale, -SCALED_LIMIT, SCALED_LIMIT))
    wanted = torch.from_numpy(encoded(action, spec.action.gripper))
    net = EnsembleMLP(MEMBERS, (state.shape[1], *config.hidden, outputs_of(spec)))
    members = net.init(generator, last_scale=0.1)

    def loss() -> Tensor:
        drawn = torch.from_numpy(rng.integers(0, len(seen), (MEMBERS, config.batch_size)))
        out = net(seen[drawn], members)
        if spec.action.gripper:
            chances = torch.softmax(out[..., -GRIPPER:], -1) / 2**0.5
            out = torch.cat((torch.tanh(out[..., :-GRIPPER]), chances), -1)
        else:
            out = torch.tanh(out)
        return (out - wanted[drawn]).square().sum(-1).mean(1).sum()

    fit([members], loss, config, told)
    tensors = {"members": members.detach().numpy(), "mean": mean, "scale": scale}
    hidden, gripper = tuple(config.hidden), spec.action.gripper
    made = Ensemble(inputs_of(spec), hidden, gripper, tensors, 1.0, 1.0, 1.0, tuple(source))
    spread, distance = made.measure(*_steps(left))
    eta = float(np.quantile(spread, SURE))
    far = float(np.quantile(distance[spread <= eta], FAR))
    made = replace(made, eta=max(eta, TINY), far=max(far, TINY))
    theirs = [known_mean(*made.judge(e.state, e.action)) for e in left]
    return replace(made, usual=float(np.quantile(theirs, USUAL)))


def _steps(episodes: Sequence[Driven]) -> tuple[Array, Array]:
    """States and actions of all their steps."""
    return np.concatenate([e.state for e in episodes]), np.concatenate([e.action for e in episodes])


def judge(ensemble: Ensemble, episode: Driven) -> Judged:
    """How compatible the steps of an episode are."""
    return Judged(episode, *ensemble.judge(episode.state, episode.action), ensemble.usual)


def judge_each_other(
    episodes: Sequence[Driven],
    spec: Spec,
    config: CompatibleConfig | None = None,
    told: Told = unheard,
) -> list[Judged]:
    """Judge episodes by an ensemble of the others; in the order of `episodes`.

    Raises:
        ConfigError: see `learn_ensemble`.
    """
    config = config or CompatibleConfig()
    folds = _folds(episodes, config)
    found: dict[int, Judged] = {}
    for done, fold in enumerate(folds):
        told(done, len(folds))
        ensemble = learn_ensemble(
            [e for i, e in enumerate(episodes) if i not in fold], spec, config
        )
        found |= {i: judge(ensemble, episodes[i]) for i in fold}
    told(len(folds), len(folds))
    return [found[i] for i in range(len(episodes))]


def _folds(episodes: Sequence[Driven], config: CompatibleConfig) -> list[set[int]]:
    """The numbers of the episodes that are judged by an ensemble of the others: by person, or not.

    A person's own episodes must not judge them: they know that person's way.
    """
    people = sorted({e.who for e in episodes})
    if len(people) > 1:
        return [{i for i, e in enumerate(episodes) if e.who == who} for who in people]
    order = np.random.default_rng(config.seed).permutation(len(episodes))
    return [set(order[fold :: config.folds].tolist()) for fold in range(config.folds)]


def by_person(judged: Iterable[Judged]) -> dict[str, dict[str, float]]:
    """Demonstrator -> episodes, steps, compatibility of the steps, share of them that is known."""
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        groups.setdefault(one.driven.who, []).append(one)
    return {
        who: {
            "episodes": len(some),
            "steps": sum(len(x.compatible) for x in some),
            "compatible": known_mean(*_all(some)),
            "known": float(_all(some)[1].mean()),
        }
        for who, some in sorted(groups.items())
    }


def _all(some: Sequence[Judged]) -> tuple[Array, NDArray[np.bool_]]:
    """Compatibility of all their steps, and where the ensemble was sure."""
    return np.concatenate([x.compatible for x in some]), np.concatenate([x.sure for x in some])
