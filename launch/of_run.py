"""From a run to launch actions, in whatever Python `ros2 launch` has: robot-rl need not be in it.

The interpreter that has robot-rl says what to start (`robot_rl.run.launch`), and every process is
started with it. So nothing here imports robot_rl, and the versions of the two Pythons may differ.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from launch import LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    Shutdown,
)
from launch.events import matches_action
from launch.events.process import ShutdownProcess
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

NOT_GIVEN = ""
RESPAWN_S = 1.0
# SIGINT, after 5 s SIGTERM, after this SIGKILL: the learner finishes an update and a checkpoint
SIGKILL_S = LaunchConfiguration("sigkill_timeout", default="10")

ARGUMENTS = {
    "run_dir": "a run that exists: it is continued",
    "robot": "fr3, ur5e, ...: without run_dir:= a new run of this robot; else it must agree",
    "experiment": "what the new run is to learn",
    "operator": "who helps in the new run: gamepad, console, none, ...",
    "actors": "arms of the new run that learn together: left,right",
    "learner": "false: it runs elsewhere (robot-rl learner RUN)",
    "console": "false: the page of a run with operator=console is served elsewhere",
    "with_actor": "false: it runs elsewhere (robot-rl actor RUN)",
    "with_view": "true: pictures for a page that is served elsewhere",
    "namespace": "of one robot among several",
}


def of_run(ros, **more):
    """What a launch file generates: `ros` is the kind of graph, `more` its own arguments."""
    arguments = ARGUMENTS | more

    def start(context):
        said = {key: LaunchConfiguration(key).perform(context) for key in arguments}
        return actions_of(ask(ros, {k: word for k, word in said.items() if word != NOT_GIVEN}))

    declared = [
        DeclareLaunchArgument(key, default_value=NOT_GIVEN, description=text)
        for key, text in arguments.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])


def interpreter():
    """The Python that has robot-rl: the one you name, the activated environment's, or this one."""
    named, activated = os.environ.get("ROBOT_RL_PYTHON"), os.environ.get("VIRTUAL_ENV")
    venv = [str(Path(activated) / "bin" / "python")] if activated else []
    tried = [named] if named else [*venv, sys.executable]
    for python in tried:
        if has_robot_rl(python):
            return python
    raise RuntimeError(
        "robot-rl is not installed where this launch file looks\n"
        "  expected: a Python that can import robot_rl\n"
        f"  got:      {', '.join(tried)}{'' if named or venv else ' (no environment is active)'}\n"
        "  fix:      activate the environment that has robot-rl (. .venv/bin/activate), "
        "or export ROBOT_RL_PYTHON=/path/to/.venv/bin/python"
    )


def has_robot_rl(python):
    """Whether it is installed there; -P: the folder that launch was started in does not count."""
    try:
        probe = [python, "-P", "-c", "import robot_rl"]
        done = subprocess.run(probe, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def ask(ros, words):
    """The plan for these launch arguments (`robot_rl.run.launch.plan`)."""
    pairs = [f"{key}={word}" for key, word in words.items()]
    command = [interpreter(), "-P", "-m", "robot_rl.run.launch", ros, *pairs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[-1])


def actions_of(plan):
    """The processes of a plan."""
    return [
        LogInfo(msg=f"run folder {plan['run_dir']}"),
        *(action_of(process, plan) for process in plan["processes"]),
    ]


def action_of(process, plan):
    """One process; by `-m`, for the first line of a console script may name another Python."""
    common = {
        "prefix": f"nice -n {process['nice']}" if process["nice"] else None,
        "additional_env": process["env"],
        "respawn": process["restart"],
        "respawn_delay": RESPAWN_S,
        "on_exit": Ending(process, plan),
        "sigkill_timeout": SIGKILL_S,
        "output": "screen",
    }
    if process["parameters"] is None:
        command = [process["python"], *process["arguments"]]
        return ExecuteProcess(cmd=command, name=process["label"], **common)
    return Node(
        executable=process["python"],
        arguments=process["arguments"],
        exec_name=process["label"],
        name=process["name"],
        namespace=process["namespace"],
        parameters=[process["parameters"]],
        remappings=list(process["remaps"].items()),
        ros_arguments=["--enclave", process["enclave"]] if process["enclave"] else [],
        **common,
    )


class Ending:
    """What follows the end of a process, as under `robot-rl up`; None = launch starts it again."""

    def __init__(self, process, plan):
        self.process, self.plan = process, plan
        self.failures, self.before_s = 0, time.monotonic()

    def __call__(self, event, context):
        """End the launch when the work is done, or when a critical process cannot go on."""
        if context.is_shutdown:
            return None
        name, code = self.process["label"], event.returncode
        if code == 0 and self.process["finishes"]:
            self.process["finished"] = True
            left = [p for p in self.plan["processes"] if p["finishes"] and "finished" not in p]
            if not left:
                return [Shutdown(reason=f"{name} has finished")]
            return [EmitEvent(event=ShutdownProcess(process_matcher=matches_action(event.action)))]
        if self.process["restart"] and not self.hopeless(code):
            return None
        if self.process["critical"]:  # an exception gives `ros2 launch` the exit code 1
            raise RuntimeError(f"{name} cannot go on (exit code {code}); its last lines say why")
        return [EmitEvent(event=ShutdownProcess(process_matcher=matches_action(event.action)))]

    def hopeless(self, code):
        """Whether starting it again is no help: it cannot start here, or fails again and again."""
        now_s = time.monotonic()
        healthy = now_s - self.before_s >= self.plan["healthy_s"]
        self.failures, self.before_s = 0 if healthy else self.failures + 1, now_s
        return code == self.plan["exit_setup"] or self.failures > self.plan["max_restarts"]
