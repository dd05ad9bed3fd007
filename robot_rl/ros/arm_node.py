"""Speaks with a vendor's driver: readiness, gripper, recovery, home and tare (section `driver`).

The gate stays the only publisher of targets. This node tells on `arm/problem` why the driver would
not move the arm now; the gate then is in a protective stop and arms nobody. It moves the arm in one
case: a person calls `arm/home`, while the gate lets nobody move it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from typing import Any

from rclpy.node import Node

from robot_rl.errors import LinkError
from robot_rl.robots import Robot
from robot_rl.robots.driver import ArmDriver, Call, Ready
from robot_rl.ros import convert, topics, vendor, wire
from robot_rl.ros.actions import ActionCall
from robot_rl.ros.controllers import listing, switch
from robot_rl.ros.endpoints import Caller, Newest, message_type, publisher, serve
from robot_rl.ros.grippers import make_gripper
from robot_rl.ros.runtime import Shell
from robot_rl.ros.topics import Topic
from robot_rl.safety.states import Mode

log = logging.getLogger(__name__)

TURN_S = 0.02  # wall
TELL_S = 0.5  # wall; `arm/problem` is told again this often
LIST_S = 0.25  # wall; the controllers are asked for this often
LET_KNOW_S = 0.3  # wall; the gate hears of a job before it moves anything

Job = Generator[None, None, None]
"""Work over many turns: it yields while it waits, and raises `LinkError` when it cannot go on."""


class Watch:
    """One readiness topic of the driver."""

    def __init__(self, node: Node, ready: Ready, silence_s: float) -> None:
        self._node, self._ready, self._silence_s = node, ready, silence_s
        qos = "latched" if ready.latched else "stream"
        topic = Topic(ready.topic, ready.type, qos, "driver", ("arm",), 0, "-", "")
        self._newest = Newest(node, topic)

    def problem(self) -> str:
        """Why the driver would not move; "" when this topic says it would."""
        ready, message = self._ready, self._newest.read()
        if self._node.count_publishers(ready.topic) == 0:
            return f"nobody publishes {ready.topic}"
        silent = not ready.latched and self._newest.silent_s > self._silence_s
        if message is None or silent:
            return f"{ready.topic} is silent"
        value = getattr(message, ready.member)
        if value == ready.value:
            return ""
        said = ready.words.get(str(value).lower(), str(value))
        return f"{ready.topic} says {said}"


class Controllers:
    """Whether the controllers that must be active are."""

    def __init__(self, shell: Shell, driver: ArmDriver) -> None:
        chosen = driver.controllers
        self._needed = (chosen.cartesian, *chosen.beside)
        self._listing = listing(shell.node, chosen.manager, shell.params["reply_s"])
        self._states: dict[str, str] = {}
        self._heard_s = self._due_s = 0.0

    def tick(self) -> None:
        """Ask again when it is time."""
        wall_s = time.monotonic()
        if wall_s < self._due_s:
            return
        response = self._listing.poll()
        if response is not None:
            self._states = {c.name: c.state for c in response.controller}
            self._heard_s, self._due_s = wall_s, wall_s + LIST_S

    def problem(self) -> str:
        """Which controller is not as it must be; "" when all are."""
        if not self._listing.is_served:
            return f"nobody serves {self._listing.name}"
        if not self._states or time.monotonic() - self._heard_s > 4 * LIST_S + 1.0:
            return f"{self._listing.name} does not answer"
        for name in self._needed:
            state = self._states.get(name, "not loaded")
            if state != "active":
                return f"controller {name} is {state}"
        return ""


class ArmNode:
    """Turns every `TURN_S`: looks at the driver, passes on the gripper's command, runs a job."""

    def __init__(self, shell: Shell, robot: Robot, driver: ArmDriver) -> None:
        for package in driver.packages:
            vendor.load(package)
        self._shell, self._robot, self._driver = shell, robot, driver
        self._reply_s = shell.params["reply_s"]
        self._watches = [Watch(shell.node, r, shell.params["silence_s"]) for r in driver.ready]
        managed = bool(driver.controllers.manager)
        self._controllers = Controllers(shell, driver) if managed else None
        self._gripper = make_gripper(shell.node, robot, driver.gripper, self._reply_s)
        self._widths = Newest(shell.node, topics.GRIPPER_COMMAND) if self._gripper else None
        self._gate = Newest(shell.node, topics.GATE_STATE)
        self._problems = publisher(shell.node, topics.ARM_PROBLEM)
        self._told, self._tell_s = "not told yet", 0.0
        self._job: Job | None = None
        self._doing = self._failed = ""
        serve(shell.node, topics.ARM_RECOVER, lambda: self._begin("recover", self._recover))
        serve(shell.node, topics.ARM_HOME, lambda: self._begin("home", self._go_home))
        serve(shell.node, topics.ARM_TARE, lambda: self._begin("tare", self._tare))

    # --- one turn --------------------------------------------------------------------------------

    def turn(self) -> None:
        """Look, act, tell."""
        if self._controllers is not None:
            self._controllers.tick()
        if self._gripper is not None and self._widths is not None:
            for message in self._widths.arrived():
                self._take_width(message)
            self._gripper.tick()
            self._shell.diagnostics.set("gripper_holds", self._gripper.holding)
            self._shell.diagnostics.set("gripper_goals", self._gripper.goals)
        self._work()
        self._tell(self.problem())

    def _take_width(self, message: Any) -> None:
        assert self._gripper is not None
        try:
            self._gripper.ask(convert.gripper_from(message))
        except LinkError as error:
            self._shell.diagnostics.error(str(error))

    def problem(self) -> str:
        """Why nothing may move now; "" when it may."""
        if self._doing:
            return f"{self._doing}: under way"
        looks: list[Callable[[], str]] = [watch.problem for watch in self._watches]
        looks += [self._controllers.problem] if self._controllers else []
        looks += [lambda: self._gripper.problem if self._gripper else ""]
        found = next((said for look in looks if (said := look())), "")
        return f"{found}; {self._failed}" if found and self._failed else found

    def _tell(self, problem: str) -> None:
        """Tell it when it has changed, and again now and then."""
        wall_s = time.monotonic()
        if problem == self._told and wall_s < self._tell_s:
            return
        if problem != self._told:
            log.warning("nothing may move: %s", problem) if problem else log.info("ready")
        self._told, self._tell_s = problem, wall_s + TELL_S
        self._problems.publish(convert.text_to(problem[: wire.MAX_TEXT]))
        self._shell.diagnostics.warn(problem)

    # --- what a person asks for ------------------------------------------------------------------

    def _begin(self, name: str, job: Callable[[], Job]) -> str:
        """Answer of a service: the job goes on in `turn`."""
        if self._doing:
            raise LinkError(f"not now: {self._doing} is under way")
        self._need_a_halt(name)
        self._doing, self._failed, self._job = name, "", job()
        return f"{name}: begun; arm/problem tells when it has ended"

    def _need_a_halt(self, name: str) -> None:
        """Refuse while the gate lets somebody move the arm. Raises `LinkError`."""
        message = self._gate.read()
        if message is None or self._gate.silent_s > 1.0:
            raise LinkError(f"no {name}: the gate is silent")
        if wire.decode_report(message.data).mode == Mode.RUN.value:
            raise LinkError(f"no {name} while the arm is driven: call gate/hold first")

    def _work(self) -> None:
        """One turn of the job under way."""
        if self._job is None:
            return
        try:
            next(self._job)
            return
        except StopIteration:
            log.info("%s: done", self._doing)
        except LinkError as error:
            self._failed = f"{self._doing} failed: {error}"
            log.error("%s", self._failed)
            self._shell.diagnostics.error(self._failed)
        self._job, self._doing = None, ""

    def _recover(self) -> Job:
        """What the profile names, in its order."""
        for call in self._driver.recover:
            yield from self._call(call)

    def _tare(self) -> Job:
        """Set the wrench to zero."""
        if not self._driver.tare:
            raise LinkError("this driver names no service that sets the wrench to zero")
        yield from self._call(Call(name=self._driver.tare))

    def _go_home(self) -> Job:
        """The joint controller takes the arm home, then the cartesian one takes over again."""
        chosen = self._driver.controllers
        if not chosen.home:
            raise LinkError("this driver names no joint controller that could go home")
        yield from _pause(LET_KNOW_S)
        self._need_a_halt("home")
        cartesian, home = [chosen.cartesian], [chosen.home]
        try:
            yield from self._switch(on=home, off=cartesian)
            yield from self._trajectory()
        finally:
            yield from self._switch(on=cartesian, off=home)

    def _trajectory(self) -> Job:
        """One point, at home, at rest."""
        chosen = self._driver.controllers
        kind = "control_msgs/action/FollowJointTrajectory"
        call = ActionCall(
            self._shell.node, f"{chosen.home}/follow_joint_trajectory", kind, self._reply_s
        )
        trajectory = message_type("trajectory_msgs/msg/JointTrajectory")()
        point = message_type("trajectory_msgs/msg/JointTrajectoryPoint")()
        trajectory.joint_names = list(self._robot.joint_names)
        point.positions = list(self._robot.home_rad)
        point.velocities = [0.0] * len(point.positions)
        point.time_from_start.sec = round(chosen.home_s)
        trajectory.points = [point]
        yield from _served(call, self._reply_s)
        call.send(trajectory=trajectory)
        yield from _result(call, chosen.home_s + self._reply_s)

    def _switch(self, *, on: list[str], off: list[str]) -> Job:
        manager = self._driver.controllers.manager
        yield from self._ask(
            switch(self._shell.node, manager, on=on, off=off, timeout_s=self._reply_s)
        )

    def _call(self, call: Call) -> Job:
        """Call a service or an action of the driver, and wait until it has succeeded."""
        if call.is_action:
            action = ActionCall(self._shell.node, call.name, call.type, self._reply_s)
            yield from _served(action, self._reply_s)
            action.send()
            yield from _result(action, 2 * self._reply_s)
            return
        request = message_type(call.type).Request()
        yield from self._ask(Caller(self._shell.node, call.name, self._reply_s, request))

    def _ask(self, caller: Caller) -> Job:
        yield from _served(caller, self._reply_s)
        give_up_s = time.monotonic() + self._reply_s
        while (response := caller.poll()) is None:
            if time.monotonic() > give_up_s:
                raise LinkError(f"{caller.name} does not answer")
            yield
        if not Caller.succeeded(response):
            said = getattr(response, "message", "")
            raise LinkError(f"{caller.name} refuses{f': {said}' if said else ''}")


def _pause(wall_s: float) -> Job:
    until_s = time.monotonic() + wall_s
    while time.monotonic() < until_s:
        yield


def _served(server: Caller | ActionCall, timeout_s: float) -> Job:
    """Wait until somebody serves it."""
    give_up_s = time.monotonic() + timeout_s
    while not server.is_served:
        if time.monotonic() > give_up_s:
            raise LinkError(f"nobody serves {server.name}")
        yield


def _result(action: ActionCall, timeout_s: float) -> Job:
    """Wait until the goal is reached."""
    give_up_s = time.monotonic() + timeout_s
    while action.poll() is None:
        if time.monotonic() > give_up_s:
            action.cancel()
            raise LinkError(f"{action.name} has not ended within {timeout_s:.0f} s")
        yield


def run_arm(shell: Shell, robot: Robot, driver: ArmDriver) -> None:
    """Turn until the node is told to end."""
    node = ArmNode(shell, robot, driver)
    while shell.running:
        shell.spin(TURN_S)
        node.turn()
