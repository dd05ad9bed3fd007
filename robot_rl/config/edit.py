"""Changes values in a person's YAML file and leaves every other character of it as it was.

A YAML library that writes a file anew loses its comments. Here the parser only says where values
stand; they are replaced in the text. Afterwards the text is read again: it must say what was wanted
and nothing else, so a file that is written in an unusual way is refused, never spoilt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from robot_rl.config.yaml_file import parse_yaml
from robot_rl.errors import ConfigError

INDENT = 2


def flow(value: Any) -> str:
    """A value as one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
    return text.removesuffix("...\n").strip()


def with_values(text: str, section: Sequence[str], values: Mapping[str, Any]) -> str:
    """The text of a YAML file with other values in one section; the section is made if need be.

    Args:
        section: names of the nested sections, from the outside, e.g. ("cameras", "wrist").
        values: key -> new value; keys that are not named stay as they are.

    Raises:
        ConfigError: the file is not YAML, or is written in a way in which only a person can change
            these values without losing something (a comment inside a value, an alias).
    """
    try:
        wanted = _merged(parse_yaml(text, "the file") or {}, section, values)
        changed = text
        for key, value in values.items():
            changed = _with_value(changed, [*section, key], value)
        if parse_yaml(changed, "the file") == wanted:
            return changed
        problem = "another value would change with it"
    except (yaml.YAMLError, ValueError, TypeError) as error:
        problem = str(error)
    words = "; ".join(f"{'.'.join([*section, key])}: {flow(v)}" for key, v in values.items())
    raise ConfigError(
        "this file cannot be changed by a program",
        expected="plain YAML in which each of these values stands alone",
        got=problem,
        fix=f"put the values into the file yourself: {words}",
    )


def _merged(before: Any, section: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """A loaded file with the values; raises `ValueError` where a section is something else."""
    if not isinstance(before, dict):
        raise ValueError(f"'{before}' where keys with values should be")
    if not section:
        return before | dict(values)
    inner = before.get(section[0])
    return before | {section[0]: _merged({} if inner is None else inner, section[1:], values)}


def _with_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text with one value set."""
    node, depth = yaml.compose(text, yaml.SafeLoader), 0
    if node is None:  # nothing but comments
        return _on_a_new_line(text, len(text), 0, _nested(path, value))
    for depth, name in enumerate(path):
        inner = _value_of(node, name)
        if inner is None:
            return _with_entry(text, node, path[depth:], value)
        node = inner
    span = text[node.start_mark.index : _end(node)]
    if "#" in span and not isinstance(node, yaml.ScalarNode):
        raise ValueError(f"a comment inside the value of {path[-1]}")
    # a value that was left out has no space before it
    space = "" if span else " "
    return text[: node.start_mark.index] + space + flow(value) + text[_end(node) :]


def _value_of(node: Any, name: str) -> Any:
    """Node of the value of a key; None when the mapping (or what should be one) has no such key."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


def _with_entry(text: str, node: Any, path: Sequence[str], value: Any) -> str:
    """The text with a new entry in the mapping `node`, after its last one."""
    if not isinstance(node, yaml.MappingNode):  # `wrist:` and nothing behind it
        at = node.start_mark.index
        return f"{text[:at]} {flow(_tree(path, value))}{text[_end(node) :]}"
    if not node.flow_style:
        at = _end(node.value[-1][1])
        return _on_a_new_line(text, at, node.start_mark.column, _nested(path, value))
    entry = flow(_tree(path, value)).removeprefix("{").removesuffix("}")
    if not node.value:
        at = node.start_mark.index + 1
        return f"{text[:at]} {entry} {text[node.end_mark.index - 1 :]}"
    at = _end(node.value[-1][1])
    return f"{text[:at]}, {entry}{text[at:]}"


def _tree(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _nested(path: Sequence[str], value: Any) -> list[str]:
    """Lines of nested sections with one value in the innermost."""
    sections = [" " * INDENT * depth + f"{name}:" for depth, name in enumerate(path)]
    return [*sections[:-1], f"{sections[-1]} {flow(value)}"]


def _on_a_new_line(text: str, at: int, column: int, lines: Sequence[str]) -> str:
    """The text with lines after the one in which position `at` lies, and its comment."""
    end = text.find("\n", max(at - 1, 0)) if at else -1
    if end < 0:
        text, end = text + ("\n" if text and not text.endswith("\n") else ""), len(text)
        end = len(text) - 1
    new = "".join(f"{' ' * column}{line}\n" for line in lines)
    return text[: end + 1] + new + text[end + 1 :]


def _end(node: Any) -> int:
    """Where a node ends; the parser's own mark of a block lies behind the comments after it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.index
