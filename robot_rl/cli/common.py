"""What all verbs share: the argument parser, composing an experiment, figures as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from robot_rl.errors import ConfigError, SetupError, did_you_mean

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

EXTRAS = {
    "torch": "learn",
    "safetensors": "learn",
    "mujoco": "sim",
    "OpenGL": "sim",
    "cv2": "sim",
    "av": "sim",
    "scipy": "sim",
    "rclpy": "ros",
    "rcl_interfaces": "ros",
    "sensor_msgs": "ros",
    "geometry_msgs": "ros",
    "tensorboard": "log",
    "pyarrow": "data",
    "mcap": "data",
    "rerun": "rerun",
    "evdev": "hardware",
    "pyrealsense2": "hardware",
    "hidraw": "hardware",
    "fastapi": "console",
    "uvicorn": "console",
    "ray": "fleet",
    "pxr": "usd",
    "ovphysx": "physx",
}
"""Import name -> the extra of this project that installs the package."""


MOST_TYPED = 300  # characters of a command in a message


class Parser(argparse.ArgumentParser):
    """An argument parser that raises our errors, and prints examples as they are written."""

    def __init__(self, verb: str, text: str, examples: str = "") -> None:
        epilog = "examples:\n" + textwrap.indent(textwrap.dedent(examples).strip(), "  ")
        super().__init__(
            prog=f"robot-rl {verb}",
            description=textwrap.dedent(text).strip(),
            epilog=epilog if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._typed: list[str] = []

    def error(self, message: str) -> NoReturn:
        """Raise a `ConfigError` instead of printing usage and exiting."""
        raise ConfigError(
            f"{self.prog}: {message}",
            expected=self.format_usage().strip().removeprefix("usage: "),
            got=shlex.join([*self.prog.split(), *self._typed])[:MOST_TYPED],
            fix=self._hint(message),
        )

    def _hint(self, message: str) -> str:
        """The fix: the nearest option if one is misspelt, else the verb's --help."""
        word = next((w for w in message.split() if w.startswith("-")), "")
        if "unrecognized" in message and word:
            return did_you_mean(word, [o for o in self._option_string_actions if o[:2] == "--"])
        return f"see {self.prog} --help"

    def with_overrides(self) -> Parser:
        """Add `key=value ...`, `--config`, `--config-dir`."""
        self.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. experiment=lift")
        self.add_argument(
            "--config", action="store_true", help="print every value in force and stop"
        )
        self.add_argument(
            "--config-dir",
            type=Path,
            metavar="DIR",
            help="your YAML files, laid out as in configs/",
        )
        return self

    def with_json(self) -> Parser:
        """Add `--json PATH`."""
        self.add_argument("--json", type=Path, metavar="PATH", help="also save the figures here")
        return self

    def with_ray(self) -> Parser:
        """Add `--ray [ADDRESS]`."""
        self.add_argument(
            "--ray",
            nargs="?",
            const="",
            metavar="HOST:PORT",
            help="run on the Ray cluster at this address; without one, on a cluster of this "
            "machine (extra 'fleet')",
        )
        return self

    def with_run(self, help_text: str = "run folder, as `robot-rl train` printed it") -> Parser:
        """Add the positional run folder."""
        self.add_argument("run", type=Path, metavar="RUN", help=help_text)
        return self

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments; options and key=value words may be mixed freely."""
        self._typed = list(argv)
        return self.parse_intermixed_args(self._typed)


def experiment_from(
    args: argparse.Namespace, defaults: Sequence[str] = (), only: Sequence[str] = ()
) -> Experiment | None:
    """Compose and check what the command line asks for; None when `--config` printed it instead.

    only: the sections that are needed; () = all, and that they fit each other.
    """
    from robot_rl.run.experiment import Experiment

    experiment = Experiment.compose([*defaults, *args.overrides], args.config_dir)
    if args.config:
        print(explain(experiment))
        return None
    for name in only:
        experiment.section(name)
    if not only:
        experiment.check()
    return experiment


def explain(experiment: Experiment) -> str:
    """YAML of every value in force; if a section's extra is missing, only of its overrides."""
    import yaml

    from robot_rl.run.experiment import GROUPS

    def dump(name: str, section: Any) -> str:
        return yaml.safe_dump({name: section}, sort_keys=False, default_flow_style=None, width=100)

    lines = [f"name: {experiment.name}\nseed: {experiment.seed}\nruntime: {experiment.runtime}\n"]
    for name in GROUPS:
        try:
            lines.append(dump(name, experiment.plain_section(name)))
        except SetupError as error:
            lines.append(f"# {error.summary}; only what was given:\n")
            lines.append(dump(name, experiment.config.get(name)))
    return "".join(lines).rstrip()


def engine(target: str) -> Callable[..., Any]:
    """Import "module:function" only when it is needed.

    Raises:
        SetupError: a third-party package is not installed; the fix names the extra that has it.
    """
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in EXTRAS:
            raise
        raise SetupError(
            f"this verb needs the package '{missing}'",
            expected=f"import {missing} works",
            got=str(error),
            fix=f"run make setup, or: pip install 'robot-rl[{EXTRAS[missing]}]'",
        ) from error


def is_setting(word: str) -> bool:
    """Whether a word is key=value, and no folder that has `=` in its name."""
    return "=" in word and not os.path.isdir(word)  # noqa: PTH112 - Path refuses long words


def existing_run(run: Path) -> Path:
    """Check that `run` is a run folder.

    Raises:
        ConfigError: it is not.
    """
    if not (run / "config.yaml").is_file():
        raise _no_run(run)
    return run


def _no_run(run: Path) -> ConfigError:
    from robot_rl.data.import_store import SUMMARY, UNFINISHED

    imported = {
        SUMMARY: "an import of an older version",
        UNFINISHED: "an import that is not finished",
    }
    for name, what in imported.items():
        if (run / name).is_file():
            return ConfigError(
                f"what was imported into '{run}' is not a run yet",
                expected="a folder with config.yaml, as robot-rl import makes it",
                got=what,
                fix="repeat the command that imported it: robot-rl import DATASET --out "
                f"{shlex.quote(str(run))} experiment=...; episodes and labels that are there stay",
            )
    return ConfigError(
        f"no run in '{run}'",
        expected="a folder with config.yaml, as robot-rl train makes it",
        got="no such folder" if not run.exists() else "a folder without config.yaml",
        fix="list yours with: ls -d runs/*/config.yaml runs/*/*/config.yaml",
    )


def write_json(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write the figures as JSON for other programs; without a path, do nothing."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=2, sort_keys=True, default=str) + "\n")


def printable(text: str) -> str:
    """Somebody else's words without what would steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def say(text: str) -> None:
    """Print one line for the person at the terminal (results go to stdout, logs to stderr)."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_one_of(
    verbs: Mapping[str, Callable[[Sequence[str]], int]],
    argv: Sequence[str],
    parser: Parser,
    tail: str = "",
) -> int:
    """Run the verb below a verb (`task new`), or show the help of what is above them.

    Args:
        tail: what follows any of them, for the error: " NAME".

    Raises:
        ConfigError: there is no such verb.
    """
    if argv and argv[0] in verbs:
        return verbs[argv[0]](argv[1:])
    known = " | ".join(verbs)
    parser.add_argument("verb", metavar=known)
    verb = parser.parse_known_args(list(argv))[0].verb
    raise ConfigError(
        f"unknown verb '{parser.prog.removeprefix('robot-rl ')} {verb}'",
        expected=f"{parser.prog} {known}{tail}",
        got=verb,
        fix=did_you_mean(verb, verbs),
    )
