"""The numbers of an episode as curves for the review page: few points, however long it was.

A signal is what belongs together in one plot: the executed action, one named part of the state, the
gate's outcome. Values of the state are shown in the unit that the spec names ("50 mm" of a recorded
1.0 becomes 50 mm, lengths always mm); what has no plain unit is shown as it was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.data.names import action_names
from robot_rl.errors import StoreError, did_you_mean
from robot_rl.spec import IMAGE, Spec
from robot_rl.types import Frame, Outcome, Step

MOST_SIGNALS = 8  # in one answer
MOST_LINES = 16  # of a signal
MOST_POINTS = 600  # of a line: a screen has few more columns for it
DIGITS = 5  # that a value is told with
PLAIN_UNIT = re.compile(r"(\d+(?:\.\d+)?) (mm|m/s|m|rad/s|rad|Nm|N)\b,? ?(.*)")
CLIPPED = re.compile(r"clipped at (\d+(?:\.\d+)?)")
OUTCOMES = tuple(Outcome)


@dataclass(frozen=True, slots=True)
class Signal:
    """What can be plotted. words: of values 0, 1, ... that are no numbers; `of_step`, `of_frame`
    read the values [lines] of one step or one frame, in `unit`."""

    name: str
    unit: str
    lines: tuple[str, ...]
    words: tuple[str, ...] = ()
    of_step: Callable[[Step], NDArray[np.floating]] | None = None
    of_frame: Callable[[Frame], NDArray[np.floating]] | None = None

    def about(self) -> dict[str, Any]:
        """What the page needs to offer it."""
        lines = self.lines[:MOST_LINES]
        left_out = len(self.lines) - len(lines)
        return {"name": self.name, "unit": self.unit, "lines": lines, "words": self.words,
                "left_out": left_out}  # fmt: skip


def signals_of(spec: Spec) -> dict[str, Signal]:
    """Everything that an episode of this spec has, by name, in the order in which it is offered."""
    found = [*_of_steps(spec), *_of_frames(spec)]
    return {signal.name: signal for signal in found}


def plots(
    spec: Spec, names: Sequence[str], steps: Sequence[Step], frames: Mapping[int, Frame]
) -> list[dict[str, Any]]:
    """The named signals of an episode: what `Signal.about` says, and the points of each line.

    A point is [number of the frame at which the page shows it, value]; null is a gap.

    Raises:
        StoreError: there is no such signal.
    """
    known = signals_of(spec)
    for name in names:
        if name not in known:
            raise StoreError(
                "this run has no such signal",
                expected="one that the page offers",
                got=name[:80],
                fix=did_you_mean(name[:80], known)[:400],
            )
    found = []
    for name in dict.fromkeys(names):
        signal = known[name]
        numbers, values = _read(signal, steps, frames)
        lines = values.T[:MOST_LINES] if len(values) else []
        found.append(signal.about() | {"points": [thinned(numbers, line) for line in lines]})
    return found


def thinned(numbers: Sequence[int], values: NDArray[np.floating]) -> list[tuple[int, float | None]]:
    """At most `MOST_POINTS` points; of many, the lowest and the highest of each stretch stay."""
    keep: Sequence[int] = range(len(values))
    if len(values) > MOST_POINTS:
        ends = np.linspace(0, len(values), MOST_POINTS // 2 + 1).astype(int)
        low, high = np.nan_to_num(values, nan=np.inf), np.nan_to_num(values, nan=-np.inf)
        keep = sorted(
            {
                a + int(index)
                for a, b in pairwise(ends)
                for index in (low[a:b].argmin(), high[a:b].argmax())
            }
        )
    return [(numbers[i], told(values[i])) for i in keep]


def told(value: float) -> float | None:
    """A number with `DIGITS` digits; None for one that is no number."""
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None


def plain_unit(unit: str) -> tuple[float, str]:
    """(factor, unit) that make a recorded state entry a quantity: "50 mm" -> (50.0, "mm")."""
    found = PLAIN_UNIT.fullmatch(unit)
    if found is None:
        return 1.0, unit
    factor, base, more = float(found[1]), found[2], found[3]
    if base == "m":
        factor, base = factor * 1000.0, "mm"
    more = CLIPPED.sub(lambda x: f"clipped at {float(x[1]) * factor:g}", more)
    return factor, f"{base} {more}".strip()


def part_names(spec: Spec) -> Iterator[tuple[str, slice, str]]:
    """(name, place in the state, unit as in the spec) of each named part of the state."""
    places = spec.state_slices
    for name, _, unit in spec.state_layout:
        yield name, places[name], unit


def line_names(count: int) -> tuple[str, ...]:
    """What the entries of a part are called: x, y, z of three, else their numbers."""
    if count == 1:
        return ("",)
    return ("x", "y", "z") if count == 3 else tuple(map(str, range(count)))


def _of_steps(spec: Spec) -> Iterator[Signal]:
    entries = tuple(action_names(spec) or map(str, range(spec.action.size)))
    yield Signal("action", "executed", entries, of_step=lambda s: s.action)
    yield Signal("policy_action", "proposed", entries, of_step=lambda s: s.policy_action)
    yield Signal(
        "reward", "", ("",), of_step=lambda s: np.array([np.nan if s.reward is None else s.reward])
    )
    yield Signal(
        "outcome",
        "",
        ("",),
        words=OUTCOMES,
        of_step=lambda s: np.array([float(OUTCOMES.index(s.outcome))]),
    )
    yield Signal(
        "weights_version", "", ("",), of_step=lambda s: np.array([float(s.weights_version)])
    )


def _of_frames(spec: Spec) -> Iterator[Signal]:
    for key, tensor in spec.observation.items():
        if key == "state" and spec.state_layout:
            for name, place, unit in part_names(spec):
                yield _part(name, place, unit)
        elif not key.startswith(IMAGE) and len(tensor.shape) < 3:
            size = int(np.prod(tensor.shape))
            yield Signal(key, "", line_names(size), of_frame=_entry(key))


def _part(name: str, place: slice, unit: str) -> Signal:
    factor, base = plain_unit(unit)

    def of_frame(frame: Frame) -> NDArray[np.floating]:
        return frame.observation["state"][place] * factor

    return Signal(name, base, line_names(place.stop - place.start), of_frame=of_frame)


def _entry(key: str) -> Callable[[Frame], NDArray[np.floating]]:
    return lambda frame: frame.observation[key].ravel()


def _read(
    signal: Signal, steps: Sequence[Step], frames: Mapping[int, Frame]
) -> tuple[list[int], NDArray[np.floating]]:
    """Numbers of the frames where values are shown, and the values [N, lines]."""
    if signal.of_step is not None:
        read = signal.of_step
        return [s.step for s in steps], np.array([read(s) for s in steps], np.float64)
    assert signal.of_frame is not None
    numbers = sorted(frames)
    values = [signal.of_frame(frames[n]) for n in numbers]
    return numbers, np.array(values, np.float64)
