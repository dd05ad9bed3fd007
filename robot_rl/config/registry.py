"""Configuration without executable targets: names -> frozen dataclasses, checked key by key.

Hydra composes YAML deltas and command-line overrides into a plain nested dict; `build` turns that
dict into dataclasses and refuses unknown keys, wrong types and missing values with a did-you-mean.
Nothing in a config file can name code to run (no `_target_`): a `name` picks from `REGISTRY`, which
packages fill through the `robot_rl.plugins` entry-point group.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

from robot_rl.errors import ConfigError, UnknownNameError, did_you_mean

T = TypeVar("T")

REGISTRY: dict[str, dict[str, type]] = {}
"""group -> name -> dataclass, e.g. REGISTRY["task"]["peg_insert"]."""

UPGRADES: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {}
"""group -> function that turns a section written by an older version into one of today's."""

PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "robot": ("robot_rl.robots",),
    "task": ("robot_rl.tasks",),
    "camera": ("robot_rl.observe.cameras",),
    "operator": ("robot_rl.operate", "robot_rl.ros.input_config"),
    "reward": ("robot_rl.reward.config",),
    "link": ("robot_rl.link.config",),
    "base": ("robot_rl.policy.base",),
    "algo": ("robot_rl.learn.algos",),
    "ros": ("robot_rl.ros.graph",),
}
"""group -> our modules that register what we ship; plugins add to it. The modules are only named
here: a process imports those of a group when it first needs one of the group's dataclasses."""


def register(group: str, name: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: make a dataclass selectable as `group=name`.

    Raises:
        ConfigError: the class is no dataclass.
    """

    def add(cls: type[T]) -> type[T]:
        if not dataclasses.is_dataclass(cls):
            raise ConfigError(
                f"{cls.__name__} cannot be chosen as {group}={name}",
                expected="a dataclass: its fields are what a configuration may say",
                got="a class without @dataclass",
                fix="write @dataclass(frozen=True) below @register(...)",
            )
        REGISTRY.setdefault(group, {})[name] = cls
        return cls

    return add


def load_plugins() -> None:
    """Import every installed package that registers configs (`robot_rl_hardware`, your own).

    A package without our entry point is named by whoever starts the program, never by a file:
    `ROBOT_RL_PLUGINS=gym_hil,other`.

    Raises:
        ConfigError: a package that is named there is not found.
    """
    from importlib.metadata import entry_points  # 20 ms that most processes need not spend

    for entry in entry_points(group="robot_rl.plugins"):
        entry.load()
    for module in filter(None, os.environ.get("ROBOT_RL_PLUGINS", "").split(",")):
        try:
            importlib.import_module(module.strip())
        except ModuleNotFoundError as error:
            if error.name != module.strip():
                raise
            raise ConfigError(
                f"ROBOT_RL_PLUGINS names '{error.name}', which is not found",
                expected="an installed package, or one in a folder of PYTHONPATH",
                got=f"ROBOT_RL_PLUGINS={os.environ['ROBOT_RL_PLUGINS']}",
                fix="install it with pip, or start from its folder with PYTHONPATH=.",
            ) from error


def resolve(group: str, data: Mapping[str, Any], path: str = "") -> Any:
    """Build the registered dataclass that `data["name"]` picks from `group`.

    path: where `data` stands in the config, for messages; "" = in the section of the group.

    Raises:
        ConfigError: unknown name, unknown key, wrong type or value, or a setting that was removed.
    """
    for module in PROVIDERS.get(group, ()):
        importlib.import_module(module)
    known = REGISTRY.setdefault(group, {})
    if not isinstance(data, Mapping):
        raise _wrong_type("a name, and keys with values", data, path or group)
    if group in UPGRADES:
        data = UPGRADES[group](data)
    name = str(data.get("name", ""))
    if name not in known:
        load_plugins()
    if name not in known:
        raise UnknownNameError(
            f"unknown {group} '{name}'",
            expected=f"one of the registered {group}s",
            got=repr(name),
            fix=f"{did_you_mean(name, known)}; one of your own is found by its package's entry "
            "point, or by ROBOT_RL_PLUGINS=package (docs/extend.md)",
        )
    rest = {k: v for k, v in data.items() if k != "name"}
    return build(known[name], rest, path or group)


def build(cls: type[T], data: Mapping[str, Any], path: str = "") -> T:
    """Turn a nested mapping into dataclass `cls`; keys that are absent keep their defaults.

    Raises:
        ConfigError: unknown key (with the nearest known one), missing key, or wrong type.
    """
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    if not isinstance(data, Mapping):
        raise _wrong_type([cls], data, path or cls.__name__)
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in data.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            raise ConfigError(
                f"unknown config key '{where}'",
                expected=f"a field of {cls.__name__}",
                got=f"{key}={value!r}",
                fix=did_you_mean(str(key), fields),
            )
        values[str(key)] = _coerce(hints[key], value, where)
    try:
        return cls(**values)
    except TypeError as error:  # a field without default was not given
        raise ConfigError(
            f"incomplete config '{path or cls.__name__}'",
            expected=f"all of: {', '.join(fields)}",
            got=", ".join(values) or "(nothing)",
            fix=str(error),
        ) from error
    except ValueError as error:  # __post_init__ checks physical sense
        raise ConfigError(
            f"bad value in config '{path or cls.__name__}'",
            expected="values within the stated range",
            got=str(error),
            fix=f"see the comments of {cls.__name__} in {cls.__module__.replace('.', '/')}.py",
        ) from error


def _coerce(hint: Any, value: Any, where: str) -> Any:
    """Check `value` against a type hint; lists become tuples, ints floats, enum values enums."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _any_of([a for a in args if a is not type(None)], value, where)
    if isinstance(value, Mapping) and (origin in (dict, Mapping) or hint is dict):
        inner = args[1] if args else Any
        return {str(k): _coerce(inner, v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, Mapping) and dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        hints = [args[0]] * len(value) if args[-1] is Ellipsis else list(args)
        if len(hints) == len(value):
            try:
                return tuple(_coerce(h, v, where) for h, v in zip(hints, value, strict=True))
            except ConfigError:
                if any(h not in WORDS for h in hints):
                    raise  # an entry has more to say than that the list is wrong
    return _scalar(hint, value, where)


def _any_of(hints: list[Any], value: Any, where: str) -> Any:
    """`value` as the first of several types that it fits."""
    if len(hints) == 1:
        return _coerce(hints[0], value, where)
    for hint in hints:
        with suppress(ConfigError):
            return _coerce(hint, value, where)
    raise _wrong_type(hints, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    """Check a value without parts: exactly of the type, an int for a float, or an enum's value."""
    endless = hint is float and value in (math.inf, -math.inf)  # others' code (Any) may want it
    if endless or (isinstance(value, float) and math.isnan(value)):
        raise ConfigError(
            f"config key '{where}' is not a finite number",
            expected="a finite number",
            got=str(value),
            fix=f"write one: {where}=0.5",
        )
    if hint is Any or type(value) is hint:
        return value
    if hint is float and type(value) is int:
        with suppress(OverflowError):
            return float(value)
    if isinstance(hint, type) and issubclass(hint, Enum) and value in [e.value for e in hint]:
        return hint(value)
    raise _wrong_type([hint], value, where)


WORDS: Mapping[Any, tuple[str, str, str]] = {
    int: ("a whole number", "whole numbers", "3"),
    float: ("a number", "numbers", "0.5"),
    str: ("a text", "texts", "name"),
    bool: ("true or false", "entries, each true or false", "true"),
    list: ("a list", "lists", "[]"),
    dict: ("keys with values", "entries, each keys with values", "{}"),
    type(None): ("nothing", "entries", "null"),
}
"""Type -> how a message calls one and several of it, and an example."""


def _written(hint: Any) -> str:
    """A type in words."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and args:
        several = WORDS[args[0]][1] if args[0] in WORDS else f"entries, each {_written(args[0])}"
        if args[-1] is Ellipsis:
            return f"a list of {several}"
        if len(set(args)) == 1:
            return f"a list of {len(args)} {several}"
        return f"[{', '.join(map(_written, args))}]"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(str(e.value) for e in hint)}"
    if _has_keys(hint):
        return "keys with values"
    return WORDS[hint][0] if hint in WORDS else getattr(hint, "__name__", str(hint))


def _example(hint: Any) -> str:
    """A value of a type as the command line takes it; "..." where there is none to give."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and args:
        some = args[:1] * 2 if args[-1] is Ellipsis else args
        return f"[{','.join(map(_example, some))}]"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return str(next(iter(hint)).value)
    return WORDS[hint][2] if hint in WORDS else "..."


def _has_keys(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or typing.get_origin(hint) in (dict, Mapping)


def _wrong_type(hints: Sequence[Any], value: Any, where: str) -> ConfigError:
    like = f"{where}.KEY=VALUE" if _has_keys(hints[0]) else f"{where}={_example(hints[0])}"
    return ConfigError(
        f"wrong type for config key '{where}'",
        expected=", or ".join(map(_written, hints)),
        got=f"{_short(value)} ({_written(type(value))})",
        fix=f"write it like this: {like}",
    )


def _short(value: Any) -> str:
    """A value for a message; Python writes no integer of more than 4,300 digits."""
    try:
        return repr(value)[:200]
    except ValueError:
        return "a number of thousands of digits"
