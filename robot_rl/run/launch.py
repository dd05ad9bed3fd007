"""What a launch file starts, as JSON: `python -m robot_rl.run.launch sim run_dir=...`.

`ros2 launch` often runs in a Python without robot-rl (the system's). So `launch/of_run.py` needs
nothing of this package: it asks the interpreter that has robot-rl, and starts every process with
it. With `--folder` instead of arguments it says where the launch files are.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.config.compose import shipped
from robot_rl.errors import ConfigError, RobotRLError, did_you_mean
from robot_rl.ros.graph import EXIT_SETUP, NodeSpec, module_of, remaps_of
from robot_rl.ros.sole import need_no_gate
from robot_rl.ros.supervise import HEALTHY_S, MAX_RESTARTS, node_environment, write_parameters
from robot_rl.run.at_work import alone_in
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import need_ros, system_of
from robot_rl.system.supervised import SUPERVISOR_PID

OF_A_NEW_RUN = ("experiment", "operator", "actors", "sim")  # what is fixed once a run exists
WHICH_PROCESSES = ("learner", "console")
TELL_LINK = "--tell-link"  # `robot_rl.run.console`
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def launch_dir() -> Path:
    """Folder of the launch files: inside the wheel, or beside the package in a checkout."""
    return shipped("launch", "of_run.py")


def plan(ros: str, words: Mapping[str, str]) -> dict[str, Any]:
    """Everything that `launch/of_run.py` has to know.

    Args:
        ros: kind of graph, `sim` or `real`.
        words: the launch arguments that a person has given, as text.

    Raises:
        ConfigError: arguments that contradict each other or the run.
        SetupError: another graph is at work in the domain.
    """
    experiment = _existing(ros, words) if "run_dir" in words else _new(ros, words)
    given = _ros_values(experiment, words)
    which = {k: _boolean(k, words[k]) for k in WHICH_PROCESSES if k in words}
    run_dir = experiment.run_dir.resolve()
    graph = system_of(experiment, **which, **given)
    need_no_gate(graph, None)  # launch files use the domain of the shell
    return {
        "run_dir": str(run_dir),
        "exit_setup": EXIT_SETUP,
        "healthy_s": HEALTHY_S,
        "max_restarts": MAX_RESTARTS,
        "processes": [_process(spec, run_dir) for spec in graph],
    }


def _new(ros: str, words: Mapping[str, str]) -> Experiment:
    """A new run of the robot that is named; its folder says what the other arguments changed."""
    if "robot" not in words:
        raise ConfigError(
            "nothing says what to launch",
            expected="run_dir:=FOLDER for a run that exists, or robot:=NAME for a new one",
            got=" ".join(f"{k}:={v}" for k, v in words.items()) or "no arguments",
            fix=f"e.g. ros2 launch {ros}.launch.py robot:=fr3 experiment:=reach",
        )
    groups = [f"{k}={words[k]}" for k in ("robot", *OF_A_NEW_RUN) if k in words]
    config = Experiment.compose([f"ros={ros}", "runtime=ros", *groups])
    changed = {**config.config["ros"], **_ros_values(config, words)}
    experiment = Experiment.from_dict({**config.config, "ros": changed})
    experiment.check()
    experiment.save()
    return experiment


def _existing(ros: str, words: Mapping[str, str]) -> Experiment:
    experiment = Experiment.load(Path(words["run_dir"]))
    with alone_in(experiment.run_dir):  # launch cannot keep the lock, but who has it is left alone
        pass
    if (made_for := experiment.config["ros"]["name"]) != ros:
        raise ConfigError(
            f"{experiment.run_dir} is a run of another graph",
            expected=f"ros={ros}",
            got=f"ros={made_for}",
            fix=f"{made_for}.launch.py starts it; without run_dir:= a new run is made",
        )
    if (robot := words.get("robot", experiment.robot.name)) != experiment.robot.name:
        raise ConfigError(
            f"{experiment.run_dir} is a run of another robot",
            expected=f"robot:={experiment.robot.name}",
            got=f"robot:={robot}",
            fix="leave robot:= out, or run_dir:= for a new run",
        )
    for key in OF_A_NEW_RUN:
        if key in words:
            raise ConfigError(
                f"{key}:= is for a new run, and run_dir:= names one that exists",
                expected=f"run_dir:=... or {key}:=...",
                got=f"run_dir:={words['run_dir']} {key}:={words[key]}",
                fix="leave one of them out",
            )
    return experiment


def _ros_values(experiment: Experiment, words: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that override the run's `ros` section."""
    others = {"run_dir", "robot", *OF_A_NEW_RUN, *WHICH_PROCESSES}
    return {k: _value(experiment.ros, k, word) for k, word in words.items() if k not in others}


def _boolean(key: str, word: str) -> bool:
    if word.lower() not in BOOLEANS:
        raise ConfigError(
            "a launch argument is neither true nor false",
            expected="true or false",
            got=f"{key}:={word}",
            fix=f"e.g. {key}:=true",
        )
    return BOOLEANS[word.lower()]


def _value(config: Any, key: str, word: str) -> bool | float | str:
    """A word as a value of the run's `ros` section."""
    known = {f.name for f in dataclasses.fields(config)}
    if key not in known:
        raise ConfigError(
            f"unknown launch argument '{key}'",
            expected="a key of the run's ros section",
            got=f"{key}:={word}",
            fix=did_you_mean(key, known),
        )
    default = getattr(config, key)
    if isinstance(default, bool):
        return _boolean(key, word)
    if not isinstance(default, float):
        return word
    try:
        return float(word)
    except ValueError as error:
        raise ConfigError(
            "a launch argument is not a number",
            expected="a number",
            got=f"{key}:={word}",
            fix=f"e.g. {key}:={default}",
        ) from error


def _process(spec: NodeSpec, run_dir: Path) -> dict[str, Any]:
    """One process as plain data; `parameters` is None when it is no ROS node."""
    is_node = spec.arguments is None
    on_terminal = [TELL_LINK] if spec.name == "console" else []
    # launch itself is the supervisor, and this process is its child
    env = node_environment(spec, os.environ) | {SUPERVISOR_PID: str(os.getppid())}
    return {
        "name": spec.name,
        "label": spec.label,
        "namespace": spec.namespace,
        "python": spec.python or sys.executable,
        "arguments": [*module_of(spec), *(spec.arguments or ()), *on_terminal],
        "parameters": str(write_parameters(spec, run_dir)) if is_node else None,
        "remaps": remaps_of(spec),
        "enclave": spec.enclave,
        "env": env,
        "nice": spec.nice,
        "critical": spec.critical,
        "restart": spec.restart,
        "finishes": spec.finishes,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: the kind of graph, then `key=value` for each launch argument."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    ros, *pairs = sys.argv[1:] if argv is None else argv
    if ros == "--folder":
        sys.stdout.write(f"{launch_dir()}\n")
        return 0
    try:
        need_ros()
        answer = plan(ros, dict(pair.split("=", 1) for pair in pairs))
    except RobotRLError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SETUP
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
