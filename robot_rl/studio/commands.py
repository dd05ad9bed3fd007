"""The command lines that the studio may run: a fixed table, from checked words to argument lists.

Whatever a page says, a command begins with one of these verbs, and no word of a page stands where
an option could: a word is key=value, a number in a range, or one of a few names.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.config.compose import SHORT, groups
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.run.experiment import GROUPS, Experiment
from robot_rl.tasks.gym import GymTask

MAX_WORDS = 64
MAX_WORD = 400  # characters
MAX_NAME = 80
NAMES = (
    f"name=NAME of 1 to {MAX_NAME} characters: letters of any language, such as ü, digits and _; "
    "from the second one on also . and -"
)
WORD = re.compile(r"[A-Za-z_][\w.@/-]*=[^\x00-\x1f\x7f]*")
OURS = ("run_dir", "hydra", "arm")  # keys that a page may not say: the studio names the folder
FORMATS = ("lerobot", "mcap", "rerun")
PROGRAM = (sys.executable, "-P", "-m", "robot_rl.cli.main")
Said = Mapping[str, Any]


def checked_words(said: Any) -> list[str]:
    """Words key=value as a page says them.

    Raises:
        ConfigError: too many, too long, no key=value, or a key that is not a page's to say.
    """
    if not isinstance(said, list) or len(said) > MAX_WORDS:
        raise _refused("the words are not a list", f"at most {MAX_WORDS} words key=value", said)
    for word in said:
        if not isinstance(word, str) or len(word) > MAX_WORD or not WORD.fullmatch(word):
            raise _refused("a word is not key=value", f"key=value in {MAX_WORD} characters", word)
        key = word.partition("=")[0]
        if re.split(r"[./@]", key)[0] in OURS:
            raise _refused(
                f"'{key}' is not said here", "any other key; the studio names the folder", word
            )
    return list(said)


def checked(words: Sequence[str], config_dir: Path | None = None) -> Experiment:
    """Compose what the words say and build every section; nothing runs and nothing is written.

    What would load a pretrained policy or make an environment is left to the run.

    Raises:
        ConfigError: an unknown key or a wrong value, with the nearest one that is known.
        SetupError: a section needs an extra that is not installed.
    """
    experiment = Experiment.compose(words, config_dir)
    for name in GROUPS:
        experiment.section(name)
    if experiment.base is None and not isinstance(experiment.task, GymTask):
        experiment.check()
    return experiment


def new_run_dir(folder: Path, experiment: Experiment, wanted: Any = None) -> Path:
    """The folder of a new run: NAME/TIME-sSEED below the studio's, as `robot-rl train` names it.

    wanted: the name that a plan has told before, so that what was shown is what runs.

    Raises:
        ConfigError: `wanted` is no such name, or there is one already.
    """
    if not re.fullmatch(rf"\w[\w.-]{{0,{MAX_NAME - 1}}}", experiment.name):
        got = experiment.name
        raise _refused("the name is no name of a folder", NAMES, got)
    name = f"{experiment.name}/{time.strftime('%Y%m%d-%H%M%S')}-s{experiment.seed}"
    if wanted is not None:
        pattern = rf"{re.escape(experiment.name)}/\d{{8}}-\d{{6}}-s{experiment.seed}"
        if not isinstance(wanted, str) or not re.fullmatch(pattern, wanted):
            raise _refused("the run is not called so", f"a name like {name}", wanted)
        name = wanted
    if (folder / name).exists():
        raise _refused("there is a run of this name", "a new name", name, "start it again")
    return folder / name


def words_of_new(verb: str, words: Sequence[str], config_dir: Path | None = None) -> list[str]:
    """The command line that begins a run, or goes on with one: train or record."""
    if verb not in NEW:
        raise _refused("no verb that begins a run", " | ".join(NEW), verb)
    return [verb, *words, *(["--config-dir", str(config_dir)] if config_dir else [])]


def known_words() -> list[str]:
    """What a key may begin with."""
    return sorted({*GROUPS, *groups(), *SHORT, "seed", "runtime", "sim", "name", "actors"})


def _eval(run: Path, said: Said) -> list[str]:
    films = [] if said.get("video", True) is True else ["--no-video"]
    return ["eval", str(run), "--episodes", str(_number(said, "episodes", 1, 10_000, 100)), *films]


def _deploy(run: Path, said: Said) -> list[str]:
    words = checked_words(said.get("words", []))
    episodes = _number(said, "episodes", 0, 1_000_000, 50)
    after = _number(said, "stop_after", 0, 1000, 3)
    return ["deploy", str(run), *words, "--episodes", str(episodes), "--stop-after", str(after)]


def _export(run: Path, said: Said) -> list[str]:
    to = said.get("to", FORMATS[0])
    if to not in FORMATS:
        raise _refused(
            "an unknown format", " | ".join(FORMATS), to, did_you_mean(str(to)[:40], FORMATS)
        )
    return ["export", str(run), "--to", to, "--out", str(run / "exports" / to)]


def _pause(run: Path, said: Said) -> list[str]:
    return ["pause", str(run), *(["--end"] if said.get("end") is True else [])]


def _report(run: Path, _: Said) -> list[str]:
    return ["report", str(run)]


OF_A_RUN: Mapping[str, Callable[[Path, Said], list[str]]] = {
    "eval": _eval,
    "deploy": _deploy,
    "export": _export,
    "report": _report,
    "pause": _pause,
}
"""Verb -> its words for a run folder and what a page says."""

NEW = ("train", "record")  # verbs that begin a run


def words_for(verb: str, run: Path, said: Said) -> list[str]:
    """The command line of a verb for a run that is there.

    Raises:
        ConfigError: no such verb, or a value out of its range.
    """
    if verb not in OF_A_RUN:
        raise _refused(
            "no such verb", " | ".join(OF_A_RUN), verb, did_you_mean(verb[:40], OF_A_RUN)
        )
    return OF_A_RUN[verb](run, said)


def shown(words: Sequence[str]) -> str:
    """A command line as a person types it."""
    return shlex.join(["robot-rl", *words])


def _number(said: Said, key: str, low: int, high: int, default: int) -> int:
    value = said.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise _refused(f"{key} is out of its range", f"{key} from {low} to {high}", value)
    return value


def _refused(summary: str, expected: str, got: Any, fix: str = "") -> ConfigError:
    return ConfigError(
        summary, expected=expected, got=repr(got)[:MAX_WORD], fix=fix or "correct it"
    )
