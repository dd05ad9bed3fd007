"""`robot-rl filter --compatible`: which demonstrations contradict the others, and whose."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import engine, say
from robot_rl.cli.progress import ProgressBar
from robot_rl.config.run_folder import COMPATIBLE, COMPATIBLE_EPISODES
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.system.files import replace_file
from robot_rl.types import EpisodeId

if TYPE_CHECKING:
    from robot_rl.reward.compatible_train import Driven, Judged
    from robot_rl.spec import Spec
    from robot_rl.store.store import Store

HERE = Path()  # as a base: the run itself
SHADES = " .:-=+*#%@"  # of a strip, from light to dark
NEW = "o"  # a step in a state that the base does not know
WIDTH = 40  # characters of an episode's strip
SHOWN = 20  # episodes

Found = tuple[str, dict[EpisodeId, list[int]], dict[str, Any]]
"""Author of the labels, episode -> the steps to leave out, more figures."""


def incompatible(args: argparse.Namespace, store: Store) -> Found:
    """Judge the episodes of a run; print the worst, and a line for each demonstrator."""
    judged = _judged(args, store)
    if not judged and not args.keep:
        raise ConfigError(
            "there is nothing to judge",
            expected="an episode that somebody else drove than those of the base",
            got="only those of the base",
            fix="name another base: --compatible RUN, or --to NAME",
        )
    worst = sorted(judged, key=lambda one: one.mean)
    left_out: dict[EpisodeId, list[int]] = {s.id: [] for s in store.episodes()}  # also the base
    left_out |= {
        one.driven.id: one.driven.steps
        for one in worst
        if one.mean < (one.usual if args.below is None else args.below)
    }
    say(f"each episode: {SHADES[-1]} contradicts the base, {NEW} is where that has not been")
    for one in worst[:SHOWN]:
        say(line(one) + "  left out" * bool(left_out[one.driven.id]))
    people: dict[str, Any] = engine("robot_rl.reward.compatible_train:by_person")(judged)
    for who, row in people.items():
        say(
            f"{who}: {row['episodes']} episodes, compatibility {row['compatible']:.2f}, "
            f"{100 * row['known']:.0f} % of the steps in states that the base knows"
        )
    episodes = [_told(one, bool(left_out[one.driven.id])) for one in worst]
    _keep_figures(args.run, episodes, worst)
    author: Any = engine("robot_rl.reward.compatible_train:AUTHOR")
    return author, left_out, {"episodes": len(episodes), "people": people, "list": episodes}


def _judged(args: argparse.Namespace, store: Store) -> list[Judged]:
    """The episodes of a run but those of the base, each with its compatibility."""
    spec = _spec(store)
    judge, judge_each_other = (_train(name) for name in ("judge", "judge_each_other"))
    with ProgressBar("episodes read") as bar:
        episodes: list[Driven] = list(_train("driven")(store, spec, bar))
    if args.compatible == HERE and not args.to:
        with ProgressBar("ensembles") as bar:
            return judge_each_other(episodes, spec, told=bar)
    kept: Any = engine("robot_rl.reward.compatible:Ensemble")
    known: list[Driven] = []
    if args.compatible != HERE and kept.is_in(args.compatible):
        ensemble = kept.load(args.compatible, spec)
    else:
        known = _base(args, episodes, spec)
        with ProgressBar("updates") as bar:
            source = [str(args.compatible if args.compatible != HERE else args.run)]
            ensemble = _train("learn_ensemble")(known, spec, source=source, told=bar)
    if args.keep:
        ensemble.save(_folder(args.run) / COMPATIBLE)
        say(f"kept in {_folder(args.run) / COMPATIBLE}")
    base = {e.id for e in known}
    return [judge(ensemble, e) for e in episodes if e.id not in base]


def _train(name: str) -> Callable[..., Any]:
    return engine(f"robot_rl.reward.compatible_train:{name}")


def _spec(store: Store) -> Spec:
    """What a store says of its run. Raises `ConfigError`: nothing."""
    if store.spec is None:
        raise ConfigError(
            f"{store.path} does not say what its run observes",
            expected="a store that robot-rl record, train or import wrote",
            got="no spec in it",
            fix="name the run folder, or the store file of a run that has begun",
        )
    return store.spec


def _base(args: argparse.Namespace, episodes: Sequence[Driven], spec: Spec) -> list[Driven]:
    """The demonstrations that others are compared with; episodes: of the run itself.

    Raises:
        ConfigError: another run observes something else, or nobody of that name has driven.
    """
    if args.compatible != HERE:
        with engine("robot_rl.store.dataset:open_store")(args.compatible) as other:
            theirs = _spec(other)
            if theirs.hash != spec.hash:
                raise ConfigError(
                    f"the demonstrations in {args.compatible} cannot be compared with these",
                    expected=f"the observation and action of {args.run}: spec {spec.hash}",
                    got=engine("robot_rl.spec:told_apart")(spec, theirs),
                    fix="record both with the same task settings",
                )
            episodes = list(_train("driven")(other, theirs))
    known = [e for e in episodes if not args.to or e.who == args.to]
    if args.to and not known:
        names = sorted({e.who for e in episodes})
        raise ConfigError(
            f"nobody called '{args.to}' has driven",
            expected=", ".join(names) or "an episode that a person drove",
            got=args.to,
            fix=did_you_mean(args.to, names),
        )
    return known


def line(one: Judged) -> str:
    """One episode: a strip, dark where it contradicts the base, its figure, and who drove."""
    strip = "".join(
        SHADES[round((1.0 - float(one.compatible[t])) * (len(SHADES) - 1))] if one.sure[t] else NEW
        for t in moments(len(one.compatible))
    )
    return f"{framed(one.driven.id, strip)} {one.mean:.2f}  {one.driven.who}"


def moments(steps: int) -> list[int]:
    """The steps that a strip shows."""
    return [i * steps // WIDTH for i in range(min(WIDTH, steps))]


def framed(id_: EpisodeId, strip: str) -> str:
    """An episode's number, and its strip in a frame."""
    return f"episode {id_.episode:<4} |{strip:<{WIDTH}}|"


def _told(one: Judged, left_out: bool) -> dict[str, Any]:
    """The figures of an episode, for other programs."""
    id_ = one.driven.id
    return {
        "run": id_.run,
        "actor": id_.actor,
        "episode": id_.episode,
        "who": one.driven.who,
        "compatible": round(one.mean, 4),
        "below": left_out,
    }


def _folder(run: Path) -> Path:
    """The folder of a run that may be named by its store file."""
    return run.parent if run.is_file() else run


def _keep_figures(run: Path, episodes: list[dict[str, Any]], judged: Sequence[Judged]) -> None:
    """Write what the review page shows; it takes the place of earlier figures."""
    folder = _folder(run) / COMPATIBLE
    folder.mkdir(exist_ok=True)
    told = [
        known | {
            "steps": [
                [step, round(float(value), 3)]
                for step, value in zip(one.driven.steps, one.compatible, strict=True)
            ]
        }
        for known, one in zip(episodes, judged, strict=True)
    ]  # fmt: skip
    replace_file(folder / COMPATIBLE_EPISODES, json.dumps({"episodes": told}) + "\n")
    say(f"robot-rl review {shlex.quote(str(_folder(run)))} shows these figures")
