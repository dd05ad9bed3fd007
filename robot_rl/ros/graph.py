"""THE graph: which nodes run, with which parameters. `robot-rl up` and the launch files read it.

Plain frozen data, no rclpy: it can be built, printed and checked on a machine without ROS.
"""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError, SetupError, did_you_mean
from robot_rl.robots import Fr3, Robot
from robot_rl.robots.driver import ArmDriver
from robot_rl.ros import parameters, topics
from robot_rl.ros.parameters import Value

NODES_MODULE = "robot_rl.run.nodes"  # `python -m robot_rl.run.nodes KIND --ros-args ...`
KINDS = tuple(parameters.TABLES)  # of nodes

EXIT_SETUP = 2  # exit code of a node whose configuration or machine is wrong; as in robot_rl.cli
MAX_DOMAIN = 232  # above, DDS runs out of UDP ports
USUAL_DOMAIN = 42  # away from 0, where every other ROS 2 on the network lives
SAFE_DOMAINS = range(1, 101)  # above, they lie among the ports that Linux gives to anybody
DOMAIN_PORT, DOMAIN_PORTS = 7400, 250  # where DDS listens: 250 ports for each domain
PROFILE_VARIABLE = "FASTRTPS_DEFAULT_PROFILES_FILE"  # Jazzy's name; Kilted calls it FASTDDS_...
RANGE_VARIABLE, MIDDLEWARE = "ROS_AUTOMATIC_DISCOVERY_RANGE", "rmw_fastrtps_cpp"
PEERS_VARIABLE, BY_PROFILE, LOCALHOST = "ROS_STATIC_PEERS", "SYSTEM_DEFAULT", "LOCALHOST"
DOUBLE_START = "driver/start"  # service of a double that starts its controller
DOUBLE_CAMERA_HZ = 15.0  # of a double's cameras: without a GPU, drawing 640x480 takes 12 ms
CONTROL_PROFILE = str(Path(__file__).with_name("fastdds_control.xml"))  # what nodes use unless told
IMAGE_PROFILE = str(Path(__file__).with_name("fastdds.xml"))


def is_local_by_profile(env: Mapping[str, str]) -> bool:
    """Whether the Fast DDS profile that we ship keeps a node with this environment on this machine.

    Then `ROS_AUTOMATIC_DISCOVERY_RANGE` must not say LOCALHOST: for that, rmw_fastrtps puts
    transports of its own in the place of the profile's, shared memory among them, and after kill -9
    of a reader a gate's `publish()` into the reader's shared memory can block for 2 s.
    """
    chosen = env.get(RANGE_VARIABLE, LOCALHOST).upper()
    ours = env.get(PROFILE_VARIABLE, CONTROL_PROFILE) in (CONTROL_PROFILE, IMAGE_PROFILE)
    fast_dds = env.get("RMW_IMPLEMENTATION", MIDDLEWARE) == MIDDLEWARE
    return ours and fast_dds and chosen in (LOCALHOST, BY_PROFILE) and not env.get(PEERS_VARIABLE)


NO_DRIVER = ArmDriver()  # of a vendor: names as our own
VENDOR_BEATS = {"heartbeat_hz": 50.0}, {"silence_s": 0.14}  # gate, watchdog: stopped within 0.2 s
STOP_S = 0.8
SHADOW, DYNAMIC = "shadow", "dynamic"  # what a mirror does
MIRRORS = ("", SHADOW, DYNAMIC)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One process. name: node name inside `namespace` ("" = none); remaps: from -> to; kind: which
    of the module's nodes, "" for a module that is one process (the learner).

    critical: the graph makes no sense without it, so giving up on it ends the run; restart: start
    it again (with back-off) when it dies; finishes: ending with code 0 means that its work is done
    (the actor), others are started again; env: extra environment; python: another interpreter;
    arguments: of a process that is no ROS node (the learner), instead of ROS arguments; nice: gives
    way to the others by this much; stop_s: this long after its SIGTERM the next one is asked to
    end, whether it has ended or not (`robot_rl.ros.supervise`); arm: which of several it serves;
    enclave: SROS 2 identity, "" = none.
    """

    module: str
    name: str
    namespace: str = ""
    params: Mapping[str, Value] = field(default_factory=dict)
    remaps: Mapping[str, str] = field(default_factory=dict)
    critical: bool = True
    restart: bool = True
    finishes: bool = False
    kind: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    arguments: tuple[str, ...] | None = None
    nice: int = 0
    stop_s: float = STOP_S
    arm: str = ""
    enclave: str = ""

    @property
    def label(self) -> str:
        """Its name among all processes of the run, e.g. of its log: `gate`, `left-gate`."""
        return f"{self.arm}-{self.name}" if self.arm else self.name


Graph = tuple[NodeSpec, ...]
"""Nodes in start order; they are stopped in `stop_order`."""


def _check_nodes(nodes: Mapping[str, Mapping[str, Any]]) -> None:
    for kind, values in nodes.items():
        if kind not in KINDS:
            raise ConfigError(
                f"unknown node '{kind}' in the ROS configuration",
                expected="a node of the graph",
                got=kind,
                fix=did_you_mean(kind, KINDS),
            )
        parameters.check(kind, values)


def _check_remaps(remaps: Mapping[str, str]) -> None:
    """A misspelt remap would leave a topic unconnected and say nothing."""
    names = [entry.name for entry in (*topics.TOPICS, *topics.SERVICES)]
    patterns = [re.compile(re.sub(r"\{\w+\}", r"[^/]+", name) + "$") for name in names]
    for ours in remaps:
        if not any(pattern.match(ours) for pattern in patterns):
            raise ConfigError(
                f"ros.remaps renames '{ours}', which no node of ours uses",
                expected="one of our topics or services (docs/ros.md): the driver's name",
                got=f"{ours}: {remaps[ours]}",
                fix=did_you_mean(ours, names),
            )


def free_domain() -> int:
    """A ROS domain in which no participant of this machine listens; never the usual one.

    Raises:
        SetupError: there is none.
    """
    others = [domain_id for domain_id in SAFE_DOMAINS if domain_id != USUAL_DOMAIN]
    for domain_id in random.sample(others, len(others)):
        first = DOMAIN_PORT + DOMAIN_PORTS * domain_id
        if all(_unused(first + offset) for offset in (0, 10)):  # multicast, first participant
            return domain_id
    raise SetupError(
        "no free ROS domain on this machine",
        expected="a ROS_DOMAIN_ID between 1 and 100 without nodes",
        got="nodes in each",
        fix="end the ROS 2 nodes that were left running (pgrep -af robot_rl)",
    )


def _unused(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _check_domain(domain_id: int) -> None:
    if not 0 <= domain_id <= MAX_DOMAIN:
        raise ValueError(f"domain_id must lie in [0, {MAX_DOMAIN}], got {domain_id}")


@register("ros", "sim")
@dataclass(frozen=True, kw_only=True)
class SimGraphConfig:
    """The whole graph with the simulated arm.

    real_time_factor: 0 releases simulated time: it goes on when gate, operator, actor and learner
    have acted in it (`robot_rl.ros.release`), so that a slow machine changes no result. Above 0 it
    is wall time multiplied by this: a late process is late, as on a robot.
    nodes: node kind -> parameters that differ from the defaults (`robot_rl.ros.parameters`).
    """

    namespace: str = ""  # one robot; give each its own when there are several
    real_time_factor: float = 0.0  # 0 = time waits for whoever must act; 1 = rehearsal
    domain_id: int = USUAL_DOMAIN
    keystore: str = ""  # folder of `robot-rl keys --sros2`: nodes without a certificate stay out
    camera_hz: float = 0.0  # 0 = as the task needs: none, or twice the control rate
    unattended: bool = True  # the scripted person also acknowledges stops
    with_actor: bool = True  # False: the actor runs elsewhere (a terminal, a debugger)
    with_view: bool = False  # what the console looks at; on by itself with operator=console
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse unknown nodes and parameters, and an impossible clock."""
        factor = self.real_time_factor
        if factor != 0.0 and not 0.05 <= factor <= 50.0:
            raise ValueError(f"real_time_factor must be 0 or lie in [0.05, 50], got {factor}")
        _check_domain(self.domain_id)
        _check_nodes(self.nodes)


@register("ros", "real")
@dataclass(frozen=True, kw_only=True)
class RealGraphConfig:
    """Our nodes beside a real robot's own driver and cameras, which bring their own launch file.

    remaps: our topic -> the driver's, where it differs from what the robot's profile says.
    double: the simulated arm stands in for the driver: a dress rehearsal of this graph on a machine
    without a robot, with the driver's topics and services, in system time.
    """

    namespace: str = ""
    domain_id: int = USUAL_DOMAIN
    keystore: str = ""  # folder of `robot-rl keys --sros2`: nodes without a certificate stay out
    stop_service: str = "controller/stop"  # std_srvs/Trigger that deactivates the controller
    start_service: str = ""  # the opposite; then the chain is tried before anything may move
    double: bool = False
    accept: tuple[str, ...] = ()  # items of the readiness list that a person accepts, by name
    with_actor: bool = True
    with_view: bool = False  # what the console looks at; on by itself with operator=console
    mirror: str = ""  # shadow | dynamic: a simulated arm beside the real one (docs/isaac.md)
    remaps: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse unknown nodes and parameters, and a simulator on a real robot."""
        _check_domain(self.domain_id)
        _check_nodes(self.nodes)
        _check_remaps(self.remaps)
        if self.mirror not in MIRRORS:
            raise ValueError(f"mirror={self.mirror} ({did_you_mean(self.mirror, MIRRORS)})")
        if "sim" in self.nodes and not self.double:
            raise ValueError("a real robot has no sim node: remove nodes.sim")
        if self.nodes.get("operator", {}).get("unattended"):
            raise ValueError("unattended acknowledges stops by itself: simulation only")


def _spec(
    kind: str,
    config: SimGraphConfig | RealGraphConfig,
    run_dir: str,
    robot: Robot,
    params: Mapping[str, Value],
    *,
    driver: ArmDriver = NO_DRIVER,
    critical: bool = True,
    name: str = "",
) -> NodeSpec:
    """One node of the graph; parameters of the configuration win over the graph's own."""
    said: dict[str, Value] = {
        "run_dir": run_dir,
        "base_frame": robot.base_frame,
        "joint_names": list(robot.joint_names),
        "finger_joint_names": list(robot.gripper.fingers),
    }
    own = {name: value for name, value in said.items() if name in parameters.table(kind)}
    merged = parameters.check(kind, {**own, **params, **config.nodes.get(kind, {})})
    remaps: dict[str, str] = {}
    if isinstance(config, RealGraphConfig):
        remaps = {**driver.topics, **config.remaps}
    if kind == "sim" and isinstance(config, RealGraphConfig):
        remaps |= _dress(config)
    if kind in ("arm", "mirror"):  # they hear the gripper's commands from the gate
        remaps.pop(topics.GRIPPER_COMMAND.name, None)
    return NodeSpec(
        module=NODES_MODULE,
        kind=kind,
        name=name or kind,
        namespace=config.namespace,
        params=merged,
        remaps=remaps,
        critical=critical,
        finishes=kind == "actor",
        nice=5 if kind in ("view", "mirror") else 0,  # pictures give way to whatever has a deadline
        stop_s=2.0 if kind == "actor" else STOP_S,  # it finishes its tick and empties its queues
    )


def _dress(config: RealGraphConfig) -> dict[str, str]:
    """Names of the simulated controller when it stands in for a driver's."""
    return {
        topics.CONTROLLER_STOP.name: config.stop_service,
        topics.CONTROLLER_RESUME.name: config.start_service or DOUBLE_START,
        topics.CONTROLLER_STOPPED.name: "driver/stopped",
    }


def _with_images(spec: NodeSpec) -> NodeSpec:
    """Give nodes that send or take images the shared-memory profile."""
    if spec.kind not in ("sim", "camera", "actor", "view", "mirror"):
        return spec
    return replace(spec, env={**spec.env, PROFILE_VARIABLE: IMAGE_PROFILE})


def sim_graph(config: SimGraphConfig, run_dir: str, robot: Robot | None = None) -> Graph:
    """Simulated arm: sim, gate, watchdog, operator, actor - all on the simulator's clock.

    Args:
        run_dir: run folder (`Experiment.save`) that the nodes read task, limits and operator from.
        robot: gives the nodes its joint names; None = an FR3.
    """
    arm, sim_time = robot or Fr3(), {"use_sim_time": True}
    nodes = [
        _spec(
            "sim",
            config,
            run_dir,
            arm,
            {"rtf": config.real_time_factor, "camera_hz": config.camera_hz},
        ),
        _spec("gate", config, run_dir, arm, sim_time),
        _spec("watchdog", config, run_dir, arm, {}),  # wall time on purpose: it trusts no clock
        _spec("operator", config, run_dir, arm, sim_time | {"unattended": config.unattended}),
    ]
    if config.with_view:
        nodes.append(_spec("view", config, run_dir, arm, sim_time, critical=False))
    if config.with_actor:
        nodes.append(_spec("actor", config, run_dir, arm, sim_time))
    if config.camera_hz > 0:
        return tuple(_with_images(spec) for spec in nodes)
    return tuple(nodes)


def real_graph(
    config: RealGraphConfig,
    run_dir: str,
    robot: Robot | None = None,
    *,
    driver: ArmDriver = NO_DRIVER,
    cameras: bool = False,
    devices: Sequence[str] = (),
) -> Graph:
    """Real arm: gate, watchdog, operator, actor, on ROS system time.

    Arguments: as `sim_graph`; driver: how the arm's own driver speaks; cameras: whether the task
    has any; devices: the cameras that nodes of ours read (a double brings its own pictures).
    """
    arm = robot or Fr3()
    nodes = []

    def add(
        kind: str, params: Mapping[str, Value], *, critical: bool = True, name: str = ""
    ) -> None:
        spec = _spec(
            kind, config, run_dir, arm, params, driver=driver, critical=critical, name=name
        )
        nodes.append(_with_images(spec) if cameras else spec)

    if config.double:
        camera_hz = DOUBLE_CAMERA_HZ if cameras else 0.0
        rate_hz = max((50.0, *driver.min_hz.values()))
        dress = {"rtf": 1.0, "system_time": True, "camera_hz": camera_hz, "publish_hz": rate_hz}
        add("sim", dress)
    if driver.is_vendors:
        add("arm", {"accept": list(config.accept) or [""]})  # ROS has no empty list of strings
    if driver.joints.is_used:
        add("ik", {})
    beats, silence = VENDOR_BEATS if driver.is_vendors else ({}, {})
    add("gate", {**beats, "needs_arm": True} if driver.is_vendors else {})
    add("watchdog", {**silence, **_chain(config, driver), "with_ik": driver.joints.is_used})
    add("operator", {"unattended": False})
    for device in () if config.double else devices:
        add("camera", {"camera": device}, name=f"camera_{device}")
    if config.with_view:
        add("view", {}, critical=False)
    if config.mirror:
        add("mirror", {"mode": config.mirror}, critical=False)
    if config.with_actor:
        add("actor", {"sim_name": "", "ask_reset": True})
    return tuple(nodes)


def _chain(config: RealGraphConfig, driver: ArmDriver) -> dict[str, Value]:
    """How the watchdog stops the controller, and starts it again."""
    if driver.controllers.manager:
        moving = (driver.controllers.cartesian, driver.controllers.home)
        return {
            "manager": driver.controllers.manager,
            "controllers": list(dict.fromkeys(name for name in moving if name)),
            "tells_stopped": True,
            "dry_run": True,
        }
    start = config.start_service or (DOUBLE_START if config.double else "")
    return {
        "stop_service": config.stop_service,
        "start_service": start,
        "tells_stopped": True,
        "dry_run": bool(start),
    }


def stop_order(graph: Graph) -> list[NodeSpec]:
    """Nodes in the order to stop them: drivers first, watchdog before gate, the arm last."""
    rank = {"actor": 0, "operator": 1, "watchdog": 2, "gate": 3, "ik": 4, "arm": 5, "sim": 6}
    return sorted(graph, key=lambda spec: rank.get(spec.name, 1))


def module_of(spec: NodeSpec) -> list[str]:
    """What follows the interpreter on the command line of one process.

    -P: nothing is imported from the folder in which somebody has started the graph.
    """
    return ["-P", "-m", spec.module, *([spec.kind] if spec.kind else [])]


def remaps_of(spec: NodeSpec) -> dict[str, str]:
    """Its remaps; with several simulated arms, each has a clock of its own in its namespace."""
    own_clock = {"/clock": f"/{spec.namespace.strip('/')}/clock"} if spec.arm else {}
    return {**spec.remaps, **own_clock}


def ros_arguments(spec: NodeSpec, params_file: str) -> list[str]:
    """The `--ros-args` of one node."""
    out = ["--ros-args", "-r", f"__node:={spec.name}"]
    if spec.namespace:
        out += ["-r", f"__ns:=/{spec.namespace.strip('/')}"]
    for source, target in remaps_of(spec).items():
        out += ["-r", f"{source}:={target}"]
    if spec.enclave:
        out += ["--enclave", spec.enclave]
    return [*out, "--params-file", params_file]
