"""What the stand-in person does next, from what is seen and read: no clock, no page, no robot.

    Mind("lift").next(words, sight).keys

It knows what a person knows who has read the page's help and docs/console.md: what the keys are
for, and how the thing is done (over it, down, close, up). How fast the tool moves it learns by
pressing a key and looking what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robot_rl.bench.person.eyes import ALONG, Sight

SLOW = "ShiftLeft"
DRIVE = "Space"
TAP_S = 0.08
LEAST_S = 0.12  # a shorter press may fall between two ticks of the control loop
MOST_S = 0.6  # then a person looks again
SLOWER = 0.3  # what the help calls slow
STANDS_MM_S = 4.0
RESTS_MM_S = 25.0  # on the table; the slow way down is three times as fast
FALL_S = 0.35  # the fast part of the way down to the cube
TOUCHES_N = 5.0
GUESS = 0.4  # heights of the picture per second that a key moves the tool: the first guess
TOLERANCE = {"lift": 0.035, "peg_insert_easy": 0.008}  # heights of the picture
TURN_RAD = {"lift": 0.18, "peg_insert_easy": 0.05}
TURNS_RAD_S = {"lift": 1.0, "peg_insert_easy": 0.4}
GIVE_UP = 3


@dataclass(frozen=True, slots=True)
class Words:
    """The page's visible text; "" for what is not shown."""

    word: str = ""
    reason: str = ""
    advice: str = ""
    result: str = ""
    seat: str = ""
    device: str = ""
    asks: str = ""
    view: str = ""
    go: bool = False
    acknowledge: bool = False
    force_n: float = 0.0
    speed_mm_s: float = 0.0
    gripper_mm: float = 0.0
    views: int = 1


@dataclass(frozen=True, slots=True)
class Act:
    """Keys to hold: how long each, None = until the next act. settle: then look when it stands."""

    keys: Mapping[str, float | None] = field(default_factory=dict[str, "float | None"])
    why: str = ""
    settle: bool = False


class Mind:
    """A person at the page. Ask it again after every look."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.rates = np.full(2, GUESS)  # along D and W, heights of the picture per second
        self.turn_rate = TURNS_RAD_S[task]  # rad per second
        self._result = ""
        self._begin()

    def _begin(self) -> None:
        """A new try."""
        self._step = "over"
        self._low = self._waited = self._stuck = 0
        self._tight = 1.0
        self._pressed: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        self._turned: tuple[float, float] | None = None

    def next(self, words: Words, sight: Sight) -> Act:
        """What to do now."""
        if words.result != self._result:
            self._result = words.result
            self._begin()
            return Act(why="an episode has ended: let go")
        if (act := self._page(words)) is not None:
            self._begin()
            return act
        self._learn(sight)
        return self._lift(words, sight) if self.task == "lift" else self._peg(words, sight)

    def _page(self, words: Words) -> Act | None:
        """What the page asks for before anything can be driven."""
        if words.acknowledge:
            return Act({"KeyY": TAP_S}, "a stop: looked, acknowledge")
        if words.go:
            return Act({"KeyR": TAP_S}, "it waits: go on")
        if words.seat and not words.seat.startswith("you have"):
            return Act({"KeyT": TAP_S}, "take the seat")
        if words.asks:
            return Act({"KeyF": TAP_S}, "everything is in place: go")
        if words.word in ("", "Offline", "Idle", "Resetting"):
            return Act(why="wait")
        said = f"{words.reason} {words.device}"
        if any(text in said for text in ("let go", "release the device", "a moment more")):
            return Act(why="let go, and wait")
        if words.views > 1 and words.view != ALONG:
            return Act({"KeyP": TAP_S}, "another picture")
        return None

    def _learn(self, sight: Sight) -> None:
        """How fast a key moves and turns the tool: what the last press has changed."""
        before, self._pressed = self._pressed, None
        turned, self._turned = self._turned, None
        if turned is not None and sight.target is not None:
            rate = (turned[0] - sight.target.turn_rad) / turned[1]
            if 0.1 < rate < 3.0:
                self.turn_rate += 0.4 * (rate - self.turn_rate)
        if before is None or sight.error is None:
            return
        error, held_s = before
        moved = error - sight.error
        for i in range(2):
            if abs(held_s[i]) < 0.1:
                continue
            rate = moved[i] / held_s[i]
            if 0.05 < rate < 3.0:
                self.rates[i] += 0.4 * (rate - self.rates[i])

    def _aim(self, sight: Sight, tolerance: float, turn_rad: float) -> Act | None:
        """Keys that put the tip over the target; None when it is there."""
        error, target = sight.error, sight.target
        assert error is not None and target is not None
        keys: dict[str, float | None] = {}
        held_s = np.zeros(2)
        wanted_s = np.abs(error) / self.rates
        far = np.abs(error) > tolerance
        turned = abs(target.turn_rad) > turn_rad
        if not far.any() and not turned:
            return None
        slow = not (far & (wanted_s > 2 * LEAST_S)).any()
        for i, (less, more) in enumerate((("KeyA", "KeyD"), ("KeyS", "KeyW"))):
            if not far[i]:
                continue
            press_s = float(np.clip(wanted_s[i] / (SLOWER if slow else 1.0), LEAST_S, MOST_S))
            if not slow and wanted_s[i] < LEAST_S:
                continue  # at the next look
            keys[more if error[i] > 0 else less] = press_s
            held_s[i] = np.sign(error[i]) * press_s * (SLOWER if slow else 1.0)
        if turned:
            share = SLOWER if slow and keys else 1.0
            press_s = abs(target.turn_rad) / self.turn_rate / share
            press_s = float(np.clip(press_s, LEAST_S, MOST_S))
            keys["KeyJ" if target.turn_rad > 0 else "KeyL"] = press_s
            if abs(target.turn_rad) < 0.6:  # beyond, a square looks turned the other way
                self._turned = target.turn_rad, float(np.sign(target.turn_rad)) * press_s * share
        if abs(target.turn_rad) < 2 * turn_rad:  # a larger turn moves what is seen, too
            self._pressed = error, held_s
        if slow and any(k in keys for k in ("KeyA", "KeyD", "KeyS", "KeyW")):
            keys = {SLOW: max(s or 0.0 for s in keys.values()) + 0.05, **keys}
        return Act({DRIVE: None, **keys}, "aim", settle=True)

    # --- lift: over the cube, square with it, down, close, up ---------------------------------------

    def _lift(self, words: Words, sight: Sight) -> Act:
        if self._step == "over":
            if sight.error is None:
                return self._lost()
            if (act := self._aim(sight, TOLERANCE["lift"], TURN_RAD["lift"])) is not None:
                return act
            self._step, self._low = "down", 0
            return Act({DRIVE: None, "KeyQ": FALL_S}, "over it: down")
        if self._step == "down":
            self._low += 1
            if self._low < 3 or words.speed_mm_s > RESTS_MM_S:  # it takes a moment to begin
                return Act({DRIVE: None, SLOW: None, "KeyQ": None}, "near: down slowly")
            self._step, self._waited = "close", 0
            return Act({DRIVE: None, "KeyC": 0.6}, "it stands: close")
        if self._step == "close":
            if words.gripper_mm > 60 and self._waited < 3:
                self._waited += 1
                return Act({DRIVE: None, "KeyC": 0.4}, "close further")
            if words.gripper_mm < 20:
                self._step = "open"
                return Act({DRIVE: None, "KeyG": 0.6, "KeyE": 0.4}, "nothing in it: open, up")
            self._step = "up"
        if self._step == "up":
            if words.gripper_mm < 20:
                self._step = "open"
            return Act({DRIVE: None, "KeyE": None}, "up")
        self._step = "over"
        return Act({DRIVE: None, "KeyG": 0.5, "KeyE": 0.4}, "open, up", settle=True)

    # --- peg: over the hole, down; when it rests on the rim, up a little and look again --------------

    def _peg(self, words: Words, sight: Sight) -> Act:
        task = self.task
        if sight.error is None:
            return self._lost()
        tolerance = TOLERANCE[task] * self._tight
        if self._step == "over":
            if (act := self._aim(sight, tolerance, TURN_RAD[task])) is not None:
                return act
            self._step, self._low = "down", 0
            return Act({DRIVE: None, "KeyQ": None}, "over it: down")
        stands = words.speed_mm_s < STANDS_MM_S
        self._low = self._low + 1 if stands else 0
        if self._low >= 2:
            self._step, self._stuck = "over", self._stuck + 1
            self._tight = 0.7
            return Act({DRIVE: None, "KeyE": 0.2}, "it rests on the rim: up", settle=True)
        if words.force_n < TOUCHES_N and float(np.abs(sight.error).max()) > 2.5 * TOLERANCE[task]:
            self._step = "over"
            return Act({DRIVE: None}, "it has drifted: stop", settle=True)
        return Act({DRIVE: None, "KeyQ": None}, "down")

    def _lost(self) -> Act:
        """The target is not in the picture: up, for more to be in it."""
        return Act({DRIVE: None, "KeyE": 0.3}, "it cannot be seen: up", settle=True)
