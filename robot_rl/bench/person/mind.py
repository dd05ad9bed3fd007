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

F64 = NDArray[np.float64]
DRIVE, SLOW = "Space", "ShiftLeft"
SLOWER = 0.3  # what the help calls slow
TAP_S = 0.08
LEAST_S, MOST_S = 0.12, 0.6  # a shorter press may do nothing; after a longer one a person looks
LEARNS = 0.4  # share of what a press has shown that is believed
WHOLE_TURN_RAD = 0.6  # beyond, a square soon looks turned the other way
STANDS_MM_S = 4.0
RESTS_MM_S = 25.0  # on the table; the slow way down is three times as fast
TOUCHES_N = 5.0
FALL_S = 0.35  # the fast part of the way down to a cube
WIDE_MM, EMPTY_MM = 60.0, 20.0  # the gripper has not closed yet; there is nothing in it
LOW_LOOKS = 2  # looks at a tool that goes down and stands, until that is believed
ABOVE, ASIDE = 0.03, 0.004  # seen from aside: how far above at first, and how exactly; shares
ENDED = "an episode has ended: let go"
WAITS = "has pressed, waits:"
QUIET = ("", "offline", "idle", "resetting")  # words of state in which nothing can be driven
HAVE_SEAT = ("you have", "you drive")  # the second on an older page
LET_GO = ("let go", "release the device", "a moment more")  # the page wants no key held


@dataclass(frozen=True, slots=True)
class Skill:
    """How exactly a task is done, and a first guess at what the keys do.

    tolerance: heights of the picture; turn_rad: how far the target may be turned; per_s: heights of
    the picture per second that a key moves the tool; turns_rad_s: how fast a key turns it.
    """

    tolerance: float
    turn_rad: float
    turns_rad_s: float
    per_s: float = 0.4


SKILLS = {"lift": Skill(0.035, 0.18, 1.0), "peg_insert_easy": Skill(0.008, 0.05, 0.4)}


@dataclass(frozen=True, slots=True)
class Words:
    """The page's visible text; "" for what is not shown. views: how many pictures there are."""

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
    """A person at the page. Ask it again after every look.

    moves: [2, 2] heights of the picture per second, right and up, that D and W move the tool;
    turns_rad_s: how fast J and L turn it. In a picture that looks at the table from aside the tip
    of a tool that hangs above its target is seen above it: by how much, the person learns when the
    tool touches.
    """

    def __init__(self, task: str) -> None:
        self._skill = SKILLS[task]
        self._task = self._lift if task == "lift" else self._insert
        self.moves = self._skill.per_s * np.eye(2)
        self._begins_above = ABOVE  # heights of the picture, at the beginning of a try
        self.turns_rad_s = self._skill.turns_rad_s
        self._result = self._asked = ""
        self._begin()

    def _begin(self) -> None:
        """A new try."""
        self._step = "over"
        self._looks, self._care = 0, 1.0
        self._above = self._begins_above
        self._touched: float | None = None  # where the tip was seen when it touched
        self._moved: tuple[F64, F64] | None = None  # error before, and seconds of each axis
        self._turned: tuple[float, float] | None = None
        self._fell_from: float | None = None  # where the tip was seen before it went down

    def next(self, words: Words, sight: Sight) -> Act:
        """What to do now."""
        if words.result != self._result:
            self._result = words.result
            self._begin()
            return Act(why=ENDED)
        act = answer_to(words)
        if act is None:
            self._learn(sight)
            return self._task(words, sight)
        self._begin()
        if act.why == self._asked:  # it takes a moment until the page says that it has heard
            self._asked = ""
            return Act(why=f"{WAITS} {act.why}")
        self._asked = act.why if act.keys else ""
        return act

    def _learn(self, sight: Sight) -> None:
        """How fast a key moves and turns the tool: what the last press has changed."""
        moved, self._moved = self._moved, None
        turned, self._turned = self._turned, None
        if turned is not None and sight.target is not None:
            rate = (turned[0] - sight.target.turn_rad) / turned[1]
            if 0.1 < rate < 3.0:
                self.turns_rad_s += LEARNS * (rate - self.turns_rad_s)
        if moved is None or sight.error is None:
            return
        before, held_s = moved
        length = held_s @ held_s
        if length > TAP_S**2:
            off = before - sight.error - self.moves @ held_s
            self.moves += LEARNS * np.outer(off, held_s) / length

    def _aim(self, sight: Sight) -> Act | None:
        """Keys that put the tip over the target, square with it; None when it is there."""
        error, target = sight.error, sight.target
        if error is None or target is None:
            return Act({DRIVE: None, "KeyE": 0.3}, "it cannot be seen: up", settle=True)
        along = sight.view == ALONG
        way = error if along else error + np.array((0.0, self._above))
        signed_s = np.linalg.solve(self.moves, way)
        wanted_s = np.abs(signed_s)
        if along:
            far = np.abs(way) > self._care * self._skill.tolerance
        else:
            far = (np.abs(way).max() > self._care * ASIDE) & (wanted_s > 0.01)
        slow = not (far & (wanted_s > 2 * LEAST_S)).any()
        share = SLOWER if slow else 1.0
        keys: dict[str, float | None] = {}
        held_s = np.zeros(2)
        for i, (less, more) in enumerate((("KeyA", "KeyD"), ("KeyS", "KeyW"))):
            if far[i] and (slow or wanted_s[i] >= LEAST_S):  # the rest at the next look
                press_s = float(np.clip(wanted_s[i] / share, LEAST_S, MOST_S))
                keys[more if signed_s[i] > 0 else less] = press_s
                held_s[i] = np.sign(signed_s[i]) * press_s * share
        if slow and keys:
            keys = {SLOW: max(s or 0.0 for s in keys.values()) + TAP_S, **keys}
        turned = along and abs(target.turn_rad) > self._skill.turn_rad
        if turned:
            share = SLOWER if SLOW in keys else 1.0
            press_s = abs(target.turn_rad) / self.turns_rad_s / share
            press_s = float(np.clip(press_s, LEAST_S, MOST_S))
            keys["KeyJ" if target.turn_rad > 0 else "KeyL"] = press_s
            if abs(target.turn_rad) < WHOLE_TURN_RAD:
                self._turned = target.turn_rad, float(np.sign(target.turn_rad)) * press_s * share
        if not turned or abs(target.turn_rad) < 2 * self._skill.turn_rad:  # a turn moves it, too
            self._moved = error, held_s
        return Act({DRIVE: None, **keys}, "aim", settle=True) if keys else None

    def _lift(self, words: Words, sight: Sight) -> Act:
        """Over the cube, square with it, down, close, up."""
        match self._step:
            case "over":
                act = self._aim(sight)
                if act is None:
                    self._step, self._looks = "down", 0
                    act = Act({DRIVE: None, "KeyQ": FALL_S}, "over it: down")
            case "down":
                self._looks += 1  # it takes a moment to begin
                act = Act({DRIVE: None, SLOW: None, "KeyQ": None}, "near: down slowly")
                if self._looks > LOW_LOOKS and words.speed_mm_s < RESTS_MM_S:
                    self._step = "close"
                    act = Act({DRIVE: None, "KeyC": 0.6}, "it stands: close")
            case "close" if words.gripper_mm > WIDE_MM:
                act = Act({DRIVE: None, "KeyC": 0.4}, "close further")
            case "close" | "up" if words.gripper_mm < EMPTY_MM:
                self._step = "over"
                act = Act({DRIVE: None, "KeyG": 0.6, "KeyE": 0.5}, "empty: open, up", settle=True)
            case _:
                self._step = "up"
                act = Act({DRIVE: None, "KeyE": None}, "up")
        return act

    def _insert(self, words: Words, sight: Sight) -> Act:
        """Over the hole, down; when it rests on the rim, up a little and look again."""
        if self._step == "over" or sight.error is None:
            if self._touched is not None and sight.tool is not None:
                self._above = max(sight.tool[1] - self._touched, 0.0)
            act = self._aim(sight)
            if act is None:
                self._step, self._looks = "down", 0
                self._fell_from = sight.tool[1] if sight.tool else None
                act = Act({DRIVE: None, "KeyQ": None}, "over it: down")
            return act
        self._looks = self._looks + 1 if words.speed_mm_s < STANDS_MM_S else 0
        if self._looks >= LOW_LOOKS:
            self._touches(sight)
            self._step, self._care = "over", 0.6
            return Act({DRIVE: None, "KeyE": 0.2}, "it rests on the rim: up", settle=True)
        drifted = float(np.abs(sight.error).max()) > 2.5 * self._skill.tolerance
        if drifted and words.force_n < TOUCHES_N and sight.view == ALONG:
            self._step = "over"
            return Act({DRIVE: None}, "it has drifted: stop", settle=True)
        return Act({DRIVE: None, "KeyQ": None}, "down")

    def _touches(self, sight: Sight) -> None:
        """The tip rests on something: remember where, to see from it how high it hangs later."""
        assert sight.tool is not None
        if self._touched is None and self._fell_from is not None:
            self._begins_above = max(self._fell_from - sight.tool[1], 0.0)
        self._touched = sight.tool[1]


def answer_to(words: Words) -> Act | None:
    """What the page asks for before anything can be driven; None when nothing stands in the way."""
    said = f"{words.reason} {words.device}"
    has_seat = not words.seat or words.seat.startswith(HAVE_SEAT)
    cases: tuple[tuple[bool, Act], ...] = (
        (words.acknowledge, Act({"KeyY": TAP_S}, "a stop: looked, acknowledge")),
        (words.go, Act({"KeyR": TAP_S}, "it waits: go on")),
        (not has_seat, Act({"KeyT": TAP_S}, "take the seat")),
        (bool(words.asks), Act({"KeyF": TAP_S}, "everything is in place: go")),
        (words.word.lower() in QUIET, Act(why="wait")),
        (any(text in said for text in LET_GO), Act(why="let go, and wait")),
        (words.views > 1 and words.view != ALONG, Act({"KeyP": TAP_S}, "another picture")),
    )
    return next((act for applies, act in cases if applies), None)
