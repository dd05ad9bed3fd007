"""The simulated arm in a vendor's dress: its services, actions, readiness and frames.

Used by the sim node when it stands in for a driver (`ros.double=true`) that the run's profile
describes (section `driver`). What the vendor's driver refuses, this one refuses, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from rclpy.action.server import ActionServer, CancelResponse, GoalResponse
from rclpy.task import Future

from robot_rl.geometry import pose
from robot_rl.robots import Robot
from robot_rl.robots.driver import TRIGGER, ArmDriver, Payload, Ready
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import message_type, offer, publisher, subscribe
from robot_rl.ros.faults import Injector
from robot_rl.ros.preflight import tool_of
from robot_rl.ros.runtime import Shell
from robot_rl.ros.watches import member_of, topic_of
from robot_rl.types import RobotState

log = logging.getLogger(__name__)

TELL_S = 0.2  # wall; readiness is told again this often
STALL_S = 0.3  # wall; fingers that have not moved for this long are stopped by something
STALL_M = 0.0005
NOISE_RAD_S = 1e-4
THERE_M = 0.002  # fingers this near to their goal have reached it


class Double:
    """What a driver has beside its state topics.

    Args:
        stop, resume: of the simulated controller.
        grip: commands a finger distance [m]; width: measures one.
        go_home: begins to move the arm to its home pose within the seconds given; what it returns
            tells whether the arm is there.
    """

    def __init__(
        self,
        shell: Shell,
        robot: Robot,
        driver: ArmDriver,
        injector: Injector,
        *,
        stop: Callable[[], object],
        resume: Callable[[], object],
        grip: Callable[[float], None],
        width: Callable[[], float],
        go_home: Callable[[float], Callable[[], bool]],
    ) -> None:
        self._shell, self._robot, self._driver = shell, robot, driver
        self._injector = injector
        self._random = np.random.default_rng(0)
        self._stop, self._resume, self._grip, self._width = stop, resume, grip, width
        self._go_home = go_home
        self._tasks: list[tuple[Future, Callable[[], Any]]] = []  # promised answers
        self._states = _first_states(driver)
        topics_told = {told.topic: told for told in driver.told}  # several things on one topic
        self._told = {
            name: publisher(shell.node, topic_of(told)) for name, told in topics_told.items()
        }
        self._values: dict[str, Any] = {r.topic: r.value for r in driver.ready}
        self._tell_s = self._slow_s = 0.0
        self._fingers = self._finger_topic()
        self._frames = publisher(shell.node, topics.TF_STATIC)
        self._frames.publish(message_type("tf2_msgs/msg/TFMessage")())
        self._serve()

    # --- services --------------------------------------------------------------------------------

    def _serve(self) -> None:
        node, driver = self._shell.node, self._driver
        manager = driver.controllers.manager
        if manager:
            kind, name = "controller_manager_msgs/srv", manager
            offer(node, f"{kind}/ListControllers", f"{name}/list_controllers", self._list)
            offer(node, f"{kind}/SwitchController", f"{name}/switch_controller", self._switch)
        for call in driver.recover:
            if call.is_action:
                self._action(call.name, call.type, lambda _: (self._recovered, lambda: True))
            else:
                offer(node, call.type, call.name, self._recover)
        if driver.tare:
            offer(node, TRIGGER, driver.tare, self._answer)
        if driver.controllers.home:
            name = f"{driver.controllers.home}/follow_joint_trajectory"
            self._action(name, "control_msgs/action/FollowJointTrajectory", self._follow)
        self._serve_gripper()

    def _serve_gripper(self) -> None:
        gripper = self._driver.gripper
        if gripper.kind == "topic":
            topic = replace(topics.GRIPPER_COMMAND, name=gripper.name)
            self._commands = subscribe(self._shell.node, topic, self._take_value)
        elif gripper.kind == "command":
            self._action(gripper.name, "control_msgs/action/GripperCommand", self._gripper_command)
        elif gripper.kind == "franka":
            for verb, kind in (("move", "Move"), ("grasp", "Grasp")):
                self._action(f"{gripper.name}/{verb}", f"franka_msgs/action/{kind}", self._franka)

    def _take_value(self, message: Any) -> None:
        stroke_m = self._robot.gripper.stroke_m
        value = convert.gripper_from(message)
        self._grip(self._driver.gripper.asked_width_m(value, stroke_m))

    def _is_gone(self, name: str) -> bool:
        return name in self._injector.faults.gone

    def _answer(self, _: Any, response: Any) -> Any:
        response.success = True
        return response

    def _recover(self, request: Any, response: Any) -> Any:
        self._recovered()
        return self._answer(request, response)

    def _recovered(self) -> None:
        """The driver is ready again."""
        self._values = {r.topic: r.value for r in self._driver.ready}

    def _list(self, _: Any, response: Any) -> Any:
        state = message_type("controller_manager_msgs/msg/ControllerState")
        faulty = self._injector.faults.inactive
        response.controller = [
            state(name=name, state="inactive" if name in faulty else found)
            for name, found in self._states.items()
        ]
        return response

    def _switch(self, request: Any, response: Any) -> Any:
        """Best effort, as the controller manager does it: what is not there fails the call."""
        names = (*request.activate_controllers, *request.deactivate_controllers)
        response.ok = all(name in self._states for name in names)
        if not response.ok or self._is_gone(f"{self._driver.controllers.manager}/switch"):
            response.ok = False
            return response
        cartesian = self._driver.controllers.cartesian
        before = self._states[cartesian]
        self._states |= dict.fromkeys(request.deactivate_controllers, "inactive")
        self._states |= dict.fromkeys(request.activate_controllers, "active")
        if before != self._states[cartesian]:
            (self._resume if self._states[cartesian] == "active" else self._stop)()
        return response

    # --- actions ---------------------------------------------------------------------------------

    def _action(self, name: str, kind: str, begin: Callable[[Any], Any]) -> None:
        """Serve an action. begin(goal) -> (act, has it ended: a result, or None)."""
        action = message_type(kind)

        async def execute(goal: Any) -> Any:
            result = action.Result()
            act, ended = begin(goal.request)
            act()
            promise: Future = Future()
            self._tasks.append((promise, lambda: goal.is_cancel_requested or ended()))
            found = await promise
            if goal.is_cancel_requested:
                goal.canceled()
                return result
            for key, value in (found if isinstance(found, dict) else {}).items():
                setattr(result, key, value)
            goal.succeed()
            return result

        ActionServer(
            self._shell.node,
            action,
            name,
            execute,
            goal_callback=lambda _: (
                GoalResponse.REJECT if self._is_gone(name) else GoalResponse.ACCEPT
            ),
            cancel_callback=lambda _: CancelResponse.ACCEPT,
        )

    def _gripper_command(self, goal: Any) -> Any:
        stroke_m = self._robot.gripper.stroke_m
        width_m = self._driver.gripper.asked_width_m(goal.command.position, stroke_m)
        ended = self._moved(width_m)

        def result() -> dict[str, Any] | None:
            reached = ended()
            if reached is None:
                return None
            position = self._driver.gripper.commanded(self._width(), stroke_m)
            return {"position": position, "reached_goal": reached, "stalled": not reached}

        return (lambda: self._grip(width_m)), result

    def _franka(self, goal: Any) -> Any:
        ended = self._moved(goal.width)

        def result() -> dict[str, Any] | None:
            reached = ended()
            if reached is None:
                return None
            inner = goal.epsilon.inner if hasattr(goal, "epsilon") else 0.0
            return {"success": reached or abs(self._width() - goal.width) <= inner}

        return (lambda: self._grip(goal.width)), result

    def _moved(self, width_m: float) -> Callable[[], bool | None]:
        """None while the fingers move; then whether they are where they should be."""
        last: list[float] = [self._width(), time.monotonic()]

        def ended() -> bool | None:
            measured_m, wall_s = self._width(), time.monotonic()
            if abs(measured_m - width_m) < THERE_M:
                return True
            if abs(measured_m - last[0]) > STALL_M:
                last[:] = [measured_m, wall_s]
            return False if wall_s - last[1] > STALL_S else None

        return ended

    def _follow(self, goal: Any) -> Any:
        """The joint controller, which must be active: go to the last point."""
        name = self._driver.controllers.home
        point = goal.trajectory.points[-1]
        if self._states.get(name) != "active":
            return (lambda: None), lambda: {"error_code": -1, "error_string": f"{name} is inactive"}
        is_there = self._go_home(point.time_from_start.sec)
        return (lambda: None), lambda: {"error_code": 0} if is_there() else None

    # --- every turn ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Keep the promises that are due, tell readiness."""
        due = [(promise, found) for promise, ended in self._tasks if (found := ended())]
        kept = [promise for promise, _ in due]
        self._tasks = [(p, e) for p, e in self._tasks if p not in kept]
        for promise, found in due:
            promise.set_result(found)
        wall_s = time.monotonic()
        if wall_s < self._tell_s:
            return
        self._tell_s = wall_s + TELL_S
        for name, sender in self._told.items():
            if name not in self._injector.faults.drop:
                sender.publish(self._words(name))

    def _words(self, topic: str) -> Any:
        """All that the driver says of itself on a topic."""
        told = [told for told in self._driver.told if told.topic == topic]
        faults, message = self._injector.faults, message_type(told[0].type)()
        for one in told:
            way, _, last = one.member.rpartition(".")
            within = member_of(message, way) if way else message
            if isinstance(one, Ready):
                setattr(within, last, faults.ready.get(topic, self._values[topic]))
            elif isinstance(one, Payload):
                mass_kg = one.mass_kg if faults.payload_kg is None else faults.payload_kg
                setattr(within, last, mass_kg)
            else:
                tool = tool_of(self._robot)
                shifted = pose(
                    tool.position_m + np.array((0.0, 0.0, faults.tcp_m)), tool.quaternion_xyzw
                )
                setattr(within, last, convert.pose_to(shifted, self._shell.now_s(), "flange"))
        return message

    def joint_states(self, state: RobotState, names: list[str]) -> Any:
        """Joints of the arm, and the fingers where they come with them."""
        fingers = [] if self._fingers is not None else self._finger_rows(state)
        noise = self._random.normal(0.0, NOISE_RAD_S, len(names))  # no encoder is without
        return convert.joints_to(
            [*names, *(name for name, _ in fingers)],
            [*state.joint_position_rad, *(value for _, value in fingers)],
            [*(state.joint_velocity_rad_s + noise), *(0.0 for _ in fingers)],
            state.stamp_s,
        )

    def publish_fingers(self, state: RobotState) -> None:
        """The fingers, where the gripper has a topic of its own, at its own rate."""
        wall_s = time.monotonic()
        gripper = self._driver.gripper
        if (
            self._fingers is None
            or wall_s < self._slow_s
            or gripper.state_topic in (self._injector.faults.drop)
        ):
            return
        self._slow_s = wall_s + (1.0 / gripper.state_hz if gripper.state_hz else 0.0)
        rows = self._finger_rows(state)
        self._fingers.publish(
            convert.joints_to(
                [name for name, _ in rows], [v for _, v in rows], [0.0] * len(rows), state.stamp_s
            )
        )

    def _finger_rows(self, state: RobotState) -> list[tuple[str, float]]:
        gripper = self._driver.gripper
        if gripper.kind == "none":
            return []
        names = gripper.joints or self._robot.gripper.fingers
        if len(self._injector.faults.gripper_ends) == 2:
            opened, closed = self._injector.faults.gripper_ends
            gripper = replace(gripper, opened_joints=opened, closed_joints=closed)
        total = gripper.joint_sum(state.gripper_width_m, self._robot.gripper.stroke_m)
        return [(name, total / len(names)) for name in names]

    def _finger_topic(self) -> Any:
        name = self._driver.gripper.state_topic
        if self._driver.gripper.kind == "none" or name == topics.JOINT_STATES.name:
            return None
        return publisher(self._shell.node, replace(topics.JOINT_STATES, name=name))


def _first_states(driver: ArmDriver) -> dict[str, str]:
    """What is loaded: the cartesian controller and its companions run, the home one waits."""
    chosen = driver.controllers
    states = dict.fromkeys((chosen.cartesian, *chosen.beside), "active")
    waits = chosen.home and chosen.home != chosen.cartesian
    return states | ({chosen.home: "inactive"} if waits else {})
