"""The simulator as ROS's `simulation_interfaces` 2 know one: pause, step, reset, move objects.

Tools that are written for these services work with every simulator that has them (Gazebo, Isaac
Sim, O3DE), and with this node whatever moves its arm. A step is one period of the state topics.

Deviations from the definitions: run time never goes back, so a reset must name its scope, the
state; the arm is not set, because whoever wants it elsewhere has to command it through the gate;
filters by category, tag and bounds are not supported.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from robot_rl.errors import LinkError, SetupError
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import Asked, message_type, offer
from robot_rl.types import Pose

log = logging.getLogger(__name__)

WORLD = "world"  # the base frame, by the name that simulators give it
F64 = NDArray[np.float64]


class Simulator(Protocol):
    """What the services ask of the node."""

    def now_s(self) -> float:
        """Run time."""
        ...

    def objects(self) -> Mapping[str, tuple[Pose, F64]]:
        """Pose and twist [6], in base, of each object."""
        ...

    def place(self, name: str, where: Pose | None, twist: F64 | None) -> None:
        """Move an object, or give it a velocity. Raises `LinkError` for one that has none."""
        ...

    def restart(self) -> None:
        """Arm and objects go to the start of the run, at rest."""
        ...


class SimulationServices:
    """Serves them.

    Args:
        robot: name of the arm, the entity that is not set.
        frame: of poses; the arm's base.

    Raises:
        SetupError: the types of `simulation_interfaces` are not there.
    """

    def __init__(self, node: Node, simulator: Simulator, robot: str, frame: str) -> None:
        self._simulator, self._robot, self._frame = simulator, robot, frame
        self._result = message_type("simulation_interfaces/msg/Result")
        self._states = message_type("simulation_interfaces/msg/SimulationState")
        self._state = self._states.STATE_PLAYING
        self._steps: list[tuple[int, Any]] = []  # asked for: how many are left, who waits for them
        answers: dict[topics.Service, Callable[[Any, Any], Any]] = {
            topics.SIMULATION_FEATURES: self._features,
            topics.SIMULATION_GET_STATE: self._get_state,
            topics.SIMULATION_SET_STATE: self._set_state,
            topics.SIMULATION_RESET: self._reset,
            topics.ENTITIES: self._entities,
            topics.ENTITIES_STATES: self._entities_states,
            topics.ENTITY_GET: self._get_entity,
            topics.ENTITY_SET: self._set_entity,
        }
        for service, answer in answers.items():
            offer(node, service.type, service.name, answer)
        # its answer takes as long as the steps do, and nobody else may wait for that
        self._stepping = Asked(node, topics.SIMULATION_STEP)

    # --- time ------------------------------------------------------------------------------------

    @property
    def stands(self) -> bool:
        """Whether time stands still: paused, and nobody has asked for a step."""
        return self._state != self._states.STATE_PLAYING and not self._steps

    def poll(self) -> None:
        """Take up steps that somebody has asked for."""
        for request, who in self._stepping.arrived():
            if self._state != self._states.STATE_PAUSED:
                text = "the simulation is not paused (set_simulation_state)"
                self._answer(who, self._result.RESULT_OPERATION_FAILED, text)
            elif request.steps:
                self._steps.append((int(request.steps), who))
            else:
                self._answer(who, self._result.RESULT_OK)

    def stepped(self) -> None:
        """Hear that time has gone on by a step."""
        if self._steps:
            left, who = self._steps.pop(0)
            if left > 1:
                self._steps.insert(0, (left - 1, who))
            else:
                self._answer(who, self._result.RESULT_OK)

    def _answer(self, who: Any, code: int, text: str = "") -> None:
        self._stepping.answer(who, self._no(self._stepping.response(), code, text))

    def _get_state(self, _: Any, response: Any) -> Any:
        response.state.state = self._state
        return self._fine(response)

    def _set_state(self, request: Any, response: Any) -> Any:
        states, wanted = self._states, request.state.state
        steps, self._steps = self._steps, []
        for _, who in steps:  # whoever says what is to be ends what was going on
            text = "set_simulation_state came in between"
            self._answer(who, self._result.RESULT_OPERATION_FAILED, text)
        if wanted == self._state and not steps:
            return self._no(response, response.ALREADY_IN_TARGET_STATE, "it is so already")
        if wanted not in (states.STATE_PLAYING, states.STATE_PAUSED, states.STATE_STOPPED):
            text = "a run is ended by whoever has started it"
            return self._no(response, self._result.RESULT_FEATURE_UNSUPPORTED, text)
        if wanted == states.STATE_STOPPED:
            self._simulator.restart()
        self._state = wanted
        log.warning("simulation %s", {0: "stopped", 1: "plays", 2: "paused"}[wanted])
        return self._fine(response)

    def _reset(self, request: Any, response: Any) -> Any:
        if request.scope != request.SCOPE_STATE:
            text = "run time never goes back, and nothing is spawned: use SCOPE_STATE (2)"
            return self._no(response, self._result.RESULT_FEATURE_UNSUPPORTED, text)
        self._simulator.restart()
        return self._fine(response)

    def _features(self, _: Any, response: Any) -> Any:
        has = message_type("simulation_interfaces/msg/SimulatorFeatures")
        response.features.features = [
            *(has.ENTITY_STATE_GETTING, has.ENTITY_STATE_SETTING),
            *(has.SIMULATION_RESET, has.SIMULATION_RESET_STATE),
            *(has.SIMULATION_STATE_GETTING, has.SIMULATION_STATE_SETTING),
            has.SIMULATION_STATE_PAUSE,
            *(has.STEP_SIMULATION_SINGLE, has.STEP_SIMULATION_MULTIPLE),
        ]
        response.features.custom_info = "robot-rl; a step is a period of the state topics"
        return response

    # --- entities --------------------------------------------------------------------------------

    def _found(self, filters: Any, response: Any) -> dict[str, tuple[Pose, F64] | None]:
        """What the filters let through; nothing, and the reason in the response's result."""
        if filters.categories or filters.tags.tags or filters.bounds.type:
            text = "entities are filtered by name only"
            self._no(response, self._result.RESULT_FEATURE_UNSUPPORTED, text)
            return {}
        try:
            pattern = re.compile(filters.filter)
        except re.error as error:
            text = f"no regular expression: {error}"
            self._no(response, self._result.RESULT_OPERATION_FAILED, text)
            return {}
        self._fine(response)
        return {name: state for name, state in self._all().items() if pattern.search(name)}

    def _all(self) -> dict[str, tuple[Pose, F64] | None]:
        """The arm, which stands where its base is, and pose and twist of each object."""
        return {self._robot: None, **self._simulator.objects()}

    def _entities(self, request: Any, response: Any) -> Any:
        response.entities = list(self._found(request.filters, response))
        return response

    def _entities_states(self, request: Any, response: Any) -> Any:
        found = self._found(request.filters, response)
        response.entities = list(found)
        response.states = [self._entity(motion) for motion in found.values()]
        return response

    def _get_entity(self, request: Any, response: Any) -> Any:
        known = self._all()
        if request.entity not in known:
            return self._nobody(request.entity, known, response)
        response.state = self._entity(known[request.entity])
        return self._fine(response)

    def _entity(self, motion: tuple[Pose, F64] | None) -> Any:
        """The state of an entity."""
        state = message_type("simulation_interfaces/msg/EntityState")()
        state.header.stamp = convert.to_stamp(self._simulator.now_s())
        state.header.frame_id = self._frame
        if motion is not None:
            where, twist = motion
            state.pose = convert.pose_to(where, 0.0, self._frame).pose
            state.twist = convert.twist_to(twist, 0.0, self._frame).twist
        return state

    def _set_entity(self, request: Any, response: Any) -> Any:
        failed, state, known = self._result.RESULT_OPERATION_FAILED, request.state, self._all()
        if request.entity == self._robot:
            return self._no(response, failed, "the arm is moved by commands, through the gate")
        if request.entity not in known:
            return self._nobody(request.entity, known, response)
        if state.header.frame_id not in ("", WORLD, self._frame):
            text = f"a pose in {state.header.frame_id!r}; expected {self._frame!r}"
            return self._no(response, response.INVALID_POSE, text)
        # before 2.1 a request had no flags, and set both
        sets_pose, sets_twist = (getattr(request, f"set_{w}", True) for w in ("pose", "twist"))
        try:
            where = convert.pose_from(state) if sets_pose else None
        except LinkError as error:
            return self._no(response, response.INVALID_POSE, str(error))
        try:
            twist = convert.twist_from(state) if sets_twist else None
            self._simulator.place(request.entity, where, twist)
        except LinkError as error:
            return self._no(response, failed, str(error))
        return self._fine(response)

    # --- results ---------------------------------------------------------------------------------

    def _fine(self, response: Any) -> Any:
        response.result.result = self._result.RESULT_OK
        return response

    def _no(self, response: Any, code: int, text: str) -> Any:
        response.result.result, response.result.error_message = code, text
        return response

    def _nobody(self, name: str, known: Iterable[str], response: Any) -> Any:
        text = f"no entity {name!r}; known: {', '.join(known)}"
        return self._no(response, self._result.RESULT_NOT_FOUND, text)


def try_to_serve(
    node: Node, simulator: Simulator, robot: str, frame: str
) -> SimulationServices | None:
    """The services, or None where their types have not been built: the arm works without."""
    try:
        return SimulationServices(node, simulator, robot, frame)
    except SetupError as error:
        log.info("no simulation_interfaces: %s", error.summary)
        return None
