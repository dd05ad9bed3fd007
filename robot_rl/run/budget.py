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
from robot_rl.system.files import replace_json
from robot_rl.system.made_here import is_made_here, mark_of

log = logging.getLogger(__name__)

BUDGET = ("demos", "max_env_steps", "max_minutes")
"""Keys of section `train` that say how many demonstrations there are, how long practice lasts."""

NEXT = "next_hash"  # in run.json, of a configuration that is being written


def take_budget(folder: Path, resolved: Mapping[str, Any]) -> bool:
    """Give the run in a folder the budget of `resolved`; False when more than that is different.

    config.yaml and run.json cannot be replaced at once. A process that is killed between them
    leaves a folder for which the same command finishes this.
    """
    record, digest = read_facts(folder / RUN), config_hash(resolved)
    new = {k: resolved["train"][k] for k in BUDGET}
    try:  # the folder may be somebody else's
        saved = read_yaml(folder / "config.yaml")
        old, before = {k: saved["train"][k] for k in BUDGET}, str(record["config_hash"])
        budgets = [*record.get("budgets", ())]
        edited = config_hash(saved) not in (before, record.get(NEXT))
        if edited or config_hash(saved | {"train": saved["train"] | new}) != digest:
            return False
    except UNFIT:
        return False
    own = is_made_here(before, record.get("made_here"))
    replace_json(folder / RUN, record | {NEXT: digest})
    write_yaml(folder / "config.yaml", resolved)
    budgets.append(old | {"until": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
    record |= {"config_hash": digest, "made_here": mark_of(digest) if own else ""}
    record |= {"budgets": budgets, "command": provenance.command()}
    replace_json(folder / RUN, {k: v for k, v in record.items() if k != NEXT})
    changed = [f"train.{k} {old[k]} -> {new[k]}" for k in BUDGET if old[k] != new[k]]
    log.info("the run goes on with another budget: %s", ", ".join(changed))
    return True
