"""Several arms on one learner (`actors=left,right`): the configuration of each.

Every arm has a run folder of its own below the run's, `arms/NAME`, with a configuration of its own:
the run's, in which the arm's name says which of the actors it is, and the sections of `actors.NAME`
override the run's. So each process of an arm finds its store, logs and sockets as it does in a run
with one arm. The learner belongs to the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import ARMS
from robot_rl.errors import ConfigError, did_you_mean

OWN = ("driver", "cameras", "operator", "ros")
"""Sections in which an arm may differ from the others: where its hardware is, and who helps it."""
MOST = 32  # the learner knows as many connections with room to spare (`link.server.MAX_SESSIONS`)
NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")  # also a ROS namespace, a folder and part of a key name


def sections(value: Any) -> dict[str, dict[str, Any]]:
    """Name of each arm -> what is its own. value: as given: names, sections by name, or a number.

    Raises:
        ConfigError: anything else, an unusable name, or a section that all arms share.
    """
    if isinstance(value, str):
        value = [value]
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST:
        value = [f"arm{number}" for number in range(1, value + 1)]
    if isinstance(value, list | tuple):
        twice = sorted({str(name) for name in value if value.count(name) > 1})
        if twice:
            raise _wrong("two arms have one name", ", ".join(twice))
        value = {str(name): {} for name in value}
    if not isinstance(value, Mapping) or not 1 <= len(value) <= MOST:
        raise _wrong("actors names no arms", repr(value))
    for name, own in value.items():
        if not NAME.fullmatch(str(name)):
            raise _wrong("an arm's name is unusable", repr(name))
        _check_own(str(name), own)
    return {
        str(name): {k: _section(v) for k, v in (own or {}).items()} for name, own in value.items()
    }


def _wrong(what: str, got: str) -> ConfigError:
    return ConfigError(
        what,
        expected=f"names such as left,right: small letters, digits and _; or how many, 1 to {MOST}",
        got=got,
        fix="e.g. actors=left,right, or actors=4 for arm1 to arm4 (docs/several_arms.md)",
    )


def _check_own(name: str, own: Any) -> None:
    if not isinstance(own, Mapping | None):
        raise ConfigError(
            f"actors.{name} is not a section",
            expected="keys with values",
            got=f"actors.{name}={own!r}",
            fix=f"e.g. actors.{name}.operator.name=console",
        )
    for key, value in (own or {}).items():
        if key not in OWN:
            raise ConfigError(
                f"actors.{name}.{key}: the arms may not differ in this",
                expected=f"one of {', '.join(OWN)}",
                got=f"{key}={value!r}",
                fix=f"{did_you_mean(str(key), OWN)}; one learner needs one task and one robot",
            )


def _section(value: Any) -> Any:
    """`operator=console` of an arm as the section that it stands for."""
    return {"name": value} if isinstance(value, str) else value


def of_arm(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The configuration of one arm's run folder, from the run's."""
    own = sections(config["actors"])[name]
    merged = {**config, "arm": name}
    for key, value in own.items():
        merged[key] = _merge(config.get(key) or {}, value)
    ros = dict(merged.get("ros") or {})
    if "namespace" not in own.get("ros", {}):
        above = str(ros.get("namespace", "")).strip("/")
        ros["namespace"] = f"{above}/{name}" if above else name
    return {**merged, "ros": ros}


def _merge(shared: Mapping[str, Any], own: Any) -> Any:
    """An arm's section over the shared one; one of another name stands for itself."""
    if not isinstance(own, Mapping):
        return own
    if own.get("name", shared.get("name")) != shared.get("name"):
        return dict(own)
    kept = {
        k: _merge(shared.get(k) or {}, v) if isinstance(v, Mapping) else v for k, v in own.items()
    }
    return {**shared, **kept}


def share(total: int, index: int, count: int) -> int:
    """How many of `total` fall to the arm at `index` of `count`; the first ones take the rest."""
    return total // count + (index < total % count)


def folder_of(home: Path, name: str) -> Path:
    """The run folder of an arm, in the run's."""
    return home / ARMS / name


def _input_device(operator: Mapping[str, Any]) -> list[str]:
    """What a person holds, if this machine reads it: two operator nodes would read it both."""
    if "device" not in operator:
        return []
    return [f"{operator['name']} {operator['device'] or '(the only one there is)'}"]


def _cameras(section: Mapping[str, Any]) -> list[str]:
    """The cameras that nodes of ours open, by what chooses them."""
    opened = []
    for camera in section.values():
        for key in ("serial", "device"):
            if key in camera:
                opened.append(f"{camera['name']} {key}={camera[key] or '(the first one)'}")
    return opened


def _absolute(value: Any) -> Iterator[str]:
    """Every absolute name in a section: a topic, a service, the path of a device, but no file."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _absolute(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _absolute(inner)
    elif isinstance(value, str) and value.startswith("/") and not Path(value).is_file():
        yield value


def refuse_sharing(plain: Mapping[str, Mapping[str, Any]], *, opens_cameras: bool) -> None:
    """Refuse what would be one thing for two arms of a ROS 2 graph.

    plain: sections `OWN` of each arm, every default filled in; opens_cameras: nodes of ours do.

    Raises:
        ConfigError: one device, driver or namespace for two arms; several ROS domains for one run.
    """
    graphs = {name: (own["ros"]["name"], own["ros"]["domain_id"]) for name, own in plain.items()}
    if len(set(graphs.values())) > 1:
        raise ConfigError(
            "all arms of a run need one ROS domain and one kind of graph",
            expected="the same for each",
            got="; ".join(f"{name}: {' '.join(map(str, said))}" for name, said in graphs.items()),
            fix="set it for the run, in ros, and not in actors",
        )
    _refuse_shared(
        "one namespace",
        {name: ["/" + own["ros"]["namespace"].strip("/")] for name, own in plain.items()},
        "actors.{name}.ros.namespace=...",
    )
    _refuse_shared(
        "one input device, which would move both",
        {name: _input_device(own["operator"]) for name, own in plain.items()},
        "actors.{name}.operator.device=... (robot-rl devices lists them), or operator=console",
    )
    if opens_cameras:
        _refuse_shared(
            "one camera",
            {name: _cameras(own["cameras"]) for name, own in plain.items()},
            "actors.{name}.cameras.NAME.serial=... or .device=... (robot-rl camera list)",
        )
    _refuse_shared(
        "a name or device",
        {name: sorted(set(_absolute(own))) for name, own in plain.items()},
        "write the name without its first /, relative to the arm's namespace, or set it in "
        "actors.{name}",
    )


def _refuse_shared(what: str, by_arm: Mapping[str, Iterable[str]], fix: str) -> None:
    user: dict[str, str] = {}
    for name, things in by_arm.items():
        for thing in things:
            if thing in user:
                raise ConfigError(
                    f"two arms would share {what}",
                    expected="one for each arm",
                    got=f"{user[thing]} and {name}: {thing}",
                    fix=fix.format(name=name),
                )
            user[thing] = name
