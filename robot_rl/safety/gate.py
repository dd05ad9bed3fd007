"""The gate: pure functions from (limits, gate state, what happened) to (gate state, verdict).

Nothing here reads a clock, a topic or a global: the ROS node and the lockstep runtime call the same
functions. A command passes the checks in the order finite, target, age, sequence, lease, state,
box, step, speed, acceleration, force, operator, joint, collision. In a run of joint actions
(`Limits.joint_arm`) every command is a joint target; the TCP that it says is not believed but
computed here, and both are judged (`safety.joints`). The verdict is one of

* pass / clipped: the target satisfies *every* limit, against the robot and the targets sent before;
* hold, because the command is unsafe or its driver must not drive now: the robot keeps the pose
  that was measured when the hold began;
* hold, because the command is *refused* (age, sequence, lease, too soon): it changes nothing, so
  the verdict repeats the target sent last. Neither a stranger nor a late packet can move the robot
  or jerk it to a stop; if no good command arrives, the watchdog holds.

`tick` is the watchdog and must be called often (>= 50 Hz on a robot); in every mode but RUN it also
returns the hold verdict to send again. A check name is the first word of every reason.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from robot_rl.errors import SafetyError
from robot_rl.safety import collision
from robot_rl.safety.clip import Clip, Conflict, Motion, clip_target, within_step
from robot_rl.safety.joints import JointMotion, chain_of_joints, clip_joints, wrong_target
from robot_rl.safety.limits import Limits, Vec3
from robot_rl.safety.readings import (
    NOWHERE,
    ArmReading,
    Joints,
    Placement,
    Sight,
    look,
    read_joints,
    read_pose,
    write_joints,
    write_pose,
)
from robot_rl.safety.states import (
    TRANSITIONS,
    DeviceEvent,
    Engagement,
    Mode,
    Request,
    advance,
    engage,
)
from robot_rl.types import Command, Driver, Outcome, RobotState, Verdict

SOONEST = 0.1  # of a period: what comes sooner is a burst after a stall, not a control tick
JOINT_SLACK = 0.2  # share of its margin by which a joint in it may be found further out than before
STILL: Vec3 = (0.0, 0.0, 0.0)
PERSON = "person"  # first word of the reason of what a person has stopped or holds

_NOT_FINITE = "finite: a value is NaN, infinite or not a rotation"
_STATE_LOST = "state: stale or not trustworthy"
_STATE_ODD = "state: the pose jumped, or has just begun; it is believed when it has lasted"
_HARD_CONTACT = "force: contact beyond the limit"
_STANDS = "controller: stopped"
_JOINT = "joint: moving further into its margin"


class GateState(NamedTuple):
    """Everything the gate remembers; immutable (a tuple, because one is made per call).

    Attributes:
        mode, reason: what the gate does and why ("" while running).
        lease: who may drive while the mode is armed; else who drove last ("" = nobody yet).
        sequence: newest sequence number judged under this lease.
        driver: of the newest command judged.
        engagement, heartbeat_s: the person's enabling device.
        command_s: when the lease was armed or last sent a command that was not refused.
        moved_s: when a command last passed; -inf before any.
        target: pose sent last: a moving target, or the latched hold pose.
        velocity_m_s: of the targets, in base.
        seen: where the arm is, by the newest reading that is believed.
        odd: where it is by the newest one, when that is not believed (`readings.look`).
        target_rad, velocity_rad_s: of the joints, where these are commanded; else ().
        joint_depth_rad: how deep inside its margin the worst joint may be found next.
        limits_hash: `Limits.hash` this state was made for.
    """

    mode: Mode
    reason: str
    lease: str
    sequence: int
    driver: Driver
    engagement: Engagement
    heartbeat_s: float
    command_s: float
    moved_s: float
    target: Placement | None
    velocity_m_s: Vec3
    seen: Sight | None
    odd: Sight | None
    joint_depth_rad: float
    limits_hash: str
    target_rad: Joints = ()
    velocity_rad_s: Joints = ()

    @property
    def measured(self) -> Placement | None:
        """Newest measured pose that is believed."""
        return self.seen.place if self.seen else None


def initial(limits: Limits, *, doubts: bool = False) -> GateState:
    """A gate in HOLD that nobody has armed; doubts: even the first pose has to last (`look`).

    Raises:
        ConfigError: the limits name an arm that there is not.
    """
    collision.make_ready(limits)
    if limits.joint_arm:
        chain_of_joints(limits)
    return GateState(
        mode=Mode.HOLD,
        reason="not armed",
        lease="",
        sequence=-1,
        driver=Driver.RESET,
        engagement=Engagement.IDLE,
        heartbeat_s=-math.inf,
        command_s=-math.inf,
        moved_s=-math.inf,
        target=None,
        velocity_m_s=STILL,
        seen=None,
        odd=NOWHERE if doubts else None,
        joint_depth_rad=0.0,
        limits_hash=limits.hash,
    )


def arm(
    limits: Limits, gate: GateState, lease: str, state: RobotState | None, now_s: float
) -> tuple[GateState, str]:
    """Give `lease` the right to drive. Returns (gate, "") or (gate as it was, why refused).

    Refused in a protective stop, while another lease runs, while a person holds the enabling device
    or vanished holding it, without a fresh trustworthy state, and in contact beyond `max_force_n`.

    Raises:
        SafetyError: the arm has another number of joints than the limits (wrong limits file).
    """
    if state is not None and len(limits.joint_min_rad) not in (0, len(state.joint_position_rad)):
        raise SafetyError(
            "the limits belong to another arm",
            expected=f"{len(limits.joint_min_rad)} joints",
            got=f"{len(state.joint_position_rad)} joints",
            fix="choose the robot that is connected: robot=<name>",
        )
    gate, reading = _look(limits, gate, state, now_s)
    refusal = _arm_refusal(limits, gate, lease, reading)
    if refusal or reading is None:
        return gate, refusal
    return _there(gate)._replace(
        mode=advance(gate.mode, Request.ARM),
        reason="",
        lease=lease,
        sequence=gate.sequence if lease == gate.lease else -1,
        engagement=engage(gate.engagement, DeviceEvent.ARM),
        command_s=now_s,
        moved_s=gate.moved_s if gate.moved_s <= now_s else -math.inf,  # the clock was restarted
        velocity_m_s=STILL,
        velocity_rad_s=(),
        joint_depth_rad=max(reading.depth_rad, 0.0) + JOINT_SLACK * limits.joint_margin_rad,
    ), ""


def heartbeat(gate: GateState, now_s: float, driving: bool) -> GateState:
    """The person's device is alive; `driving`: its enabling button is held. Send it at 50 Hz."""
    hand = DeviceEvent.PRESSED if driving else DeviceEvent.LET_GO
    return gate._replace(engagement=engage(gate.engagement, hand), heartbeat_s=now_s)


def judge(
    limits: Limits, gate: GateState, command: Command, state: RobotState | None, now_s: float
) -> tuple[GateState, Verdict]:
    """Judge one command against the newest robot `state`, or None when there is none.

    Raises:
        SafetyError: no trustworthy state was ever seen, so there is not even a pose to hold.
    """
    gate, reading = _look(limits, gate, state, now_s)
    want = read_pose(command.tcp_target_in_base)
    asked = command.joint_target_rad
    want_rad = () if asked is None else read_joints(asked)
    reason = _refusal(limits, gate, command, (want, want_rad), now_s)
    if reason or want is None or want_rad is None:
        return _refused(limits, gate, command, reading, now_s=now_s, reason=reason)
    if reading is None:
        gate = _halt(gate, Request.PROTECTIVE_STOP, _lost(gate))
        return gate, _held(gate, command, now_s)
    since_s = now_s - gate.moved_s
    if since_s < SOONEST * limits.period_s:
        reason = "speed: too soon after the last command"
        return gate, _held(gate, command, now_s, reason)
    gate = _seen(
        limits,
        _silence(limits, gate, now_s),
        reading,
        sequence=command.sequence,
        driver=command.driver,
        command_s=now_s,
    )
    assert gate.target is not None  # armed
    dt_s = min(since_s, limits.command_timeout_s)
    motion = Motion(reading.measured, gate.target, gate.velocity_m_s, dt_s)
    if want_rad:
        still = gate.velocity_rad_s or (0.0,) * len(want_rad)
        joints = JointMotion(reading.joints_rad, gate.target_rad, still)
        clip = clip_joints(limits, want_rad, joints, motion)
    else:
        clip = clip_target(limits, want, motion)
    unsafe = _unsafe(limits, gate, command, clip, reading)
    if unsafe is not None or isinstance(clip, Conflict):
        gate = _halt(gate, *(unsafe or (Request.PAUSE, "")))
        return gate, _held(gate, command, now_s)
    return _sent(limits, gate, command, clip=clip, dt_s=dt_s, now_s=now_s)


def tick(
    limits: Limits, gate: GateState, state: RobotState | None, now_s: float
) -> tuple[GateState, Verdict | None]:
    """Run the watchdogs; call at >= 50 Hz with the newest state, or None when there is none.

    Returns:
        The hold verdict to send (again) whenever the gate is not in RUN and knows a pose to hold;
        else None. Its sequence is that of the newest command judged.
    """
    gate, reading = _look(limits, gate, state, now_s)
    gate = _silence(limits, gate, now_s)
    if reading is not None:
        gate = _seen(limits, gate, reading)
    if gate.mode.is_armed:
        gate = _watch(limits, gate, reading, now_s)
    if gate.mode is Mode.RUN or gate.target is None:
        return gate, None
    return gate, _held(gate, None, now_s)


def stop(gate: GateState, reason: str) -> GateState:
    """Protective stop: nothing moves until `acknowledge`, then `arm`.

    In a protective stop the cause stays that of the first, unless a person stops now (`PERSON`):
    then a person has to acknowledge, whatever came before.
    """
    if gate.mode is Mode.PROTECTIVE_STOP and _is_persons(reason) and not _is_persons(gate.reason):
        return gate._replace(reason=reason)
    return _halt(gate, Request.PROTECTIVE_STOP, reason)


def stand(limits: Limits, gate: GateState, state: RobotState | None, now_s: float) -> GateState:
    """Protective stop because the controller is stopped; call it as long as this is so.

    The pose to hold follows the arm meanwhile (`follow`).
    """
    return follow(limits, _halt(gate, Request.PROTECTIVE_STOP, _STANDS), state, now_s)


def follow(limits: Limits, gate: GateState, state: RobotState | None, now_s: float) -> GateState:
    """Let the pose to hold follow the measured one, while somebody else may be moving the arm.

    A controller that goes on must find a target where the arm is, not where the arm was when this
    gate last looked.
    """
    gate, reading = _look(limits, gate, state, now_s)
    return gate if reading is None else _there(gate)


def hold(gate: GateState, reason: str) -> GateState:
    """Soft stop: nothing moves until `arm`. A protective stop stays one."""
    return _halt(gate, Request.HOLD, reason)


def acknowledge(gate: GateState, *, by_person: bool = True) -> tuple[GateState, str]:
    """The protective stop was seen. Returns (gate in HOLD, "") or (gate, why refused).

    Refused outside a protective stop, while the enabling device is held, and to a script where a
    person has stopped. Whether the cause has gone is checked where it matters: by `arm`.
    """
    if not by_person and _is_persons(gate.reason):
        return gate, f"{gate.reason}: a person stopped it, a person lets it go on"
    if (gate.mode, Request.ACKNOWLEDGE) not in TRANSITIONS:
        return gate, f"mode: nothing to acknowledge in {gate.mode.value}"
    if gate.engagement is Engagement.DRIVING:
        return gate, "operator: release the device first"
    reason = f"acknowledged ({gate.reason})"
    return gate._replace(mode=advance(gate.mode, Request.ACKNOWLEDGE), reason=reason), ""


def _is_persons(reason: str) -> bool:
    return reason.partition(":")[0] == PERSON


def _arm_refusal(limits: Limits, gate: GateState, lease: str, reading: ArmReading | None) -> str:
    device_held = gate.engagement in (Engagement.DRIVING, Engagement.SILENT)
    stopped = (gate.mode, Request.ARM) not in TRANSITIONS
    checks = (
        (not lease, "lease: empty"),
        (stopped, f"{gate.mode.value}: acknowledge first ({gate.reason})"),
        (gate.mode is Mode.RUN and lease != gate.lease, "lease: another one is driving"),
        (device_held, "operator: release the device first"),
        (reading is None, _lost(gate)),
        (reading is not None and _in_hard_contact(limits, reading), _HARD_CONTACT),
    )
    return next((reason for refused, reason in checks if refused), "")


def _there(gate: GateState) -> GateState:
    """The measured pose as the target, too, with the joints where these are commanded."""
    seen = gate.seen
    return gate._replace(target=seen.place, target_rad=seen.joints_rad) if seen else gate


def _lost(gate: GateState) -> str:
    return _STATE_ODD if gate.odd else _STATE_LOST


def _refusal(
    limits: Limits,
    gate: GateState,
    command: Command,
    want: tuple[Placement | None, Joints | None],
    now_s: float,
) -> str:
    """Why this command is refused (finite, target, age, sequence, lease); "" when it is not."""
    place, joints_rad = want
    numbers = command.stamp_s + (command.gripper_width_m or 0.0)
    finite = place is not None and joints_rad is not None and math.isfinite(numbers)
    wrong = wrong_target(limits, joints_rad or ()) if finite else _NOT_FINITE
    if wrong:
        return wrong
    if abs(now_s - command.stamp_s) > limits.command_timeout_s:  # a stamp ahead is as wrong
        return "age: stamped too long ago, or in the future"
    mine = command.lease == gate.lease
    if mine and command.sequence <= gate.sequence:
        return "sequence: not newer than the last one"
    if mine and gate.mode is Mode.PROTECTIVE_STOP:
        return gate.reason
    if not gate.mode.is_armed:
        return f"lease: {gate.mode.value} ({gate.reason})"
    return "" if mine else "lease: another one is armed"


def _unsafe(
    limits: Limits, gate: GateState, command: Command, clip: Clip | Conflict, reading: ArmReading
) -> tuple[Request, str] | None:
    """The halt that a command of the armed lease causes; None when the robot may move."""
    if _in_hard_contact(limits, reading):
        return Request.PROTECTIVE_STOP, _HARD_CONTACT
    if gate.engagement in (Engagement.SILENT, Engagement.RELEASED):
        return Request.PAUSE, "operator_silent: release the device, then press it again"
    if command.driver.is_human and gate.engagement is not Engagement.DRIVING:
        return Request.PAUSE, "operator: a person's command without the device held"
    if isinstance(clip, Conflict):
        return Request.PAUSE, f"{clip.check}: no target satisfies every limit"
    if reading.ahead_rad > gate.joint_depth_rad:
        return Request.PAUSE, _JOINT
    touch = collision.check(limits, reading, clip.target, clip.joints_rad)
    return (Request.PAUSE, touch) if touch else None


def _in_hard_contact(limits: Limits, reading: ArmReading) -> bool:
    return reading.force_n > limits.max_force_n or reading.torque_nm > limits.max_torque_nm


def _watch(limits: Limits, gate: GateState, reading: ArmReading | None, now_s: float) -> GateState:
    """Watchdogs of an armed gate, most severe first."""
    if reading is None:
        return _halt(gate, Request.PROTECTIVE_STOP, _lost(gate))
    if _in_hard_contact(limits, reading):
        return _halt(gate, Request.PROTECTIVE_STOP, _HARD_CONTACT)
    late = abs(now_s - gate.command_s) > limits.command_timeout_s
    checks = (
        (gate.engagement is Engagement.SILENT, "operator_silent: no heartbeat while driving"),
        (late, "command_late: the driver is silent"),
        (reading.ahead_rad > gate.joint_depth_rad, _JOINT),
    )
    reason = next((reason for tripped, reason in checks if tripped), "")
    return _halt(gate, Request.PAUSE, reason) if reason and gate.mode is Mode.RUN else gate


def _silence(limits: Limits, gate: GateState, now_s: float) -> GateState:
    """Notice that a device that was held has gone silent."""
    if gate.engagement is not Engagement.DRIVING:
        return gate
    if abs(now_s - gate.heartbeat_s) <= limits.operator_timeout_s:  # ahead: the clock was set back
        return gate
    return gate._replace(engagement=engage(gate.engagement, DeviceEvent.SILENCE))


def _look(
    limits: Limits, gate: GateState, state: RobotState | None, now_s: float
) -> tuple[GateState, ArmReading | None]:
    """Remember where the arm is. No reading when `state` is absent, stale, malformed or odd."""
    seen, odd, reading = look(limits, gate.seen, gate.odd, state, now_s)
    return gate._replace(seen=seen, odd=odd), reading


def _seen(limits: Limits, gate: GateState, reading: ArmReading, **judged: Any) -> GateState:
    """Remember what was `judged`; let the joint ratchet follow back.

    When the arm has been pushed more than one step away from a held pose, that pose is given up:
    going back there would be a motion nobody asked for.
    """
    slack_rad = JOINT_SLACK * limits.joint_margin_rad
    depth_rad = min(gate.joint_depth_rad, max(reading.depth_rad, 0.0) + slack_rad)
    if gate.mode is not Mode.RUN and not _stays(limits, gate):
        gate = _there(gate)
    return gate._replace(joint_depth_rad=depth_rad, **judged)


def _stays(limits: Limits, gate: GateState) -> bool:
    """The held pose is within one step of the measured one, and the elbow as well."""
    seen, target = gate.seen, gate.target
    if seen is None or target is None or not within_step(limits, target, seen.place):
        return False
    turned = zip(gate.target_rad, seen.joints_rad, strict=False)
    return all(abs(a - b) <= limits.max_step_rad for a, b in turned)


def _halt(gate: GateState, request: Request, reason: str) -> GateState:
    """Stop moving. The pose is latched at onset; a halt during a halt keeps it."""
    mode = advance(gate.mode, request)
    if gate.mode is Mode.PROTECTIVE_STOP:
        return gate  # the first cause is the one to acknowledge
    if gate.mode is Mode.RUN or gate.target is None:
        gate = _there(gate)
    return gate._replace(mode=mode, reason=reason, velocity_m_s=STILL, velocity_rad_s=())


def _sent(
    limits: Limits, gate: GateState, command: Command, *, clip: Clip, dt_s: float, now_s: float
) -> tuple[GateState, Verdict]:
    """Let the (clipped) command through and remember it."""
    assert gate.target is not None  # armed
    new, old = clip.target.position, gate.target.position
    velocity = ((new[0] - old[0]) / dt_s, (new[1] - old[1]) / dt_s, (new[2] - old[2]) / dt_s)
    turned = zip(clip.joints_rad, gate.target_rad, strict=True)
    width_m, checks, executed = command.gripper_width_m, clip.checks, command
    if width_m is not None and not limits.gripper_min_m <= width_m <= limits.gripper_max_m:
        width_m = min(max(width_m, limits.gripper_min_m), limits.gripper_max_m)
        checks = (*checks, "gripper")
    if checks or clip.joints_rad:
        executed = Command(
            command.sequence,
            command.stamp_s,
            command.driver,
            command.lease,
            write_pose(clip.target),
            width_m,
            write_joints(clip.joints_rad),
        )
    outcome = Outcome.CLIPPED if checks else Outcome.PASS
    gate = gate._replace(
        mode=advance(gate.mode, Request.RESUME),
        reason="",
        moved_s=now_s,
        target=clip.target,
        velocity_m_s=velocity,
        target_rad=clip.joints_rad,
        velocity_rad_s=tuple((new - old) / dt_s for new, old in turned),
    )
    return gate, Verdict(command.sequence, outcome, ",".join(checks), executed, now_s)


def _refused(
    limits: Limits,
    gate: GateState,
    command: Command,
    reading: ArmReading | None,
    *,
    now_s: float,
    reason: str,
) -> tuple[GateState, Verdict]:
    """Answer a refused command. Only a value of the armed lease that is not finite disarms."""
    mine = gate.mode.is_armed and command.lease == gate.lease
    disarm = mine and reason.startswith("finite")
    if reading is not None and (disarm or gate.target is None):  # a pose to hold is needed
        gate = _seen(limits, gate, reading)
    if disarm:
        gate = _halt(gate, Request.HOLD, reason)
    return gate, _held(gate, command, now_s, reason)


def _held(gate: GateState, asked: Command | None, now_s: float, reason: str = "") -> Verdict:
    """HOLD verdict with the pose sent last: latched when halted, else the target in force.

    It has the sequence, lease and driver of the command `asked`: each sender finds its own answer.
    """
    if gate.target is None:
        raise SafetyError(
            "a command came before any trustworthy robot state",
            expected="a fresh, finite RobotState before the first command",
            got="none so far",
            fix="start the robot driver; wait for its first state before judging commands",
        )
    pose = write_pose(gate.target)
    who = (
        (gate.sequence, now_s, gate.driver, gate.lease)
        if asked is None
        else (asked.sequence, now_s, asked.driver, asked.lease)
    )
    executed = Command(*who, pose, None, write_joints(gate.target_rad))
    return Verdict(executed.sequence, Outcome.HOLD, reason or gate.reason, executed, now_s)
