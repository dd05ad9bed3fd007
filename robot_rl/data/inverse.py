"""Actions for recordings that have none: an inverse dynamics model (VPT, arXiv 2206.11795).

    x_k       s_k,  s_k - s_k-1,  s_k+1 - s_k,  s_k+2 - s_k+1      of the frames around step k
    y_k       the action's motion; the gripper's command as three numbers, 1 for the one given
    W_i       ridge regression: least  sum_k |x_k W - y_k|^2 + RIDGE |W|^2      i = 1 .. 5
    action    mean_i x_k W_i, within [-1, 1]; of the gripper's three numbers the largest
    spread    s(k)^2 = mean_i |x_k W_i - mean|^2 of the motion: how far the five disagree

The model sees what came of an action, which a policy cannot. So it is much easier to say which
action led from one frame to the next than which one should come now: a few of our own steps are
enough, and what they label may be many demonstrations. The own steps should be like those: what a
policy did while it was jammed against a wall, where actions lead to nothing, made labels worse.

Why linear. An action is a small step, and a controlled arm follows it in nearly the same way
everywhere. Small networks were worse from a few episodes, and no better on top of the regression
(docs/results.md). Where an arm is otherwise the held-out error says so, and nothing is labelled.

The gripper's command shows in its width alone: where it stands, and whether it falls or rises (by
more than `STILL`) in the step before, in this one and in the next. Only these are looked at for it,
where the state has a width.

Forces are left out of s. Who pushes an arm by hand puts a force on it, from which the model would
infer, rightly, that nothing was commanded. What is wanted is the command that moves the arm as
far without a push. The price: the model cannot see that something is in the way.

The held-out error costs no data. The episodes are dealt to five groups; W_i is of all but group i,
and that group tells how wrong it is. `known` of an entry is 1 - its squared error / its variance
(R2); of the gripper, 1 - wrong commands / those of who always says the commonest. 1 is perfect,
and 0 is what a guess would do.

Deviations. VPT looks at 128 pictures with a large network, for it has nothing else; here the state
says how the arm moved, and pictures are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.data.episodes import INCLUDE, choose, read, unbroken
from robot_rl.data.names import action_names, vector_keys
from robot_rl.errors import ConfigError, SpecError
from robot_rl.spec import Spec, gripper_index, told_apart
from robot_rl.store.labels import INVERSE
from robot_rl.store.store import Store
from robot_rl.tasks.common import FELT_LAYOUT
from robot_rl.types import Ending, Frame

MEMBERS = 5  # regressions, and groups of episodes
RIDGE = 1.0
FEWEST_STEPS = 60  # to learn from
LEAST = 0.5  # known of the motion as a whole, and of the gripper; less, and labels would be noise
COMMANDS = np.array((-1.0, 0.0, 1.0), np.float32)  # close, keep, open
WIDTH = "gripper_width"  # in the layout of a state
STILL = 0.005  # change of the width in a step that is none; 0.2 mm in the tasks' units
STD_FLOOR = 1e-3  # of a number that hardly moves
MOST_STD = 10.0  # standard deviations of an input
SURE = 0.99  # share of the own steps with a smaller spread
HAND = 7  # inputs of the gripper: its width, and for each of three steps whether it rises, falls
FORCE = "force"
FORCES = {name for name, _, _ in FELT_LAYOUT if name.startswith(("force", "torque"))}

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Moves:
    """Steps of one episode: what the frames around them say [T, I], and their actions [T, A]."""

    around: Array
    action: Array


@dataclass(frozen=True)
class Inverse:
    """Says which action led from one frame to the next.

    members: [5, I + 1, Y]; mean, scale: [I] of the inputs; sure: the spread that `SURE` of the own
    steps stay below; known: entry of the action -> how well it is inferred in held-out episodes,
    without entries that never differ; overall: the same of the motion as a whole.
    """

    spec: Spec
    members: Array
    mean: Array
    scale: Array
    episodes: int
    steps: int
    sure: float = np.inf
    known: tuple[tuple[str, float], ...] = ()
    overall: float = np.nan

    def label(self, frames: Sequence[Frame]) -> tuple[Array, Array]:
        """Actions [N, A] between N + 1 frames without a gap, and the spread [N] of each.

        Raises:
            SpecError: a number in the frames is not finite.
        """
        out = self.outputs(around(states(frames, self.spec), self.spec))
        return self.action(out.mean(0)), self.spread(out)

    def outputs(self, x: Array) -> Array:
        """What each regression says of steps [T, I]: [5, T, Y]."""
        return inputs(x, self.mean, self.scale) @ self.members

    def action(self, out: Array) -> Array:
        """Outputs [T, Y] as actions [T, A]."""
        motion = np.clip(out[:, : self.spec.action.motion], -1.0, 1.0)
        if not self.spec.action.gripper:
            return motion
        command = COMMANDS[out[:, self.spec.action.motion :].argmax(-1)]
        return np.concatenate((motion, command[:, None]), -1)

    def spread(self, out: Array) -> Array:
        """How far the regressions disagree about the motion of each step [T]."""
        motion = out[..., : self.spec.action.motion]
        return np.sqrt(np.square(motion - motion.mean(0)).sum(-1).mean(0))


def need_run_of(store: Store, spec: Spec, wrong: str, fix: str) -> None:
    """Raise `SpecError` with these words unless the store's run observes and does the same."""
    if store.spec is None or store.spec.without_base().hash != spec.hash:
        raise SpecError(
            wrong,
            expected=f"a run of the same observation and action: spec {spec.hash}",
            got=told_apart(spec, store.spec),
            fix=fix,
        )


def own_moves(store: Store, spec: Spec, *, guided: bool = False) -> list[Moves]:
    """The steps of a run whose actions are known, by episode, whoever drove them.

    Left out are episodes whose actions were inferred, and those with observations that were too old
    to be trusted.

    Args:
        guided: people guided the arm by hand in this run. What is recorded of that is the motion
            that was measured and no command, so only the policy's steps are known.

    Raises:
        SpecError: the run observes or does something else, or a number is not finite.
        StoreError: there is no episode.
    """
    need_run_of(
        store,
        spec,
        f"{store.path} cannot say what the actions of '{spec.task}' do",
        fix="--inverse: name a run that was recorded with the task settings given here",
    )
    found = []
    for one in choose(store, INCLUDE):
        episode = read(store, one)
        if one.ending is Ending.STALE or any(x.source == INVERSE for x in episode.labels):
            continue
        for piece in unbroken(episode):
            known = [not (guided and s.driver.is_human) for s in piece.steps]
            x = around(states(piece.frames, spec), spec)[known]
            if len(x):
                found.append(Moves(x, np.stack([s.action for s in piece.steps])[known]))
    return found


def learn_inverse(episodes: Sequence[Moves], spec: Spec, seed: int = 0) -> Inverse:
    """Learn which action leads from one frame to the next, and how well that can be said.

    Raises:
        ConfigError: there are too few episodes or steps, or their actions cannot be told from what
            they led to.
    """
    steps = sum(len(e.action) for e in episodes)
    if len(episodes) < MEMBERS or steps < FEWEST_STEPS:
        raise ConfigError(
            "too few steps with actions to learn from",
            expected=f"at least {MEMBERS} episodes and {FEWEST_STEPS} steps",
            got=f"{len(episodes)} episodes, {steps} steps",
            fix="--inverse: name a longer run, or a second one, or record a few demonstrations",
        )
    x = np.concatenate([e.around for e in episodes])
    action = np.concatenate([e.action for e in episodes])
    dealt = np.random.default_rng(seed).permutation(len(episodes)) % MEMBERS
    group = np.repeat(dealt, [len(e.action) for e in episodes])
    mean, scale = x.mean(0), 1.0 / np.maximum(x.std(0), STD_FLOOR)
    seen, wanted = inputs(x, mean, scale), targets(action, spec)
    members = [_regression(seen[group != i], wanted[group != i], spec) for i in range(MEMBERS)]
    made = Inverse(spec, np.stack(members), mean, scale, len(episodes), steps)
    out = made.outputs(x)
    held_out = made.action(out[group, np.arange(steps)])
    known, overall = _known(held_out, action, spec)
    gripper = dict(known).get("gripper", 1.0) if spec.action.gripper else 1.0
    if not min(overall, gripper) >= LEAST:  # NaN: nothing ever moved
        raise ConfigError(
            "the actions of these steps cannot be told from what they led to",
            expected=f"R2 of at least {LEAST} in held-out episodes, of motion and of gripper",
            got=f"motion {overall:.2f}; " + ", ".join(f"{n} {v:.2f}" for n, v in known),
            fix="--inverse: name runs with more steps, in which the arm moves; the state of the "
            "task must say where the tool or the joints are",
        )
    sure = float(np.quantile(made.spread(out), SURE))
    return Inverse(spec, made.members, mean, scale, len(episodes), steps, sure, known, overall)


def _known(said: Array, true: Array, spec: Spec) -> tuple[tuple[tuple[str, float], ...], float]:
    """See `Inverse.known` and `Inverse.overall`; actions [T, A] of held-out steps."""
    motion = spec.action.motion
    names = action_names(spec) or [f"action_{i}" for i in range(spec.action.size)]
    wrong = np.square(said - true).sum(0)
    differs = np.square(true - true.mean(0)).sum(0)
    if spec.action.gripper:
        names = [*names[:motion], "gripper"]
        shares = targets(true, spec)[:, motion:].mean(0)
        wrong[-1] = (gripper_index(said[:, -1]) != gripper_index(true[:, -1])).mean()
        differs[-1] = 1.0 - shares.max()
    known = [
        (n, float(1.0 - w / d)) for n, w, d in zip(names, wrong, differs, strict=True) if d > 0
    ]
    total = differs[:motion].sum()
    return tuple(known), float(1.0 - wrong[:motion].sum() / total) if total > 0 else np.nan


def _regression(seen: Array, wanted: Array, spec: Spec) -> Array:
    """[I + 1, Y]. Where the gripper has inputs of its own, motion and gripper share none but 1."""
    motion, own = spec.action.motion, HAND * (_width(spec) is not None)
    if not own:
        return _ridge(seen, wanted)
    found = np.zeros((seen.shape[1], wanted.shape[1]), np.float32)
    arm = np.r_[: seen.shape[1] - 1 - own, -1]
    hand = np.r_[-1 - own : 0]
    found[arm, :motion] = _ridge(seen[:, arm], wanted[:, :motion])
    found[hand, motion:] = _ridge(seen[:, hand], wanted[:, motion:])
    return found


def _ridge(seen: Array, wanted: Array) -> Array:
    """Weights, in double precision, for the inputs depend on each other."""
    z = seen.astype(np.float64)
    square = z.T @ z + RIDGE * np.eye(z.shape[1])
    return np.linalg.solve(square, z.T @ wanted).astype(np.float32)


def states(frames: Sequence[Frame], spec: Spec) -> Array:
    """The vectors of an observation without forces, as one row [S] for each frame.

    Raises:
        SpecError: there are none, or a number is not finite.
    """
    if not vector_keys(spec):
        raise SpecError(
            f"'{spec.task}' observes pictures only",
            expected="a vector that says where the arm is",
            got=", ".join(spec.observation),
            fix="actions can be inferred for tasks with a state",
        )
    kept = np.array(_names(spec)) != FORCE
    vectors = [[f.observation[k].ravel() for k in vector_keys(spec)] for f in frames]
    found = np.stack([np.concatenate(parts) for parts in vectors])[:, kept].astype(np.float32)
    bad = np.nonzero(~np.isfinite(found).all(-1))[0]
    if len(bad):
        first = frames[bad[0]]
        raise SpecError(
            f"frame {first.frame} of episode {first.id.episode} does not say where the arm is",
            expected="finite numbers in " + ", ".join(vector_keys(spec)),
            got="NaN or infinity",
            fix="leave this episode out of the recording, or repair its state",
        )
    return found


def _names(spec: Spec) -> list[str]:
    """What each number of an observation's vectors is: a force, the gripper's width, or ""."""
    found: list[str] = []
    for key in vector_keys(spec):
        names = [""] * math.prod(spec.observation[key].shape)
        for name, place in spec.state_slices.items() if key == "state" else ():
            if name in (*FORCES, WIDTH):
                names[place] = [FORCE if name in FORCES else WIDTH] * (place.stop - place.start)
        found += names
    return found


def _width(spec: Spec) -> int | None:
    """Where the gripper's width stands in a row of `states`; None: nowhere, or no gripper."""
    kept = [name for name in _names(spec) if name != FORCE]
    return kept.index(WIDTH) if spec.action.gripper and WIDTH in kept else None


def around(state: Array, spec: Spec) -> Array:
    """States [N + 1, S] -> what the model sees of each of the N steps between them [N, I].

    I is 4 S, and `HAND` more where the state has the gripper's width. Where there is no frame
    before or after, nothing has moved.
    """
    moved = np.diff(state, axis=0)
    still = np.zeros_like(moved[:1])
    before = np.concatenate((still, moved[:-1]))
    after = np.concatenate((moved[1:], still))
    seen = [state[:-1], before, moved, after]
    at = _width(spec)
    if at is not None:
        turned = np.stack([d[:, at] for d in (before, moved, after)], -1)
        seen += [state[:-1, at : at + 1], turned > STILL, turned < -STILL]
    return np.concatenate(seen, -1).astype(np.float32)


def inputs(x: Array, mean: Array, scale: Array) -> Array:
    """Inputs as the regression takes them, with a 1 for its constant: [T, I + 1]."""
    one = np.ones((len(x), 1), np.float32)
    return np.concatenate((np.clip((x - mean) * scale, -MOST_STD, MOST_STD), one), -1)


def targets(action: Array, spec: Spec) -> Array:
    """Actions [T, A] as what the regression says of them, [T, Y]."""
    if not spec.action.gripper:
        return action
    one = np.eye(len(COMMANDS), dtype=np.float32)[gripper_index(action[:, -1])]
    return np.concatenate((action[:, : spec.action.motion], one), -1)
