"""Strict JSON for what has no standard message: requests, verdicts, gate state, reset plans.

Every decoder checks size, keys, types and finiteness, and raises `LinkError`; nothing that arrives
on a topic can crash a node or reach the gate half-understood. No rclpy here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import LinkError
from robot_rl.geometry import pose
from robot_rl.ports import ResetPlan
from robot_rl.ros.readiness import STATUSES, Item
from robot_rl.ros.release import LIMITS_S
from robot_rl.types import Command, Driver, Outcome, Pose, Verdict

MAX_BYTES = 8192  # a request is ~400 bytes, a plan with ten objects ~2 kB
MAX_LEASE = 64  # characters
MAX_TEXT = 512  # characters of a reason
MAX_SEQUENCE = 2**53  # integers stay exact in every JSON reader
MAX_OBJECTS = 64
MAX_JOINTS = 16
MAX_ITEMS = 64  # of a readiness list; a profile with three cameras has about 15
MAX_NAME = 128  # characters; names of topics are names of items
MAX_LIST_BYTES = 1 << 20  # every item as long as it may be, and six characters of JSON for each
_ITEM_LIMITS = {  # key -> characters; in the order of `Item`
    "name": MAX_NAME,
    "status": 16,
    "text": MAX_TEXT,
    "fix": MAX_TEXT,
    "never": MAX_TEXT,
}


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """Somebody asks for the right to drive.

    process: by which the gate can see that whoever asked has ended (`system.presence`), or "".
    """

    lease: str
    stamp_s: float
    process: str = ""


@dataclass(frozen=True, slots=True)
class ArmAnswer:
    """The gate's answer to an `ArmRequest`."""

    lease: str
    granted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class GateReport:
    """What `gate/state` tells everybody: mode and reason as in `robot_rl.safety`, current lease.

    waits: why nothing arms until a person lets it go on (`gate/resume`): "person" = a person held
    the robot, "device" = the device of whoever drove fell silent; "" = nothing waits. refusal: why
    whoever asked last for the right to drive did not get it; "" = nobody was refused since.
    """

    mode: str
    reason: str
    lease: str
    stamp_s: float
    rejected: int  # malformed requests so far
    waits: str
    blind: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ReadinessReport:
    """What `arm/readiness` tells: the items of the list, and the names that are accepted.

    accept: all that a person has accepted, whether the item fails at the moment or not.
    """

    items: tuple[Item, ...]
    accept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClockPace:
    """How fast simulated time goes, and why not faster; what `clock/pace` tells.

    factor: run seconds per wall second; waited: who -> share of wall time in which the clock waited
    for them (`robot_rl.ros.release`); given_up: who held it up for too long, "" = nobody.
    """

    factor: float
    waited: Mapping[str, float]
    given_up: str


@dataclass(frozen=True, slots=True)
class EpisodeCall:
    """What the actor does: an episode runs, or (not `active`) one is being prepared, hands off.

    call: changes with every message (31 bits) and is echoed in `operator/joy`.
    """

    call: int
    seed: int
    purpose: str
    active: bool


def _bad(what: str, expected: str, got: object) -> NoReturn:
    raise LinkError(
        f"malformed {what}",
        expected=expected,
        got=repr(got)[:120],
        fix="send it with robot_rl.ros.ports of the same version",
    )


def _refuse_constant(name: str) -> NoReturn:
    _bad("JSON number", "a finite number", name)


def _load(text: str, what: str, limit: int = MAX_BYTES) -> dict[str, Any]:
    """Parse a JSON object of limited size, without NaN or Infinity."""
    if len(text) > limit:
        _bad(what, f"at most {limit} characters", len(text))
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        _bad(what, "a JSON object", str(error))
    if not isinstance(data, dict):
        _bad(what, "a JSON object", type(data).__name__)
    return data


def _keys(data: dict[str, Any], keys: set[str], what: str) -> None:
    if set(data) != keys:
        _bad(what, f"the keys {sorted(keys)}", sorted(map(str, data)))


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _bad(what, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _bad(what, "a finite number", value)
    return number


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_SEQUENCE:
        _bad(what, f"an integer in [0, {MAX_SEQUENCE})", value)
    return value


def _string(value: Any, what: str, limit: int = MAX_TEXT) -> str:
    if not isinstance(value, str) or len(value) > limit:
        _bad(what, f"a string of at most {limit} characters", value)
    return value


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        _bad(what, "true or false", value)
    return value


def _optional(value: Any, what: str) -> float | None:
    return None if value is None else _number(value, what)


def _pose(value: Any, what: str) -> Pose:
    if not isinstance(value, list) or len(value) != 7:
        _bad(what, "[x, y, z, qx, qy, qz, qw]", value)
    numbers = [_number(v, what) for v in value]
    if abs(math.hypot(*numbers[3:]) - 1.0) > 1e-3:
        _bad(what, "a unit quaternion", numbers[3:])
    return pose(numbers[:3], numbers[3:])


def _pose_list(p: Pose) -> list[float]:
    return [*p.position_m.tolist(), *p.quaternion_xyzw.tolist()]


def _dump(data: dict[str, Any]) -> str:
    """Compact JSON; a NaN raises `ValueError`, so that it is never sent."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _joints(value: Any, what: str) -> NDArray[np.float64]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_JOINTS:
        _bad(what, f"a list of 1 to {MAX_JOINTS} angles (rad)", value)
    return np.array([_number(v, what) for v in value])


def _command(c: Command) -> dict[str, Any]:
    """A command of the TCP has no key for the joints, as before there were such commands."""
    joints = c.joint_target_rad
    return ({} if joints is None else {"joint_target_rad": joints.tolist()}) | {
        "sequence": c.sequence,
        "stamp_s": c.stamp_s,
        "driver": str(c.driver),
        "lease": c.lease,
        "tcp_target_in_base": _pose_list(c.tcp_target_in_base),
        "gripper_width_m": c.gripper_width_m,
    }


_COMMAND_KEYS = {"sequence", "stamp_s", "driver", "lease", "tcp_target_in_base", "gripper_width_m"}


def _parse_command(data: Any, what: str) -> Command:
    if not isinstance(data, dict):
        _bad(what, "an object", data)
    joints = {"joint_target_rad"} & set(data)
    _keys(data, _COMMAND_KEYS | joints, what)
    if data["driver"] not in tuple(Driver):
        _bad(f"{what}.driver", f"one of {[str(d) for d in Driver]}", data["driver"])
    return Command(
        sequence=_integer(data["sequence"], f"{what}.sequence"),
        stamp_s=_number(data["stamp_s"], f"{what}.stamp_s"),
        driver=Driver(data["driver"]),
        lease=_string(data["lease"], f"{what}.lease", MAX_LEASE),
        tcp_target_in_base=_pose(data["tcp_target_in_base"], f"{what}.tcp_target_in_base"),
        gripper_width_m=_optional(data["gripper_width_m"], f"{what}.gripper_width_m"),
        joint_target_rad=_joints(data["joint_target_rad"], f"{what}.joint_target_rad")
        if joints
        else None,
    )


def encode_request(request: Command | ArmRequest) -> str:
    """Text of `gate/request`.

    Raises:
        ValueError: a number is not finite (the sender's own bug; never goes out).
    """
    if isinstance(request, ArmRequest):
        asked = {"lease": request.lease, "stamp_s": request.stamp_s, "process": request.process}
        return _dump({"kind": "arm", **asked})
    return _dump({"kind": "move", "command": _command(request)})


def decode_request(text: str) -> Command | ArmRequest:
    """Inverse of `encode_request`. Raises `LinkError`."""
    data = _load(text, "gate request")
    if data.get("kind") == "arm":
        _keys(data, {"kind", "lease", "stamp_s", "process"}, "arm request")
        lease = _string(data["lease"], "arm request.lease", MAX_LEASE)
        process = _string(data["process"], "arm request.process", MAX_NAME)
        return ArmRequest(lease, _number(data["stamp_s"], "arm request.stamp_s"), process)
    _keys(data, {"kind", "command"}, "gate request")
    if data["kind"] != "move":
        _bad("gate request", "kind 'move' or 'arm'", data["kind"])
    return _parse_command(data["command"], "command")


def encode_answer(answer: Verdict | ArmAnswer) -> str:
    """Text of `gate/verdict`."""
    if isinstance(answer, ArmAnswer):
        return _dump(
            {
                "kind": "arm",
                "lease": answer.lease,
                "granted": answer.granted,
                "reason": answer.reason,
            }
        )
    return _dump(
        {
            "kind": "move",
            "sequence": answer.sequence,
            "outcome": str(answer.outcome),
            "reason": answer.reason,
            "command": _command(answer.command),
            "stamp_s": answer.stamp_s,
        }
    )


def decode_answer(text: str) -> Verdict | ArmAnswer:
    """Inverse of `encode_answer`. Raises `LinkError`."""
    data = _load(text, "gate answer")
    if data.get("kind") == "arm":
        _keys(data, {"kind", "lease", "granted", "reason"}, "arm answer")
        return ArmAnswer(
            _string(data["lease"], "arm answer.lease", MAX_LEASE),
            _flag(data["granted"], "arm answer.granted"),
            _string(data["reason"], "arm answer.reason"),
        )
    _keys(data, {"kind", "sequence", "outcome", "reason", "command", "stamp_s"}, "verdict")
    if data["outcome"] not in tuple(Outcome):
        _bad("verdict.outcome", f"one of {[str(o) for o in Outcome]}", data["outcome"])
    return Verdict(
        sequence=_integer(data["sequence"], "verdict.sequence"),
        outcome=Outcome(data["outcome"]),
        reason=_string(data["reason"], "verdict.reason"),
        command=_parse_command(data["command"], "verdict.command"),
        stamp_s=_number(data["stamp_s"], "verdict.stamp_s"),
    )


def encode_report(report: GateReport) -> str:
    """Text of `gate/state`."""
    return _dump({k: getattr(report, k) for k in GateReport.__slots__})


def decode_report(text: str) -> GateReport:
    """Inverse of `encode_report`. Raises `LinkError`."""
    data = _load(text, "gate state")
    _keys(data, set(GateReport.__slots__), "gate state")
    return GateReport(
        _string(data["mode"], "mode"),
        _string(data["reason"], "reason"),
        _string(data["lease"], "lease", MAX_LEASE),
        _number(data["stamp_s"], "stamp_s"),
        _integer(data["rejected"], "rejected"),
        _string(data["waits"], "waits", 16),
        _string(data["blind"], "blind"),
        _string(data["refusal"], "refusal"),
    )


def encode_readiness(report: ReadinessReport) -> str:
    """Text of `arm/readiness`; whatever is too long is cut."""
    items = [
        {key: getattr(item, key)[:limit] for key, limit in _ITEM_LIMITS.items()}
        for item in report.items[:MAX_ITEMS]
    ]
    return _dump({"items": items, "accept": [n[:MAX_NAME] for n in report.accept[:MAX_ITEMS]]})


def decode_readiness(text: str) -> ReadinessReport:
    """Inverse of `encode_readiness`. Raises `LinkError`."""
    data = _load(text, "readiness", MAX_LIST_BYTES)
    _keys(data, {"items", "accept"}, "readiness")
    items, accept = data["items"], data["accept"]
    if not isinstance(items, list) or not isinstance(accept, list):
        _bad("readiness", "lists of items and of names", data)
    if max(len(items), len(accept)) > MAX_ITEMS:
        _bad("readiness", f"at most {MAX_ITEMS} items", len(items))
    return ReadinessReport(
        tuple(_item(item) for item in items),
        tuple(_string(name, "readiness.accept", MAX_NAME) for name in accept),
    )


def _item(data: Any) -> Item:
    if not isinstance(data, dict):
        _bad("readiness item", "an object", data)
    _keys(data, set(_ITEM_LIMITS), "readiness item")
    item = Item(*(_string(data[k], f"readiness item.{k}", n) for k, n in _ITEM_LIMITS.items()))
    if item.status not in STATUSES:
        _bad("readiness item.status", f"one of {', '.join(STATUSES)}", item.status)
    return item


def encode_pace(pace: ClockPace) -> str:
    """Text of `clock/pace`."""
    return _dump({k: getattr(pace, k) for k in ClockPace.__slots__})


def decode_pace(text: str) -> ClockPace:
    """Inverse of `encode_pace`. Raises `LinkError`."""
    data = _load(text, "clock pace")
    _keys(data, set(ClockPace.__slots__), "clock pace")
    waited = data["waited"]
    if not isinstance(waited, dict) or not waited.keys() <= LIMITS_S.keys():
        _bad("waited", f"shares of {', '.join(LIMITS_S)}", waited)
    return ClockPace(
        _number(data["factor"], "factor"),
        {who: _number(share, f"waited.{who}") for who, share in waited.items()},
        _string(data["given_up"], "given_up", 64),
    )


def encode_episode(call: EpisodeCall) -> str:
    """Text of `operator/episode`."""
    return _dump({k: getattr(call, k) for k in EpisodeCall.__slots__})


def decode_episode(text: str) -> EpisodeCall:
    """Inverse of `encode_episode`. Raises `LinkError`."""
    data = _load(text, "episode call")
    _keys(data, set(EpisodeCall.__slots__), "episode call")
    return EpisodeCall(
        _integer(data["call"], "call"),
        _integer(data["seed"], "seed"),
        _string(data["purpose"], "purpose", 32),
        _flag(data["active"], "active"),
    )


def encode_plan(plan: ResetPlan) -> str:
    """Text of the sim's `reset_plan` parameter."""
    return _dump(
        {
            "tcp_in_base": _pose_list(plan.tcp_in_base),
            "objects": {name: _pose_list(p) for name, p in plan.objects.items()},
            "gripper_width_m": plan.gripper_width_m,
            "held_in_tcp": _pose_list(plan.held_in_tcp) if plan.held_in_tcp else None,
        }
    )


def decode_plan(text: str) -> ResetPlan | int:
    """Inverse of `encode_plan`; `{"seed": n}` gives the seed, for people at a shell.

    Raises:
        LinkError: anything else.
    """
    data = _load(text, "reset plan")
    if set(data) == {"seed"}:
        return _integer(data["seed"], "reset plan.seed")
    _keys(data, {"tcp_in_base", "objects", "gripper_width_m", "held_in_tcp"}, "reset plan")
    objects = data["objects"]
    if not isinstance(objects, dict) or len(objects) > MAX_OBJECTS:
        _bad("reset plan.objects", f"an object with at most {MAX_OBJECTS} poses", objects)
    held = data["held_in_tcp"]
    return ResetPlan(
        tcp_in_base=_pose(data["tcp_in_base"], "reset plan.tcp_in_base"),
        objects={str(k): _pose(v, f"reset plan.objects.{k}") for k, v in objects.items()},
        gripper_width_m=_number(data["gripper_width_m"], "reset plan.gripper_width_m"),
        held_in_tcp=None if held is None else _pose(held, "reset plan.held_in_tcp"),
    )
