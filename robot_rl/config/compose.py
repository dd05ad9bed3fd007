"""From command-line words to one plain dict: Hydra, with simpler overrides and clearer errors.

YAML files hold only differences from the dataclass defaults, so most keys are not in any YAML.
Hydra would then ask for `+key=value`; here every `key=value` works, and keys are checked afterwards
against the dataclasses (`robot_rl.config.registry.build`), which know the right spelling.
"""

from __future__ import annotations

import copy
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from robot_rl.config.yaml_file import read_yaml
from robot_rl.errors import ConfigError, SetupError, did_you_mean

SHORT = {"double": "ros.double"}
"""What may be written on the command line for a longer key."""

MAX_FILES, MAX_FOLDERS = 1000, 10_000
REFERENCE = re.compile(r"\$\{[A-Za-z0-9_][A-Za-z0-9_.]*\}")
LISTS = ("actors",)
"""Keys whose value may be written as a list without brackets: actors=left,right."""
PLAIN_WORD = re.compile(r"\+\+(?!hydra\b)[A-Za-z_][A-Za-z0-9_.]*=")
WITHOUT = tuple(
    f"~hydra/{part}"
    for part in (
        "job_logging",
        "hydra_logging",
        "launcher",
        "sweeper",
        "output",
        "help",
        "hydra_help",
    )
)
"""What Hydra would read about itself, a third of its time; nothing of it is in the result."""
_one_at_a_time = threading.Lock()  # Hydra keeps its state in a global


def config_dir() -> Path:
    """Folder of the shipped YAML files. Raises as `shipped`."""
    return shipped("configs", "config.yaml")


def shipped(name: str, file: str) -> Path:
    """Folder `name` that holds `file`: inside the wheel, or beside the package in a checkout.

    Raises:
        SetupError: neither exists (a broken install).
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if (folder / file).is_file():
            return folder
    raise SetupError(
        f"the files of {name} are missing",
        expected=f"{file} in {package / name}",
        got="no such file",
        fix="install robot-rl again",
    )


def options(group: str, extra_dir: Path | None = None) -> list[str]:
    """Names of the YAML files of a group, e.g. options("experiment"); empty for no such group."""
    folders = [config_dir(), *([extra_dir] if extra_dir else [])]
    return sorted({f.stem for d in folders for f in (d / group).glob("*.yaml")})


def groups(extra_dir: Path | None = None) -> list[str]:
    """Names of the config groups: task, algo, safety, operator, link, ros, experiment ..."""
    folders = [config_dir(), *([extra_dir] if extra_dir else [])]
    return sorted({f.name for d in folders for f in d.iterdir() if any(f.glob("*.yaml"))})


def compose(overrides: Sequence[str] = (), extra_dir: Path | None = None) -> dict[str, Any]:
    """Compose `configs/config.yaml` with overrides such as `experiment=lift`, `algo.gamma=0.98`.

    Args:
        extra_dir: a folder of your own with the same layout; its files add to the shipped ones.

    Returns:
        A plain nested dict, interpolations resolved. Keys are not checked yet.

    Raises:
        ConfigError: an override that cannot be read, or an unknown group option.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if extra_dir and not extra_dir.is_dir():
        raise ConfigError(
            f"there is no folder {extra_dir}",
            expected="a folder with YAML files of your own, such as robot/my_arm.yaml",
            got="a file" if extra_dir.exists() else "nothing of this name",
            fix="give the folder that holds robot/, task/ or cameras/ to --config-dir",
        )
    # a list first: actors.left.operator.name=... adds to what actors=left,right says
    if extra_dir:
        refuse_foreign(extra_dir)
    ordered = sorted(overrides, key=lambda word: word.lstrip("+").split("=")[0] not in LISTS)
    known = groups(extra_dir) if overrides else []
    words = [_friendly(word, known, extra_dir) for word in ordered]
    try:
        found = _with_values(words, known, extra_dir)
        refuse_resolvers(OmegaConf.to_container(found, resolve=False), "the configuration")
        composed = OmegaConf.to_container(found, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        folders = " and ".join(str(folder) for folder in (config_dir(), extra_dir) if folder)
        raise ConfigError(
            "the configuration does not compose",
            expected="overrides like experiment=peg_insert or algo.gamma=0.98",
            got=f"{' '.join(overrides)}: {str(error).splitlines()[0]}",
            fix=f"see the files in {folders}",
        ) from error
    assert isinstance(composed, Mapping)
    return {str(key): value for key, value in composed.items()}


def _with_values(words: Sequence[str], known: Sequence[str], extra_dir: Path | None) -> Any:
    """Compose the files that words choose, which is kept, and set the values that they say.

    Setting a value is done here as Hydra does it; a word that asks for more is left to Hydra, and
    then all are, because their order counts. known: groups.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    parsed = OverridesParser.create().parse_overrides(list(words))
    chosen = [o for o in parsed if o.key_or_group in known]
    values = [o for o in parsed if o.key_or_group not in known]
    if not all(PLAIN_WORD.match(str(o.input_line)) for o in values):
        chosen, values = parsed, []
    folders = [config_dir(), *([extra_dir.resolve()] if extra_dir else [])]
    first = tuple(str(o.input_line) for o in chosen)
    with _one_at_a_time:
        found = _composed(first, *folders, files=_state_of(folders))
    found = copy.deepcopy(found)
    for override in values:
        OmegaConf.update(found, override.key_or_group, override.value(), merge=True, force_add=True)
    return found


def _state_of(folders: Sequence[Path]) -> frozenset[tuple[object, ...]]:
    """The YAML files with what changes when they do; a link that leads nowhere is no file."""
    found = set()
    for path in (path for folder in folders for path in _yaml_files(folder)):
        with suppress(OSError):
            stat = path.stat()
            found.add((path, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size))
    return frozenset(found)


def _yaml_files(folder: Path) -> Iterator[Path]:
    """Every YAML file that Hydra finds in a folder: behind links to folders, too, but once.

    Raises:
        ConfigError: there is too much to look at.
    """
    seen: set[str] = set()
    count = 0
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]  # .git, .venv
        count += sum(name.endswith(".yaml") for name in files)
        if count > MAX_FILES or len(seen) > MAX_FOLDERS:
            raise ConfigError(
                f"{folder} holds more than configurations",
                expected=f"at most {MAX_FILES} YAML files in {MAX_FOLDERS} folders",
                got="more",
                fix="give a folder of its own: --config-dir DIR",
            )
        yield from (Path(place, name) for name in sorted(files) if name.endswith(".yaml"))


@lru_cache(maxsize=32)
def _composed(words: tuple[str, ...], shipped: Path, own: Path | None = None, *, files: Any) -> Any:
    """What Hydra composes, for others to copy. files: names and times, so that a change is seen."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    quoted = str(own).replace("\\", "\\\\").replace("'", "\\'")  # any folder of a person
    more = [f"hydra.searchpath=['file://{quoted}']"] if own else []
    GlobalHydra.instance().clear()  # a caller may have used Hydra for itself
    with initialize_config_dir(str(shipped), version_base="1.3"):
        return hydra_compose("config", [*words, *WITHOUT, *more])


def refuse_foreign(folder: Path) -> None:
    """Look at every YAML file of a folder before Hydra reads one.

    Raises:
        ConfigError: there are too many, or a file is too large, written out, or calls a resolver.
    """
    import yaml

    for path in _yaml_files(folder):
        with suppress(OSError, yaml.YAMLError):  # Hydra says it, if it reads this one at all
            refuse_resolvers(read_yaml(path), str(path.relative_to(folder)))


def refuse_resolvers(value: Any, where: str) -> None:
    """Refuse text that has OmegaConf do more than repeat another value (`${task.instruction}`).

    Resolvers read the environment (`oc.env`), decode text and the like.

    Raises:
        ConfigError: `where` holds such text.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_resolvers(key, where)
            refuse_resolvers(inner, where)
    elif isinstance(value, list | tuple):
        for inner in value:
            refuse_resolvers(inner, where)
    elif isinstance(value, str) and "${" in REFERENCE.sub("", value):
        raise ConfigError(
            f"{where} would have something computed",
            expected="values, or another key's value: ${task.instruction}",
            got=value[:80],
            fix="write the value itself; a key of a server is named, not written (docs/vlm.md)",
        )


def robot_sheet(name: str) -> Mapping[str, Any]:
    """Section `safety` of a shipped robot's file, which somebody signs; empty for others."""
    path = config_dir() / "robot" / f"{name}.yaml"
    found = read_yaml(path) if name.isidentifier() and path.is_file() else None
    sheet = found.get("safety") if isinstance(found, Mapping) else None
    return {k: v for k, v in (sheet or {}).items() if k != "name"}


def _friendly(word: str, known: Sequence[str], extra_dir: Path | None) -> str:
    """Check one override; turn a value override into Hydra's "set or add" form. known: groups."""
    override, word = _parsed(word)
    key = override.key_or_group
    if key in LISTS:
        return f"++{key}={_sections(override, word)}"
    if override.is_sweep_override():
        raise ConfigError(
            f"'{word}' names several values",
            expected="one value per key",
            got=word,
            fix="start one run per value; a shell loop does it",
        )
    if key in known:
        _check_option(key, override.value(), extra_dir)
        return word
    if key in SHORT:
        word = SHORT[key] + word.removeprefix(key)
    return word if word[0] in "+~" else "++" + word


def _parsed(word: str) -> tuple[Any, str]:
    """An override as Hydra reads it, and the word that it reads so.

    A text that Hydra's grammar does not know is taken as it stands, so that a folder may have any
    name (`run_dir=/data/jörg/it's`), and a home folder its short one, also where a shell keeps it.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, text = word.partition("=")
    if text.startswith("~/"):
        text = str(Path(text).expanduser())
        word = f"{key}={text}"
    parser = OverridesParser.create()
    try:
        return parser.parse_override(word), word
    except HydraException as error:
        if equals and text and text[0] not in "[{('\"":
            quoted = f"{key}='{text.replace(chr(39), chr(92) + chr(39))}'"
            with suppress(HydraException):
                return parser.parse_override(quoted), quoted
        raise ConfigError(
            f"cannot read '{word}'",
            expected="key=value, e.g. experiment=peg_insert, seed=1, algo.gamma=0.98",
            got=word,
            fix="quote values with brackets that are text: 'key=\"[a]\"'",
        ) from error


def _sections(override: Any, word: str) -> str:
    """`left,right` as Hydra writes two empty sections, which later words may fill."""
    text = word.partition("=")[2].strip()
    if isinstance(override.value(), Mapping) or not text:
        return text or "null"
    names = text.removeprefix("[").removesuffix("]").split(",")
    if len(names) == 1 and names[0].strip().isdecimal():
        return text  # how many
    if len(set(names)) < len(names):
        return f"[{','.join(names)}]"  # an error, which a list of sections would hide
    return "{" + ",".join(f"{name.strip()}:{{}}" for name in names) + "}"


def _check_option(group: str, value: Any, extra_dir: Path | None) -> None:
    known = options(group, extra_dir)
    if str(value) not in known:
        raise ConfigError(
            f"unknown {group} '{value}'",
            expected=f"a file of configs/{group}/",
            got=f"{group}={value}",
            fix=f"{did_you_mean(str(value), known)}; your own YAML: --config-dir DIR",
        )
