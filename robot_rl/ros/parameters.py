"""Every parameter of every node, once: declared from here, checked from here, documented from here.

No rclpy in this module: graph, launch files and the documentation check YAML without ROS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.robots import Fr3

Value = bool | int | float | str | list[str]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One ROS parameter. `low`/`high` bound numbers (inclusive); read_only = fixed at start."""

    name: str
    default: Value
    meaning: str
    unit: str = "-"
    low: float | None = None
    high: float | None = None
    read_only: bool = True

    def check(self, value: Any, node: str) -> Value:
        """Return `value` in the declared type. Raises `ConfigError` on a wrong type or range."""
        if isinstance(self.default, float) and isinstance(value, int) and value is not True:
            value = float(value)
        if isinstance(self.default, list) and (value is None or isinstance(value, tuple)):
            value = list(value or ())  # ROS gives None for an empty list, which has no type
        in_range = type(value) is type(self.default)
        if in_range and isinstance(value, int | float):
            low = -math.inf if self.low is None else self.low
            in_range = low <= value <= (math.inf if self.high is None else self.high)
        if not in_range:
            bounds = "" if self.low is None else f" in [{self.low}, {self.high}] {self.unit}"
            raise ConfigError(
                f"bad value for parameter '{node}.{self.name}'",
                expected=f"{type(self.default).__name__}{bounds}",
                got=f"{value!r} ({type(value).__name__})",
                fix=self.meaning,
            )
        return value


FR3 = Fr3()  # the robot unless a run names another
_RUN = Parameter("run_dir", "", "run folder: task, limits and operator are read from it")
_BASE = Parameter("base_frame", "base", "frame of poses and targets (REP-105 name of the arm)")
_TCP = Parameter("tcp_frame", "tcp", "frame of the wrench")
_ARM = Parameter(
    "joint_names",
    [*FR3.joint_names],
    "arm joints, in the order that `RobotState` uses",
)
_FINGERS = Parameter(
    "finger_joint_names",
    [*FR3.gripper.fingers],
    "finger joints; the gripper width is their sum",
)
_TOLERANCE = Parameter(
    "pair_tolerance_s",
    0.012,  # just over half a period of a 50 Hz driver: never pairs two ticks
    "stamps of one state may differ by this much",
    "s",
    0.0,
    1.0,
)

TABLES: Mapping[str, tuple[Parameter, ...]] = {
    "sim": (
        _RUN,
        _BASE,
        _TCP,
        _ARM,
        _FINGERS,
        Parameter(
            "rtf",
            0.0,
            "run seconds per wall second; 0 = time is released: as fast as those who act in it can",
            "-",
            0.0,
            50.0,
        ),
        Parameter(
            "system_time",
            False,
            "stand in for a robot's driver: stamps in system time, no /clock (needs rtf = 1)",
        ),
        Parameter("publish_hz", 50.0, "rate of all state topics and /clock", "Hz", 5.0, 500.0),
        Parameter("slice_s", 0.01, "commands are taken up this often", "s", 0.002, 0.1),
        Parameter("camera_hz", 0.0, "image rate; 0 = no cameras (needs OpenGL)", "Hz", 0.0, 60.0),
        Parameter(
            "board",
            "",
            "a board to calibrate cameras with: `hand:5x7,0.03,0.022` lies on the table, "
            "`beside:...` is held by the hand; empty = none",
        ),
        Parameter(
            "reset_plan",
            "",
            'what `place_objects` does: JSON of a ResetPlan, or {"seed": n}',
            read_only=False,
        ),
        Parameter(
            "fault",
            "",
            "what is wrong with the driver that it stands in for: JSON (`robot_rl.ros.faults`)",
            read_only=False,
        ),
    ),
    "gate": (
        _RUN,
        _BASE,
        _ARM,
        _FINGERS,
        _TOLERANCE,
        Parameter("heartbeat_hz", 20.0, "rate of gate/heartbeat, wall time", "Hz", 5.0, 100.0),
        Parameter("report_hz", 5.0, "latched gate/state is re-sent this often", "Hz", 2.0, 50.0),
        Parameter(
            "watchdog_age_s",
            1.5,  # three of its reports
            "nothing arms when the watchdog was not heard for this long (wall time)",
            "s",
            0.6,
            10.0,
        ),
        Parameter(
            "needs_arm",
            False,
            "nothing arms unless the arm node says on `arm/problem` that the driver is ready",
        ),
    ),
    "arm": (
        _RUN,
        Parameter("silence_s", 1.0, "a readiness topic may be this old (wall time)", "s", 0.1, 60),
        Parameter("reply_s", 5.0, "wait this long for a service of the driver", "s", 0.1, 60.0),
        Parameter(
            "accept",
            [""],
            "names of items of the readiness list that a person accepts; `['']` = none",
            read_only=False,
        ),
    ),
    "ik": (_RUN, _BASE),
    "watchdog": (
        Parameter(
            "silence_s",
            0.2,  # four missed beats at 20 Hz: hiccups of a busy PC pass, a dead gate does not
            "gate (or ik) silent this long (wall time): stop the controller",
            "s",
            0.05,
            5.0,
        ),
        Parameter(
            "grace_s",
            20.0,  # five Python processes starting on two cores
            "time for the gate to come up before its silence counts",
            "s",
            0.0,
            120.0,
        ),
        Parameter(
            "with_ik",
            False,
            "the arm takes joint targets: silence of the ik node stops the controller as well",
        ),
        Parameter("stop_service", "controller/stop", "std_srvs/Trigger that stops the controller"),
        Parameter(
            "manager",
            "",
            "controller_manager that switches the controllers off; empty = `stop_service` does it",
        ),
        Parameter("controllers", [""], "that can move the arm: switched off; first: on again"),
        Parameter(
            "start_service",
            "",
            "std_srvs/Trigger that starts the controller again; empty = a person starts it",
        ),
        Parameter(
            "tells_stopped",
            False,
            "tell `controller/stopped`, serve `controller/resume`: beside a real arm, whose driver "
            "does neither",
        ),
        Parameter(
            "dry_run",
            False,
            "stop and start the controller once before anything may move (needs start_service)",
        ),
        Parameter("retry_s", 0.1, "an unanswered stop is sent again", "s", 0.02, 2.0),
    ),
    "operator": (
        _RUN,
        _BASE,
        _ARM,
        _FINGERS,
        _TOLERANCE,
        Parameter("rate_hz", 50.0, "rate of operator/joy, run time", "Hz", 10.0, 200.0),
        Parameter(
            "unattended",
            False,
            "acknowledge stops as the scripted person (simulation only)",
        ),
        Parameter("acknowledge_s", 0.5, "looks at a stop this long before", "s", 0.0, 60.0),
    ),
    "camera": (
        _RUN,
        Parameter("camera", "", "which of the run's cameras (section `cameras`) it reads"),
        Parameter(
            "start_s",
            10.0,
            "wait this long for the camera; without it the run ends",
            "s",
            0.0,
            600.0,
        ),
    ),
    "view": (_RUN, _BASE, _ARM, _FINGERS, _TOLERANCE),
    "mirror": (
        _RUN,
        _BASE,
        _ARM,
        _FINGERS,
        _TOLERANCE,
        Parameter("mode", "shadow", "shadow: where the arm is; dynamic: by its own physics"),
        Parameter("engine", "", "mujoco, physx or isaac; empty = the run's `sim`"),
        Parameter("segment_s", 10.0, "begin anew from the measured joints", "s", 1.0, 3600.0),
        Parameter("camera_hz", 5.0, "pictures are drawn this often", "Hz", 0.1, 60.0),
    ),
    "actor": (
        _RUN,
        _BASE,
        _ARM,
        _FINGERS,
        _TOLERANCE,
        Parameter("sim_name", "sim", "node that places the objects; empty = a person does"),
        Parameter("ask_reset", False, "a person says `actor/ready` before each start"),
        Parameter("demos_only", False, "end after the demonstrations (`robot-rl record`)"),
        Parameter("deploys", False, "no learner: `robot-rl deploy`, `robot-rl eval --on robot`"),
        Parameter(
            "start_s",
            30.0,  # the robot's driver may start after us
            "wait this long for the first state and picture; without them the run ends",
            "s",
            1.0,
            600.0,
        ),
        Parameter("reply_s", 1.0, "wait this long for an arm or reset answer", "s", 0.1, 30.0),
        Parameter("joy_age_s", 0.1, "older operator/joy counts as hands off", "s", 0.02, 1.0),
    ),
}
"""node -> its parameters. `use_sim_time` is ROS's own and known everywhere."""

BUILT_IN = ("use_sim_time", "start_type_description_service")


def table(node: str) -> Mapping[str, Parameter]:
    """Parameters of `node` by name."""
    return {p.name: p for p in TABLES[node]}


def check(node: str, values: Mapping[str, Any]) -> dict[str, Value]:
    """Check a YAML section against the table of `node`.

    Raises:
        ConfigError: unknown key (ROS itself would ignore it silently), wrong type, out of range.
    """
    known = table(node)
    out: dict[str, Value] = {}
    for name, value in values.items():
        if name in BUILT_IN:
            out[name] = value
            continue
        if name not in known:
            raise ConfigError(
                f"unknown parameter '{node}.{name}'",
                expected=f"a parameter of the {node} node",
                got=f"{name}={value!r}",
                fix=did_you_mean(name, known),
            )
        out[name] = known[name].check(value, node)
    return out
