"""Does what a policy wants and answers fit a task? Piece by piece, for `robot-rl base check`.

Most servers say little about their policy. So a finding is one of three: it fits, it does not, or
the server does not say, and a person has to know it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError, SpecError
from robot_rl.policy.base.mapping import PROMPT, Actions, ForeignConfig, SlowConfig
from robot_rl.policy.base.schedule import longest_answer_ticks
from robot_rl.spec import IMAGE, ActionSpec, BoxActionSpec, JointActionSpec, Spec

WRIST = ("wrist", "hand", "gripper")  # in the name of a camera that moves with the tool
PICTURE = ("image", "cam", "video", "rgb", "view")
INSTRUCTION = ("prompt", "task", "language", "instruction")
RATES = ("control_hz", "fps", "action_hz")  # names under which a server may say its rate
BEYOND = 1.05  # largest number that still counts as within [-1, 1]
TINY = 0.1  # a motion that never exceeds this is hardly in units of the task's steps


class Fit(Enum):
    """How a finding ends; the value is for people."""

    YES = "fits"
    NO = "does not fit"
    UNSAID = "not said"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page. expected, got: of what does not fit; fix: also of what is not said."""

    topic: str
    fit: Fit
    said: str
    expected: str = ""
    got: str = ""
    fix: str = ""


def fits(topic: str, said: str) -> Finding:
    """It fits."""
    return Finding(topic, Fit.YES, said)


def unsaid(topic: str, said: str, fix: str) -> Finding:
    """The server does not say; `fix` is what a person has to look up, and what to do then."""
    return Finding(topic, Fit.UNSAID, said, fix=fix)


def wrong(topic: str, said: str, *, expected: str, got: str, fix: str) -> Finding:
    """It does not fit."""
    return Finding(topic, Fit.NO, said, expected, got, fix)


def failed(topic: str, error: RobotRLError) -> Finding:
    """It does not fit, in the words of an error."""
    return wrong(topic, error.summary, expected=error.expected, got=error.got, fix=error.fix)


# -- what the task has, and what the policy sees of it ---------------------------------------------


def task_finding(spec: Spec) -> Finding:
    """What a policy for this task can see and has to say."""
    pictures = ", ".join(
        f"{name} {spec.picture_size(name)[1]}x{spec.picture_size(name)[0]}" for name in spec.cameras
    )
    parts = "; ".join(
        f"{name} ({size}{', ' + unit if unit else ''})" for name, size, unit in spec.state_layout
    )
    size = spec.observation["state"].shape[0] if "state" in spec.observation else 0
    return fits(
        "task",
        f"cameras: {pictures or 'none'}\nstate, {size} numbers: {parts or 'without names'}\n"
        f"action, {action_in_words(spec)}",
    )


def source_of(key: str, spec: Spec) -> str:
    """Which of our entries their input probably means, by its name; "" = none does."""
    word = key.lower()
    if any(w in word for w in PICTURE):
        named = [name for name in spec.cameras if name.lower() in word]
        moves = [n for n in spec.cameras if any(w in n.lower() for w in WRIST)]
        stands = [n for n in spec.cameras if n not in moves]
        found = named or (moves if any(w in word for w in WRIST) else stands)
        return IMAGE + found[0] if found else ""
    if any(w in word for w in INSTRUCTION):
        return PROMPT
    for part in ("joint", "gripper"):
        if part in word:
            return next((f"state.{n}" for n, _, _ in spec.state_layout if part in n), "")
    return "state" if "state" in word and "state" in spec.observation else ""


def missing(key: str, spec: Spec) -> Finding:
    """The policy wants something that the task does not observe."""
    camera = any(w in key.lower() for w in PICTURE)
    parts = ["state", *(f"state.{name}" for name, _, _ in spec.state_layout)]
    return wrong(
        "camera" if camera else "state",
        f"the policy wants '{key}', and nothing of the task is called like it",
        expected=key,
        got=", ".join(IMAGE + n for n in spec.cameras) or "no camera"
        if camera
        else "another state",
        fix=f"base.inputs={{{key}: ...}} with one of {', '.join(parts)}"
        if not camera
        else f"a task with that camera, e.g. task.images=[wrist,front] or experiment=lift_pixels; "
        f"base.inputs={{{key}: image/...}} if one is only called otherwise",
    )


def not_shown(inputs: Iterable[str], spec: Spec) -> Iterator[Finding]:
    """The task's cameras that the policy does not look at."""
    rest = [name for name in spec.cameras if IMAGE + name not in inputs]
    if rest:
        yield fits("camera", f"not looked at by the policy: {', '.join(rest)}")


def input_finding(
    key: str,
    source: str,
    spec: Spec,
    *,
    shape: Sequence[int] = (),
    prompt: str = "",
    image_size: int = 0,
    guessed: bool = False,
    rescales: bool = True,
) -> Finding:
    """One input of the policy: what it is shown for it.

    Args:
        shape: of the input as the policy was trained, () = the server does not say; of a picture
            [3, H, W].
        rescales: whether the policy brings a picture to its own size.
    """
    if source == PROMPT:
        if prompt:
            return fits("instruction", f"{key} <- '{prompt}'")
        return wrong(
            "instruction",
            f"the policy wants an instruction as '{key}'",
            expected="the words that it was trained with",
            got="none",
            fix="base.prompt='lift the cube'",
        )
    if source.startswith(IMAGE):
        return _camera(
            f"{key} <- {source}",
            spec.picture_size(source.removeprefix(IMAGE)),
            shape,
            image_size=image_size,
            guessed=guessed,
            rescales=rescales,
        )
    name = source.removeprefix("state.")
    sizes = {n: size for n, size, _ in spec.state_layout}
    ours = sizes[name] if source != "state" else spec.observation["state"].shape[0]
    said = f"{key} <- {source}, {ours} numbers"
    if shape and int(np.prod(shape)) != ours:
        return wrong(
            "state",
            said,
            expected=f"{int(np.prod(shape))} numbers",
            got=f"{ours}",
            fix="name another part of the state in base.inputs, or train the policy on this one",
        )
    units = {n: unit for n, _, unit in spec.state_layout}
    unit = f", in {units[name]}" if source != "state" and units.get(name) else ""
    if shape and not guessed:
        return fits("state", said + unit)
    return unsaid(
        "state",
        said + unit + (", guessed" if guessed else ""),
        "is it what the policy was trained on, in order, length and units? The task's are above",
    )


def _camera(
    said: str,
    ours: tuple[int, int],
    shape: Sequence[int],
    *,
    image_size: int,
    guessed: bool,
    rescales: bool,
) -> Finding:
    height, width = ours
    sent = (image_size, image_size) if image_size else ours
    said += f", {width}x{height}"
    if image_size and sent != (height, width):
        said += f", scaled and padded to {image_size}x{image_size}"
    wanted = tuple(shape[-2:]) if len(shape) == 3 else ()
    if wanted and wanted != sent:
        said += f"; trained on {wanted[1]}x{wanted[0]}"
        if not rescales:
            return wrong(
                "camera",
                said,
                expected=f"{wanted[1]}x{wanted[0]}, as this policy does not rescale",
                got=f"{sent[1]}x{sent[0]}",
                fix=f"task.image_size={wanted[0]} where both sides are as long, or base.image_size",
            )
    if max(height, width) < max(sent):
        said += f" (task.image_size={max(sent)} would show it more)"
    if guessed:
        return unsaid("camera", said + ", guessed", "is this the view that it was trained on?")
    return fits("camera", said)


# -- what it answers -------------------------------------------------------------------------------


def action_in_words(spec: Spec) -> str:
    """What the numbers of the task's action are."""
    action = spec.action
    if isinstance(action, BoxActionSpec):
        return f"{action.size} numbers, -1 to +1 across the environment's own range"
    gripper = "; last the gripper, -1 closes, 0 keeps, +1 opens" if action.gripper else ""
    if isinstance(action, JointActionSpec):
        return (
            f"{action.size}: changes of {len(action.joints)} joints, +1 = {action.joint_rad:g} rad "
            f"a tick{gripper}"
        )
    return (
        f"{action.size}: changes of the TCP's pose in its own frame, +1 = "
        f"{1e3 * action.translation_m:g} mm (x y z) and {action.rotation_rad:g} rad (rotation) a "
        f"tick{gripper}"
    )


def bounds(spec: Spec) -> str:
    """base.low and base.high for actions in metres and radians (or joints in radians)."""
    action = spec.action
    if isinstance(action, ActionSpec):
        high = [action.translation_m] * 3 + [action.rotation_rad] * 3
    elif isinstance(action, JointActionSpec):
        high = [action.joint_rad] * action.motion
    else:
        return ""
    high += [1.0] if action.gripper else []
    low = ",".join(f"{-x:g}" for x in high)
    return f"base.low=[{low}] base.high=[{','.join(f'{x:g}' for x in high)}]"


def action_findings(
    answers: NDArray[np.float64], config: ForeignConfig, spec: Spec, representation: Sequence[str]
) -> Iterator[Finding]:
    """What a policy's numbers [N, H, D], in its own units, are to the task.

    Args:
        representation: of each of its D numbers, "ABSOLUTE", "RELATIVE", "DELTA" or "".
    """
    width, size = answers.shape[-1], spec.action.size
    columns = config.columns or tuple(range(width))
    said = f"{width} numbers an action"
    if len(columns) != size or not -width <= min(columns) <= max(columns) < width:
        some = ",".join(map(str, range(min(size, width))))
        yield wrong(
            "action",
            said,
            expected=f"{size}",
            got=f"{width} numbers" + (f", base.columns={list(columns)}" if config.columns else ""),
            fix=f"base.columns=[{some}] if these are the ones that are meant"
            if width >= size
            else "a task whose action has no more numbers, or a policy for this action",
        )
        return
    if bad := [str(c) for c in columns if not np.isfinite(answers[..., c]).all()]:
        yield wrong(
            "action",
            said,
            expected="finite numbers",
            got=f"NaN or infinity in column {', '.join(bad)}; robot-rl never carries that out",
            fix="look at the server's normalisation statistics: a spread of 0 divides by zero",
        )
        return
    yield fits("action", said if width == size else f"{said}, of which {list(columns)} are used")
    yield _representation([representation[c] for c in columns if representation], config, spec)
    try:
        ours = np.stack([Actions(config, size)(chunk) for chunk in answers])
    except SpecError as error:
        yield wrong("action", said, expected=error.expected, got=error.got, fix=error.fix)
        return
    yield _range(ours, config, spec)
    if spec.action.gripper:
        yield from _gripper(ours[..., -1], config)


def _representation(said: Sequence[str], config: ForeignConfig, spec: Spec) -> Finding:
    motion = set(said[: spec.action.motion])
    if isinstance(spec.action, BoxActionSpec):
        return fits("action", "absolute or not: that is the environment's own")
    if not motion or motion == {""}:
        return unsaid(
            "action",
            "the server does not say whether its motion is absolute or a change",
            "only changes from tick to tick fit; absolute poses or joint angles do not",
        )
    if motion == {"DELTA"}:
        return fits("action", "changes from tick to tick, as the server says")
    return wrong(
        "action",
        "the server answers absolute values"
        + (" (it adds the state to what is relative)" if "RELATIVE" in motion else ""),
        expected="changes from tick to tick: representation DELTA",
        got=", ".join(sorted(motion)),
        fix="train the policy on changes of the pose; robot-rl has no absolute actions",
    )


def _range(ours: NDArray[np.float32], config: ForeignConfig, spec: Spec) -> Finding:
    motion = np.abs(ours[..., : spec.action.motion])
    low, high = float(ours.min()), float(ours.max())
    each = "" if config.low else " (base.low, base.high not given)"
    said = f"numbers from {low:.3g} to {high:.3g} in the task's units{each}"
    if max(-low, high) > BEYOND:
        return wrong(
            "units",
            said,
            expected="-1 to +1, the step that the gate allows in a tick",
            got=f"{low:.3g} to {high:.3g}; what is beyond is cut off",
            fix=f"base.low and base.high: its values at our -1 and +1; for metres and radians "
            f"{bounds(spec)}",
        )
    if config.low:
        return fits("units", said)
    look = "these are so small that they may be metres and radians: " if motion.max() < TINY else (
        "in metres and radians they would have to be mapped with "
    )  # fmt: skip
    return unsaid("units", said, f"are they in units of the task's steps? {look}{bounds(spec)}")


def _gripper(last: NDArray[np.float32], config: ForeignConfig) -> Iterator[Finding]:
    if config.low or float(last.min()) < -TINY:
        return
    yield unsaid(
        "gripper",
        f"its last number lies between {last.min():.2g} and {last.max():.2g}",
        "if it is 0 to 1, the last of base.low and base.high must be 0 and 1 (1 = open), or 1 and "
        "0 (1 = closed, as openpi's DROID policies mean it)",
    )


# -- when it answers -------------------------------------------------------------------------------


def chunk_findings(length: int, asked: int, spec: Spec) -> Iterator[Finding]:
    """How long an answer lasts. asked: `base.chunk`, 0 = as many as the server answers."""
    hz = spec.control_hz
    if asked > length:
        yield wrong(
            "chunk",
            f"{length} actions in an answer",
            expected=f"base.chunk={asked}",
            got=str(length),
            fix=f"base.chunk={length}",
        )
        return
    used = asked or length
    rest = f" (of {length}; the rest is not used)" if used < length else ""
    yield fits(
        "chunk", f"{used} action{'s' * (used > 1)}{rest}: {used / hz:.3g} s at the task's {hz:g} Hz"
    )


def rate_finding(said: Mapping[str, Any], spec: Spec) -> Finding:
    """Whether the policy was trained at the task's rate, as far as the server says."""
    hz = spec.control_hz
    for name in RATES:
        value = said.get(name)
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            if abs(value - hz) < 0.05 * hz:
                return fits("rate", f"{value:g} actions a second, as the task's {hz:g} Hz")
            return wrong(
                "rate",
                f"the server says {name}={value:g}",
                expected=f"{hz:g} actions a second: one per tick of the task",
                got=f"{value:g}",
                fix=f"task.control_hz={value:g}, or a policy for {hz:g} Hz: it would move "
                f"{hz / value:.2g} times as fast as it was trained to",
            )
    return unsaid(
        "rate",
        f"one action a tick, {hz:g} a second; the server does not say its own rate",
        "look it up in the data that it was trained on (openpi: DROID 15, ALOHA 50 Hz); "
        "task.control_hz must be the same",
    )


def latency_finding(
    took_s: Sequence[float], first_s: float, length: int, config: SlowConfig, spec: Spec
) -> Finding:
    """Whether a plan is there in time, for answers that took this long."""
    hz = spec.control_hz
    p50, p95, worst = (float(q) for q in np.quantile(took_s, [0.5, 0.95, 1.0]))
    ticks = max(1, math.ceil(p95 * hz))
    limit = longest_answer_ticks(length, config.ahead)
    said = (
        f"{1e3 * p50:.0f} ms (p95 {1e3 * p95:.0f}, slowest {1e3 * worst:.0f} of {len(took_s)}; "
        f"the first {1e3 * first_s:.0f}): {ticks} tick{'s' * (ticks > 1)} of {1e3 / hz:.0f} ms"
    )
    if ticks > limit:
        lasts = (
            f"at most {limit} tick{'s' * (limit > 1)}: a plan has to last until the next is here"
        )
        return wrong(
            "latency",
            said,
            expected=lasts if limit else "chunks that last longer than an answer takes",
            got=f"{ticks} for a chunk of {length}: the plan runs out, and the episode is aborted",
            fix="longer chunks, a faster server (fewer denoising steps, a nearer machine), or a "
            "lower task.control_hz; in runtime=lockstep simulated time waits",
        )
    again = max(ticks, min(config.execute, length - config.ahead - ticks - 1))
    left = length - config.ahead - again + 1  # ticks that the plan lasts when the next is asked for
    if late := sum(math.ceil(s * hz) > left for s in took_s):
        return unsaid(
            "latency",
            f"{said}. {late} of {len(took_s)} answers came too late: each such answer aborts an "
            f"episode, as a plan lasts {left} tick{'s' * (left > 1)} when the next is asked for",
            "does that happen again? Then it needs longer chunks, a smaller base.execute, or a "
            "server that always answers in time",
        )
    early = f", not only after base.execute={config.execute}" if again < config.execute else ""
    return fits(
        "latency",
        f"{said}. In time: the first {ticks} of {length} actions are skipped, and the next plan is "
        f"asked for after {again} ticks{early}",
    )
