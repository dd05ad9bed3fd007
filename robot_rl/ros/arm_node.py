"""Speaks with a vendor's driver: readiness, gripper, recovery, home and tare (section `driver`).

The gate stays the only publisher of targets. This node keeps the readiness list of the running
graph (`arm/readiness`) and tells its first failing item on `arm/problem`; the gate then is in a
protective stop and arms nobody, until the list is green or a person has accepted what fails, by its
name. It moves the arm in one case: a person calls `arm/home`, while the gate lets nobody move it.
Whatever would have stopped a run stops the arm on its way home: a person's hold or stop, the end of
the gate, a controller that is stopped, the end of this process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from action_msgs.srv import CancelGoal
from rcl_interfaces.msg import SetParametersResult
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter

from robot_rl.errors import LinkError
from robot_rl.observe.cameras import CameraConfig
from robot_rl.robots import Robot
from robot_rl.robots.driver import ArmDriver, Call
from robot_rl.ros import convert, topics, vendor, wire
from robot_rl.ros.actions import ActionCall
from robot_rl.ros.cameras import image_topic, info_topic
from robot_rl.ros.controllers import switch
from robot_rl.ros.endpoints import Caller, Newest, message_type, publisher, serve
from robot_rl.ros.grippers import NOBODY, make_gripper
from robot_rl.ros.preflight import Finding, tool_of
from robot_rl.ros.readiness import ARM, Readiness
from robot_rl.ros.runtime import Shell
from robot_rl.ros.watches import CameraWatch, Chain, Controllers, Joints, Sight, Words
from robot_rl.safety.states import Mode
from robot_rl.system.audit import audit, audit_into

log = logging.getLogger(__name__)

TURN_S = 0.02  # wall
TELL_S = 0.5  # wall; `arm/problem` is told again this often
LET_KNOW_S = 0.3  # wall; the gate hears of a job before it moves anything
GATE_S = 1.0  # wall; a gate that tells nothing for so long may be dead
CANCEL_S = 2.0  # wall; within this the driver ends a motion that is given up
END_S = 3.0  # wall; the process waits so long for the end of a job that it gives up
HALTED = tuple(mode.value for mode in Mode if not mode.is_armed)
STOPPED = "controller: stopped"  # in the gate's reason, while the controller is
ENDS = "gate: "  # the gate's reason begins so when its process ends
NO_CAMERAS: Mapping[str, CameraConfig] = MappingProxyType({})

Job = Generator[None, None, None]
"""Work over many turns: it yields while it waits, and raises `LinkError` when it cannot go on."""


class ArmNode:
    """Turns every `TURN_S`: looks at the driver, passes on the gripper's command, runs a job.

    Args:
        cameras: of the run, by name; they are on the readiness list.
        at_start: what the preflight found before the graph was started.
    """

    def __init__(
        self,
        shell: Shell,
        robot: Robot,
        driver: ArmDriver,
        cameras: Mapping[str, CameraConfig] = NO_CAMERAS,
        at_start: Sequence[Finding] = (),
    ) -> None:
        for package in driver.packages:
            vendor.load(package)
        node, params = shell.node, shell.params
        self._shell, self._robot, self._driver = shell, robot, driver
        self._reply_s = params["reply_s"]
        managed = bool(driver.controllers.manager)
        self._controllers = Controllers(node, driver, self._reply_s) if managed else None
        self._gripper = make_gripper(node, robot, driver.gripper, self._reply_s)
        self._widths = Newest(node, topics.GRIPPER_COMMAND) if self._gripper else None
        self._gate = Newest(node, topics.GATE_STATE)
        self._words = Words(node, driver, tool_of(robot), params["silence_s"])
        self._chain, self._sight = Chain(node), Sight(self._gate)
        self._joints = Joints(node) if driver.joints.is_used else None
        self._cameras = [
            CameraWatch(node, name, image_topic(name, config), info_topic(name, config))
            for name, config in cameras.items()
        ]
        names = [told.topic for told in driver.ready]
        self._readiness = Readiness(at_start, names)
        self._problems = publisher(node, topics.ARM_PROBLEM)
        self._lists = publisher(node, topics.ARM_READINESS)
        self._told: tuple[str, tuple[object, ...]] = ("not told yet", ())
        self._tell_s = 0.0
        self._job: Job | None = None
        self._doing = self._failed = ""
        self._report: wire.GateReport | None = None  # the newest that a job has looked at
        self._leaving = False
        self._begin_accepted()
        serve(node, topics.ARM_RECOVER, lambda: self._begin("recover", self._recover))
        serve(node, topics.ARM_HOME, lambda: self._begin("home", self._go_home))
        serve(node, topics.ARM_TARE, lambda: self._begin("tare", self._tare))

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
        self._readiness.update(self._findings())
        self._tell()

    def _take_width(self, message: Any) -> None:
        assert self._gripper is not None
        try:
            self._gripper.ask(convert.gripper_from(message))
        except LinkError as error:
            self._shell.diagnostics.error(str(error))

    def _findings(self) -> list[Finding]:
        """Every item of the list, in the order in which a person would mend them."""
        found = [self._job_finding(), *self._words.findings()]
        found += [self._controllers.finding()] if self._controllers else []
        found += [self._gripper_finding()] if self._gripper else []
        found += [self._joints.finding()] if self._joints else []
        found += [self._chain.finding(), self._sight.finding()]
        return [*found, *(camera.finding() for camera in self._cameras)]

    def _job_finding(self) -> Finding:
        if self._doing:
            return Finding(ARM, "fail", f"{self._doing}: under way", "wait until it has ended")
        if self._failed:
            return Finding(ARM, "warn", self._failed, "mend that, and call it again")
        return Finding(ARM, "ok", "nothing is under way")

    def _gripper_finding(self) -> Finding:
        problem = self._gripper.problem if self._gripper else ""
        if problem:
            again = "look at the gripper, then acknowledge: the next command tries again"
            fix = "start the gripper's driver again" if NOBODY in problem else again
            return Finding("gripper", "fail", problem, fix)
        return Finding("gripper", "ok", "its driver is there")

    def _tell(self) -> None:
        """Tell list and problem: a change of an item's status at once, and all now and then."""
        listed, wall_s = self._readiness, time.monotonic()
        problem = listed.problem
        if problem and self._failed:
            problem = f"{problem}; {self._failed}"
        shown = problem, tuple((i.name, i.status) for i in listed.items) + listed.accepted
        if shown == self._told and wall_s < self._tell_s:
            return
        if problem != self._told[0]:
            log.warning("nothing may move: %s", problem) if problem else log.info("ready")
        self._told, self._tell_s = shown, wall_s + TELL_S
        report = wire.ReadinessReport(listed.items, listed.accepted)
        self._problems.publish(convert.text_to(problem[: wire.MAX_TEXT]))  # the gate's, first
        self._lists.publish(convert.text_to(wire.encode_readiness(report)))
        self._shell.diagnostics.warn(problem)

    # --- what a person accepts -------------------------------------------------------------------

    def _begin_accepted(self) -> None:
        """Say what is accepted from the start; from now on take what a person says."""
        listed = self._readiness
        listed.update(self._findings())
        names = self._shell.params["accept"]
        if refusal := listed.refusal(names):
            log.warning("ros.accept: %s", refusal)
        audit_into(Path(self._shell.params["run_dir"]))
        for name in listed.accept(names)[0]:
            self._say_accepted(name, "from the start (ros.accept)")
        self._shell.node.add_on_set_parameters_callback(self._on_parameters)

    def _on_parameters(self, changes: list[Parameter]) -> SetParametersResult:
        """Take the parameter `accept`, or refuse it with the reason."""
        for change in changes:
            if change.name != "accept":
                continue
            names = list(change.value or ())
            if refusal := self._readiness.refusal(names):
                log.warning("not accepted: %s", refusal)
                return SetParametersResult(successful=False, reason=refusal)
            new, ended = self._readiness.accept(names)
            for name in new:
                self._say_accepted(name, "while the graph runs (parameter accept)")
            for name in ended:
                audit.warning("arm: no longer accepted: %s", name)
            self._tell()
        return SetParametersResult(successful=True)

    def _say_accepted(self, name: str, how: str) -> None:
        text = next((item.text for item in self._readiness.items if item.name == name), "not seen")
        audit.warning("arm: accepted %s: %s, although: %s", how, name, text)

    # --- what a person asks for ------------------------------------------------------------------

    def _begin(self, name: str, job: Callable[[], Job]) -> str:
        """Answer of a service: the job goes on in `turn`."""
        if self._doing:
            raise LinkError(f"not now: {self._doing} is under way")
        self._report = self._need_a_halt(name)
        self._doing, self._failed, self._job = name, "", job()
        return f"{name}: begun; arm/problem tells when it has ended"

    def _need_a_halt(self, name: str) -> wire.GateReport:
        """Refuse while somebody may move the arm through the gate. Raises `LinkError`."""
        message = self._gate.read()
        if message is None or self._gate.silent_s > GATE_S:
            raise LinkError(f"no {name}: the gate is silent")
        report = wire.decode_report(message.data)
        if report.mode not in HALTED:
            raise LinkError(f"no {name} while the arm is driven: call gate/hold first")
        return report

    def _need_no_stop(self) -> None:
        """Refuse to go on once anybody has wanted the arm to stand. Raises `LinkError`.

        That is whatever the gate tells beyond what it told before; a person may let it go on.
        """
        before, report = self._report, self._need_a_halt("motion")
        assert before is not None  # the job has begun
        self._report = report
        same = report.mode == before.mode and before.reason.startswith(report.reason)
        if not same or (report.waits and report.waits != before.waits):
            waits = f"; it waits for a {report.waits}" if report.waits else ""
            raise LinkError(f"stopped on the way ({report.reason}{waits})")

    def _work(self) -> None:
        """One turn of the job under way."""
        self._advance(next)

    def _advance(self, turn: Callable[[Job], object]) -> None:
        """Let the job under way, if there is one, go on by one turn."""
        if self._job is None:
            return
        try:
            turn(self._job)
            return
        except StopIteration:
            log.info("%s: done", self._doing)
        except LinkError as error:
            self._failed = f"{self._doing} failed: {error}"
            log.error("%s", self._failed)
            self._shell.diagnostics.error(self._failed)
        self._job, self._doing = None, ""

    def end(self) -> None:
        """Before the process ends: give up the job under way, and see it end."""
        if self._job is None:
            return
        self._leaving = True
        self._advance(lambda job: job.throw(LinkError("robot-rl ends")))
        executor = SingleThreadedExecutor(context=self._shell.node.context)
        executor.add_node(self._shell.node)  # the shell runs no callback any more
        until_s = time.monotonic() + END_S
        while self._job is not None and time.monotonic() < until_s:
            executor.spin_once(TURN_S)
            self._work()

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
        """The joint controller takes the arm home, then the one of the run takes over again."""
        chosen = self._driver.controllers
        if not chosen.home:
            raise LinkError("this driver names no joint controller that could go home")
        if self._report is not None and STOPPED in self._report.reason:
            raise LinkError(f"{STOPPED}; controller/resume and gate/acknowledge come first")
        yield from _pause(LET_KNOW_S)
        self._need_no_stop()
        cartesian, home = [chosen.cartesian], [chosen.home]
        if cartesian == home:  # the node `ik` commands it, and is silent as long as this goes on
            yield from self._trajectory()
            return
        try:
            yield from self._switch(on=home, off=cartesian)
            yield from self._trajectory()
        finally:
            with suppress(LinkError):  # the process ends
                yield from self._hear_gate()
            stays_off = self._is_stopped()
            yield from self._switch(on=[] if stays_off else cartesian, off=home)
        if stays_off:
            raise LinkError("the controller was stopped meanwhile; controller/resume starts it")

    def _hear_gate(self) -> Job:
        """Wait for a newer word of the gate, as long as it may be silent."""
        since_s = time.monotonic()
        while not self._leaving and (passed_s := time.monotonic() - since_s) <= GATE_S:
            self._gate.read()
            if self._gate.silent_s < passed_s:
                return
            yield

    def _is_stopped(self) -> bool:
        """Whether the controller may have been stopped: only a person starts it again."""
        message = self._gate.value
        if self._leaving or message is None or self._gate.silent_s > GATE_S:
            return True
        reason = wire.decode_report(message.data).reason
        return STOPPED in reason or reason.startswith(ENDS)

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
        limit_s = chosen.home_s + self._reply_s
        yield from self._act(call, limit_s, self._need_no_stop, trajectory=trajectory)

    def _act(
        self, action: ActionCall, limit_s: float, check: Callable[[], None], **goal: Any
    ) -> Job:
        """Have a goal reached, unless `check` raises `LinkError`. Then it is given up."""
        name = f"{action.name}/_action/cancel_goal"
        cancel = Caller(self._shell.node, name, self._reply_s, CancelGoal.Request())  # every goal
        yield from _served(action, self._reply_s)
        check()
        action.send(**goal)
        give_up_s = time.monotonic() + limit_s
        try:
            while action.poll() is None:
                if time.monotonic() > give_up_s:
                    raise LinkError(f"{action.name} has not ended within {limit_s:.0f} s")
                check()
                yield
        except LinkError:
            yield from _given_up(action, cancel)
            raise

    def _switch(self, *, on: list[str], off: list[str]) -> Job:
        manager = self._driver.controllers.manager
        yield from self._ask(
            switch(self._shell.node, manager, on=on, off=off, timeout_s=self._reply_s)
        )

    def _call(self, call: Call) -> Job:
        """Call a service or an action of the driver, and wait until it has succeeded."""
        if call.is_action:
            action = ActionCall(self._shell.node, call.name, call.type, self._reply_s)
            yield from self._act(action, 2 * self._reply_s, lambda: None)
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


def _given_up(action: ActionCall, cancel: Caller) -> Job:
    """Have the server give up its goals, also one that it has not accepted yet."""
    until_s = time.monotonic() + CANCEL_S
    cancel.poll()
    with suppress(LinkError):  # it has ended, as it was asked to
        while action.is_busy and action.poll() is None:
            if time.monotonic() > until_s:
                log.error("%s was asked to stop and has not said that it did", action.name)
                return
            cancel.poll()
            yield


def run_arm(
    shell: Shell,
    robot: Robot,
    driver: ArmDriver,
    cameras: Mapping[str, CameraConfig] = NO_CAMERAS,
    at_start: Sequence[Finding] = (),
) -> None:
    """Turn until the node is told to end. Arguments: see `ArmNode`."""
    node = ArmNode(shell, robot, driver, cameras, at_start)
    while shell.running:
        shell.spin(TURN_S)
        node.turn()
    node.end()
