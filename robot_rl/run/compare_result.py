"""What a comparison has come to: who drove is told now, and the figures of each policy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.config.run_folder import COMPARISON, run_name
from robot_rl.control.session import ACTOR
from robot_rl.control.statistics import holm, mcnemar, paired_difference, wilson
from robot_rl.errors import RobotRLError
from robot_rl.report.comparison import write_page
from robot_rl.report.tally import Ledger
from robot_rl.run.compare import rounds_of
from robot_rl.run.deploy import read_plan
from robot_rl.run.sealed import commitment_of, order_of, sealed_secret
from robot_rl.store.cycles import Cycle
from robot_rl.system.files import replace_json


def result_of(folder: Path) -> dict[str, Any]:
    """Open the seal, write comparison.json and comparison.html; returns the figures.

    Raises:
        RobotRLError: the comparison has not ended.
        ConfigError: the secret is not the one that was drawn.
    """
    plan = read_plan(folder)
    secret, runs = sealed_secret(folder), list(plan["runs"])
    ledger = Ledger(folder, run_name(folder), ACTOR)
    found = rounds_of(ledger.cycles())
    wanted = plan["episodes"] * len(runs)
    if len(found) < wanted:
        raise RobotRLError(
            "the comparison was stopped before its end: nobody is told who drove",
            expected=f"{wanted} episodes",
            got=f"{len(found)}",
            fix="give the same command again: it goes on where it stopped",
        )
    starts = range(plan["episodes"])
    orders = [order_of(secret, start, len(runs)) for start in starts]
    by_policy: list[list[Cycle]] = [[] for _ in runs]
    for start, order in zip(starts, orders, strict=True):
        for slot, policy in enumerate(order):
            by_policy[policy].append(found[start, slot])
    result = {
        "runs": runs,
        "starts": plan["episodes"],
        "policies": [_figures(run, of) for run, of in zip(runs, by_policy, strict=True)],
        "pairs": _pairs(by_policy),
        "commitment": plan["commitment"],
        "secret": secret,
        "commitment_holds": commitment_of(secret) == plan["commitment"],
        "orders": orders,
        "outcomes": [[bool(of[i].success) for of in by_policy] for i in starts],
    }
    replace_json(folder / COMPARISON, result)
    write_page(folder, result)
    return result


def _figures(run: str, cycles: Sequence[Cycle]) -> dict[str, Any]:
    wins = sum(bool(c.success) for c in cycles)
    low, high = wilson(wins, len(cycles))
    times = [c.lasted_s for c in cycles if c.success]
    return {
        "run": run,
        "episodes": len(cycles),
        "successes": wins,
        "success": wins / len(cycles),
        "wilson_low": low,
        "wilson_high": high,
        "cycle_time_s_median": float(np.median(times)) if times else None,
        "cycle_time_s_p90": float(np.percentile(times, 90)) if times else None,
    }


def _pairs(by_policy: Sequence[Sequence[Cycle]]) -> list[dict[str, Any]]:
    """Each two policies: difference of success with its interval, exact p-value.

    With more than two policies the p-values are also adjusted for the number of pairs (Holm).
    """
    found: list[dict[str, Any]] = []
    for first, second in itertools.combinations(range(len(by_policy)), 2):
        counts = {(a, b): 0 for a in (True, False) for b in (True, False)}
        for one, other in zip(by_policy[first], by_policy[second], strict=True):
            counts[bool(one.success), bool(other.success)] += 1
        both, only_first = counts[True, True], counts[True, False]
        only_second, neither = counts[False, True], counts[False, False]
        difference, low, high = paired_difference(both, only_first, only_second, neither)
        found.append(
            {
                "first": first,
                "second": second,
                "both": both,
                "only_first": only_first,
                "only_second": only_second,
                "neither": neither,
                "difference": difference,
                "low": low,
                "high": high,
                "p_value": mcnemar(only_first, only_second),
            }
        )
    adjusted = holm([pair["p_value"] for pair in found])
    return [pair | {"p_holm": p} for pair, p in zip(found, adjusted, strict=True)]


def in_words(result: Mapping[str, Any]) -> str:
    """The figures as text for a terminal."""
    names = [chr(ord("A") + i) for i in range(len(result["policies"]))]
    lines = []
    for name, policy in zip(names, result["policies"], strict=True):
        low, high = 100 * policy["wilson_low"], 100 * policy["wilson_high"]
        line = f"{name}  {policy['successes']}/{policy['episodes']} succeed (95 % interval "
        line += f"{low:.0f} to {high:.0f} %)"
        cycle = policy["cycle_time_s_median"]
        lines.append(line + (f", {cycle:.1f} s per cycle" if cycle else "") + f"  {policy['run']}")
    for pair in result["pairs"]:
        first, second = names[pair["first"]], names[pair["second"]]
        text = f"{first} - {second}: {100 * pair['difference']:+.0f} points (95 % interval "
        text += f"{100 * pair['low']:+.0f} to {100 * pair['high']:+.0f}), p = {pair['p_value']:.3g}"
        if len(result["pairs"]) > 1:
            text += f" (Holm: {pair['p_holm']:.3g})"
        lines.append(text)
    lines.append(f"the order was drawn beforehand: SHA-256 {result['commitment'][:16]}... fits")
    return "\n".join(lines)
