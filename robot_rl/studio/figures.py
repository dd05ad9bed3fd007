"""What the metric lines of a run come to, taken in line by line as the file grows."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl.control.mastery import needed
from robot_rl.control.session import EXAM_AUTONOMY, WINDOW

MAX_POINTS = 160  # of a curve: more than a small picture shows
EXAM, EXAM_RESULT = "exam", "exam/success"
PRACTICE = ("practice", EXAM)  # states in which the budget is used up
FEWEST = 5  # lines that tell a pace
PAUSE_S = 600.0  # between two episodes: nobody worked
KEY = "episode/"  # of practice; those of other purposes have it after one of `PURPOSES`
PURPOSES = ("", "eval_", "demo_", "deploy_")


@dataclass(slots=True)
class Figures:
    """Counts and curves of one run; memory grows by 24 bytes for each practice episode."""

    steps: array[float] = field(default_factory=lambda: array("d"))  # env steps at each episode
    success: array[float] = field(default_factory=lambda: array("d"))
    human: array[float] = field(default_factory=lambda: array("d"))  # share of a person's steps
    env_steps: int = 0
    episodes: int = 0  # of all purposes
    practice_steps: float = 0.0
    human_steps: float = 0.0
    takeovers: float = 0.0
    demos: int = 0
    state: str = ""
    progress: float | None = None  # of the practice budget
    time_left_s: float | None = None
    newest_s: float = 0.0  # time of the newest line, in seconds since 1970
    worked_s: float = 0.0  # between the lines; what is longer than `PAUSE_S` was a pause
    exam: list[int] = field(default_factory=lambda: [0, 0])  # successes, failures of the newest
    exams: list[tuple[int, float]] = field(default_factory=list)  # decided: env steps, success
    _pace: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=2 * WINDOW))

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in a line of metrics.jsonl; a line of another program is left out."""
        time_s, steps = _number(line.get("time_s")), _number(line.get("env_steps"))
        if time_s is None or steps is None:
            return
        if self.newest_s and 0.0 < time_s - self.newest_s < PAUSE_S:
            self.worked_s += time_s - self.newest_s
        self.newest_s = max(self.newest_s, time_s)
        self.env_steps = max(self.env_steps, int(steps))
        if (result := _number(line.get(EXAM_RESULT))) is not None:
            self.exams.append((int(steps), result))
        if isinstance(state := line.get("state"), str):
            if state == EXAM != self.state:
                self.exam = [0, 0]
            self.state = state
        self.demos = int(_number(line.get("session/demos")) or self.demos)
        self._budget(line)
        self._episode(line)

    def _budget(self, line: Mapping[str, Any]) -> None:
        if (progress := _number(line.get("progress"))) is not None:
            self.progress = progress
            if self.state in PRACTICE:
                self._pace.append((self.newest_s, progress))
        if (left_s := _number(line.get("time_left_s"))) is not None:
            self.time_left_s = left_s

    def _episode(self, line: Mapping[str, Any]) -> None:
        prefix = next((p for p in PURPOSES if f"{p}{KEY}success" in line), "")
        success = _number(line.get(f"{prefix}{KEY}success"))
        if success is None:
            return
        self.episodes += 1
        if prefix:
            if self.state == EXAM and not line.get(f"{prefix}{KEY}aborted"):
                self.exam[success < 1.0] += 1
            return
        length = _number(line.get(f"{KEY}length")) or 0.0
        share = _number(line.get(f"{KEY}intervention_rate")) or 0.0
        self.practice_steps += length
        self.human_steps += share * length
        self.takeovers += _number(line.get(f"{KEY}takeovers")) or 0.0
        for column, value in ((self.steps, self.env_steps), (self.success, success)):
            column.append(value)
        self.human.append(share)

    @property
    def human_share(self) -> float | None:
        """Share of the practice steps that a person, or the script, drove."""
        return self.human_steps / self.practice_steps if self.practice_steps else None

    @property
    def recent(self) -> float | None:
        """Success over the last `WINDOW` practice episodes."""
        last = self.success[-WINDOW:]
        return sum(last) / len(last) if last else None

    @property
    def alone(self) -> float | None:
        """Share of the last `WINDOW` practice episodes that succeeded without help."""
        last = list(zip(self.success[-WINDOW:], self.human[-WINDOW:], strict=True))
        return sum(s == 1.0 and h == 0.0 for s, h in last) / len(last) if last else None

    def curve(self, values: array[float], limit: int = MAX_POINTS) -> list[tuple[int, float]]:
        """[(env steps, mean over the last `WINDOW` episodes)], at most `limit` of them."""
        count = len(values)
        if count > limit:
            places = [round(i * (count - 1) / (limit - 1)) for i in range(limit)]
        else:
            places = list(range(count))
        found = []
        for i in places:
            window = values[max(0, i - WINDOW + 1) : i + 1]
            found.append((int(self.steps[i]), round(sum(window) / len(window), 3)))
        return found

    def practice_left_s(self) -> float | None:
        """Seconds until practice ends, at the pace of the last episodes; None = not known yet.

        It never says more than is left of the time that practice may take.
        """
        if len(self._pace) < FEWEST or self.progress is None or self.time_left_s is None:
            return None
        (since_s, before), (until_s, now) = self._pace[0], self._pace[-1]
        if now <= before:
            return self.time_left_s
        return min(self.time_left_s, (1.0 - now) * (until_s - since_s) / (now - before))

    def mastery(self, target: float, allowed: int) -> dict[str, Any]:
        """How far the skill is from being mastered, by the rule of the exam."""
        won, failed = self.exam
        return {
            "target": target,
            "alone": self.alone,
            "alone_needed": EXAM_AUTONOMY,
            "in_exam": self.state == EXAM,
            "won": won,
            "failed": failed,
            "needed": needed(failed, target) if failed <= allowed else None,
            "allowed": allowed,
            "exams": self.exams[-5:],
        }


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    if type(value) not in (int, float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None
