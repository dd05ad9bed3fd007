"""`robot-rl identify`: what the simulated arm has to be like for a recorded run to come out of it.

Recorded episodes are played again (`run.replay`) in scenes that differ in a few quantities of
`tasks.randomize`; those are found with which the observations come out as recorded. All of them are
fitted together by least squares: factors as logarithms, so that half and double are equally far.
The delay of commands acts on the grid of the controller's ticks; between two of them the residuals
are interpolated, and at the end the rest is fitted again with the nearest one.

A quantity can only be found from motion that it matters for: `friction` is that of surfaces, and
needs contact. What the motion says nothing about has an interval as wide as the search. Cameras
come last (`run.identify_cameras`), when it is known where the arm was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import run_name
from robot_rl.errors import ConfigError, StoreError, did_you_mean
from robot_rl.operate.scripted import NoOperator
from robot_rl.run.experiment import Experiment
from robot_rl.run.identify_cameras import FoundCamera, find_cameras
from robot_rl.run.lockstep import Rig, make_rig
from robot_rl.run.parts import Still, forget
from robot_rl.run.replay import STORES, Recording, choose, read, ruler_of, states_of
from robot_rl.run.scene import scene_of
from robot_rl.store.dataset import find_store, open_store
from robot_rl.store.scenes import SCENES, Scenes
from robot_rl.tasks.common import JOINT_SCALE
from robot_rl.tasks.randomize import QUANTITIES
from robot_rl.types import RobotState

F64 = NDArray[np.float64]
DELAY = "action_delay_s"
FITTED = ("gains", "joint_damping", "joint_friction", "armature", "friction", "object_mass")
DEFAULT = (DELAY, *FITTED[:4])
TICK_S = 0.01  # of the controller: delays act on this grid
WIDEST = math.log(5.0)  # a factor is looked for between 1/5 and 5
AMOUNTS = {DELAY: 0.1, "joint_friction": 0.05}
"""What counts as much as a factor of e; such a quantity is looked for from 0 to 1.6 of it."""
STEP = 0.02  # of a coordinate, for the derivatives
ROUGH, FINE = 1e-2, 1e-3  # when a fit ends: change of its coordinates beside their size
SECONDS = 60.0  # of motion; more takes longer and says little more
EXACT = 1e-6  # what is left of an observation that came out as recorded, in float32


@dataclass(frozen=True, slots=True)
class Found:
    """A quantity, and its 95 % interval; the interval of the delay is its grid."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gap:
    """How far played states are from the recorded ones (RMSE).

    observation: in its units. position_m: of the first position in it; NaN without one. joints_rad:
    of the joints' angles; NaN where the run kept none.
    """

    observation: float
    position_m: float
    joints_rad: float


@dataclass(frozen=True, slots=True)
class Identified:
    """What was found, and the gap that the task's nominal scene left, and the found one leaves."""

    found: tuple[Found, ...]
    before: Gap
    after: Gap
    episodes: int
    seconds: float
    cameras: tuple[FoundCamera, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

    @property
    def explains(self) -> bool:
        """Whether what was found closes most of the gap, if there was one."""
        return self.after.observation <= max(0.5 * self.before.observation, EXACT)

    def gaps(self) -> list[str]:
        """Lines about before and after for a person."""
        pairs = (
            ("observations", self.before.observation, self.after.observation, 1.0, ""),
            ("position", self.before.position_m, self.after.position_m, 1e3, " mm"),
            ("joints", self.before.joints_rad, self.after.joints_rad, math.degrees(1), " degrees"),
        )
        return [
            f"{what:<12} off by {scale * before:.3g}{unit} before, {scale * after:.3g}{unit} after"
            for what, before, after, scale, unit in pairs
            if not math.isnan(before)
        ]

    def ranges(self) -> dict[str, list[float]]:
        """As `task.ranges` takes them: a twin."""
        found = {one.name: [round(one.value, 5)] * 2 for one in self.found}
        for camera in self.cameras:
            found |= camera.ranges()
        return found


def identify(
    run_dir: Path,
    quantities: Sequence[str] = DEFAULT,
    *,
    cameras: bool = False,
    seconds: float = SECONDS,
    tell: Callable[[str], None] = lambda _line: None,
) -> Identified:
    """Fit some quantities of the simulated scene to the episodes of a run, which is only read.

    cameras: the poses of the task's cameras as well, from the recorded pictures.

    Raises:
        ConfigError: not a run, a task without a scene, or a quantity that cannot be fitted.
        StoreError: too little motion, or too few pictures, were recorded.
        SetupError: the simulator is missing.
    """
    _check(quantities)
    experiment = Experiment.load(run_dir, foreign_limits=True)
    task: Any = scene_of(experiment)
    still = Still(task.spec.action.size)
    rig: Any = make_rig(experiment, still, record=forget, operator=NoOperator(task))
    rig.draws = None  # the run keeps what was drawn when it was recorded
    recordings = _motion(run_dir, seconds, task.spec.control_hz)
    fit = _Fit(rig, recordings, experiment.draws_seed, Scenes(run_dir / SCENES))
    before = fit.residuals({})
    values = _search(fit, quantities, tell)
    after = fit.residuals(values)
    intervals = _intervals(fit, values)
    given = (rig, recordings, fit.measured, experiment.draws_seed)
    seen = find_cameras(*given, values=values, tell=tell) if cameras else ()
    steps = sum(len(r.steps) for r in recordings)
    return Identified(
        tuple(Found(name, values[name], *intervals[name]) for name in quantities),
        fit.gap(before),
        fit.gap(after),
        len(recordings),
        steps / task.spec.control_hz,
        seen,
    )


def write_twin(run_dir: Path, result: Identified, path: Path) -> Path:
    """Write the run's task with what was found as a task of one's own, for `task=NAME`."""
    import yaml

    experiment = Experiment.load(run_dir, foreign_limits=True)
    task = dict(experiment.config.get("task") or {})
    task |= {"randomize": "none", "ranges": result.ranges()}
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"# A twin of the arm in run {run_dir.resolve().name} (robot-rl identify).\n"
    head += "".join(f"# {line}\n" for line in result.gaps())
    head += "".join(
        f"# Offsets of camera {one.name} are from cameras.{one.name}.pose of that run.\n"
        for one in result.cameras
        if one.calibrated
    )
    with path.open("x") as file:  # nothing is overwritten
        file.write(head + yaml.safe_dump(task, sort_keys=False, default_flow_style=None))
    return path


def _check(quantities: Sequence[str]) -> None:
    known = (DELAY, *FITTED)
    for name in quantities:
        if name not in known:
            raise ConfigError(
                f"'{name}' cannot be fitted to a recorded run",
                expected=f"some of: {', '.join(known)}",
                got=name,
                fix=did_you_mean(name, known),
            )
    if not quantities or len(set(quantities)) < len(quantities):
        raise ConfigError(
            "nothing to fit" if not quantities else "a quantity is named twice",
            expected=f"some of: {', '.join(known)}",
            got=" ".join(quantities),
            fix=f"leave them out: {' '.join(DEFAULT)}",
        )


def _motion(run_dir: Path, seconds: float, rate_hz: float) -> list[Recording]:
    """The newest episodes with so much motion together."""
    with open_store(find_store(run_dir, STORES) or run_dir) as store:
        records = choose(store, run_name(run_dir), every=True)
        chosen, steps = [], 0
        for record in reversed(records):
            if steps >= seconds * rate_hz:
                break
            chosen.append(record)
            steps += record.steps
        if steps < 5.0 * rate_hz:
            raise StoreError(
                "too little motion was recorded",
                expected="at least 5 s of episodes that have ended",
                got=f"{steps / rate_hz:.1f} s in {len(chosen)} episodes",
                fix="robot-rl record ... --demos 30",
            )
        return [read(store, record) for record in chosen]


class _Fit:
    """Residuals of recorded episodes as a function of what the scene is like.

    They are of the observation, and of the joints' angles: those in the observation, else those
    that a simulated arm's run keeps beside its store. Where it does, each action is a delta on the
    pose that was measured then, as it was sent; on the played one, errors would add up.
    """

    def __init__(
        self, rig: Rig, recordings: Sequence[Recording], run_seed: int, scenes: Scenes
    ) -> None:
        self._rig, self._recordings, self._seed = rig, recordings, run_seed
        self._robot: Any = rig.robot
        self._spec = rig.loop.task.spec
        size = self._spec.observation["state"].shape[0]
        self._observed = slice(0, size)
        self._joints = self._spec.state_slices.get("joint_position", slice(size, None))
        self.measured = [_measured(scenes, recording) for recording in recordings]
        self._extra = all(self.measured) and self._joints.start == size
        self._played = lru_cache(maxsize=4)(self._play)

    def residuals(self, values: Mapping[str, float]) -> F64:
        """Played minus recorded, [steps, entries of the observation, and joints].

        Between two ticks of delay it is between what these leave.
        """
        ticks = _ticks(values)
        share = ticks - math.floor(ticks)
        before = self._at(values, math.floor(ticks))
        return before if not share else before + share * (self._at(values, ticks + 1) - before)

    def _at(self, values: Mapping[str, float], ticks: float) -> F64:
        """With a delay of so many whole ticks."""
        return self._played((*sorted({**values, DELAY: TICK_S * int(ticks)}.items()),))

    def _play(self, values: tuple[tuple[str, float], ...]) -> F64:
        self._robot.vary({name: (value, value) for name, value in values})
        pairs = zip(self._recordings, self.measured, strict=True)
        return np.concatenate([self._off(*pair) for pair in pairs])

    def _off(self, recording: Recording, measured: Sequence[RobotState]) -> F64:
        off = []
        played = states_of(self._rig, recording, self._seed, measured)
        for number, (frame, (state, _)) in enumerate(zip(recording.frames, played, strict=True)):
            row = state.astype(np.float64) - frame.observation["state"]
            if self._extra:
                moved = self._robot.read().joint_position_rad - measured[number].joint_position_rad
                row = np.append(row, JOINT_SCALE * moved)
            off.append(row)
        return np.array(off[1:])

    def slopes(self, values: Mapping[str, float], names: Sequence[str]) -> F64:
        """Derivatives [residuals, names] by their coordinates, at the nearest tick of delay."""
        ticks, columns = _ticks(values), []
        base = self._at(values, round(ticks))
        for name in names:
            if name == DELAY:
                off = self._at(values, ticks + 1) - self._at(values, ticks)
                columns.append(off * _value(name, 1.0) / TICK_S)
                continue
            moved = _value(name, _coordinate(name, values[name]) + STEP)
            columns.append((self._at({**values, name: moved}, round(ticks)) - base) / STEP)
        return np.array([column.ravel() for column in columns]).T

    def by_episode(self, rows: F64) -> F64:
        """Sums [episodes, ...] of what there is for each residual [residuals, ...]."""
        steps = [len(recording.steps) for recording in self._recordings]
        starts = np.cumsum([0, *steps[:-1]]) * (len(rows) // sum(steps))
        return np.add.reduceat(rows, starts, axis=0)

    def gap(self, residuals: F64) -> Gap:
        """Of all steps."""
        ruler, joints = ruler_of(self._spec), residuals[:, self._joints]
        position_m = math.nan
        if ruler.entry:
            position = residuals[:, ruler.part] * ruler.scale / 1000.0
            position_m = float(np.sqrt((position**2).sum(1).mean()))
        joints_rad = _rms(joints) / JOINT_SCALE if joints.size else math.nan
        return Gap(_rms(residuals[:, self._observed]), position_m, joints_rad)


def _measured(scenes: Scenes, recording: Recording) -> list[RobotState]:
    """What was measured at each frame; empty unless all of it was kept."""
    id_ = recording.record.id
    states = [scenes.state(id_.episode, frame.frame) for frame in recording.frames]
    return [] if None in states else [state for state in states if state is not None]


def _ticks(values: Mapping[str, float]) -> float:
    return round(values.get(DELAY, 0.0) / TICK_S, 6)


def _coordinate(name: str, value: float) -> float:
    """Of a quantity, in which it is fitted."""
    return value / AMOUNTS[name] if name in AMOUNTS else math.log(value)


def _value(name: str, coordinate: float) -> float:
    return coordinate * AMOUNTS[name] if name in AMOUNTS else math.exp(coordinate)


def _search(fit: _Fit, quantities: Sequence[str], tell: Callable[[str], None]) -> dict[str, float]:
    """Fit everything together, then the rest with the nearest delay that there is."""
    values = {name: QUANTITIES[name].nominal for name in quantities}
    if DELAY in values:
        values = _least(fit, values, quantities, ROUGH, tell)
        values[DELAY] = TICK_S * round(_ticks(values))
    rest = [name for name in quantities if name != DELAY]
    return _least(fit, values, rest, FINE, tell) if rest else values


def _least(
    fit: _Fit,
    start: Mapping[str, float],
    names: Sequence[str],
    tolerance: float,
    tell: Callable[[str], None],
) -> dict[str, float]:
    """Values for some quantities that fit best, with the others as they are."""
    from robot_rl_sim.least_squares import least_squares

    def at(coordinates: F64) -> dict[str, float]:
        pairs = zip(names, coordinates.tolist(), strict=True)
        return {**start, **{name: _value(name, c) for name, c in pairs}}

    low, high = np.array([_bounds(name) for name in names]).T
    found = least_squares(
        lambda coordinates: fit.residuals(at(coordinates)).ravel(),
        lambda coordinates: fit.slopes(at(coordinates), names),
        np.array([_coordinate(name, start[name]) for name in names]),
        (low, high),
        tolerance=tolerance,
        soft=0.1,
    )
    values = at(found)
    said = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    tell(f"{said}: left {_rms(fit.residuals(values)):.2g}")
    return values


def _bounds(name: str) -> tuple[float, float]:
    """Between which a coordinate is looked for."""
    return (0.0 if name in AMOUNTS else -WIDEST), WIDEST


def _intervals(fit: _Fit, values: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """95 %, from the curvature at what was found; of the delay, half a tick to either side.

    As wide as residuals say that are independent, or only from episode to episode if that is wider.
    That the search has ends counts as knowledge: a quantity that does not matter gets all of it.
    """
    names = [name for name in values if name != DELAY]
    found: dict[str, tuple[float, float]] = {}
    if DELAY in values:
        half_s = TICK_S / 2
        found[DELAY] = max(values[DELAY] - half_s, 0.0), values[DELAY] + half_s
    if not names:
        return found
    off = fit.residuals(values).ravel()
    variance = max(float(off @ off) / max(len(off) - len(names), 1), EXACT**2)
    slopes = fit.slopes(values, names)
    known = np.linalg.inv(slopes.T @ slopes / variance + np.eye(len(names)) / WIDEST**2)
    pulls = fit.by_episode(slopes * off[:, None]) / variance  # what is off hangs together
    widest = np.maximum(np.diag(known), np.diag(known @ pulls.T @ pulls @ known))
    spreads = 1.96 * np.sqrt(widest)
    for name, spread in zip(names, spreads.tolist(), strict=True):
        low, high = _bounds(name)
        middle = _coordinate(name, values[name])
        ends = max(middle - spread, low), min(middle + spread, high)
        found[name] = _value(name, ends[0]), _value(name, ends[1])
    return found


def _rms(residuals: F64) -> float:
    return float(np.sqrt(np.mean(residuals**2)))
