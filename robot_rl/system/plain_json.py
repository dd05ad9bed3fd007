"""JSON from somebody else: whatever is wrong with it is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str | bytes) -> Any:
    """What JSON text says.

    Raises:
        ValueError: it is no JSON, or lists in lists without end, at which Python's reader raises
            another error.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("lists in lists without end") from error
