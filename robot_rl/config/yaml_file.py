"""Reads YAML that may be somebody else's: data only, and bounded before it becomes anything.

A file of a few hundred bytes can name the same list ten times in a list that it names ten times,
and so on: what it would be, written out, is counted before it is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from robot_rl.errors import ConfigError
from robot_rl.system.files import replace_file

MAX_BYTES = 1 << 20  # a run's whole configuration has about 20 kB
MAX_VALUES = 100_000  # written out, without aliases
MAX_DEPTH = 50
UNFIT = (AttributeError, KeyError, TypeError, ValueError, OverflowError, yaml.YAMLError)
"""What is raised by reading somebody else's YAML and taking numbers and keys out of it."""


def read_yaml(path: Path) -> Any:
    """What a YAML file says. Raises `OSError`, and as `parse_yaml`."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    return parse_yaml(data, path.name)


def write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    """Write a YAML file: the whole of it, or the one before stays."""
    text = yaml.safe_dump(dict(data), sort_keys=False, default_flow_style=None, width=100)
    replace_file(path, text)


def parse_yaml(data: str | bytes, name: str) -> Any:
    """What YAML text says, as plain data. name: of its source, for the message.

    Raises:
        ConfigError: it is too large, too deep, or would be, written out without aliases.
        yaml.YAMLError: it is no YAML, names types of Python, or a value is none of its type.
    """
    if len(data) > MAX_BYTES:
        raise _too_much(name, f"more than {MAX_BYTES} bytes")
    loader = _Loader(data)
    loader.name = name  # for messages
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _values(node, {}, 0, name)
        return loader.construct_document(node)
    except RecursionError as error:
        raise _too_much(name, "lists in lists without end") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        # what PyYAML's constructors raise, e.g. for `!!timestamp soon` or a number of 5,000 digits
        raise yaml.YAMLError(f"a value that cannot be read ({error})"[:200]) from error
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Ends at `MAX_DEPTH` levels while it reads: behind them, each level takes longer."""

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803
        """A list or a map in brackets begins."""
        self._check(self.flow_level)
        super().fetch_flow_collection_start(TokenClass)

    def add_indent(self, column: int) -> bool:
        """Perhaps a list or a map in lines of its own begins."""
        self._check(len(self.indents))
        return super().add_indent(column)

    def _check(self, levels: int) -> None:
        if levels > MAX_DEPTH:
            raise _too_much(self.name, f"more than {MAX_DEPTH} levels")


def _values(node: yaml.Node, known: dict[int, int], depth: int, name: str) -> int:
    """How many values a node has, written out. known: of nodes that were counted; 0 = under way."""
    if depth > MAX_DEPTH:
        raise _too_much(name, f"more than {MAX_DEPTH} levels")
    if id(node) in known:
        count = known[id(node)]
        if not count:
            raise _too_much(name, "a value that contains itself")
        return count
    known[id(node)] = 0
    count = 1
    if isinstance(node, yaml.SequenceNode):
        count += sum(_values(inner, known, depth + 1, name) for inner in node.value)
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            count += sum(_values(inner, known, depth + 1, name) for inner in pair)
    if count > MAX_VALUES:
        raise _too_much(name, f"more than {MAX_VALUES} values, written out")
    known[id(node)] = count
    return count


def _too_much(name: str, got: str) -> ConfigError:
    return ConfigError(
        f"{name} is not read: it is too large",
        expected=f"at most {MAX_BYTES} bytes, {MAX_VALUES} values and {MAX_DEPTH} levels",
        got=got,
        fix="look at the file in an editor; a configuration has a few hundred lines",
    )
