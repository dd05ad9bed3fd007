"""Which process works in a run folder, for who looks on: `train.process.json`, one for each verb.

A process is named as `system.presence` does it, so that nobody ever takes another for it. How it
ended is written when it ends by itself; a file that says nothing of an end, of a process that is
gone, was left by one that was killed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import AT_WORK
from robot_rl.errors import RobotRLError
from robot_rl.system.files import replace_json
from robot_rl.system.presence import own_process

log = logging.getLogger(__name__)

VERBS = ("train", "record", "deploy", "eval")
DONE, STOPPED = "done", "stopped"  # how it ended; anything else is the error
MAX_ERROR = 500  # characters


@contextmanager
def at_work(run_dir: Path, verb: str) -> Iterator[None]:
    """Say that this process works in an existing run folder, and at the end how that went."""
    told: dict[str, Any] = {"process": own_process(), "began_s": time.time()}
    path = run_dir / f"{verb}{AT_WORK}"
    _write(path, told)
    ended = DONE
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        ended = STOPPED
        raise
    except RobotRLError as error:
        ended = str(error)[:MAX_ERROR]
        raise
    except BaseException as error:
        ended = f"{type(error).__name__}: {error}"[:MAX_ERROR]
        raise
    finally:
        _write(path, told | {"ended": ended, "ended_s": time.time()})


def _write(path: Path, told: dict[str, Any]) -> None:
    """A full disk costs what others know of this process, never its work."""
    try:
        replace_json(path, told)
    except OSError as error:
        log.warning("who works in the run folder is not written: %s", error)
