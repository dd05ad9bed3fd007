"""1e6 adversarial commands, 0 violations: whatever is asked, what is sent satisfies every limit.

Asked: NaN, infinities, 1e307, zero quaternions, wrong shapes, stale, future, replayed, bursts,
other leases, people without a device, robots that jump, push, vanish and run into joint limits. The
check is vectorised and written anew here; it shares no arithmetic with the gate.
"""

from __future__ import annotations

import math

import numpy as np

from robot_rl.bench.faults.gate_bench import JOINTS, robot_state
from robot_rl.safety import gate as rules
from robot_rl.safety.limits import Limits
from robot_rl.safety.states import Mode
from robot_rl.types import Command, Driver, Outcome, Pose, RobotState

BLOCK = 20_000
LIMITS = Limits(max_yaw_rad=2.4)
DRIVERS = (Driver.POLICY, Driver.POLICY, Driver.RESET, Driver.CORRECTION)
TOLERANCE = 1e-6
BROKEN = (
    Pose(np.array((np.nan, 0.0, 0.3)), np.array((1.0, 0, 0, 0))),
    Pose(np.array((np.inf, -np.inf, 0.3)), np.array((1.0, 0, 0, 0))),
    Pose(np.array((0.5, 0.0, 0.3)), np.zeros(4)),
    Pose(np.array((0.5, 0.0, 0.3)), np.array((np.nan, 0, 0, 1.0))),
    Pose(np.array((0.5, 0.0, 0.3)), np.array((1e200, 0, 0, 1e200))),
    Pose(np.array((0.5, 0.0)), np.array((1.0, 0, 0, 0))),
    Pose(np.zeros((3, 1)), np.array((1.0, 0, 0, 0))),
)
SLACK_RAD = 0.2 * LIMITS.joint_margin_rad  # a joint in its margin may go further by this
COLUMNS = {  # name -> width, of one record per emitted command
    **{"held": 1, "position": 3, "quaternion": 4, "gripper": 1, "measured": 3, "measured_q": 4},
    **{"last": 3, "last_q": 4, "velocity": 3, "dt": 1, "sent": 3, "sent_q": 4, "known": 3},
    # of what was asked, and beside what: ages in s, numbers, how long the device has been silent
    **{"known_q": 4, "age": 1, "state_age": 1, "newer": 1, "silent": 1, "wrench": 6},
    **{"ahead": 7, "armed": 7},  # joints, a control period ahead, and when the gate was armed
}


def turned_all(rotvec_rad: np.ndarray) -> np.ndarray:
    """Tool-down orientations [n, 4] turned by rotation vectors [n, 3] in base."""
    a = np.maximum(np.linalg.norm(rotvec_rad, axis=1, keepdims=True), 1e-12)
    x, y, z = (rotvec_rad / a * np.sin(a / 2)).T
    return np.stack((np.cos(a[:, 0] / 2), z, -y, -x), 1)  # quaternion product with (1, 0, 0, 0)


class Block:
    """Random numbers of one block, drawn at once; `step` plays command i."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n = BLOCK
        walk = rng.normal(0.0, 0.004, (n, 3)).cumsum(0) + np.array((0.15, 0.4, 0.25))
        walk += (rng.random((n, 1)) < 0.002) * rng.normal(0.0, 0.3, (n, 3))  # the robot "jumps"
        span = np.array((0.60, 0.86, 0.62))
        folded = np.abs((walk % (2 * span)) - span)  # reflects at the walls, just outside the box
        self.position = folded + np.array((0.22, -0.43, -0.01))
        yaw = rng.normal(0.0, 0.05, n).cumsum()
        lean = rng.normal(0.0, 0.02, (n, 2)).cumsum(0) % 1.8 - 0.9
        turn = np.stack((lean[:, 0], lean[:, 1], yaw % 3.0), 1)
        self.quaternion = turned_all(turn)
        scale = 10.0 ** rng.uniform(-4, 1, (n, 1))
        huge = np.where(rng.random((n, 1)) < 0.01, 1e307, 1.0)
        self.target = self.position + rng.uniform(-1.0, 1.0, (n, 3)) * scale * huge
        spin = rng.normal(0.0, 1.0, (n, 3)) * 10.0 ** rng.uniform(-3, 0.5, (n, 1))
        self.target_q = turned_all(turn + spin)
        dt = rng.choice((0.1, 0.1, 0.1, 0.02, 0.05, 0.003, 0.0, 0.5), n)
        self.now = (dt * rng.uniform(0.8, 1.2, n)).cumsum().tolist()
        self.joints = JOINTS + (rng.random((n, 1)) < 0.01) * rng.normal(0.0, 2.0, (n, 7))
        self.speeds = rng.normal(0.0, 0.1, (n, 7))
        self.wrench = rng.normal(0.0, 5.0, (n, 6)) * np.where(rng.random((n, 1)) < 0.01, 20, 0.4)
        self.luck = rng.random((n, 6)).tolist()
        self.pick = rng.integers(0, 2**31, n).tolist()
        self.gripper = rng.uniform(-0.1, 0.2, n).tolist()

    def state(self, i: int) -> RobotState:
        """Robot state i: usually healthy."""
        late_s = 0.2 if self.luck[i][0] < 0.005 else 0.0
        wrench = self.wrench[i] * (np.nan if self.luck[i][0] > 0.997 else 1.0)
        tcp = Pose(self.position[i], self.quaternion[i])
        now_s = self.now[i] - late_s
        return RobotState(now_s, self.joints[i], self.speeds[i], tcp, ZERO6, wrench, 0.04)

    def command(self, i: int) -> Command:
        """Command i: usually well-formed, seldom sensible."""
        luck = self.luck[i]
        stamp_s = self.now[i]
        if luck[1] < 0.05:
            stamp_s += (-1.0, 1.0, float("nan"), -0.2, float("inf"))[self.pick[i] % 5]
        sequence = i if luck[2] > 0.05 else self.pick[i] % (i + 1)
        lease = "mine" if luck[3] > 0.04 else "theirs"
        pose = BROKEN[self.pick[i] % 7] if luck[4] < 0.03 else None
        pose = pose or Pose(self.target[i], self.target_q[i])
        driver = DRIVERS[self.pick[i] % 4]
        return Command(sequence, stamp_s, driver, lease, pose, self.gripper[i])


ZERO6 = np.zeros(6)
STILL = (0.0, 0.0, 0.0)


def play(block: Block, records: list[tuple[float, ...]], counts: dict[str, int]) -> None:
    """Send a block of commands through one gate; record what it emits."""
    gate, passed_s = rules.initial(LIMITS), -np.inf
    gate, first = rules.tick(LIMITS, gate, robot_state(0.0), 0.0)
    assert first is not None
    last, velocity = first.command.tcp_target_in_base, STILL  # what the robot was sent before
    newest, beat_s, pressed, armed_rad = -1, 0.0, False, JOINTS  # what a judge should remember
    for i in range(BLOCK):
        now_s, state, command = block.now[i], block.state(i), block.command(i)
        beat = block.luck[i][5]
        if beat < 0.6:
            beat_s, pressed = now_s, beat < 0.5 and command.driver.is_human
            gate = rules.heartbeat(gate, now_s, pressed)
        if gate.mode is Mode.PROTECTIVE_STOP:
            gate, _ = rules.acknowledge(gate)
        if gate.mode is not Mode.RUN and beat > 0.4:
            gate, _ = rules.arm(LIMITS, gate, "mine", state, now_s)
            if gate.mode is Mode.RUN:
                last, velocity, armed_rad = state.tcp_in_base, STILL, state.joint_position_rad
        sent = last
        if gate.mode is Mode.PAUSE and is_pushed_away(last, state.tcp_in_base):
            last = state.tcp_in_base  # the latched pose is given up
        before = gate
        gate, verdict = rules.judge(LIMITS, gate, command, state, now_s)
        reason = verdict.reason.partition(":")[0]
        key = f"{verdict.outcome}: {reason}"
        counts[key] = counts.get(key, 0) + 1
        held = verdict.outcome is Outcome.HOLD
        executed, tcp = verdict.command.tcp_target_in_base, state.tcp_in_base
        known = before.measured
        assert known is not None
        since_s = min(now_s - passed_s, LIMITS.command_timeout_s)
        old, new = last.position_m.tolist(), executed.position_m.tolist()
        silent_s = now_s - beat_s if pressed else math.inf if command.driver.is_human else 0.0
        records.append(
            (
                *(float(held), *new, *executed.quaternion_xyzw.tolist()),
                0.0 if held else verdict.command.gripper_width_m or 0.0,
                *tcp.position_m.tolist(),
                *tcp.quaternion_xyzw.tolist(),
                *old,
                *last.quaternion_xyzw.tolist(),
                *velocity,
                since_s,
                *sent.position_m.tolist(),
                *sent.quaternion_xyzw.tolist(),
                *known.position,
                *known.quaternion,
                *(abs(now_s - command.stamp_s), now_s - state.stamp_s),
                *(command.sequence - newest, silent_s),
                *state.wrench_in_tcp.tolist(),
                *(state.joint_position_rad + LIMITS.period_s * state.joint_velocity_rad_s).tolist(),
                *armed_rad.tolist(),
            )
        )
        if not held:
            assert before.mode.is_armed and command.lease == "mine"
            passed_s, newest = now_s, command.sequence
            velocity = tuple((a - b) / since_s for a, b in zip(new, old, strict=True))
        elif gate.mode is not Mode.RUN:
            velocity = STILL
        last = executed


def is_pushed_away(held: Pose, measured: Pose) -> bool:
    """The robot is more than a step away from the pose it was held at."""
    offset_m = math.dist(held.position_m.tolist(), measured.position_m.tolist())
    dot = abs(float(held.quaternion_xyzw @ measured.quaternion_xyzw))
    return offset_m > LIMITS.max_step_m or 2.0 * math.acos(min(dot, 1.0)) > LIMITS.max_step_rad


def angle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rotation angle between unit quaternions [n, 4]."""
    return 2.0 * np.arccos(np.clip(np.abs((a * b).sum(1)), 0.0, 1.0))


def depth(joints_rad: np.ndarray) -> np.ndarray:
    """How far the worst joint of each row [n, 7] stands inside its margin; below 0: clear of it."""
    low, high = np.array(LIMITS.joint_min_rad), np.array(LIMITS.joint_max_rad)
    return np.maximum(low - joints_rad, joints_rad - high).max(1) + LIMITS.joint_margin_rad


def norm(a: np.ndarray) -> np.ndarray:
    """Row lengths."""
    return np.sqrt((a * a).sum(1))


def violations(r: dict[str, np.ndarray]) -> dict[str, int]:
    """How often each promise was broken."""
    dt, held = r["dt"][:, 0], r["held"][:, 0] > 0
    move = r["position"] - r["last"]
    jolt = norm(move - r["velocity"] * dt[:, None])
    low, high = np.array(LIMITS.workspace_min_m), np.array(LIMITS.workspace_max_m)
    x, y = r["quaternion"][:, 0], r["quaternion"][:, 1]
    tilt = np.arccos(np.clip(2 * (x * x + y * y) - 1, -1, 1))
    grip = r["gripper"][:, 0]
    force_n, torque_nm = norm(r["wrench"][:, :3]), norm(r["wrench"][:, 3:])
    over = 1.0 + TOLERANCE
    broken = {
        "box": ((r["position"] < low) | (r["position"] > high)).any(1),
        "step": norm(r["position"] - r["measured"]) > LIMITS.max_step_m * over,
        "turn": angle(r["quaternion"], r["measured_q"]) > LIMITS.max_step_rad * over,
        "speed": norm(move) > LIMITS.max_speed_m_s * dt * over,
        "spin": angle(r["quaternion"], r["last_q"]) > LIMITS.max_rotation_speed_rad_s * dt * over,
        "acceleration": jolt > LIMITS.max_acceleration_m_s2 * dt**2 * over,
        "tilt": tilt > LIMITS.max_tilt_rad * over,
        "yaw": np.abs(np.angle((x + 1j * y) ** 2)) > LIMITS.max_yaw_rad * over,
        "gripper": (grip < LIMITS.gripper_min_m) | (grip > LIMITS.gripper_max_m),
        # written so that NaN breaks them
        "age": ~(r["age"][:, 0] <= LIMITS.command_timeout_s),
        "state": ~(r["state_age"][:, 0] <= LIMITS.state_timeout_s * over),
        "sequence": ~(r["newer"][:, 0] > 0),
        "device": ~(r["silent"][:, 0] <= LIMITS.operator_timeout_s),
        "force": ~((force_n <= LIMITS.max_force_n) & (torque_nm <= LIMITS.max_torque_nm)),
        "joint": ~(depth(r["ahead"]) <= np.maximum(depth(r["armed"]), 0.0) + SLACK_RAD),
    }
    result = {name: int((bad & ~held).sum()) for name, bad in broken.items()}
    result["finite"] = int(
        (~np.isfinite(r["position"]) | ~np.isfinite(r["quaternion"][:, :3])).sum()
    )
    result["unit"] = int((np.abs(norm(r["quaternion"]) - 1.0) > 1e-3).sum())
    still = np.minimum(norm(r["position"] - r["sent"]), norm(r["position"] - r["measured"]))
    still = np.minimum(still, norm(r["position"] - r["known"]))  # when the state is lost
    result["hold moves"] = int((held & (still > 1e-12)).sum())
    turned = [angle(r["quaternion"], r[q]) for q in ("sent_q", "measured_q", "known_q")]
    result["hold turns"] = int((held & (np.minimum.reduce(turned) > TOLERANCE)).sum())
    return result


def attack(commands: int) -> tuple[dict[str, int], dict[str, int]]:
    """Send that many commands (in whole blocks).

    Returns:
        promise -> how often it was broken; "outcome: reason" -> how often the gate answered so.
    """
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    for seed in range(max(commands // BLOCK, 1)):
        more = attack_block(seed, counts)
        found = {name: found.get(name, 0) + n for name, n in more.items()}
    return found, counts


def attack_block(seed: int, counts: dict[str, int]) -> dict[str, int]:
    """The `BLOCK` commands of a seed; counts is added to, the broken promises are returned."""
    edges = np.cumsum(list(COLUMNS.values()))[:-1]
    records: list[tuple[float, ...]] = []
    play(Block(seed), records, counts)
    parts = np.split(np.array(records), edges, axis=1)
    return violations(dict(zip(COLUMNS, parts, strict=True)))
