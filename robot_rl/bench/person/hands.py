"""The stand-in person's hands: keys that are pressed as a person presses them.

A press comes a reaction time after what it answers, lasts somewhat more or less than was meant,
and now and then the finger lands on a neighbouring key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

REACTION_S = (0.2, 0.3)
SPREAD = 0.12  # standard deviation of how long a key is held, as a share of what was meant
BETWEEN_S = (0.01, 0.04)  # two keys that are meant together do not go down together
WRONG = 0.03  # share of presses that land on a neighbour
SLIP_S = (0.06, 0.14)  # until a finger on the wrong key is lifted again
NEIGHBOURS = {
    "KeyW": ("KeyQ", "KeyE", "KeyS"), "KeyS": ("KeyA", "KeyD", "KeyW", "KeyX"),
    "KeyA": ("KeyQ", "KeyS", "KeyZ"), "KeyD": ("KeyS", "KeyF", "KeyE", "KeyC"),
    "KeyE": ("KeyW", "KeyR", "KeyD"), "KeyQ": ("KeyW", "KeyA"), "KeyJ": ("KeyH", "KeyK"),
    "KeyL": ("KeyK",), "KeyC": ("KeyX", "KeyV"), "KeyG": ("KeyF", "KeyH"),
    "KeyT": ("KeyR", "KeyY"), "KeyR": ("KeyE", "KeyT"), "KeyP": ("KeyO",),
}  # fmt: skip


class Hands:
    """Two hands on the keyboard of a page (playwright's). pressed: how many presses so far."""

    def __init__(self, keyboard: Any, dice: random.Random) -> None:
        self._keyboard, self._dice = keyboard, dice
        self._down: set[str] = set()
        self.pressed = self.slips = 0

    def act(self, keys: Mapping[str, float | None]) -> None:
        """Hold these keys, each so many seconds (None: on until another act), and no others."""
        for key in self._down - keys.keys():
            self._up(key)
        until_s: dict[str, float] = {}
        for key, held_s in keys.items():
            if key not in self._down:
                self._press(key)
            if held_s is not None:
                until_s[key] = time.monotonic() + held_s * max(self._dice.gauss(1.0, SPREAD), 0.3)
            time.sleep(self._dice.uniform(*BETWEEN_S))
        for key in sorted(until_s, key=until_s.__getitem__):
            time.sleep(max(until_s[key] - time.monotonic(), 0.0))
            self._up(key)

    def let_go(self) -> None:
        """Lift all fingers."""
        self.act({})

    def _press(self, key: str) -> None:
        near = NEIGHBOURS.get(key, ())
        if near and self._dice.random() < WRONG:
            wrong = self._dice.choice(near)
            self._keyboard.down(wrong)
            time.sleep(self._dice.uniform(*SLIP_S))
            self._keyboard.up(wrong)
            time.sleep(self._dice.uniform(*REACTION_S))
            self.slips += 1
        self._keyboard.down(key)
        self._down.add(key)
        self.pressed += 1

    def _up(self, key: str) -> None:
        self._keyboard.up(key)
        self._down.discard(key)
