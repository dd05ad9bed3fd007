"""`robot-rl study`: the same task learned with parts of the method left out, several seeds each.

Makes the ablation table of docs/results.md. Every variant gets the same demonstrations (same seed,
same starts), the same budget and the same evaluation; runs are separate processes, so that a crash
or a kill costs one run and the rest of the table stands.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.config.run_folder import EVALUATION, read_facts
from robot_rl.control.statistics import over_seeds
from robot_rl.errors import ConfigError
from robot_rl.report.curves import learning_curve, picture
from robot_rl.run.experiment import Experiment, saved_hash
from robot_rl.run.jobs import Job, Jobs, LocalJobs

log = logging.getLogger(__name__)
TRAIN = (sys.executable, "-P", "-m", "robot_rl.cli.main", "train")


@dataclass(frozen=True, slots=True)
class Variant:
    """One line of the table: its name, and how it differs from the experiment.

    overrides: what makes it this variant; nothing overrules them. In them, {dataset} is the folder
    that the study was given, {before} the folder of the run of variant `before` with the same seed,
    which has to end first. defaults: values that suit it; the study's overrides may change them.
    """

    name: str
    overrides: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    before: str = ""


SMALL = (  # hil_serl_state's networks and horizon, for algorithms with a file of their own
    "algo.hidden=[128,128]",
    "algo.batch_size=128",
    "algo.gamma=0.95",
    "algo.value_range=[0,1]",
    "algo.std_init=0.3",
    "algo.target_entropy_per_dim=-1.5",
)
OFFLINE = (
    "train.dataset={dataset}",
    "train.demos=0",
    "train.max_env_steps=0",
)
DATA = ("train.dataset={dataset}", "train.demos=0", "operator.intervene=false")
LONG = ("learner.pretrain_updates=20000",)
ONLINE = (  # goes on with plain SAC, without the data and without a person
    "algo=sac",
    "learner.init_from={before}",
    "train.demos=0",
    "operator.intervene=false",
)
WARM_UP = "learner.min_steps=2000"  # env steps in which the policy fills the replay


FIRST_PORT = 20_000  # of runs with several actors


ON_BASE = (  # what is learned on the base policy in the folder that the study was given
    "base=flow",
    "base.run={dataset}",
    *DATA,
    "learner.utd=4",
)


VARIANTS = {
    "full": Variant("demonstrations + interventions (ours)"),
    "compiled": Variant("the same with torch.compile", ("learner.compile=true",)),
    "one_arm": Variant("one arm at 10 Hz", ("actors=1", "pace_hz=10")),
    "two_arms": Variant("two arms on one learner at 10 Hz", ("actors=2", "pace_hz=10")),
    "no_interventions": Variant("RL without interventions", ("operator.intervene=false",)),
    "no_demos": Variant("RL without demonstrations", ("train.demos=0",)),
    "neither": Variant("RL without either", ("train.demos=0", "operator.intervene=false")),
    "bc": Variant(
        "behaviour cloning, same demonstrations",
        ("algo=bc", "train.max_env_steps=0"),
        ("algo.hidden=[128,128]", *LONG),
    ),
    "hg_dagger": Variant(
        "HG-DAgger, cloning corrections as they come in",
        ("algo=hg_dagger",),
        ("algo.hidden=[128,128]", "learner.pretrain_updates=5000"),
    ),
    "rlif": Variant(
        "RLIF, learning from when the person takes over",
        ("algo=rlif",),
        (
            *SMALL,
            "algo.policy_tau=0.002",
            "algo.value_range=[-20,0]",  # from "always taken over" to "never"
        ),
    ),
    "bc_data": Variant("cloning the data", ("algo=bc", *OFFLINE), ("algo.hidden=[128,128]", *LONG)),
    "iql": Variant("IQL, offline", ("algo=iql", *OFFLINE), (*SMALL, *LONG)),
    "calql": Variant(
        "Cal-QL, offline",
        ("algo=calql", *OFFLINE),
        (*SMALL, "algo.conservative_weight=0.05", *LONG),
    ),
    "iql_wsrl": Variant("IQL, then WSRL", ONLINE, (*SMALL, WARM_UP), before="iql"),
    "calql_wsrl": Variant("Cal-QL, then WSRL", ONLINE, (*SMALL, WARM_UP), before="calql"),
    "calql_sac": Variant("Cal-QL, then SAC without a warm-up", ONLINE, SMALL, before="calql"),
    "base": Variant(
        "the base", ("algo=dsrl", *ON_BASE, "train.max_env_steps=0", "learner.pretrain_updates=0")
    ),
    "resfit": Variant("ResFiT: correct each action", ("algo=resfit", *ON_BASE)),
    "policy_decorator": Variant(
        "Policy Decorator: correct its plan",
        ("algo=policy_decorator", *ON_BASE, "base.ahead=4"),
    ),
    "dsrl": Variant("DSRL: choose its noise", ("algo=dsrl", *ON_BASE)),
    "zprl": Variant("ZPRL: shift its code", ("algo=zprl", *ON_BASE)),
    "qc": Variant("Q-chunking: best of 8 samples", ("algo=qc", *ON_BASE)),
    "pa_rl": Variant(
        "PA-RL: pick, improve, teach it",
        ("algo=pa_rl", *ON_BASE, "learner.utd=2"),
        ("learner.pretrain_updates=3000",),
    ),
    "expo": Variant("EXPO: pick among samples and edits", ("algo=expo", *ON_BASE)),
    "rlpd_data": Variant("RLPD from scratch, same demonstrations", DATA),
    "filtered_bc": Variant(
        "filtered BC: clone its successes",
        ("algo=bc_flow", *DATA, "algo.own_successes=true", "learner.init_from={dataset}"),
    ),
}
"""Variants on a base take the run that made the base as --dataset. RLIF and HG-DAgger differ most
when the person is poor: give `operator.skill` with them."""

ABLATION = ("full", "no_interventions", "no_demos", "neither", "bc")
"""HIL-SERL's own (arXiv 2410.21845, table 1): demonstrations, interventions, cloning."""


def _own_port(name: str, seed: int) -> int:
    """A port of the link for each run with several actors: they run beside each other."""
    return FIRST_PORT + 50 * list(VARIANTS).index(name) + seed % 50


def command(
    name: str, task: str, seed: int, *, folder: Path, extra: Sequence[str], dataset: str = ""
) -> list[str]:
    """The command line of one run; who prints it can reproduce the row."""
    variant, run_dir = VARIANTS[name], run_folder(folder, name, seed)
    before = run_folder(folder, variant.before, seed)
    own = [word.format(dataset=dataset, before=before) for word in variant.overrides]
    words = [f"experiment={task}", *variant.defaults, *extra, *own]
    words += ["runtime=lockstep", f"seed={seed}"]
    if any(word.startswith("actors=") for word in own):
        words.append(f"link.port={_own_port(name, seed)}")
    return [*TRAIN, *words, f"run_dir={run_dir}"]


def run_folder(folder: Path, name: str, seed: int) -> Path:
    """Where one run of a study lies."""
    return folder / f"{name}-s{seed}"


def is_done(folder: Path, name: str, seed: int) -> bool:
    """Whether that run has been evaluated."""
    return (run_folder(folder, name, seed) / EVALUATION).is_file()


def _refuse_other_settings(run_dir: Path, words: Sequence[str]) -> None:
    """Raise `ConfigError` when a finished run had other settings than `words`: no row mixes two."""
    had = saved_hash(run_dir)
    if not had:
        return
    wanted = Experiment.compose(words).hash
    if had != wanted:
        raise ConfigError(
            f"{run_dir} was made with other settings, or by another version",
            expected=f"config hash {wanted}, of: {' '.join(words)}",
            got=had,
            fix="choose another --folder, or remove that run",
        )


def with_predecessors(names: Sequence[str]) -> list[str]:
    """`names` with what they continue from, each once, predecessors first."""
    ordered: list[str] = []
    for name in names:
        ordered += [n for n in (VARIANTS[name].before, name) if n and n not in ordered]
    return ordered


def study(
    task: str,
    *,
    names: Sequence[str],
    seeds: int,
    folder: Path,
    jobs: int = 1,
    extra: Sequence[str] = (),
    dataset: str = "",
    progress: Callable[[str], None] = lambda _line: None,
    where: Jobs | None = None,
) -> dict[str, Any]:
    """Run what is missing in `folder`, then summarise everything in it.

    A run whose eval.json exists is not run again; one whose predecessor failed is left out.
    where: who runs them, `jobs` at once; None = this machine.
    Returns variant -> figures; see `summarise`.

    Raises:
        ConfigError: a variant learns from recorded data, and no dataset is given.
    """
    names = with_predecessors(names)
    if not dataset and any("{dataset}" in " ".join(VARIANTS[n].overrides) for n in names):
        raise ConfigError(
            "this study learns from recorded data, and there is none",
            expected="--dataset RUN, a run folder",
            got="no --dataset",
            fix=f"robot-rl record experiment={task} operator.skill=0.5 run_dir=RUN makes one",
        )
    todo = []
    for seed, name in product(range(seeds), names):
        if is_done(folder, name, seed):
            words = command(name, task, seed, folder=folder, extra=extra, dataset=dataset)
            _refuse_other_settings(run_folder(folder, name, seed), words[len(TRAIN) :])
        else:
            todo.append((name, seed))
    where = where or LocalJobs(jobs)
    running: list[tuple[Job, str, int, float]] = []
    folder.mkdir(parents=True, exist_ok=True)

    def ready(name: str, seed: int) -> bool:
        before = VARIANTS[name].before
        ended = all(entry[1:3] != (before, seed) for entry in running)  # it writes after eval.json
        return not before or (ended and is_done(folder, before, seed))

    while todo or running:
        while len(running) < jobs and (now := next((t for t in todo if ready(*t)), None)):
            todo.remove(now)
            name, seed = now
            run_dir = run_folder(folder, name, seed)
            words = command(name, task, seed, folder=folder, extra=extra, dataset=dataset)
            process = where.start(words, run_dir, _needs(name, seed, folder, dataset))
            running.append((process, name, seed, time.monotonic()))
            progress(f"started {run_dir.name}")
        if not running:
            progress(
                "left out, their predecessor failed: " + ", ".join(f"{n}-s{s}" for n, s in todo)
            )
            break
        time.sleep(0.5)
        for entry in list(running):
            process, name, seed, began_s = entry
            if (code := process.poll()) is None:
                continue
            running.remove(entry)
            minutes = (time.monotonic() - began_s) / 60
            progress(f"{name}-s{seed}: exit {code} after {minutes:.1f} min")
    return {name: summarise(name, seeds, folder) for name in names}


def _needs(name: str, seed: int, folder: Path, dataset: str) -> list[Path]:
    """Folders that a run reads."""
    variant = VARIANTS[name]
    given = "{dataset}" in " ".join(variant.overrides)
    before = [run_folder(folder, variant.before, seed)] if variant.before else []
    return [*([Path(dataset)] if given else []), *before]


def summarise(name: str, seeds: int, folder: Path) -> dict[str, Any]:
    """Mean success of a variant's seeds with its interval over seeds, and the cost of each seed."""
    results = [
        read_facts(run_folder(folder, name, seed) / EVALUATION)
        for seed in range(seeds)
        if is_done(folder, name, seed)
    ]
    parts = [r["deterministic"] for r in results]
    wins, episodes = [p["successes"] for p in parts], [p["episodes"] for p in parts]
    low, high = over_seeds(wins, episodes)
    cycles = [p["cycle_time_s_mean"] for p in parts if p["cycle_time_s_mean"]]
    jerks = [p["action_jerk"] for p in parts if p.get("action_jerk") is not None]
    return {
        "name": VARIANTS[name].name,
        "seeds": len(results),
        "successes": wins,
        "episodes": sum(episodes),
        "success": sum(wins) / max(sum(episodes), 1),
        "low": low,
        "high": high,
        "stochastic": [r["stochastic"]["success"] for r in results],
        "cycle_time_s": float(np.mean(cycles)) if cycles else None,
        "action_jerk": float(np.mean(jerks)) if jerks else None,
        "env_steps": [r["env_steps"] for r in results],
        "human_steps": [r["human_steps"] for r in results],
        "minutes": [round(r["train_s"] / 60, 1) for r in results],
    }


def draw(task: str, names: Sequence[str], seeds: int, folder: Path) -> str:
    """The learning curves of those variants that practised, as SVG."""
    runs = {
        name: [
            run_folder(folder, name, seed) for seed in range(seeds) if is_done(folder, name, seed)
        ]
        for name in names
    }
    curves = {
        VARIANTS[name].name: curve
        for name, folders in runs.items()
        if (curve := learning_curve(folders))
    }
    title = (
        f"{task}: share of the newest practice episodes that succeed without help, 95 % over seeds"
    )
    return picture(curves, title)


def as_markdown(figures: dict[str, dict[str, Any]]) -> str:
    """The table of docs/results.md."""
    lines = [
        "| variant | success (95 % over seeds) | per seed | stochastic | cycle s | jerk "
        "| env steps | human steps | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in figures.values():
        interval = f"{100 * row['low']:.1f}-{100 * row['high']:.1f}"
        cycle = f"{row['cycle_time_s']:.1f}" if row["cycle_time_s"] else "-"
        jerk = f"{row['action_jerk']:.2f}" if row["action_jerk"] is not None else "-"
        stochastic = ", ".join(f"{100 * v:.0f}" for v in row["stochastic"])
        lines.append(
            f"| {row['name']} | {100 * row['success']:.1f} % ({interval}) "
            f"| {_list(row['successes'])} | {stochastic} % | {cycle} | {jerk} "
            f"| {_list(row['env_steps'])} | {_list(row['human_steps'])} "
            f"| {_list(row['minutes'])} |"
        )
    return "\n".join(lines)


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{v:g}" for v in values)
