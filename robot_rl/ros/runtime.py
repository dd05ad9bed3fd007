"""What every node needs around it: start, signals, one single-threaded executor, parameters.

The reasons are measured: rclpy's own signal handler destroys the context before a last hold can be
published; the multi-threaded executor loses most of a 500 Hz topic; an exception in a callback
would end `spin`. So: own handlers that set a flag, one thread per executor, and every callback
guarded (`ros.executor`).
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import rclpy
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    ParameterType,
)
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.context import Context
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import try_shutdown

from robot_rl.errors import ConfigError, RobotRLError, SafetyError, SetupError, SpecError
from robot_rl.ros import parameters
from robot_rl.ros.diagnostics import NodeDiagnostics
from robot_rl.ros.executor import Executor
from robot_rl.ros.graph import (
    BY_PROFILE,
    CONTROL_PROFILE,
    EXIT_SETUP,
    LOCALHOST,
    PROFILE_VARIABLE,
    RANGE_VARIABLE,
    is_local_by_profile,
)
from robot_rl.system import priority
from robot_rl.system.log_thread import log_thread
from robot_rl.system.supervised import orphaned, supervisor_pid

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005  # measured: JointState p99 7.6 -> 3.2 ms beside a busy thread


def prepare_environment(profile: str = CONTROL_PROFILE) -> None:
    """Loopback discovery and the shipped Fast DDS profile, unless somebody chose otherwise."""
    os.environ.setdefault(PROFILE_VARIABLE, profile)
    if is_local_by_profile(os.environ):
        os.environ[RANGE_VARIABLE] = BY_PROFILE
    os.environ.setdefault(RANGE_VARIABLE, LOCALHOST)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


@contextmanager
def visitor(
    name: str,
    domain_id: int,
    namespace: str = "",
    remaps: Mapping[str, str] | None = None,
    profile: str = CONTROL_PROFILE,
) -> Iterator[Node]:
    """A node that looks at a graph which it is no part of, in a context of its own.

    remaps: our name -> the driver's.
    """
    prepare_environment(profile)
    context = Context()
    rclpy.init(context=context, domain_id=domain_id)
    words = [w for ours, theirs in (remaps or {}).items() for w in ("-r", f"{ours}:={theirs}")]
    node = Node(
        name,
        context=context,
        namespace=f"/{namespace.strip('/')}",
        cli_args=["--ros-args", *words],
    )
    try:
        yield node
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)


class Shell:
    """A node with its executor, parameters and diagnostics. Made by `node_shell`."""

    def __init__(self, node: Node, params: dict[str, Any], stop: threading.Event) -> None:
        self.node, self.params = node, params
        self.steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.diagnostics = NodeDiagnostics(node, self.steady)
        self.is_simulated = bool(node.get_parameter("use_sim_time").value)  # /clock tells the time
        self.errors = 0
        self._stop = stop
        self._thread: threading.Thread | None = None
        self._executor = Executor(node, stop.is_set, self._failed)
        self._supervisor = supervisor_pid()

    @property
    def running(self) -> bool:
        """False after SIGINT, SIGTERM, `stop()` or the death of the supervisor."""
        if orphaned(self._supervisor):
            self._stop.set()
        return not self._stop.is_set()

    def stop(self) -> None:
        """Ask the main loop to end (also called by the signal handlers)."""
        self._stop.set()

    def now_s(self) -> float:
        """Node clock in seconds: /clock with use_sim_time, else ROS system time."""
        return self.node.get_clock().now().nanoseconds * 1e-9

    def spin(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for one callback, then run everything that is ready.

        Draining before anything is judged matters: a process that woke late must not see silence
        where messages are waiting for it.
        """
        if not self._executor.spin(timeout_s):
            self._stop.set()

    def _failed(self, error: BaseException | None) -> None:
        self.errors += 1
        self.diagnostics.error(f"{type(error).__name__}: {error}")
        log.error("callback failed: %s", error, exc_info=error)

    def spin_in_background(self) -> None:
        """Spin in one daemon thread (for a process whose main thread is a control loop)."""

        def work() -> None:
            while self.running:
                self.spin(0.1)

        self._thread = threading.Thread(target=work, name="ros-executor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the background thread before the node under it is destroyed."""
        self.stop()
        if self._thread is not None:
            self._executor.wake()
            self._thread.join(timeout=1.0)


def _descriptor(p: parameters.Parameter) -> ParameterDescriptor:
    unit = "" if p.unit == "-" else f" [{p.unit}]"
    out = ParameterDescriptor(description=p.meaning + unit, read_only=p.read_only)
    if p.low is not None and p.high is not None:
        if isinstance(p.default, float):
            out.floating_point_range = [FloatingPointRange(from_value=p.low, to_value=p.high)]
        else:
            out.integer_range = [IntegerRange(from_value=int(p.low), to_value=int(p.high))]
    return out


def declare(node: Node, key: str) -> dict[str, Any]:
    """Declare the parameters of node kind `key`, check what was given; return name -> value.

    Raises:
        ConfigError: unknown parameter, wrong type, out of range.
    """
    fixed = ParameterDescriptor(
        type=ParameterType.PARAMETER_BOOL,
        description="take the time from /clock; only when the node starts: ages do not survive it",
        read_only=True,
    )
    node.set_descriptor("use_sim_time", fixed)
    given = {name: p.value for name, p in node._parameter_overrides.items()}
    checked = parameters.check(key, {n: v for n, v in given.items() if "qos_overrides" not in n})
    for p in parameters.TABLES[key]:
        value = checked.get(p.name, p.default)
        node.declare_parameter(p.name, value, _descriptor(p), ignore_override=True)
    return {p.name: node.get_parameter(p.name).value for p in parameters.TABLES[key]}


def _without_generators() -> None:
    """Import what the message types need of rosidl, and not what generates their code.

    The first message of a process would import that as well, and a parser and a template engine
    with it: 70 ms of each node's start.
    """
    generator = "rosidl_generator_py.generate_py_impl"
    if "rosidl_generator_py" not in sys.modules:
        sys.modules[generator] = cast(Any, None)  # as on a machine that has no generators
        importlib.import_module("rosidl_generator_py")
        del sys.modules[generator]


def _made(key: str) -> Node:
    """The node, in its enclave where the graph has a keystore.

    Raises:
        SetupError: it is not let in, or this ROS 2 has no DDS security.
    """
    try:
        return Node(key)
    except RuntimeError as error:  # RCLError, which rclpy does not export
        if os.environ.get("ROS_SECURITY_ENABLE") != "true":
            raise
        raise SetupError(
            f"{key} cannot come into its SROS 2 enclave",
            expected="a ROS 2 with DDS security, and the keystore of these words and this domain",
            got=str(error).splitlines()[0][:200],
            fix="ROS 2 from pip wheels has none: source one of Debian packages; or make the "
            "keystore anew (robot-rl keys FOLDER --sros2 WORDS); or leave ros.keystore out",
        ) from error


@contextmanager
def node_shell(key: str, args: Sequence[str] | None = None) -> Iterator[Shell]:
    """Start ROS and one node of kind `key`; on the way out everything is taken down in order."""
    prepare_environment()
    _without_generators()
    priority.prefer(key)  # before the middleware starts its threads
    priority.keep_apart(key)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # before init: a start-up can be cut short, too
        signal.signal(number, lambda *_: stop.set())
    rclpy.init(
        args=None if args is None else list(args), signal_handler_options=SignalHandlerOptions.NO
    )
    node = _made(key)
    shell = None
    try:
        shell = Shell(node, declare(node, key), stop)
        yield shell
    finally:
        if shell is not None:
            shell.close()
        node.destroy_node()
        try_shutdown()


def run_node(
    key: str, body: Callable[[Shell], int | None], args: Sequence[str] | None = None
) -> int:
    """`main` of every node: run `body`; a `RobotRLError` becomes one clear message.

    Returns what `body` returns (None = 0), 1 (failed while running: worth a restart) or
    `EXIT_SETUP` (a restart is no help).
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    with log_thread():
        return _run_logged(key, body, args)


def _run_logged(key: str, body: Callable[[Shell], int | None], args: Sequence[str] | None) -> int:
    try:
        with node_shell(key, args) as shell:
            log.info("%s up, pid %d", shell.node.get_fully_qualified_name(), os.getpid())
            gc.freeze()  # what was imported stays: a collection took 18 ms to find that out
            code = body(shell) or 0
            log.info("%s down", key)
        # under `ros2 launch`, Ctrl-C comes twice: from the terminal and from launch
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except (ConfigError, SetupError, SafetyError, SpecError) as error:
        log.error("%s", error)
        return EXIT_SETUP
    except RobotRLError as error:
        log.error("%s", error)
        return 1
    return code


class Pace:
    """Absolute deadlines in wall time; a late tick is counted and never followed by a burst."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.late = 0
        self.deadline_s = time.monotonic() + period_s

    def remaining_s(self) -> float:
        """Wall seconds left until the deadline (negative = late)."""
        return self.deadline_s - time.monotonic()

    def next(self) -> None:
        """Move to the next deadline; when a whole period behind, give the lost time up."""
        self.deadline_s += self.period_s
        if self.remaining_s() < -self.period_s:
            self.late += 1
            self.deadline_s = time.monotonic()

    def sleep(self) -> None:
        """Sleep to the deadline and move to the next one."""
        remaining_s = self.remaining_s()
        if remaining_s > 0:
            time.sleep(remaining_s)
        self.next()
