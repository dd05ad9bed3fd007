"""Changes inputs of the decoders: bytes, and values inside JSON and msgpack.

Without a coverage-guided fuzzer these are all the inputs; with one (`run.py`) they are mixed with
its own, so that what is inside a message changes and not only its first bytes.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

PART = b"\n%%\n"  # between the parts of an input that stands for several files
INTERESTING = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 192, 224, 254, 255)
DEEP = 1200  # levels; the reader of the standard library ends at about 1000
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 255, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63),
    10**400, -(10**400), 0.0, -0.0, 0.5, 1.5, 1e-320, 1e30, 1e308, math.nan, math.inf, -math.inf,
    "", "a", "0", "nan", "..", "/", "\x00", "\ud800", "\u00e9", "9" * 5000, "x" * 700,
    [], {}, [[]], [{}], {"": 0}, {"a": {}}, [0] * 70, [1.0] * 7, b"", b"\x00" * 9,
)  # fmt: skip
"""Values that stand in for another one. JSON has no bytes and msgpack no long integers: such a
change is dropped."""

Load = Callable[[bytes], Any]
Dump = Callable[[Any], bytes]


def _dump_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _load_msgpack(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogatepass")


def _dump_msgpack(value: Any) -> bytes:
    return bytes(msgpack.packb(value, unicode_errors="surrogatepass") or b"")


TREES: dict[str, tuple[Load, Dump]] = {
    "json": (json.loads, _dump_json),
    "msgpack": (_load_msgpack, _dump_msgpack),
}


class Mutator:
    """Makes inputs out of the seeds of one target.

    Args:
        tree: "json" or "msgpack", if that is what the seeds hold; "" = plain bytes.
        skip: bytes before it that are not part of it.
    """

    def __init__(
        self, seeds: Sequence[bytes], seed: int, longest: int, tree: str = "", skip: int = 0
    ) -> None:
        self._random = random.Random(seed)
        self._seeds, self._longest, self._tree, self._skip = list(seeds), longest, tree, skip
        words = {w for s in seeds for w in re.findall(rb"[A-Za-z_][A-Za-z_0-9/.:-]{1,30}", s)}
        self._words = sorted(words)[:400] or [b"a"]

    def fresh(self) -> bytes:
        """The next input: a seed with one to four changes."""
        found = self._random.choice(self._seeds)
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 4))):
            found = self.change(found)
        return found

    def change(self, data: bytes) -> bytes:
        """One change, inside a value if this input holds one."""
        if self._tree and self._random.random() < 0.7:
            changed = self.inside(data)
            if changed is not None:
                return changed
        return self._bytes(data)[: self._longest]

    def inside(self, data: bytes) -> bytes | None:
        """Change a value of the JSON or msgpack in `data`; None if that cannot be done."""
        load, dump = TREES[self._tree or "json"]
        parts = data[self._skip :].split(PART) if self._tree == "json" else [data[self._skip :]]
        at = self._random.randrange(len(parts))
        try:
            parts[at] = dump(self._value(load(parts[at])))
        except Exception:  # no JSON or msgpack, or a value that it has no form for
            return None
        found = data[: self._skip] + PART.join(parts)
        return found if len(found) <= self._longest else None

    def _value(self, root: Any) -> Any:
        """`root` with one change; it may be changed in place."""
        places: list[tuple[Any, Any]] = []
        waiting = [root]
        while waiting and len(places) < 5000:
            here = waiting.pop()
            inner = here.items() if isinstance(here, dict) else enumerate(here)
            for key, value in list(inner):
                places.append((here, key))
                if isinstance(value, dict | list) and value:
                    waiting.append(value)
        if not places or self._random.random() < 0.02:
            return self._other(root, root)
        container, key = self._random.choice(places)
        chance = self._random.random()
        if chance < 0.08:
            del container[key]
        elif chance < 0.14 and isinstance(container, dict):
            name = self._random.choice(self._words).decode()
            container[name] = container.pop(key)
        elif chance < 0.2 and isinstance(container, list):
            container.insert(self._random.randrange(len(container) + 1), container[key])
        elif chance < 0.35:  # a value from elsewhere
            other, name = self._random.choice(places)
            text = json.dumps(other[name]) if self._tree == "json" else None
            container[key] = json.loads(text) if text is not None else other[name]
        else:
            container[key] = self._other(container[key], root)
        return root

    def _other(self, value: Any, root: Any) -> Any:
        chance = self._random.random()
        if chance < 0.25 and type(value) in (int, float):
            return self._random.choice((value + 1, value - 1, -value, value * 1000, value / 3))
        if chance < 0.25 and isinstance(value, str) and value:
            at = self._random.randrange(len(value))
            return (
                value[:at] + self._random.choice(("", "x", "\n", "/", "-", "1")) + value[at + 1 :]
            )
        if chance < 0.25 and isinstance(value, bytes):
            return self._bytes(value)
        if chance < 0.27:
            for _ in range(self._random.choice((5, 40, 100, 400))):
                value = [value]
            return value
        return self._random.choice(ODD)

    def _bytes(self, data: bytes) -> bytes:  # noqa: PLR0911, one way after the other
        pick, rng = self._random.randrange(11), self._random
        at = rng.randrange(len(data) + 1)
        span = min(len(data) - at, rng.choice((1, 1, 2, 4, 8, 32)))
        if pick == 0 or not data:
            new = bytes(rng.choice(INTERESTING) for _ in range(rng.choice((1, 2, 4, 8))))
            return data[:at] + new + data[at:]
        if pick == 1:
            return data[:at] + data[at + span :]
        if pick == 2:
            return data[:at] + data[at : at + span] * rng.choice((2, 3, 50)) + data[at + span :]
        if pick == 3:
            return data[:at]
        if pick == 4:
            return data[:at] + rng.choice(self._words) + data[at + span :]
        if pick == 5:
            other = rng.choice(self._seeds)
            return data[:at] + other[rng.randrange(len(other) + 1) :]
        if pick == 6:  # a number in the text
            found = list(re.finditer(rb"-?\d+(\.\d*)?", data))
            if found:
                where = rng.choice(found)
                new = rng.choice((b"0", b"-1", b"1e308", b"nan", b"-inf", b"1e-320", b"9" * 400))
                return data[: where.start()] + new + data[where.end() :]
        if pick == 7 and rng.random() < 0.05:
            return data[:at] + rng.choice((b"[", b"{", b"(", b"<a>", b"- ")) * DEEP + data[at:]
        changed = bytearray(data)
        at = min(at, len(data) - 1)
        changed[at] = rng.choice(INTERESTING) if pick < 9 else changed[at] ^ 1 << rng.randrange(8)
        return bytes(changed)
