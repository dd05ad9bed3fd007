"""`robot-rl base check`: does a policy server fit a task? Nothing is moved, and no robot is needed.

First what listens there is looked at, then what the server says of its policy, then it is asked a
few times with an observation that is made up. What can be judged is in `policy.base.fit`.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, LinkError, RobotRLError, did_you_mean
from robot_rl.policy.base import groot, openpi, served
from robot_rl.policy.base.fit import (
    Finding,
    Fit,
    action_findings,
    chunk_findings,
    failed,
    latency_finding,
    rate_finding,
    task_finding,
    wrong,
)
from robot_rl.policy.base.listening import Listener, listener_at
from robot_rl.policy.base.mapping import RefusedError
from robot_rl.policy.base.probe import (
    GrootProbe,
    OpenpiProbe,
    Probe,
    ServedProbe,
    example,
    refusal,
)
from robot_rl.run.experiment import Experiment
from robot_rl.spec import Spec

DEFAULTS = ("runtime=ros", "algo=resfit")  # of the command, where nothing else was asked for
WHERE = re.compile(r"(?P<host>[^\s:/\[\]]+|\[[0-9a-fA-F:]+\])(:(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of server: the config of group `base` that talks to it, its port, what it speaks."""

    base: str
    port: int
    speaks: Listener
    probe: Callable[[Any, Spec], Probe]


KINDS = {
    "openpi": Kind("openpi", openpi.PORT, Listener.HTTP, OpenpiProbe),
    "groot": Kind("groot", groot.PORT, Listener.ZEROMQ, GrootProbe),
    "lerobot": Kind(
        "served", served.PORT, Listener.CURVE, lambda c, s: ServedProbe(c, s, "lerobot")
    ),
    "smolvla": Kind(
        "served", served.PORT, Listener.CURVE, lambda c, s: ServedProbe(c, s, "smolvla")
    ),
}


@dataclass(slots=True)
class Report:
    """What was found. line: the command that uses the server, "" while something does not fit."""

    title: str
    findings: list[Finding] = field(default_factory=list)
    line: str = ""
    took_s: list[float] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against it."""
        return all(finding.fit is not Fit.NO for finding in self.findings)


def check_base(
    kind: str,
    where: str,
    words: Sequence[str],
    config_dir: Path | None = None,
    *,
    asks: int = 20,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check the server at `where` (HOST or HOST:PORT) for the task that `words` name.

    Raises:
        ConfigError: an unknown kind, no task, or words that do not compose.
        LinkError: nobody answers, or in another protocol, or with nonsense.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"there is no kind of server '{kind}'",
            expected="robot-rl base check KIND HOST",
            got=kind,
            fix=did_you_mean(kind, KINDS),
        )
    chosen = KINDS[kind]
    asked, host, port = _composed(chosen, where, words, config_dir)
    spec, config = asked.task.spec, asked.section("base")
    report = Report(f"{kind} at {host}:{port} for {spec.task} at {spec.control_hz:g} Hz")
    tell(f"connecting to {host}:{port} ...")
    _check_protocol(kind, host, port, listener_at(host, port, config.timeout_s))
    probe = chosen.probe(config, spec)
    try:
        length = _looked(probe, spec, report, asks, tell)
        if report.fits:
            _add_line(asked, words, report, probe.words(length), config_dir)
    finally:
        probe.close()
    return report


def _composed(
    kind: Kind, where: str, words: Sequence[str], config_dir: Path | None
) -> tuple[Experiment, str, int]:
    found = WHERE.fullmatch(where)
    if not found or int(found["port"] or 1) not in range(1, 65536):
        raise ConfigError(
            "this is no address of a server",
            expected="HOST or HOST:PORT, without a scheme",
            got=where[:100],
            fix=f"for example 192.168.1.20, or 192.168.1.20:{kind.port}",
        )
    if not any(word.startswith(("experiment=", "task=")) for word in words):
        from robot_rl.config.compose import options

        raise ConfigError(
            "for which task is the policy?",
            expected="experiment=NAME, whose cameras, state and actions the server has to fit",
            got=" ".join(words) or "none",
            fix=f"one of {', '.join(options('experiment', config_dir))}",
        )
    name = [word for word in words if re.match(r"base=|base\.host=", word)]
    if name:
        raise ConfigError(
            f"{name[0]} is said by KIND and HOST",
            expected="robot-rl base check KIND HOST experiment=NAME base.inputs=...",
            got=name[0],
            fix="leave it out",
        )
    host = found["host"].strip("[]")
    extra = [f"base={kind.base}", f"base.host={host}"]
    extra += [f"base.port={found['port']}"] if found["port"] else []
    asked = Experiment.compose([*words, *extra], config_dir)
    return asked, host, asked.section("base").port or kind.port


def _check_protocol(kind: str, host: str, port: int, speaks: Listener) -> None:
    if speaks is KINDS[kind].speaks:
        return
    other = next((name for name, k in KINDS.items() if k.speaks is speaks), "")
    fix = f"robot-rl base check {other} {host}:{port}, or the right port" if other else "the port?"
    if speaks is Listener.GRPC:
        fix = (
            "LeRobot's policy server takes and sends pickles, which can run any code, so robot-rl "
            "does not speak to it; serve the policy there with robot-rl serve-policy FOLDER "
            "experiment=... base=lerobot base.path=..."
        )
    raise LinkError(
        f"what listens at {host}:{port} is no {kind} server",
        expected=KINDS[kind].speaks.value,
        got=speaks.value,
        fix=fix,
    )


def _looked(
    probe: Probe, spec: Spec, report: Report, asks: int, tell: Callable[[str], None]
) -> int:
    """Fill the report; return how many actions an answer has, 0 = it could not be asked."""
    rng = np.random.default_rng(0)
    report.findings += [task_finding(spec), *probe.server()]
    if report.fits:
        tell("what does it want to see?")
        report.findings += probe.inputs(example(spec, rng))
    if not report.fits:
        return 0
    tell(f"asking {asks} times ...")
    try:
        answers, first_s, report.took_s = _asked(probe, spec, rng, asks)
    except RefusedError as error:
        report.findings.append(refusal(error.summary, error.got))
        return 0
    report.findings += _judged(probe, spec, answers, first_s, report.took_s)
    return len(answers[0])


def _asked(
    probe: Probe, spec: Spec, rng: np.random.Generator, asks: int
) -> tuple[list[NDArray[np.float64]], float, list[float]]:
    """The answers, how long the first took, and the others."""
    answers, took_s = [], []
    for _ in range(asks + 1):
        observation = example(spec, rng)
        began_s = time.perf_counter()
        answers.append(probe.ask(observation))
        took_s.append(time.perf_counter() - began_s)
    return answers, took_s[0], took_s[1:]


def _judged(
    probe: Probe,
    spec: Spec,
    answers: Sequence[NDArray[np.float64]],
    first_s: float,
    took_s: Sequence[float],
) -> Iterator[Finding]:
    config = probe.config
    shapes = {answer.shape for answer in answers}
    if len(shapes) > 1:
        yield wrong(
            "action",
            "its answers have different shapes",
            expected="the same each time",
            got=", ".join(str(list(s)) for s in sorted(shapes)),
            fix="check that one policy answers, and not several in turn",
        )
        return
    (length, _), *_ = shapes
    yield from action_findings(np.stack(answers), config, spec, probe.representation)
    yield from chunk_findings(length, config.chunk, spec)
    yield rate_finding(probe.said, spec)
    yield latency_finding(took_s, first_s, min(length, config.chunk or length), config, spec)


def _add_line(
    asked: Experiment,
    words: Sequence[str],
    report: Report,
    found: Sequence[str],
    config_dir: Path | None,
) -> None:
    """The command that trains on this server; it is composed and checked before it is shown."""
    base, new = asked.config["base"], {word.partition("=")[0] for word in found}
    line = [word for word in words if word.partition("=")[0] not in new]
    line += [f"base={base['name']}", f"base.host={base['host']}"]
    line += [f"base.port={base['port']}"] if "port" in base else []
    line += found
    given = {word.partition("=")[0] for word in words}
    line += [word for word in DEFAULTS if word.partition("=")[0] not in given]
    try:
        Experiment.compose(line, config_dir).check()
    except RobotRLError as error:
        report.findings.append(failed("command", error))
        return
    extra = ["--config-dir", str(config_dir)] if config_dir else []
    report.line = shlex.join(["robot-rl", "train", *line, *extra])
