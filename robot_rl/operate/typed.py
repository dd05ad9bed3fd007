"""The keys of a terminal as a hand on the robot.

A terminal tells which character was typed, and nothing of a key that is let go of; a key that is
held types again and again, after a pause, and of two keys that are held only the last one. So here
one key is enough, and what lasts is kept short:

    a motion key    moves for `MOVE_S`: a tap is a small step, a key that repeats is a motion that
                    ends `MOVE_S` after its last character
    driving         goes on for `DRIVE_S` after the last key, so that the pause before a key repeats
                    is no release; without a motion key the arm stands still meanwhile
    Space           drive, and stand still at once

Where the kernel tells which keys are down (`Pressed`; evdev), the keys are those of the page: Space
held drives, letters move, and letting go counts at once. A key that is down counts only when the
terminal has received its character as well: so what is typed into another window moves no arm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MOVE_S = 0.12  # X11 repeats every 40 ms, the Linux console every 92 ms
DRIVE_S = 0.8  # longer than the pause before a key repeats (250 to 660 ms)
SAID_S = 0.2  # success, failure, hold: long enough for a control loop of 10 Hz
CONFIRM_S = 0.5  # between a key going down and its character

MOTION = {
    "w": (0, 1), "s": (0, -1), "d": (1, 1), "a": (1, -1), "q": (2, 1), "e": (2, -1),
    "u": (3, -1), "o": (3, 1), "i": (4, 1), "k": (4, -1), "l": (5, 1), "j": (5, -1),
}  # fmt: skip
"""Key -> (axis, sign), as on the page."""
WORDS = {"c": "close", "g": "open", "z": "rewind"}
LABELS = {"\r": "success", "\n": "success", "\x7f": "failure", "\x08": "failure"}
COMMANDS = {"r": "go", "y": "acknowledge", "f": "ready"}
NAMES = {" ": "KEY_SPACE"} | {k: f"KEY_{k.upper()}" for k in (*MOTION, *WORDS)}
ESC = "\x1b"

Said = tuple[list[float], list[str]]


@dataclass
class TypedKeys:
    """What the characters of a terminal mean now. Feed it every character with its time.

    down: names of the keys that are down (evdev), or None where the kernel does not tell.

    Attributes:
        commands: what was typed that is no motion: hold, go, acknowledge, ready; take them.
        by_kernel: the kernel's keys count, since one of them has been seen together with its
            character.
    """

    down: Callable[[], frozenset[str]] | None = None
    commands: list[str] = field(default_factory=list)
    by_kernel: bool = False
    _move: tuple[str, bool] = ("", False)  # key, slow
    _move_s: float = -1e9  # until when
    _drive_s: float = -1e9
    _words: dict[str, float] = field(default_factory=dict)  # word -> until when
    _typed: dict[str, float] = field(default_factory=dict)  # key -> its newest character
    _confirmed: set[str] = field(default_factory=set)

    def type(self, text: str, now_s: float) -> None:
        """Take what one read of the terminal gave: whole escape sequences, or characters."""
        if text.startswith(ESC):
            if not text.startswith((f"{ESC}[", f"{ESC}O")):  # arrows and the like mean nothing
                self._hold(now_s)
            return
        for char in text:
            if char == ESC:
                self._hold(now_s)
                return
            self._key(char, now_s)

    def _key(self, char: str, now_s: float) -> None:
        key = char.lower()
        if char in LABELS:
            self._words[LABELS[char]] = now_s + SAID_S
        elif key in COMMANDS:
            self.commands.append(COMMANDS[key])
        elif key in NAMES:
            self._typed[key] = now_s
            self.by_kernel |= self.down is not None and NAMES[key] in self.down()
            if not self.by_kernel:
                self._press(key, char.isupper(), now_s)

    def _press(self, key: str, slow: bool, now_s: float) -> None:
        if key == "z":
            self._words["rewind"] = now_s + MOVE_S
            return
        self._drive_s = now_s + DRIVE_S
        if key == " ":
            self._move_s = -1e9
        elif key in MOTION:
            self._move, self._move_s = (key, slow), now_s + MOVE_S
        else:
            self._words[WORDS[key]] = now_s + SAID_S

    def _hold(self, now_s: float) -> None:
        self._move_s = self._drive_s = -1e9
        self._confirmed.clear()
        self._words = {"hold": now_s + SAID_S}
        self.commands.append("hold")

    def said(self, now_s: float) -> Said:
        """(axes [6], held words), as the page says them."""
        axes, held = [0.0] * 6, {w for w, until_s in self._words.items() if now_s < until_s}
        if self.by_kernel and self.down is not None:
            keys = self._keys_down(self.down(), now_s)
            held |= {"drive"} if " " in keys else set()
            held |= {WORDS[key] for key in keys if key in WORDS}
            held |= {"slow"} if "shift" in keys else set()
        else:
            key, slow = self._move if now_s < self._move_s else ("", False)
            keys = {key} if key else set()
            held |= {"drive"} if now_s < self._drive_s else set()
            held |= {"slow"} if slow else set()
        for axis, sign in (MOTION[key] for key in keys if key in MOTION):
            axes[axis] += sign
        return axes, sorted({"hold"} if "hold" in held else held)

    def _keys_down(self, down: frozenset[str], now_s: float) -> set[str]:
        """Keys that are down and whose character has arrived here since they went down."""
        keys = {key for key, name in NAMES.items() if name in down}
        self._confirmed &= keys
        self._confirmed |= {k for k in keys if now_s - self._typed.get(k, -1e9) <= CONFIRM_S}
        for key in set(self._typed) - keys:
            if now_s - self._typed[key] > CONFIRM_S:
                del self._typed[key]
        shift = {"shift"} if down & {"KEY_LEFTSHIFT", "KEY_RIGHTSHIFT"} else set()
        return self._confirmed | shift
