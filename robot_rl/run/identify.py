"""`robot-rl identify`: what the simulated arm has to be like for a recorded run to come out of it.

Recorded episodes are played again (`run.replay`) in scenes that differ in a few quantities of
`tasks.randomize`; those are found with which the observations come out as recorded. The delay of
commands is scanned, because it acts on the grid of the controller's ticks; the factors are fitted
by least squares (trust region, scipy), as logarithms, so that half and double are equally far.

A factor can only be found from motion that it matters for: friction needs contact. Cameras come
last (`run.identify_cameras`), when it is known where the arm was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, StoreError, did_you_mean
from robot_rl.operate.scripted import NoOperator
from robot_rl.run.experiment import Experiment
from robot_rl.run.identify_cameras import FoundCamera, find_cameras
from robot_rl.run.lockstep import Rig, make_rig
from robot_rl.run.parts import Still, forget
from robot_rl.run.replay import STORES, Recording, choose, read, ruler_of, states_of
from robot_rl.run.scene import scene_of
from robot_rl.store.dataset import find_store, open_store
from robot_rl.tasks.randomize import QUANTITIES, Range

F64 = NDArray[np.float64]
DELAY = "action_delay_s"
FACTORS = ("gains", "joint_damping", "armature", "friction", "object_mass")
DEFAULT = (DELAY, "gains", "joint_damping", "armature")
DELAYS_S = tuple(0.01 * n for n in range(16))  # the grid of the controller's ticks
WIDEST = math.log(5.0)  # a factor is looked for between 1/5 and 5
STEP = 0.02  # of a logarithm, for the derivatives
SECONDS = 60.0  # of motion; more takes longer and says little more
LEFT_OUT = ("wrench",)  # of the observation: contact forces say more of the contact than of the arm


@dataclass(frozen=True, slots=True)
class Found:
    """A quantity, and its 95 % interval; the interval of the delay is its grid."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Identified:
    """What was found, and how well recorded and played states agree (RMSE, observation's units).

    rmse_m: the same of the first position in the observation, in metres; NaN without one.
    """

    found: tuple[Found, ...]
    before: float
    after: float
    rmse_before_m: float
    rmse_after_m: float
    episodes: int
    seconds: float
    cameras: tuple[FoundCamera, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

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
    recordings = _motion(run_dir, seconds, task.spec.control_hz)
    fit = _Fit(rig, recordings, experiment.seed)
    before = fit.residuals({})
    values = _search(fit, quantities, tell)
    after = fit.residuals(values)
    intervals = _intervals(fit, values, after.ravel())
    seen = find_cameras(rig, recordings, experiment.seed, values, tell) if cameras else ()
    steps = sum(len(r.steps) for r in recordings)
    return Identified(
        tuple(Found(name, values[name], *intervals[name]) for name in quantities),
        _rms(before),
        _rms(after),
        fit.position_rmse_m(before),
        fit.position_rmse_m(after),
        len(recordings),
        steps / task.spec.control_hz,
        seen,
    )


def write_twin(run_dir: Path, result: Identified, path: Path) -> Path:
    """Write the run's task with what was found as a task of one's own, for `task=NAME`.

    Raises:
        ConfigError: there is such a file.
    """
    import yaml

    if path.exists():
        raise ConfigError(
            f"{path} is there already",
            expected="a new file",
            got="one that would be overwritten",
            fix="another --out, or delete it",
        )
    experiment = Experiment.load(run_dir, foreign_limits=True)
    task = dict(experiment.config.get("task") or {})
    task |= {"randomize": "none", "ranges": result.ranges()}
    path.parent.mkdir(parents=True, exist_ok=True)
    left = f"position {1000 * result.rmse_before_m:.2f} mm off before, "
    left += f"{1000 * result.rmse_after_m:.2f} mm after"
    head = f"# A twin of the arm in run {run_dir.resolve().name} (robot-rl identify): {left}.\n"
    path.write_text(head + yaml.safe_dump(task, sort_keys=False, default_flow_style=None))
    return path


def _check(quantities: Sequence[str]) -> None:
    known = (DELAY, *FACTORS)
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
        records = choose(store, run_dir.resolve().name, every=True)
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
    """Residuals of recorded episodes as a function of what the scene is like."""

    def __init__(self, rig: Rig, recordings: Sequence[Recording], run_seed: int) -> None:
        self._rig, self._recordings, self._seed = rig, recordings, run_seed
        self._robot: Any = rig.robot
        spec = rig.loop.task.spec
        parts = [name for name, _, _ in spec.state_layout if name not in LEFT_OUT]
        self._entries = np.concatenate(
            [np.arange(spec.state_slices[n].start, spec.state_slices[n].stop) for n in parts]
        )
        self._position = _first_position(spec, self._entries)

    def residuals(self, values: Mapping[str, float]) -> F64:
        """Played minus recorded, [steps, entries of the observation]."""
        ranges: dict[str, Range] = {name: (v, v) for name, v in values.items()}
        self._robot.vary(ranges)
        return np.concatenate([self._played(recording) for recording in self._recordings])

    def _played(self, recording: Recording) -> F64:
        played = states_of(self._rig, recording, self._seed)
        pairs = zip(recording.frames, played, strict=True)
        off = [state - frame.observation["state"] for frame, (state, _) in pairs]
        return np.array(off[1:], np.float64)[:, self._entries]

    def position_rmse_m(self, residuals: F64) -> float:
        """Of the first position in the observation."""
        if self._position is None:
            return math.nan
        part, scale_m = self._position
        return float(np.sqrt((residuals[:, part] ** 2).sum(1).mean()) * scale_m)


def _first_position(spec: Any, entries: NDArray[np.intp]) -> tuple[slice, float] | None:
    ruler = ruler_of(spec)
    if not ruler.entry:
        return None
    first = int(np.flatnonzero(entries == ruler.part.start)[0])
    return slice(first, first + 3), ruler.scale / 1000.0


def _search(fit: _Fit, quantities: Sequence[str], tell: Callable[[str], None]) -> dict[str, float]:
    """Scan the delay with the nominal factors, fit these, and walk to better delays from there.

    A delay that is a little wrong is made up for by wrong factors, so each is tried with its own.
    """
    nominal = {name: QUANTITIES[name].nominal for name in quantities if name != DELAY}
    if DELAY not in quantities:
        return _least(fit, nominal, 0.0, tell)[1]
    costs = [_rms(fit.residuals(nominal | {DELAY: delay_s})) for delay_s in DELAYS_S]
    best = int(np.argmin(costs))
    if not nominal:
        return {DELAY: DELAYS_S[best]}
    fits = {best: _least(fit, nominal, DELAYS_S[best], tell)}
    while True:
        for near in (best - 1, best + 1):
            if near not in fits and 0 <= near < len(DELAYS_S):
                fits[near] = _least(fit, fits[best][1], DELAYS_S[near], tell)
        better = min(fits, key=lambda n: fits[n][0])
        if better == best:
            return fits[best][1]
        best = better


def _least(
    fit: _Fit, start: Mapping[str, float], delay_s: float, tell: Callable[[str], None]
) -> tuple[float, dict[str, float]]:
    """The factors that fit best with a delay: what is left (RMSE), and all values."""
    from scipy.optimize import least_squares

    names = [name for name in start if name != DELAY]

    def off(logs: F64) -> F64:
        factors = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return fit.residuals(factors | {DELAY: delay_s}).ravel()

    found = least_squares(
        off,
        np.log([start[name] for name in names]),
        bounds=(-WIDEST, WIDEST),
        diff_step=STEP,
        x_scale=0.2,
        loss="soft_l1",
        f_scale=0.1,
        max_nfev=20,
    )
    values = dict(zip(names, np.exp(found.x).tolist(), strict=True))
    left = _rms(found.fun)
    said = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    tell(f"with a delay of {1000 * delay_s:.0f} ms: {said}; left {left:.2g}")
    return left, values | {DELAY: delay_s}


def _intervals(fit: _Fit, values: Mapping[str, float], base: F64) -> dict[str, tuple[float, float]]:
    """95 %, from the curvature at what was found; of the delay, half a tick to either side.

    base: the residuals there.
    """
    names = [name for name in values if name != DELAY]
    found: dict[str, tuple[float, float]] = {}
    if DELAY in values:
        half_s = DELAYS_S[1] / 2
        found[DELAY] = max(values[DELAY] - half_s, 0.0), values[DELAY] + half_s
    if not names:
        return found
    columns = []
    for name in names:
        moved = fit.residuals(dict(values) | {name: values[name] * math.exp(STEP)}).ravel()
        columns.append((moved - base) / STEP)
    jacobian = np.array(columns).T
    variance = float(base @ base) / max(len(base) - len(names), 1)
    covariance = variance * np.linalg.pinv(jacobian.T @ jacobian)
    for name, spread in zip(names, 1.96 * np.sqrt(np.diag(covariance)), strict=True):
        found[name] = values[name] * math.exp(-spread), values[name] * math.exp(spread)
    return found


def _rms(residuals: F64) -> float:
    return float(np.sqrt(np.mean(residuals**2)))
