"""Command lines that the studio has started. They outlive it; a studio that starts finds them.

Each has a file of facts and a log in `FOLDER/.studio`. Which process it is stands there as
`system.presence` names it, so that a signal reaches that process or nobody.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import read_facts
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.studio.commands import PROGRAM, shown
from robot_rl.system.files import replace_json
from robot_rl.system.presence import Presence, process_of, runs_still

log = logging.getLogger(__name__)

FOLDER = ".studio"
MAX_AT_ONCE = 8  # jobs that run beside each other: a laptop is soon full
KEPT = 300  # files of jobs that have ended; older ones are removed
TAIL = 16 << 10  # bytes of a log that are read for its last lines


@dataclass(frozen=True, kw_only=True)
class Job:
    """One command line. run: name of its run; code: None = it runs, or nobody saw how it ended."""

    id: str
    verb: str
    run: str
    words: tuple[str, ...]
    process: str
    began_s: float
    code: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process still runs."""
        return self.code is None and bool(runs_still(self.process))


class Jobs:
    """Starts jobs, keeps their logs, and finishes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER
        self._lock = threading.Lock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._jobs: dict[str, Job] = {}
        for path in sorted(self.folder.glob("*.json")):
            with suppress(RobotRLError, TypeError):
                facts = read_facts(path)
                job = Job(**{**facts, "words": tuple(facts.get("words", ()))})
                self._jobs[job.id] = job

    def all(self) -> list[Job]:
        """Every job that is known, oldest first; those that ended are noticed here."""
        with self._lock:
            for id_, child in list(self._children.items()):
                if (code := child.poll()) is not None:
                    del self._children[id_]
                    self._keep(Job(**{**asdict(self._jobs[id_]), "code": code}))
            return list(self._jobs.values())

    def of(self, run: str) -> list[Job]:
        """The jobs of a run, oldest first."""
        return [job for job in self.all() if job.run == run]

    def running(self, run: str) -> list[Job]:
        """Those of a run's jobs that still run."""
        return [job for job in self.of(run) if job.is_running]

    def start(self, verb: str, run: str, words: Sequence[str]) -> Job:
        """Start `robot-rl WORDS` in a session of its own, with its output in a log.

        Raises:
            ConfigError: too many jobs run, or this one of this run does.
        """
        going = [job for job in self.all() if job.is_running]
        if len(going) >= MAX_AT_ONCE:
            raise ConfigError(
                "too much runs already",
                expected=f"at most {MAX_AT_ONCE} commands of the studio at once",
                got=", ".join(f"{job.verb} {job.run}" for job in going),
                fix="wait for one of them, or finish one",
            )
        if any(job.run == run and job.verb == verb for job in going):
            raise ConfigError(
                f"{verb} runs already for {run}",
                expected="one at a time",
                got=f"another {verb} of this run",
                fix="wait until it has ended",
            )
        with self._lock:
            self.folder.mkdir(parents=True, exist_ok=True)
            id_ = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}-{verb}"
            with self.log(id_).open("wb") as output:
                output.write(f"$ {shown(words)}\n".encode())
                output.flush()
                child = subprocess.Popen(
                    [*PROGRAM, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # neither Ctrl-C nor a closed terminal is for it
                )
            job = Job(
                id=id_,
                verb=verb,
                run=run,
                words=tuple(words),
                process=process_of(child.pid),
                began_s=time.time(),
            )
            self._children[id_] = child
            self._keep(job)
            self._forget_old()
        return job

    def log(self, id_: str) -> Path:
        """Where the output of a job is."""
        return self.folder / f"{id_}.log"

    def _keep(self, job: Job) -> None:
        self._jobs[job.id] = job
        try:
            replace_json(self.folder / f"{job.id}.json", asdict(job))
        except OSError as error:
            log.warning("a job is forgotten when the studio ends: %s", error)

    def _forget_old(self) -> None:
        ended = [j.id for j in self._jobs.values() if j.id not in self._children]
        for id_ in ended[:-KEPT]:
            del self._jobs[id_]
            for path in (self.folder / f"{id_}.json", self.log(id_)):
                path.unlink(missing_ok=True)


def finish(process: str) -> bool:
    """Ask a process to end as Ctrl-C does; False = it has ended, or is none of this machine."""
    presence = Presence()
    try:
        return presence.watch(process) and presence.signal(signal.SIGINT)
    finally:
        presence.close()


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a text file; none when it is not there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            text = file.read(TAIL).decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-count:]


def facts_of(job: Job) -> dict[str, Any]:
    """What a page is told of a job."""
    return {
        "id": job.id,
        "verb": job.verb,
        "command": shown(job.words),
        "began_s": job.began_s,
        "running": job.is_running,
        "code": job.code,
    }
