"""What the metric lines of a run come to, taken in line by line as the file grows."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl.control.mastery import needed
from robot_rl.control.session import EXAM_AUTONOMY, WINDOW
from robot_rl.control.work import EXAM, Work, number

MAX_POINTS = 160  # of a curve: more than a small picture shows
EXAM_RESULT = "exam/success"
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
    work: Work = field(default_factory=Work)  # time, state and budget
    exam: list[int] = field(default_factory=lambda: [0, 0])  # successes, failures of the newest
    exams: list[tuple[int, float]] = field(default_factory=list)  # decided: env steps, success

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in a line of metrics.jsonl; a line of another program is left out."""
        time_s, steps = number(line.get("time_s")), number(line.get("env_steps"))
        if time_s is None or steps is None:
            return
        before = self.work.state
        self.work.add(line)
        self.env_steps = max(self.env_steps, int(steps))
        if (result := number(line.get(EXAM_RESULT))) is not None:
            self.exams.append((int(steps), result))
        if self.state == EXAM != before:
            self.exam = [0, 0]
        self.demos = int(number(line.get("session/demos")) or self.demos)
        self._episode(line)

    @property
    def state(self) -> str:
        """What the run did in its newest line: demos, practice, exam, evaluation ..."""
        return self.work.state

    def _episode(self, line: Mapping[str, Any]) -> None:
        prefix = next((p for p in PURPOSES if f"{p}{KEY}success" in line), "")
        success = number(line.get(f"{prefix}{KEY}success"))
        if success is None:
            return
        self.episodes += 1
        if prefix:
            if self.state == EXAM and not line.get(f"{prefix}{KEY}aborted"):
                self.exam[success < 1.0] += 1
            return
        length = number(line.get(f"{KEY}length")) or 0.0
        share = number(line.get(f"{KEY}intervention_rate")) or 0.0
        self.practice_steps += length
        self.human_steps += share * length
        self.takeovers += number(line.get(f"{KEY}takeovers")) or 0.0
        if line.get(f"{KEY}aborted"):
            return  # it says nothing about the policy
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
