"""Every topic and service of the graph, once: nodes create theirs from here, docs are generated.

No rclpy in this module, so that graph, launch files and documentation need no ROS. Names are
relative (a namespace = a robot); the two that ROS itself fixes are absolute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Topic:
    """qos: a key of `robot_rl.ros.qos.PROFILES`; rate_hz in run time, 0 = on demand."""

    name: str
    type: str
    qos: str
    writer: str
    readers: tuple[str, ...]
    rate_hz: float
    frame: str
    meaning: str

    def named(self, **parts: str) -> Topic:
        """Fill `{object}` or `{camera}` in the name."""
        return replace(self, name=self.name.format(**parts), frame=self.frame.format(**parts))


@dataclass(frozen=True, slots=True)
class Service:
    """`name` is relative to the namespace: `<node>/<verb>`."""

    name: str
    type: str
    server: str
    callers: tuple[str, ...]
    meaning: str


_TWIST, _POSE = "geometry_msgs/msg/TwistStamped", "geometry_msgs/msg/PoseStamped"
_TEXT = "std_msgs/msg/String"
_ALL = ("gate", "operator", "actor", "view", "mirror")
_SIM_IK = "sim | ik"  # ik: beside an arm that takes joint targets

JOINT_STATES = Topic(
    "joint_states", "sensor_msgs/msg/JointState", "stream", "sim", (*_ALL, "ik"), 50, "-",
    "arm joints and the two fingers (width = their sum), matched by name",
)  # fmt: skip
CURRENT_POSE = Topic(
    "current_pose", _POSE, "stream", _SIM_IK, _ALL, 50, "base", "TCP pose (tcp_in_base)"
)
CURRENT_TWIST = Topic(
    "current_twist", _TWIST, "stream", _SIM_IK, _ALL, 50, "base", "TCP twist, linear then angular"
)
WRENCH = Topic(
    "wrench", "geometry_msgs/msg/WrenchStamped", "stream", "sim", _ALL, 50, "tcp",
    "force and torque acting on the tool, tared",
)  # fmt: skip
OBJECT = Topic(
    "objects/{object}", _POSE, "stream", "sim", ("operator", "actor", "view", "mirror"), 50, "base",
    "pose of a tracked object",
)  # fmt: skip
CAMERA_IMAGE = Topic(
    "camera/{camera}/color/image_raw", "sensor_msgs/msg/Image", "image", "sim | camera | driver",
    ("actor", "view"), 30, "{camera}_color_optical_frame",
    "whole picture of any size, cropped and scaled by who reads it (docs/cameras.md); rgb8 from "
    "our own nodes, from the sim only when `camera_hz` > 0; `cameras.<name>.topic` renames it",
)  # fmt: skip
CAMERA_COMPRESSED = Topic(
    "camera/{camera}/color/image_raw/compressed", "sensor_msgs/msg/CompressedImage", "image",
    "sim | driver", ("actor", "view"), 30, "{camera}_color_optical_frame",
    "the same as JPEG or PNG, with `cameras.<name>.compressed=true`",
)  # fmt: skip
CAMERA_INFO = Topic(
    "camera/{camera}/color/camera_info", "sensor_msgs/msg/CameraInfo", "image",
    "sim | camera | driver", ("actor", "arm"), 30, "{camera}_color_optical_frame",
    "pinhole intrinsics of the image beside it; k = 0: nobody has measured them",
)  # fmt: skip
CAMERA_DEPTH = Topic(
    "camera/{camera}/aligned_depth_to_color/image_raw", "sensor_msgs/msg/Image", "image", "camera",
    (), 30, "{camera}_color_optical_frame",
    "16UC1, millimetres, 0 = not known, pixel by pixel beside the image; with `depth=true`",
)  # fmt: skip
TARGET_POSE = Topic(
    "target_pose", _POSE, "command", "gate", ("sim", "ik", "mirror"), 0, "base",
    "TCP target; the controller ignores everything while there is a second publisher",
)  # fmt: skip
TARGET_JOINTS = Topic(
    "target_joints", "sensor_msgs/msg/JointState", "command", "gate",
    ("sim", "ik", "mirror"), 0, "-",
    "joint target (rad), matched by name: in place of `target_pose` where the actions of a task "
    "move the joints (`task.action=joint`)",
)  # fmt: skip
JOINT_TARGET = Topic(
    "joint_target", "std_msgs/msg/Float64MultiArray", "command", "ik",
    ("sim | driver", "mirror"), 125, "-",
    "joint positions (rad) or velocities (rad/s) in the controller's order; with `driver.joints` "
    "only; kind trajectory: a `trajectory_msgs/msg/JointTrajectory` of one point",
)  # fmt: skip
GRIPPER_COMMAND = Topic(
    "gripper/command", "std_msgs/msg/Float64MultiArray", "command", "gate",
    ("sim | arm", "mirror"), 0, "-",
    "[finger distance in metres]",
)  # fmt: skip
CONTROLLER_STOPPED = Topic(
    "controller/stopped", "std_msgs/msg/Bool", "latched", "sim | watchdog",
    ("gate", "operator", "view", "ik"), 0, "-",
    "True after `controller/stop`: commands are ignored until `controller/resume`; the gate then "
    "is in a protective stop (real arm: told by the watchdog)",
)  # fmt: skip
GATE_REQUEST = Topic(
    "gate/request", _TEXT, "exchange", "actor", ("gate",), 10, "base",
    "JSON: ask for motion or for the right to drive (`robot_rl.ros.wire`)",
)  # fmt: skip
GATE_VERDICT = Topic(
    "gate/verdict", _TEXT, "exchange", "gate", ("actor", "view"), 10, "base",
    "JSON: answer to a request",
)  # fmt: skip
WATCHDOG_PROBLEM = Topic(
    "watchdog/problem", _TEXT, "latched", "watchdog", ("gate", "arm"), 2, "-",
    "why the watchdog could not stop the controller; empty when it could; wall time",
)  # fmt: skip
GATE_STATE = Topic(
    "gate/state", _TEXT, "latched", "gate",
    ("sim", "operator", "actor", "arm", "view", "watchdog", "mirror"), 5, "-",
    "JSON: mode, reason, lease, waits (person | device: a person must let it go on), blind (why "
    "it has no fresh state of the arm), refusal (why who asked last may not drive)",
)  # fmt: skip
GATE_HEARTBEAT = Topic(
    "gate/heartbeat", "std_msgs/msg/UInt64", "heartbeat", "gate", ("watchdog", "operator"), 20, "-",
    "counter, in wall time whatever the clock of the run does",
)  # fmt: skip
IK_HEARTBEAT = Topic(
    "ik/heartbeat", "std_msgs/msg/UInt64", "heartbeat", "ik", ("watchdog",), 50, "-",
    "counter, in wall time: the watchdog stops the controller when it is silent",
)  # fmt: skip
IK_PROBLEM = Topic(
    "ik/problem", _TEXT, "latched", "ik", ("arm",), 2, "-",
    "why no joint can be commanded; empty when it could; wall time",
)  # fmt: skip
OPERATOR_JOY = Topic(
    "operator/joy", "sensor_msgs/msg/Joy", "stream", "operator", ("gate", "actor", "view"),
    50, "tcp",
    "axes: action [A]; buttons: driving, success, abort, driver, call, guided",
)  # fmt: skip
OPERATOR_EPISODE = Topic(
    "operator/episode", _TEXT, "latched", "actor", ("operator", "view"), 0, "-",
    "JSON: call, seed, purpose, active (false = hands off, the arm is being reset)",
)  # fmt: skip
OPERATOR_PROBLEM = Topic(
    "operator/problem", _TEXT, "latched", "operator", ("view",), 0, "-",
    "why the person's device does not drive; empty when it would",
)  # fmt: skip
OPERATOR_PRESENT = Topic(
    "operator/present", "std_msgs/msg/Bool", "latched", "operator", ("sim", "view"), 0, "-",
    "True while a person shares the work with the script: the simulation keeps to real time",
)  # fmt: skip
ACTOR_ASKS = Topic(
    "actor/asks", _TEXT, "latched", "actor", ("view",), 0, "-",
    "what a person has to do before the arm goes to its start; empty = nothing",
)  # fmt: skip
TASK_SUCCESS = Topic(
    "task/success", "std_msgs/msg/Bool", "exchange", "a program of yours", ("actor",), 10, "-",
    "whether the task has succeeded now; with `task.judge=topic` only. Say it twice a second or "
    "more often: silence ends the episode",
)  # fmt: skip
CLOCK = Topic(
    "/clock", "rosgraph_msgs/msg/Clock", "stream", "sim", _ALL, 50, "-",
    "run time; never goes back, not even when the simulator is restarted",
)  # fmt: skip
CLOCK_HORIZON = Topic(
    "clock/horizon", "std_msgs/msg/Header", "exchange", "gate, operator, actor", ("sim",), 110, "-",
    "stamp: until when the run's clock may go on without `frame_id` (gate, operator, actor, "
    "learner); see `robot_rl.ros.release`",
)  # fmt: skip
CLOCK_PACE = Topic(
    "clock/pace", _TEXT, "latched", "sim", ("actor",), 1, "-",
    "JSON: run seconds per wall second, and the share of wall time in which time waited for each",
)  # fmt: skip
ARM_PROBLEM = Topic(
    "arm/problem", _TEXT, "latched", "arm", ("gate", "view", "ik"), 2, "-",
    "text of the first item of the readiness list that fails and is not accepted; empty when the "
    "arm may move; wall time",
)  # fmt: skip
ARM_READINESS = Topic(
    "arm/readiness", _TEXT, "latched", "arm", ("view",), 2, "-",
    "JSON: the readiness list (name, status, text, fix of every item), and what a person has "
    "accepted of it (parameter `accept` of the arm node); wall time",
)  # fmt: skip
TF_STATIC = Topic(
    "/tf_static", "tf2_msgs/msg/TFMessage", "static", "driver", _ALL, 0, "-",
    "fixed frames of the driver; only read beside a vendor's driver",
)  # fmt: skip
MIRROR_JOINTS = Topic(
    "mirror/joint_states", "sensor_msgs/msg/JointState", "stream", "mirror", (), 50, "-",
    "joints of the mirror while it moves by its own physics (`ros.mirror=dynamic`)",
)  # fmt: skip
MIRROR_IMAGE = Topic(
    "mirror/{camera}/image_raw", "sensor_msgs/msg/Image", "image", "mirror", (), 5,
    "{camera}_color_optical_frame",
    "what the mirror's cameras see, and `video`, the overview; drawn while somebody looks",
)  # fmt: skip
DIAGNOSTICS = Topic(
    "/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", "diagnostics", "every node", (), 1, "-",
    "rate, age p50/p99, drops, last error of every node",
)  # fmt: skip

TOPICS: tuple[Topic, ...] = (
    JOINT_STATES, CURRENT_POSE, CURRENT_TWIST, WRENCH, OBJECT, CAMERA_IMAGE, CAMERA_COMPRESSED,
    CAMERA_INFO, CAMERA_DEPTH, TARGET_POSE, TARGET_JOINTS, JOINT_TARGET, GRIPPER_COMMAND,
    CONTROLLER_STOPPED, WATCHDOG_PROBLEM, GATE_REQUEST, GATE_VERDICT,
    GATE_STATE, GATE_HEARTBEAT, IK_HEARTBEAT, IK_PROBLEM, OPERATOR_JOY, OPERATOR_EPISODE,
    OPERATOR_PROBLEM, OPERATOR_PRESENT, ACTOR_ASKS, TASK_SUCCESS, CLOCK, CLOCK_HORIZON,
    CLOCK_PACE, ARM_PROBLEM,
    ARM_READINESS, TF_STATIC, MIRROR_JOINTS, MIRROR_IMAGE, DIAGNOSTICS,
)  # fmt: skip

_TRIGGER = "std_srvs/srv/Trigger"
CONTROLLER_STOP = Service(
    "controller/stop", _TRIGGER, "sim | the robot's driver", ("watchdog",),
    "protective stop of the controller: target := measured pose, commands ignored",
)  # fmt: skip
CONTROLLER_RESUME = Service(
    "controller/resume",
    _TRIGGER,
    "sim | watchdog",
    ("operator", "view", "person"),
    "end of the stop; the gate must still be acknowledged and armed (real arm: the watchdog starts "
    "the controller)",
)
SIM_PLACE = Service(
    "sim/place_objects", _TRIGGER, "sim", ("actor",),
    "put the objects where the parameter `reset_plan` of the sim says",
)  # fmt: skip
GATE_HOLD = Service(
    "gate/hold", _TRIGGER, "gate", ("operator", "view", "person"), "hold, until `gate/resume`"
)
GATE_RESUME = Service(
    "gate/resume", _TRIGGER, "gate", ("view", "person"),
    "end of a person's hold, or of one after their device fell silent: arming is possible again",
)  # fmt: skip
GATE_STOP = Service(
    "gate/stop", _TRIGGER, "gate", ("view", "person"), "protective stop; needs acknowledgement"
)
GATE_ACKNOWLEDGE = Service(
    "gate/acknowledge", _TRIGGER, "gate", ("view", "person"), "protective stop -> hold"
)
GATE_CLEAR = Service(
    "gate/clear", _TRIGGER, "gate", ("operator",),
    "what a script may end: a protective stop, or a wait for a device that fell silent; refused "
    "where a person has stopped or holds",
)  # fmt: skip
ACTOR_READY = Service(
    "actor/ready", _TRIGGER, "actor", ("view", "person"),
    "what `actor/asks` names is done: the arm may go to its start",
)  # fmt: skip
ARM_RECOVER = Service(
    "arm/recover", _TRIGGER, "arm", ("view", "person"),
    "after the driver's own protective stop: the calls that its profile names",
)  # fmt: skip
ARM_HOME = Service(
    "arm/home", _TRIGGER, "arm", ("view", "person"),
    "the arm goes to its home pose with the driver's joint controller; moves the arm",
)  # fmt: skip
ARM_TARE = Service(
    "arm/tare", _TRIGGER, "arm", ("view", "person"), "the wrench where the arm is becomes zero"
)

SERVICES: tuple[Service, ...] = (
    CONTROLLER_STOP, CONTROLLER_RESUME, SIM_PLACE, GATE_HOLD, GATE_RESUME, GATE_STOP,
    GATE_ACKNOWLEDGE, GATE_CLEAR, ACTOR_READY, ARM_RECOVER, ARM_HOME, ARM_TARE,
)  # fmt: skip

_SIMULATION = "simulation_interfaces/srv"


def _simulation(name: str, kind: str, meaning: str) -> Service:
    return Service(name, f"{_SIMULATION}/{kind}", "sim", ("person",), meaning)


SIMULATION_FEATURES = _simulation(
    "get_simulator_features", "GetSimulatorFeatures", "what of these services there is"
)
SIMULATION_GET_STATE = _simulation(
    "get_simulation_state", "GetSimulationState", "whether time goes on"
)
SIMULATION_SET_STATE = _simulation(
    "set_simulation_state", "SetSimulationState",
    "pause, play; stop: pause, and arm and objects go to the start of the run",
)  # fmt: skip
SIMULATION_RESET = _simulation(
    "reset_simulation", "ResetSimulation",
    "scope 2 (state): arm and objects go to the start of the run; time goes on",
)  # fmt: skip
SIMULATION_STEP = _simulation(
    "step_simulation", "StepSimulation",
    "while paused: so many periods of the state topics; answered when they are over",
)  # fmt: skip
ENTITIES = _simulation("get_entities", "GetEntities", "names of the arm and the objects")
ENTITIES_STATES = _simulation("get_entities_states", "GetEntitiesStates", "and where they are")
ENTITY_GET = _simulation("get_entity_state", "GetEntityState", "pose and twist in the base frame")
ENTITY_SET = _simulation("set_entity_state", "SetEntityState", "move an object, not the arm")

SIMULATION: tuple[Service, ...] = (
    SIMULATION_FEATURES, SIMULATION_GET_STATE, SIMULATION_SET_STATE, SIMULATION_RESET,
    SIMULATION_STEP, ENTITIES, ENTITIES_STATES, ENTITY_GET, ENTITY_SET,
)  # fmt: skip
"""Of the simulator only, where the types of `simulation_interfaces` are there."""
