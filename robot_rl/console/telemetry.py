"""What the page shows ten times a second: the robot side's newest words, the run's figures.

The word on top of the page is computed here, once, from what gate, actor and operator say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import LEARNER_METRICS, METRICS
from robot_rl.safety.advice import what_to_do
from robot_rl.system.files import Tail

HISTORY = 200  # points kept of every curve: as many as a card is wide
CURVES = (
    "episode/success",
    "episode/success_rate",
    "episode/intervention_rate",
    "critic/q_mean",
    "critic/q_std",
    "critic/loss",
    "actor/entropy",
    "learner/utd",
)

WAITS = {  # for whom the gate, or the run, waits -> what a person may do about it
    "person": "held by a person: press resume",
    "left": "the page that drove was left, and the arm is held: press resume",
    "device": "the person's device fell silent: press resume",
    "run": "the run is paused; `robot-rl pause RUN --end` and the studio let it go on",
}

SCRIPT_STOPS = "it stops when somebody takes the seat"

SAYS = {
    "IDLE": "Idle",
    "OFFLINE": "Offline",
    "RESET?": "Ready to reset?",
    "RESETTING": "Resetting",
    "POLICY": "Robot driving",
    "HUMAN": "A person is driving",
    "SCRIPT": "Script driving",
    "REWIND": "Rewinding",
    "HOLD": "Holding",
    "PROTECTIVE STOP": "Protective stop",
}
"""What a person reads for each word of `word_of`; the page adds who the person is."""


def word_of(
    view: Mapping[str, Any] | None, *, paused: bool = False, left: bool = False
) -> tuple[str, str]:
    """(word, reason) for the top of the page.

    IDLE, RESET?, RESETTING, POLICY, HUMAN, SCRIPT, REWIND, HOLD, PROTECTIVE STOP, or OFFLINE
    without a robot side. paused: no episode begins. left: a person's hold came from a page that was
    left while it drove.
    """
    if view is None:
        return "OFFLINE", "the robot side does not answer"
    gate, episode = view.get("gate") or {}, view.get("episode") or {}
    asks = view.get("asks") or ""  # what a person has to do before the arm may move
    mode, reason = gate.get("mode", ""), gate.get("refusal") or gate.get("reason", "")
    waits = "left" if left and gate.get("waits") == "person" else str(gate.get("waits"))
    stops = [
        (mode == "protective_stop", "PROTECTIVE STOP", gate.get("reason", "")),
        (bool(gate.get("waits")), "HOLD", WAITS.get(waits, reason)),
        (bool(view.get("stopped")), "PROTECTIVE STOP", "the controller was stopped"),
        (not mode, "IDLE", "the gate has not reported yet"),
        (bool(asks), "RESET?", asks),
        (paused and mode != "run" and not episode.get("active"), "HOLD", WAITS["run"]),
        (not episode, "IDLE", reason),
        (mode != "run", "HOLD", reason),
        (not episode.get("active"), "RESETTING", "hands off: the robot goes to its start"),
    ]
    return next(((w, r) for is_so, w, r in stops if is_so), _driver(view, episode))


def beside_the_seat(reason: str, *, taken: bool) -> str:
    """The reason of `word_of` for a page that knows whether somebody has the seat."""
    return "" if taken and reason == SCRIPT_STOPS else reason


def advice_of(view: Mapping[str, Any] | None) -> str:
    """What a person does about the reason for which the arm stands still; "" while it may move."""
    gate = (view or {}).get("gate") or {}
    stopped = gate.get("mode") == "protective_stop"
    if stopped or gate.get("waits") == "person":
        return what_to_do(gate.get("reason", ""), stopped=stopped)
    if gate.get("waits"):
        return what_to_do("operator_silent")
    if (view or {}).get("stopped"):
        return what_to_do("controller")
    if gate.get("mode") != "hold":
        return ""
    reason = str(gate.get("reason", ""))
    return what_to_do(gate.get("refusal", "") or (reason if reason.startswith("driver:") else ""))


def _driver(view: Mapping[str, Any], episode: Mapping[str, Any]) -> tuple[str, str]:
    """(word, reason) while an episode runs and the gate is in RUN: who drives."""
    purpose = episode.get("purpose")
    if view.get("driving"):
        if not view.get("present", True):
            return "SCRIPT", SCRIPT_STOPS
        return ("REWIND" if view.get("driver") == "recovery" else "HUMAN"), ""
    if purpose == "demo":
        problem = view.get("device_problem") or ""  # e.g. keys that were held across the reset
        return "HOLD", problem or "a demonstration: it begins when you hold the drive key"
    return "POLICY", "evaluation: nobody helps" if purpose == "eval" else ""


class RunFigures:
    """The newest figures of a run and the history of a few, from its two JSONL files.

    newest: name -> number or text; curves: name -> [(env_steps, value), ...].
    """

    def __init__(self, run_dir: Path, home: Path) -> None:
        self._tails = [Tail(run_dir / METRICS), Tail(home / LEARNER_METRICS)]
        self.newest: dict[str, Any] = {}
        self.curves = {name: deque[tuple[float, float]](maxlen=HISTORY) for name in CURVES}

    @property
    def findings(self) -> list[dict[str, str]]:
        """Why it may not be learning: what was seen and the likely fix, as the learner says."""
        names = [k for k, v in self.newest.items() if k.startswith("diagnostics/") and v in (1, 2)]
        return [
            {"what": self.newest.get(f"{n}/what", n), "fix": self.newest.get(f"{n}/fix", "")}
            for n in sorted(names, key=lambda n: -self.newest[n])
        ]

    @property
    def numbers(self) -> dict[str, Any]:
        """The newest figures without the learner's findings."""
        return {k: v for k, v in self.newest.items() if not k.startswith("diagnostics/")}

    def read(self) -> int:
        """Take what was appended; returns how many lines there were."""
        count = 0
        for tail in self._tails:
            for line in tail.lines():
                count += 1
                self.newest |= line
                steps = line.get("env_steps", 0)
                for name in line.keys() & self.curves.keys():
                    if name.startswith("episode/") and line.get("episode/aborted"):
                        continue  # it says nothing about the policy
                    self.curves[name].append((steps, line[name]))
        return count
