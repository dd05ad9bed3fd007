"""A run that pauses: the episode that runs ends, and no other begins until somebody ends the pause.

A file in the run folder says so, to whatever works there: in lockstep, over ROS 2, and on each of
several arms. The arm stands still meanwhile, and the learner goes on with what it has.
"""

from __future__ import annotations

import time
from pathlib import Path

from robot_rl.config.run_folder import PAUSED, PLAN
from robot_rl.errors import ConfigError
from robot_rl.system.files import replace_json


def pause(run_dir: Path) -> None:
    """Let no further episode begin.

    Raises:
        ConfigError: it is the folder of a deployment or a comparison, which does not wait.
        OSError: the folder cannot be written.
    """
    if (run_dir / PLAN).is_file():
        raise ConfigError(
            f"what works in {run_dir} cannot be paused",
            expected="a run that is trained or recorded",
            got="a deployment or a comparison",
            fix="Ctrl-C in its terminal ends it, and the same command goes on",
        )
    replace_json(run_dir / PAUSED, {"since_s": time.time()})


def end_pause(run_dir: Path) -> bool:
    """Let episodes begin again; returns whether the run was paused."""
    was_paused = is_paused(run_dir)
    (run_dir / PAUSED).unlink(missing_ok=True)
    return was_paused


def is_paused(run_dir: Path) -> bool:
    """Whether no episode is to begin."""
    return (run_dir / PAUSED).exists()
