"""One run folder as the studio sees it. A look at it reads what is new, and nothing twice."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from robot_rl.config.registry import build
from robot_rl.config.run_folder import ARMS, AT_WORK, EVALUATION, METRICS, PAUSED, RUN, read_facts
from robot_rl.config.yaml_file import MAX_BYTES, parse_yaml
from robot_rl.control.session import WINDOW, TrainConfig
from robot_rl.control.work import BEGAN, RUNS, number
from robot_rl.errors import RobotRLError
from robot_rl.run.at_work import DONE, STOPPED, VERBS
from robot_rl.studio.figures import Figures
from robot_rl.system.files import Tail
from robot_rl.system.presence import runs_still

SECTION = re.compile(r"^(\w+):", re.MULTILINE)
NAME = re.compile(r"\w+:\s*\{?name: ([\w.-]+)")  # how a section begins that names a dataclass
NAMED = ("robot", "task", "algo")  # sections of which only the name is shown
READ = ("name", "seed", "runtime", "train")
FRESH_S = 60.0  # a run of which nobody says who works in it, and that was written to so lately
PART = 1 << 20  # bytes of metrics that are read between two looks at the clock
SIZED_S = 60.0  # a run that grows is measured again after this time
LIVE = ("starting", "running")
Stamp = tuple[int, int]


class Run:
    """Facts, figures, state and size of one run folder; name: its path below the studio's."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.figures = Figures()
        self.config: Mapping[str, Any] = {}
        self.names: Mapping[str, str] = dict.fromkeys(NAMED, "")
        self.train: TrainConfig | None = None  # None: config.yaml cannot be read
        self.unfit = ""  # why it cannot
        self.record: Mapping[str, Any] = {}
        self.evaluation: Mapping[str, Any] = {}
        self.state, self.why = "unknown", ""
        self.at_work: dict[str, str] = {}  # verb -> process that does it now
        self.paused = False  # no further episode begins
        self.bytes: int | None = None
        self.changed = True  # since somebody took its row
        self.unread = True  # metrics or size are still to be read
        self._tails: dict[Path, Tail] = {}
        self._stamps: dict[str, Stamp] = {}
        self._told: dict[str, Mapping[str, Any]] = {}  # verb -> its file of who works
        self._newest_s = 0.0  # of what was written into the folder
        self._sized_s = 0.0

    @property
    def is_live(self) -> bool:
        """Whether it is being trained or recorded."""
        return self.state in LIVE

    def look(self, until_s: float) -> None:
        """Take in what is new.

        Figures are read until `until_s` of the monotonic clock, and otherwise at the next look.
        """
        now_s, before = time.time(), self._shown()
        stamps = _stamps(self.folder)
        written = [ns for name, (ns, _) in stamps.items() if not name.endswith(AT_WORK)]
        self._newest_s = max(written, default=0) / 1e9
        fresh = {name for name, stamp in stamps.items() if self._stamps.get(name) != stamp}
        if "config.yaml" in fresh and not self._read_config():
            del stamps["config.yaml"]  # once it may be read, it looks as it did before
        if RUN in fresh:
            self.record = _facts(self.folder / RUN)
        if EVALUATION in fresh:
            self.evaluation = _facts(self.folder / EVALUATION)
        for verb in VERBS:
            if (name := f"{verb}{AT_WORK}") in fresh:
                self._told[verb] = _facts(self.folder / name)
                if verb in RUNS and (began_s := number(self._told[verb].get(BEGAN))) is not None:
                    self.figures.work.begun.add(began_s)
        if "deploy" in stamps and (path := self.folder / "deploy" / f"deploy{AT_WORK}").is_file():
            self._told["deploy"] = _facts(path)
        self._stamps = stamps
        has_read = self._read_metrics(until_s)
        self._find_state(now_s)
        self._measure(until_s, now_s)
        self.paused = PAUSED in stamps
        self.changed |= bool(fresh) or has_read or self._shown() != before

    def _shown(self) -> tuple[Any, ...]:
        work = self.state, self.why, self.at_work, self.paused
        return *work, self.bytes, self.unread, self.unfit

    def _read_config(self) -> bool:
        """Of config.yaml, which our own program wrote, the sections that are shown.

        Returns whether the file could be opened, whatever it says.
        """
        try:
            self.train, self.unfit = self._read_sections(), ""
        except OSError as error:
            self.train, self.unfit = None, str(error)
            return False
        except (RobotRLError, yaml.YAMLError, ValueError) as error:
            self.train, self.unfit = None, str(error) or type(error).__name__
        return True

    def _read_sections(self) -> TrainConfig:
        """Set `config` and `names`; return the limits of the run."""
        with (self.folder / "config.yaml").open(encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_BYTES)
        starts = [m.start() for m in SECTION.finditer(text)] + [len(text)]
        parts = [text[a:b] for a, b in itertools.pairwise(starts)]
        sections = {part.partition(":")[0]: part for part in parts}
        names = {name: NAME.match(sections.get(name, "")) for name in NAMED}
        self.names = {name: match[1] if match else "" for name, match in names.items()}
        kept = "".join(sections.get(name, "") for name in READ)
        found = parse_yaml(kept, "config.yaml")  # the whole file would take 35 ms
        self.config = found if isinstance(found, dict) else {}
        if not isinstance(train := self.config.get("train"), dict):
            raise ValueError("config.yaml has no section train")
        return build(TrainConfig, train)

    def _read_metrics(self, until_s: float) -> bool:
        """Read new lines; returns whether there were any."""
        self.unread, has_read = False, False
        paths = [self.folder / METRICS]
        if ARMS in self._stamps:
            paths += sorted((self.folder / ARMS).glob(f"*/{METRICS}"))
        for path in paths:
            tail = self._tails.setdefault(path, Tail(path))
            while _size(path) > tail.offset:
                if time.monotonic() > until_s:
                    self.unread = True
                    return has_read
                before = tail.offset
                for line in tail.lines(PART):
                    self.figures.add(line)
                if tail.offset == before:  # a torn line at the end
                    break
                has_read = True
        return has_read

    def _find_state(self, now_s: float) -> None:
        processes = {
            v: str(t.get("process", "")) for v, t in self._told.items() if "ended" not in t
        }
        runs = {verb: runs_still(process) for verb, process in processes.items()}
        self.at_work = {verb: process for verb, process in processes.items() if runs[verb]}
        main = max(
            (v for v in RUNS if v in self._told),
            key=lambda v: float(self._told[v].get("began_s") or 0.0),
            default="",
        )
        silent = now_s - self._newest_s > FRESH_S
        self.why = ""
        if main in runs:
            elsewhere = runs[main] is None  # on another machine, or in another container
            self.state = "running" if runs[main] or (elsewhere and not silent) else "killed"
        elif main:
            ended = str(self._told[main].get("ended"))
            self.state = {DONE: "ended", STOPPED: "stopped"}.get(ended, "failed")
            self.why = ended if self.state == "failed" else ""
        elif self.evaluation:
            self.state = "ended"
        else:
            self.state = "no result" if silent else "running"

    def _measure(self, until_s: float, now_s: float) -> None:
        """The folder's size on the disk; of one that was written to since, again after a while."""
        if self._sized_s and self._newest_s < self._sized_s:
            return
        if now_s - self._sized_s < SIZED_S:
            return
        if time.monotonic() > until_s:
            self.unread = True
            return
        self.bytes, self._sized_s = disk_bytes(self.folder), now_s

    @property
    def success(self) -> dict[str, Any] | None:
        """The evaluation that is shown, or else how the last practice episodes went."""
        part = self.evaluation.get("deterministic")
        if isinstance(part, Mapping) and part.get("episodes") and part.get("success_known", True):
            keys = ("success", "wilson_low", "wilson_high", "successes", "episodes")
            if all(isinstance(part.get(key), int | float) for key in keys):
                return {"kind": "evaluation", **{key: part[key] for key in keys}}
        if self.figures.recent is None:
            return None
        count = min(len(self.figures.success), WINDOW)
        return {"kind": "practice", "success": self.figures.recent, "episodes": count}

    @property
    def left_s(self) -> float | None:
        """Seconds until practice ends, at its pace; None where the run does not say it."""
        return self.figures.work.left_s if self.is_live else None

    def row(self) -> dict[str, Any]:
        """What the list shows."""
        figures = self.figures
        return {
            "id": self.name,
            "experiment": str(self.config.get("name", "")),
            "seed": self.config.get("seed"),
            **self.names,
            "runtime": str(self.config.get("runtime", "")),
            "created": str(self.record.get("created", "")),
            "state": self.state,
            "phase": figures.state if self.is_live else "",
            "why": self.why,
            "unfit": self.unfit,
            "paused": self.paused and self.is_live,
            "busy": sorted(set(self.at_work) - {"train", "record"}),
            "steps": figures.env_steps,
            "episodes": figures.episodes,
            "success": self.success,
            "mastered": bool(self.evaluation.get("mastered")),
            "human": figures.human_share,
            "worked_s": figures.work.worked_s,
            "left_s": self.left_s,
            "progress": figures.work.progress if self.is_live else None,
            "bytes": self.bytes,
            "curve": figures.curve(figures.success, 60),
        }


def disk_bytes(folder: Path) -> int:
    """What a folder takes on the disk."""
    total, folders = 0, [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _stamps(folder: Path) -> dict[str, Stamp]:
    """(when written in ns, bytes) of each file in a folder."""
    found: dict[str, Stamp] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            info = entry.stat(follow_symlinks=False)
            found[entry.name] = (info.st_mtime_ns, info.st_size)
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _facts(path: Path) -> Mapping[str, Any]:
    """Keys and values of a JSON file; none when it cannot be read."""
    try:
        return read_facts(path)
    except RobotRLError:
        return {}
