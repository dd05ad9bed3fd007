"""A run goes on for longer: its budget may change, and nothing else of its configuration.

More demonstrations or longer practice change nothing of what was recorded or learned so far, so a
run that has used up its steps or minutes takes more of them by the same command with other numbers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.config import provenance
from robot_rl.config.run_folder import RUN, config_hash, read_facts
from robot_rl.config.yaml_file import UNFIT, read_yaml, write_yaml
from robot_rl.run.at_work import alone_in
from robot_rl.spec import diff
from robot_rl.system.files import replace_json
from robot_rl.system.made_here import is_made_here, mark_of

log = logging.getLogger(__name__)

BUDGET = ("demos", "max_env_steps", "max_minutes")
"""Keys of section `train` that say how many demonstrations there are, how long practice lasts."""

MAY_CHANGE = {"train": BUDGET, "link": ("host", "port")}
"""What else: where the learner's machine is, which gets a new address now and then."""

NEXT = "next_hash"  # in run.json, of a configuration that is being written


def take_budget(folder: Path, resolved: Mapping[str, Any]) -> bool:
    """Give a run the budget and the address of `resolved`; False when more is different.

    config.yaml and run.json cannot be replaced at once. A process that is killed between them
    leaves a folder for which the same command finishes this.

    Raises:
        ConfigError: another process works in the folder.
    """
    record, digest = read_facts(folder / RUN), config_hash(resolved)
    try:  # the folder may be somebody else's
        saved = read_yaml(folder / "config.yaml")
        new, old = _may_change(resolved), _may_change(saved)
        before = str(record["config_hash"])
        budgets = [*record.get("budgets", ())]
        edited = config_hash(saved) not in (before, record.get(NEXT))
        other = saved | {name: saved[name] | keys for name, keys in new.items()}
        if edited or config_hash(other) != digest:
            return False
    except UNFIT:
        return False
    own = is_made_here(before, record.get("made_here"))
    with alone_in(folder):
        replace_json(folder / RUN, record | {NEXT: digest})
        write_yaml(folder / "config.yaml", resolved)
        budgets.append(old["train"] | {"until": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
        record |= {"config_hash": digest, "made_here": mark_of(digest) if own else ""}
        record |= {"budgets": budgets, "command": provenance.command()}
        replace_json(folder / RUN, {k: v for k, v in record.items() if k != NEXT})
    log.info("the run goes on with %s", ", ".join(diff(old, new)))
    return True


def _may_change(resolved: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: {k: resolved[name][k] for k in keys} for name, keys in MAY_CHANGE.items()}
