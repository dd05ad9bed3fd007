"""Why does a run not learn? Checks turn figures into findings: what is wrong, and the likely fix.

    check           warning                               problem                     from
    labels          no reward in the newest episodes;     the same for longer; every  10 episodes
                    practice never rewarded               step the same reward; no
                                                          label; rewarded at once
    weights         newer weights wait 30 s to drive      120 s                       3 lines
    buffer          no step arrives for 60 s;             300 s                       1 step;
                    update budget at its cap              -                           10 lines
    demonstrations  fewer than half of them rewarded      none of them                3 of them
    time_limit      ends half of the episodes unrewarded  nine of ten                 10 episodes
    q_values        mean Q 10 % beyond possible returns;  50 % beyond, or NaN         1000 updates,
                    equal everywhere;                     -                           3 lines;
                    -                                     returns beyond value_range  1 episode
    dormant         25 % of a network's hidden units      50 %                        1000 updates
    saturation      50 % of the policy's mean actions     90 %                        1000 updates
    gripper         the policy never toggles it, the      -                           10 episodes
                    demonstrations do
    entropy         0.75 nats per dimension off target;   -                           20000 updates,
                    temperature near 0, or above returns                              25 lines
    noise           a base imitates 1.5 times worse from  3 times                     1 update
                    noise of the head's shape

"from" says how much must have happened before a check can find anything. A line is a line of
learner.jsonl (`learner.log_updates`); a finding that needs several lines must be in each of them.
`probe` measures the networks; all other figures are counted anyway.

Dormant units: Sokar et al. 2023, arXiv 2302.12902: unit i of a layer is dormant when
mean_x |h_i(x)| <= tau mean_k mean_x |h_k(x)|, tau = 0.025. More updates per step make more of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from robot_rl.learn.algos.actor_critic import ActorCritic
from robot_rl.learn.algos.base import Algorithm
from robot_rl.learn.algos.rlif import RlifConfig
from robot_rl.learn.replay import Batch, ReplaySummary
from robot_rl.nets import heads
from robot_rl.nets.actor import ActorNet
from robot_rl.spec import Spec

EPISODES = 10  # fewer say little: at 20 % success, 10 episodes are all failures one time in 9
LONG_EPISODES = 30  # a run with demonstrations and corrections is rewarded sooner than this
STALE_S, VERY_STALE_S = 30.0, 120.0  # weights arrive about every second; a reset takes some 10 s
SILENT_S, VERY_SILENT_S = 60.0, 300.0  # longer than a reset; longer than a short talk
FULL_BACKLOG = 0.9  # share of its cap; at the cap, owed updates are dropped
DEMOS = 3  # one may go wrong by chance, three do not
FEW_REWARDED = 0.5  # share of the demonstrations; with fewer, mostly failures are imitated
OFTEN_TRUNCATED, MOSTLY_TRUNCATED = 0.5, 0.9  # of the practice episodes
Q_UPDATES = 1000  # Q starts near 0 and needs some hundred updates to mean anything
Q_BEYOND, Q_FAR_BEYOND = 0.1, 0.5  # of the range of the return; good runs stay inside it
RETURN_BEYOND = 0.05  # of `value_range`: rounding and discounts stay far below it
COLLAPSED_UPDATES = 5000  # in good runs, Q differs between steps before update 1000
COLLAPSED = 0.01  # standard deviation of Q over the range of the reward; good runs: 0.1 to 0.4
NETWORK_UPDATES = 1000
DORMANT_TAU = 0.025  # Sokar et al.
DORMANT, MOSTLY_DORMANT = 0.25, 0.5  # of a network's units; good runs: 0 to 6 %
SATURATED_ACTION = 0.98  # tanh(2.3): its slope, and with it the gradient, is down to 4 %
SATURATED, MOSTLY_SATURATED = 0.5, 0.9  # good runs: 2 %; a fast approach may need much more
ENTROPY_UPDATES = 20_000  # good runs came down to -1.5 nats per dimension in 13,000 to 19,000
ENTROPY_OFF = 0.75  # nats per dimension: twice the noise it should have, or half of it
BAD_SHAPE, VERY_BAD_SHAPE = 1.5, 3.0  # error ratio; 1.0 where all moments are decided
TEMPERATURE_TINY = 1e-6  # good runs: 1e-4 to 1e-2
PROBE_ROWS, PROBE_IMAGES = 128, 16  # transitions in a probe; an image of 128 pixels costs 1 ms
PROBE_CRITICS = 2  # members of the ensemble that are probed: all learn alike

Levels = tuple[float, float]  # the figures from which on there is a warning, and a problem


@dataclass(frozen=True)
class Finding:
    """Something that keeps a run from learning. severity: "warning" | "problem"."""

    name: str
    severity: str
    what: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What stays the same through a run.

    task_reward: critics learn from the task's reward; gamma: None without critics; entropy_target:
    nats per dimension of the decision, None where the entropy has no target.
    """

    gripper: bool = False
    decision_size: int = 6
    task_reward: bool = True
    takeover_penalty: float = 0.0
    gamma: float | None = 0.97
    value_range: tuple[float, float] | None = None
    entropy_target: float | None = None

    @classmethod
    def of(cls, algo: Algorithm, spec: Spec) -> Setup:
        """Return the setup of an algorithm; what the algorithm does not have is not checked."""
        if not isinstance(algo, ActorCritic):
            return cls(gripper=spec.action.gripper, task_reward=False, gamma=None)
        config, net = algo.config, algo.net
        assert isinstance(net, ActorNet)
        penalty = config.takeover_penalty if isinstance(config, RlifConfig) else 0.0
        return cls(
            gripper=spec.action.gripper,
            decision_size=net.decision_size,
            task_reward=not penalty,
            takeover_penalty=penalty,
            gamma=config.gamma,
            value_range=config.value_range,
            entropy_target=config.target_entropy_per_dim,
        )


@dataclass(frozen=True, kw_only=True)
class Symptoms:
    """What is known at one moment.

    metrics: newest figures of algorithm and probe; silent_s: time since rows last arrived;
    staleness_s: how long newer weights had been published when the newest step arrived; backlog:
    owed updates as a share of their cap.
    """

    setup: Setup = field(default_factory=Setup)
    updates: int = 0
    env_steps: int = 0
    replay: ReplaySummary = field(default_factory=ReplaySummary)
    metrics: Mapping[str, float] = field(default_factory=dict)
    silent_s: float = 0.0
    staleness_s: float = 0.0
    backlog: float = 0.0


def labels(f: Symptoms) -> Finding | None:
    """Find rewards that are missing, or that do not tell good steps from bad ones."""
    practice, demos, data = f.replay.practice, f.replay.demos, f.replay.data
    episodes = practice.episodes + demos.episodes + data.episodes
    if not f.setup.task_reward or episodes < EPISODES:
        return None
    low, high = f.replay.reward
    if not practice.labelled + demos.labelled + data.labelled:
        what = f"none of the newest {episodes} episodes has a reward label"
        return Finding("labels", "problem", what, "label them, or check the source of the reward")
    if practice.episodes >= EPISODES and practice.at_once == practice.episodes:
        what = f"all of the newest {practice.episodes} episodes are rewarded as soon as they begin"
        fix = "the reward sees success at the start: check its threshold, and the reset"
        return Finding("labels", "problem", what, fix)
    if low == high:
        severity = "problem" if high or episodes >= LONG_EPISODES else "warning"
        what = f"every step of the newest {episodes} episodes has the same reward, {high:g}"
        fix = "check the success predicate or classifier on a demonstration; if it is right, "
        fix += "record demonstrations that succeed and correct earlier"
        return Finding("labels", severity, what, fix)
    if practice.episodes >= LONG_EPISODES and not practice.rewarded:
        what = f"none of the newest {practice.episodes} practice episodes got a reward"
        fix = "correct the robot so that it succeeds now and then, or start it nearer to the goal"
        return Finding("labels", "warning", what, fix)
    return None


def weights(f: Symptoms) -> Finding | None:
    """Find a robot that does not drive with the newest weights."""
    what = f"the robot drove on while newer weights had been out for {f.staleness_s:.0f} s"
    fix = "check the link: link/connected in metrics.jsonl, logs/actor.log, link.weights_period_s"
    return _above("weights", f.staleness_s, (STALE_S, VERY_STALE_S), what, fix)


def silence(f: Symptoms) -> Finding | None:
    """Find that no step arrives to learn from."""
    if f.env_steps < 1:
        return None
    what = f"no step has arrived for {f.silent_s:.0f} s; the learner waits"
    fix = "release the hold, or check that actor and link are running (logs/actor.log)"
    return _above("buffer", f.silent_s, (SILENT_S, VERY_SILENT_S), what, fix)


def backlog(f: Symptoms) -> Finding | None:
    """Find a learner that cannot keep up with the robot."""
    if f.backlog < FULL_BACKLOG:
        return None
    what = "the learner is behind: updates are dropped, learner.utd is not reached"
    fix = "a smaller algo.hidden or algo.batch_size, a lower learner.utd, or a faster machine"
    return Finding("buffer", "warning", what, fix)


def demonstrations(f: Symptoms) -> Finding | None:
    """Find demonstrations that do not show success."""
    demos = f.replay.demos
    if demos.episodes < DEMOS or demos.rewarded >= FEW_REWARDED * demos.episodes:
        return None
    severity = "warning" if demos.rewarded else "problem"
    what = f"only {demos.rewarded} of {demos.episodes} demonstrations end with a reward"
    fix = "finish the task in each demonstration; if it looks finished, check the reward"
    return Finding("demonstrations", severity, what, fix)


def noise_shape(f: Symptoms) -> Finding | None:
    """Find noise of a shape that a frozen base policy cannot turn into good actions."""
    ratio = f.metrics.get("noise/error_ratio", 1.0)
    what = f"the base imitates people {ratio:.1f} times worse from noise of this shape"
    fix = "decide the noise at more moments of a chunk: algo.knots, 0 = at all of them"
    return _above("noise", ratio, (BAD_SHAPE, VERY_BAD_SHAPE), what, fix)


def time_limit(f: Symptoms) -> Finding | None:
    """Find episodes that end before success; finds nothing where running rewards differ."""
    practice, running = f.replay.practice, f.replay.running
    if practice.episodes < EPISODES or running[0] < running[1]:
        return None
    share = practice.truncated / practice.episodes
    what = f"the time limit ends {100 * share:.0f} % of the practice episodes without a reward"
    fix = "raise task.max_steps, start nearer to the goal, or correct earlier"
    return _above("time_limit", share, (OFTEN_TRUNCATED, MOSTLY_TRUNCATED), what, fix)


def q_values(f: Symptoms) -> Finding | None:
    """Find a critic whose Q is impossible as a return, or is the same everywhere."""
    q, spread = f.metrics.get("critic/q_mean"), f.metrics.get("critic/q_std")
    if f.setup.gamma is None or f.updates < Q_UPDATES or q is None:
        return None
    if not math.isfinite(q):
        fix = "look for extreme rewards or observations, or lower algo.learning_rate"
        return Finding("q_values", "problem", "the mean Q is not a number", fix)
    low, high = return_range(f.setup, f.setup.gamma, f.replay)
    below = low - q if f.setup.value_range else 0.0  # conservative critics (CQL) are low on purpose
    beyond = max(q - high, below) / (high - low or 1.0)
    what = f"the mean Q is {q:.3g}, but returns lie between {low:.3g} and {high:.3g}"
    fix = "set algo.value_range to the known bounds, raise algo.critics, or lower learner.utd"
    if finding := _above("q_values", beyond, (Q_BEYOND, Q_FAR_BEYOND), what, fix):
        return finding
    rewards = f.replay.reward[1] - f.replay.reward[0] if f.setup.task_reward else 0.0
    rewards += f.setup.takeover_penalty
    flat = spread is not None and spread < COLLAPSED * rewards
    if not flat or f.updates < COLLAPSED_UPDATES:
        return None
    what = f"Q is the same everywhere (spread {spread:.2g}), although rewards differ"
    fix = "check that the observation tells success from failure; then raise algo.gamma"
    return Finding("q_values", "warning", what, fix)


def value_range(f: Symptoms) -> Finding | None:
    """Find returns outside of the range that targets are clipped to: they all look alike."""
    setup = f.setup
    if setup.value_range is None or setup.gamma is None or not setup.task_reward:
        return None
    (low, high), (least, most) = setup.value_range, f.replay.returns
    if max(low - least, most - high) <= RETURN_BEYOND * (high - low):
        return None
    what = f"returns lie between {least:.3g} and {most:.3g}, and are clipped to "
    what += f"algo.value_range=[{low:g},{high:g}]"
    low, high = return_range(replace(setup, value_range=None), setup.gamma, f.replay)
    fix = "algo.value_range=null in a new run, or the true bounds of the return, "
    return Finding("q_values", "problem", what, fix + f"perhaps [{low:.3g},{high:.3g}]")


def return_range(setup: Setup, gamma: float, replay: ReplaySummary) -> tuple[float, float]:
    """Return the (lowest, highest) possible return.

    A reward r of steps after which the return goes on counts r / (1 - gamma), a last reward once.
    """
    if setup.value_range is not None:
        return setup.value_range
    charge = setup.takeover_penalty / (1.0 - gamma)
    if not setup.task_reward:
        return -charge, 0.0
    (low, high), (last_low, last_high) = replay.running, replay.ending
    return (
        min(low, 0.0) / (1.0 - gamma) + min(last_low, 0.0) - charge,
        max(high, 0.0) / (1.0 - gamma) + max(last_high, 0.0),
    )


def dormant(f: Symptoms) -> Finding | None:
    """Find a network with many hidden units whose output hardly ever differs from 0."""
    if f.updates < NETWORK_UPDATES:
        return None
    names = ("actor", "critic")
    share, name = max((f.metrics.get(f"{name}/dormant", 0.0), name) for name in names)
    what = f"{100 * share:.0f} % of the {name}'s hidden units are dormant"
    fix = "start afresh from the same data with a lower learner.utd or algo.learning_rate"
    return _above("dormant", share, (DORMANT, MOSTLY_DORMANT), what, fix)


def saturation(f: Symptoms) -> Finding | None:
    """Find a policy whose actions lie at the ends of their range."""
    if f.updates < NETWORK_UPDATES:
        return None
    share = f.metrics.get("actor/saturated", 0.0)
    what = f"{100 * share:.0f} % of the policy's mean actions are at full deflection"
    fix = "a larger action unit (task.translation_m, rotation_rad), or a lower algo.learning_rate"
    return _above("saturation", share, (SATURATED, MOSTLY_SATURATED), what, fix)


def gripper(f: Symptoms) -> Finding | None:
    """Find a policy that never uses the gripper, although demonstrations do."""
    practice, demos = f.replay.practice, f.replay.demos
    unused = not practice.toggled and demos.toggled > demos.episodes / 2
    if not f.setup.gripper or practice.episodes < EPISODES or demos.episodes < DEMOS or not unused:
        return None
    what = f"the policy toggled the gripper in none of the newest {practice.episodes} episodes; "
    what += f"{demos.toggled} of {demos.episodes} demonstrations do"
    fix = "let it explore (algo.gripper_epsilon=0.05), or lower algo.gripper_penalty"
    return Finding("gripper", "warning", what, fix)


def entropy(f: Symptoms) -> Finding | None:
    """Find an entropy or a temperature of the policy that is far from what was asked for."""
    value, alpha = f.metrics.get("actor/entropy"), f.metrics.get("temperature/value")
    target, gamma = f.setup.entropy_target, f.setup.gamma
    if None in (value, alpha, target, gamma) or f.updates < ENTROPY_UPDATES:
        return None
    assert value is not None and alpha is not None and target is not None and gamma is not None
    off = value / f.setup.decision_size - target
    low, high = return_range(f.setup, gamma, f.replay)
    if alpha > high - low > 0.0:
        what = f"the temperature is {alpha:.2g}: entropy counts more than any return"
    elif abs(off) > ENTROPY_OFF:
        per_number = value / f.setup.decision_size
        what = f"entropy is {per_number:.2f} nats per dimension, its target {target:g}"
    elif alpha < TEMPERATURE_TINY and off < 0.0:
        what = f"the temperature is {alpha:.1e}: nothing keeps the policy exploring"
    else:
        return None
    fix = "set algo.target_entropy_per_dim nearer to it, or algo.std_init and temperature_init"
    return Finding("entropy", "warning", what, fix)


CHECKS: dict[Callable[[Symptoms], Finding | None], int] = {
    labels: 1,
    weights: 3,
    silence: 1,
    backlog: 10,
    demonstrations: 1,
    noise_shape: 1,
    time_limit: 1,
    q_values: 3,
    value_range: 1,  # where `q_values` finds a problem, too, this one is told
    dormant: 1,
    saturation: 1,
    gripper: 1,
    entropy: 25,
}
"""Check -> in how many lines in a row, with updates between them, it must find something."""

NAMES = ("labels", "weights", "buffer", "demonstrations", "time_limit", "q_values", "dormant")
NAMES += ("saturation", "gripper", "entropy", "noise")
LEVELS = {"warning": 1.0, "problem": 2.0}


class Diagnostics:
    """Runs the checks for one metric line after the other."""

    def __init__(self) -> None:
        self._streaks = dict.fromkeys(CHECKS, 0)
        self._updates = 0

    def check(self, figures: Symptoms) -> tuple[Finding, ...]:
        """Return what is wrong now; a line without new updates makes no streak longer."""
        learned, self._updates = figures.updates != self._updates, figures.updates
        found = []
        for check, lines in CHECKS.items():
            finding = check(figures)
            if finding is None:
                self._streaks[check] = 0
                continue
            self._streaks[check] += learned
            if self._streaks[check] >= lines or lines == 1:
                found.append(finding)
        return tuple(found)


def as_line(findings: tuple[Finding, ...]) -> tuple[dict[str, float], dict[str, str]]:
    """Return `diagnostics/<name>` = 0, 1 (warning) or 2 (problem) for a metric line, and texts.

    The text of a finding is in `diagnostics/<name>/what` and `diagnostics/<name>/fix`.
    """
    values, text = {f"diagnostics/{name}": 0.0 for name in NAMES}, {}
    for finding in sorted(findings, key=lambda x: LEVELS[x.severity]):
        key = f"diagnostics/{finding.name}"
        values[key] = LEVELS[finding.severity]
        text |= {f"{key}/what": finding.what, f"{key}/fix": finding.fix}
    return values, text


@torch.no_grad()
def probe(algo: Algorithm, batch: Batch) -> dict[str, float]:
    """Measure the networks; nothing is drawn at random, so learning stays bit for bit the same.

    Returns the shares in [0, 1] `actor/dormant`, `actor/saturated` and `critic/dormant`, and
    `critic/q_std`, the standard deviation of Q over the batch; without critics only the first two.
    Takes some 2 ms with a state alone, 30 ms with two cameras of 128 pixels (one core).
    """
    net = algo.net
    if not isinstance(net, ActorNet):  # a chunk policy has neither a mean nor critics
        return {}
    actor = {k: v.cpu() for k, v in algo.actor_state().items()}
    rows = PROBE_IMAGES if net.encoder else PROBE_ROWS
    seen = {key: value[:rows] for key, value in batch.observation.items()}
    features = net.look(seen, actor)
    figures: dict[str, float] = {}
    if net.policy.sizes[0] == net.feature_size:  # else the policy sees a chunk, too (`expo`)
        hidden, output = net.policy.activations(features, actor["policy"])
        mean, _ = heads.split(output[0])
        saturated = (torch.tanh(mean).abs() > SATURATED_ACTION).float().mean()
        figures |= {"actor/dormant": dormant_share(hidden), "actor/saturated": float(saturated)}
    if not isinstance(algo, ActorCritic):
        return figures
    action = torch.from_numpy(net.executed(batch)[:rows, : net.pose_size])
    pair = algo.judged(algo.moment(seen), action.to(algo.device)).cpu()
    hidden, q = algo.critic_net.activations(pair, algo.critic[:PROBE_CRITICS].cpu())
    spread = float(q.mean(0).std(unbiased=False))
    return figures | {"critic/dormant": dormant_share(hidden), "critic/q_std": spread}


def dormant_share(hidden: list[Tensor]) -> float:
    """Return the share of dormant units over all layers, each [E, B, O]."""
    flags = []
    for layer in hidden:
        score = layer.abs().mean(1)  # [E, O]
        flags.append((score <= DORMANT_TAU * score.mean(-1, keepdim=True)).flatten())
    return float(torch.cat(flags).float().mean())


def _above(name: str, value: float, levels: Levels, what: str, fix: str) -> Finding | None:
    """Return a warning from the first level on, a problem from the second on."""
    if value < levels[0]:
        return None
    return Finding(name, "problem" if value >= levels[1] else "warning", what, fix)
