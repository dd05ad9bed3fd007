"""msgpack from somebody else: how much may be in it is bounded while it is decoded.

A byte of msgpack can be an empty map, which takes 64 bytes of memory, and a list of five bytes can
announce four billion entries. So the values of all containers are counted as they come, and
decoding ends at the first one too many, or at a level too deep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

MAX_VALUES = 65_536  # of all containers together; a full message of rows has some 25,000
MAX_ITEMS = 1024  # of one container
MAX_DEPTH = 32


def unpacked(
    data: bytes | memoryview,
    *,
    convert: Callable[[dict[Any, Any]], Any] | None = None,
    max_items: int = MAX_ITEMS,
    max_depth: int = MAX_DEPTH,
    **options: Any,
) -> Any:
    """Exactly one msgpack value.

    Args:
        convert: what becomes of each map.
        options: more of `msgpack.unpackb`.

    Raises:
        ValueError: it is no msgpack value, or more than the bounds allow; whatever `convert` raises
            comes as a ValueError, too.
    """
    values, depths = 0, {}

    def count(container: Any, inner: Any, size: int) -> None:
        nonlocal values
        values += size + 1
        if values > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values")
        depth = 1 + max((depths.pop(id(x), 0) for x in inner if type(x) in NESTING), default=0)
        if depth > max_depth:
            raise ValueError(f"more than {max_depth} levels")
        depths[id(container)] = depth

    def of_map(found: dict[Any, Any]) -> Any:
        if convert is None:
            count(found, found.values(), 2 * len(found))
            return found
        made = convert(found)
        count(made, found.values(), 2 * len(found))
        return made

    def of_list(found: Any) -> Any:
        count(found, found, len(found))
        return found

    try:
        return msgpack.unpackb(
            data,
            object_hook=of_map,
            list_hook=of_list,
            max_array_len=max_items,
            max_map_len=max_items,
            max_ext_len=0,
            **options,
        )
    except ValueError:
        raise
    except Exception as error:  # msgpack's own, RecursionError, and what `convert` met
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error


NESTING = (dict, list, tuple)
