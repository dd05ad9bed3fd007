"""`robot-rl doctor`: is this machine ready, or is a run intact? Each line names the fix."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from robot_rl.cli.common import Parser, engine, existing_run, is_setting, say, write_json
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.system import machine
from robot_rl.system.machine import Checked

TEXT = """
Check this machine: Python, torch, MuJoCo and OpenGL, ROS 2, encryption, disk, cores, shared memory,
ports, configuration. warn = some verb will not work or be slow; fail = training cannot work.
With robot=PROFILE (and more key=value): is the driver of this arm ready? Topics, rates, frames,
controllers, gripper, stop service, cameras, payload, and what this machine adds: domain, DDS, disk,
keys. It listens, and moves nothing (docs/preflight.md).
With a run folder: check that run instead, as `robot-rl verify` does.
"""
EXAMPLES = """
robot-rl doctor
robot-rl doctor runs/peg_insert/20260101-120000-s0      (is every record of its stores intact?)
robot-rl doctor robot=ur5e_fzi                          (is the arm's driver ready?)
robot-rl doctor robot=ur5e_fzi double=true              (the same, of its double)
robot-rl doctor --json doctor.json
"""
APT_GL = "sudo apt-get install -y libegl1 libgl1-mesa-dri libegl-mesa0"


Check = Callable[[], Checked]
"""A check returns its status (ok, warn or fail), what it found, and the fix."""


@dataclass(frozen=True)
class CheckResult:
    """One line. status: ok | warn | fail; fix: empty when there is nothing to fix."""

    name: str
    status: str
    text: str
    fix: str = ""


def run(argv: Sequence[str]) -> int:
    """Print all findings; return 1 when one failed."""
    parser = Parser("doctor", TEXT, EXAMPLES).with_json()
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RUN | key=value",
        help="examine this run folder, or this robot, not the machine",
    )
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="your YAML files")
    args = parser.read(argv)
    findings = _findings(args.words, args.config_dir)
    for f in findings:
        say(f"{f.status:<5} {f.name:<14} {f.text}" + (f"\n{'':21}fix: {f.fix}" if f.fix else ""))
    write_json(
        args.json, {f.name: {"status": f.status, "text": f.text, "fix": f.fix} for f in findings}
    )
    failed = sum(f.status == "fail" for f in findings)
    warned = sum(f.status == "warn" for f in findings)
    say(f"\n{len(findings)} checks, {failed} failed, {warned} warnings")
    return 1 if failed else 0


def _findings(words: Sequence[str], config_dir: Path | None) -> list[CheckResult]:
    """Of a robot, of a run, or of this machine."""
    if any(map(is_setting, words)):
        return _robot(words, config_dir)
    if len(words) > 1:
        raise SetupError(
            "doctor looks at one run at a time",
            expected="a run folder, or words like robot=ur5e_fzi",
            got=" ".join(words),
            fix="give one folder",
        )
    checks = CHECKS
    if words:
        checks = engine("robot_rl.run.verify:parts")(existing_run(Path(words[0])))
    return [examine(name, check) for name, check in checks.items()]


def _robot(words: Sequence[str], config_dir: Path | None) -> list[CheckResult]:
    """Preflight: the driver of a real arm, or its double."""
    from robot_rl.run.experiment import Experiment
    from robot_rl.run.preflight import preflight

    experiment = Experiment.compose(words, config_dir)
    experiment.check()
    engine("rclpy:init")
    say("listening to the driver for some seconds; nothing moves")
    return [
        CheckResult(f"{arm.arm} {f.name}".strip(), f.status, f.text, f.fix)
        for arm in experiment.arms
        for f in preflight(arm)
    ]


def examine(name: str, check: Check) -> CheckResult:
    """Run one check; a check that breaks is itself a finding."""
    try:
        return CheckResult(name, *check())
    except RobotRLError as error:
        return CheckResult(name, "fail", f"{error.summary}: {error.got}", error.fix)
    except Exception as error:  # whatever a broken install throws belongs into the table
        return CheckResult(name, "fail", f"{type(error).__name__}: {error}", "run make setup again")


def _python() -> Checked:
    text = f"{platform.python_version()} on {platform.machine()}"
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        return "fail", text, "use Python 3.11 or 3.12: PYTHON=/path/to/python3.12 make setup"
    return "ok", text, ""


def _torch() -> Checked:
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        return "warn", "not installed: no learning here", "pip install 'robot-rl[learn]'"
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    return "ok", f"{torch.__version__} on {device}", ""


def _mujoco() -> Checked:
    try:
        return "ok", version("mujoco"), ""
    except PackageNotFoundError:
        return "warn", "not installed: no simulation", "pip install 'robot-rl[sim]'"


def _opengl() -> Checked:
    """In a child process: a broken driver may end the process instead of raising."""
    if importlib.util.find_spec("mujoco") is None:
        return "warn", "not checked: it takes MuJoCo to check", "pip install 'robot-rl[sim]'"
    backend = os.environ.get("MUJOCO_GL", "egl")
    code = "import mujoco; c = mujoco.GLContext(64, 64); c.make_current(); c.free()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | {"MUJOCO_GL": backend},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        return "ok", f"context with MUJOCO_GL={backend}", ""
    reason = (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1]
    return "warn", f"no context ({reason}): no cameras, no videos", APT_GL


def _ros() -> Checked:
    try:
        rclpy = importlib.import_module("rclpy")
        importlib.import_module("sensor_msgs.msg")
    except ImportError as error:
        fix = "source your ROS 2, or: pip install 'robot-rl[ros]' (x86_64)"
        return "warn", f"{error}: runtime=lockstep only", fix
    inside = Path(rclpy.__file__ or "").is_relative_to(sys.prefix)
    kind = "wheels in this environment" if inside else "system"
    return "ok", f"{kind}, {os.environ.get('ROS_DISTRO', 'jazzy' if inside else 'unknown')}", ""


def _encryption() -> Checked:
    import zmq

    text = f"pyzmq {zmq.pyzmq_version()}, libzmq {zmq.zmq_version()}"
    if not zmq.has("curve"):
        return (
            "fail",
            f"{text} without CURVE",
            "pip install --force-reinstall pyzmq (its wheel has it)",
        )
    return "ok", f"CURVE, {text}", ""


def _cores() -> Checked:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return "warn", f"{count} core", "real time wants one core for the loop, one for the learner"
    return "ok", f"{count} cores", ""


def _port() -> Checked:
    from robot_rl.link.config import LinkConfig

    port = LinkConfig().port
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return (
                "warn",
                f"{port}: {error.strerror}",
                "another learner runs; or set link.port=...",
            )
    return "ok", f"{port} is free", ""


def _configs() -> Checked:
    from robot_rl.config.compose import config_dir, options
    from robot_rl.run.experiment import Experiment

    names = options("experiment")
    for name in names:
        Experiment.compose([f"experiment={name}"])
    return "ok", f"{len(names)} experiments in {config_dir().name}/: {', '.join(names)}", ""


CHECKS: dict[str, Check] = {
    "python": _python,
    "torch": _torch,
    "mujoco": _mujoco,
    "opengl": _opengl,
    "ros 2": _ros,
    "encryption": _encryption,
    "disk": partial(machine.disk, Path()),
    "cores": _cores,
    "priority": machine.real_time,
    "shared memory": machine.shared_memory,
    "link port": _port,
    "configuration": _configs,
}
"""name -> function returning (status, text, fix)."""
