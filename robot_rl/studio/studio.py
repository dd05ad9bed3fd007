"""What the page does with a folder of runs: tell, start, finish, put away, compare."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.config.compose import compose
from robot_rl.config.run_folder import POLICY
from robot_rl.errors import ConfigError
from robot_rl.run.deploy_setup import experiment_on
from robot_rl.run.experiment import Experiment
from robot_rl.studio import commands, form
from robot_rl.studio.bin import Bin
from robot_rl.studio.catalogue import Catalogue
from robot_rl.studio.comparison import MOST, compared
from robot_rl.studio.consoles import Consoles
from robot_rl.studio.films import FILM, Films
from robot_rl.studio.jobs import Job, Jobs, facts_of, finish, last_lines
from robot_rl.studio.run import Run

LINES = 12  # of a log
FAILED = (1, 2)  # exit codes of a command that has told an error
TOLD_S = 600.0  # how long the list tells of one that has left no folder
LOG_LINE = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL|[DIWEC]) ([\w.]+): (.*)")
LEVELS = {"W": "warning", "E": "error", "C": "error"}
NO_LOG: Mapping[str, Any] = {"of": "", "lines": []}
REAL_ARM = "This moves a real arm. Somebody has to be beside it, with the emergency stop in reach."
REPORT, FIRST_SUCCESS = "report.html", "first_success.png"
Said = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A command line that was checked. warning: what a person should know before it runs."""

    verb: str
    run: str
    words: list[str]
    warning: str = ""


class Studio:
    """A folder of runs, and all that is done there. Threads of a server may call anything here."""

    def __init__(
        self, folder: Path, config_dir: Path | None = None, consoles: Consoles | None = None
    ) -> None:
        self.folder, self.config_dir = folder, config_dir
        self.catalogue, self.jobs, self.bin = Catalogue(folder), Jobs(folder), Bin(folder)
        self.films, self.consoles = Films(), consoles or Consoles()
        self._composing = threading.Lock()  # Hydra keeps what it composes in one place

    def runs(self, since: int, *, logs: bool = True) -> dict[str, Any]:
        """What has changed of the list, and what was started and has no folder yet.

        logs: with the last lines of logs, in which a run may print a link to its own page.
        """
        told = self.catalogue.told(since)
        jobs = self.jobs.all()
        known = self.catalogue.names | {item["name"] for item in self.bin.all()}
        waiting = [j for j in jobs if j.verb in commands.NEW and j.run not in known][-5:]
        told["waiting"] = [
            {
                **facts_of(job),
                "run": job.run,
                "log": self._log(self.jobs.log(job.id)) if logs else NO_LOG,
            }
            for job in waiting
            if job.is_running or (job.code in FAILED and time.time() - job.began_s < TOLD_S)
        ]
        told["busy"] = [f"{job.verb} {job.run}" for job in jobs if job.is_running]
        return told

    def run(self, name: str, *, logs: bool = True) -> dict[str, Any]:
        """Everything about one run; logs: as in `runs`."""
        run = self.catalogue.run(name)
        figures, evaluation, train = run.figures, run.evaluation, run.train
        evaluations = evaluation.get("evaluations")
        jobs = self.jobs.of(name)
        return {
            **run.row(),
            "folder": str(run.folder),
            "command": str(run.record.get("command", "")),
            "page_command": commands.shown(self.consoles.command(run.folder)),
            "curve": figures.curve(figures.success),
            "human_curve": figures.curve(figures.human),
            "mastery": train and figures.mastery(train.target_success, train.exam_failures),
            "demos": [figures.demos, train and train.demos],
            "max_steps": train and train.max_env_steps,
            "max_minutes": train and train.max_minutes,
            "takeovers": figures.takeovers,
            "evaluations": evaluations[-8:] if isinstance(evaluations, list) else [],
            "jobs": [facts_of(job) for job in jobs[-6:]],
            "log": self._log_of(run, jobs) if logs else NO_LOG,
            "at_work": sorted({*run.at_work, *(j.verb for j in jobs if j.is_running)}),
            "has": {
                "report": (run.folder / REPORT).is_file(),
                "film": (run.folder / FILM).is_file(),
                "first_success": (run.folder / FIRST_SUCCESS).is_file(),
                "policy": (run.folder / POLICY).is_file(),
            },
        }

    def _log_of(self, run: Run, jobs: Sequence[Job]) -> Mapping[str, Any]:
        """The log written to last: of a command of the studio, or of a process of the run."""
        files = [self.jobs.log(job.id) for job in jobs] + [*(run.folder / "logs").glob("*.log")]
        files = [path for path in files if path.is_file()]
        if not files:
            return NO_LOG
        return self._log(max(files, key=lambda path: path.stat().st_mtime))

    def _log(self, path: Path) -> dict[str, Any]:
        lines = []
        for line in last_lines(path, LINES):
            found = LOG_LINE.match(line)
            level, said = (found[1][0], found[3]) if found else ("", line)
            lines.append({"level": LEVELS.get(level, ""), "text": said[:400]})
        return {"of": str(path), "lines": lines}

    def compare(self, names: Sequence[str]) -> dict[str, Any]:
        """Runs beside each other. Raises `ConfigError` for too few or too many."""
        if not 2 <= len(set(names)) == len(names) <= MOST:
            raise ConfigError(
                "these runs are not compared",
                expected=f"2 to {MOST} different runs",
                got=f"{len(names)}",
                fix="mark the runs in the list",
            )
        return compared([self.catalogue.run(name) for name in names])

    def form(self, words: Any) -> dict[str, Any]:
        """Every value in force under the words. Raises as `form.form`."""
        with self._composing:
            return form.form(commands.checked_words(words), self.config_dir)

    def planned(self, said: Said) -> Plan:
        """What a page asks for, as a command line; it is checked, and nothing runs.

        Raises:
            RobotRLError: a verb, a key or a value that is not accepted.
        """
        verb, name = str(said.get("verb", ""))[:40], said.get("run")
        if name is None:
            return self._planned_new(verb, said)
        run = self.catalogue.run(str(name)[:400])
        if said.get("again"):
            return self._planned_again(run)
        words = commands.words_for(verb, run.folder, said)
        if verb in ("eval", "deploy") and not (run.folder / POLICY).is_file():
            raise ConfigError(
                f"{run.name} has no policy yet",
                expected=f"{POLICY}, which a run writes before its evaluation",
                got="no such file",
                fix="let it practise to its end",
            )
        if verb != "deploy":
            return Plan(verb, run.name, words)
        extra = [word for word in words[2:] if commands.WORD.fullmatch(word)]
        with self._composing:
            to = run.folder / "deploy"
            experiment = experiment_on(run.folder, extra, to, self.config_dir)
        words += ["--config-dir", str(self.config_dir)] if self.config_dir else []
        return Plan(verb, run.name, words, _warning(experiment))

    def _planned_new(self, verb: str, said: Said) -> Plan:
        words = commands.checked_words(said.get("words", []))
        with self._composing:
            experiment = commands.checked(words, self.config_dir)
            run_dir = commands.new_run_dir(self.folder, experiment, said.get("name"))
            words.append(f"run_dir={run_dir}")
            compose(words, self.config_dir)  # the path of the folder, too, is a value
        name = run_dir.relative_to(self.folder).as_posix()
        command = commands.words_of_new(verb, words, self.config_dir)
        return Plan(verb, name, command, _warning(experiment))

    def _planned_again(self, run: Run) -> Plan:
        """The command that began a run, or gave it another budget since: it goes on with it.

        Raises:
            ConfigError: the folder does not tell it.
        """
        told = str(run.record.get("command", ""))
        begun = [job.words for job in self.jobs.of(run.name) if job.verb in commands.NEW]
        for verb, *typed in (*begun[-1:], _words_of(told)):
            if verb not in commands.NEW:
                continue
            words = [
                w for w in typed if commands.WORD.fullmatch(w) and not w.startswith("run_dir=")
            ]
            words.append(f"run_dir={run.folder}")
            with self._composing:
                experiment = commands.checked(words, self.config_dir)
            if experiment.hash == run.record.get("config_hash"):
                command = commands.words_of_new(verb, words, self.config_dir)
                return Plan(verb, run.name, command, _warning(experiment))
        raise ConfigError(
            f"how {run.name} was begun is not known exactly",
            expected="the command in run.json, or one that the studio has started",
            got=told[:300],
            fix=f"give it again in a terminal, with run_dir={run.folder}",
        )

    def start(self, said: Said) -> Job:
        """Run what a page asks for. Raises as `planned` and `Jobs.start`."""
        plan = self.planned(said)
        if said.get("again") and self._working(plan.run):
            raise _busy(plan.run, "it goes on already")
        return self.jobs.start(plan.verb, plan.run, plan.words)

    def _working(self, name: str) -> dict[str, str]:
        """Verb -> process of everything that works on a run now."""
        found = {job.verb: job.process for job in self.jobs.running(name)}
        with suppress(ConfigError):  # a run that is only just starting has no folder
            found |= self.catalogue.run(name).at_work
        return found

    def finish(self, name: str, verb: str) -> None:
        """End a command of a run gently, as Ctrl-C does.

        Raises:
            ConfigError: no process of this machine is known to do it.
        """
        process = self._working(name).get(verb)
        if process is None or not finish(process):
            raise ConfigError(
                f"no {verb[:40]} of {name[:200]} to finish",
                expected="a process of this machine that is known for certain",
                got="none that runs, or one on another machine",
                fix="press Ctrl-C in the terminal where it was started",
            )

    def put_away(self, name: str) -> str:
        """Move a run into the bin; returns its id there.

        Raises:
            ConfigError: somebody works on it, or it cannot be moved.
        """
        run = self.catalogue.run(name)
        if (working := self._working(name)) or run.is_live:
            raise _busy(name, f"{', '.join(working) or 'it'} runs")
        self.consoles.close(name)
        id_ = self.bin.put(name, run.folder)
        self.catalogue.forget()
        return id_

    def restore(self, id_: str) -> str:
        """Move a run back out of the bin; returns its name. Raises as `Bin.restore`."""
        name = self.bin.restore(id_)
        self.catalogue.forget()
        return name

    def console(self, name: str, page: str) -> str:
        """A link, good once, to the run's own page. Raises as `Consoles.link`."""
        return self.consoles.link(name, self.catalogue.run(name).folder, page)

    def close(self) -> None:
        """End what belongs to the page; what it has started goes on."""
        self.consoles.close_all()


def _words_of(command: str) -> list[str]:
    """Verb and words; the verb is empty where somebody has written what no shell takes."""
    try:
        return shlex.split(command)[1:] or [""]
    except ValueError:
        return [""]


def _warning(experiment: Experiment) -> str:
    if not experiment.is_real or getattr(experiment.ros, "double", False):
        return ""
    return REAL_ARM


def _busy(name: str, got: str) -> ConfigError:
    return ConfigError(
        f"{name} is at work",
        expected="a run of which nobody works",
        got=got,
        fix="finish it first, and wait until it has ended",
    )
