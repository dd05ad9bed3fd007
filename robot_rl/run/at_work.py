"""Which process works in a run folder, for who looks on: `train.process.json`, one for each verb.

A process is named as `system.presence` does it, so that nobody ever takes another for it. How it
ended is written when it ends by itself; a file that says nothing of an end, of a process that is
gone, was left by one that was killed.

Whoever records or drives is alone in the folder: two of them would record the same episodes, and
one graph would speak with the other's robot. The kernel keeps the lock, and ends it with the
process. An evaluation reads what is there, also while the run learns.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import AT_WORK, read_facts
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.system.files import replace_json
from robot_rl.system.presence import own_process, runs_still

log = logging.getLogger(__name__)

VERBS = ("train", "record", "deploy", "eval")
DONE, STOPPED = "done", "stopped"  # how it ended; anything else is the error
MAX_ERROR = 500  # characters

_held: set[Path] = set()  # by this process: a verb may be part of another one


@contextlib.contextmanager
def at_work(run_dir: Path, verb: str) -> Iterator[None]:
    """Say that this process works in an existing run folder, and at the end how that went.

    Raises:
        ConfigError: another process records or drives there; as `alone_in`.
    """
    alone = contextlib.nullcontext() if verb == "eval" else alone_in(run_dir)
    with alone, _told(run_dir, verb):
        yield


@contextlib.contextmanager
def alone_in(run_dir: Path) -> Iterator[None]:
    """Keep other processes that record or drive out of a run folder.

    Raises:
        ConfigError: there is one.
    """
    if (place := run_dir.resolve()) in _held:
        yield
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another process works in {run_dir}",
                expected="one at a time that records or drives",
                got=_who(run_dir),
                fix="wait for it, end it with Ctrl-C in its terminal, or choose another folder",
            ) from error
        except OSError as error:
            log.warning("nobody is kept out of %s: no locks on its file system: %s", run_dir, error)
        _held.add(place)
        yield
    finally:
        _held.discard(place)
        os.close(descriptor)


def somebody_works_in(run_dir: Path) -> bool:
    """Whether a process is seen to record or drive in an existing run folder."""
    if run_dir.resolve() in _held:
        return True
    try:
        with alone_in(run_dir):
            return False
    except ConfigError:
        return True


def _who(run_dir: Path) -> str:
    """The process that works there, as far as the folder tells."""
    for verb in VERBS:
        try:
            told = read_facts(run_dir / f"{verb}{AT_WORK}")
            process, began_s = str(told["process"]), float(told["began_s"])
        except (ConfigError, ValueError, KeyError, TypeError):
            continue
        if "ended" not in told and runs_still(process):
            since = time.strftime("%H:%M", time.localtime(began_s))
            return f"robot-rl {verb}, process {process.split()[2]}, since {since}"
    return "one that does not say its name, such as robot-rl up"


@contextlib.contextmanager
def _told(run_dir: Path, verb: str) -> Iterator[None]:
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
