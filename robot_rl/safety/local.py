"""The gate inside the loop's own process, for lockstep: same rules, answers at once."""

from __future__ import annotations

from robot_rl.ports import Clock, SimulatedRobot
from robot_rl.safety import gate as rules
from robot_rl.safety.limits import Limits
from robot_rl.safety.states import Mode
from robot_rl.types import Command, RobotState, Verdict

WATCH_S = 0.01  # simulated; how often the gate looks at the robot between two commands


class LocalGate:
    """Implements `ports.Gate` without a second process.

    In lockstep the loop, the operator and the gate live and die together, so the operator cannot
    fall silent on its own: each human command counts as a heartbeat with the device held, every
    other call as one with it released. Everything else is checked as on a robot.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._gate = rules.initial(limits)
        self._wanted_lease = ""
        self._last: Verdict | None = None

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._limits

    @property
    def mode(self) -> Mode:
        """What the gate does."""
        return self._gate.mode

    @property
    def reason(self) -> str:
        """Why the gate holds; "" while running."""
        return self._gate.reason

    def arm(self, lease: str) -> bool:
        """Ask for the right to drive; False in a protective stop or with an empty lease.

        The grant is completed by the next `request`, which brings the robot state that arming
        checks; if that fails, the request is held and `arm` must be called again.
        """
        granted = bool(lease) and self._gate.mode is not Mode.PROTECTIVE_STOP
        self._wanted_lease = lease if granted else ""
        return granted

    def request(self, command: Command, state: RobotState) -> Verdict:
        """Judge `command` now. What is executed is the verdict's command."""
        now_s = self._clock.now_s()
        if self._wanted_lease:
            self._gate = rules.heartbeat(self._gate, now_s, driving=False)
            lease, self._wanted_lease = self._wanted_lease, ""
            self._gate, refusal = rules.arm(self._limits, self._gate, lease, state, now_s)
            if refusal:
                self._gate = rules.hold(self._gate, refusal)
        self._gate = rules.heartbeat(self._gate, now_s, driving=command.driver.is_human)
        self._gate, self._last = rules.judge(self._limits, self._gate, command, state, now_s)
        return self._last

    def watch(self, state: RobotState) -> Verdict | None:
        """Run the watchdogs between two requests; the hold verdict to carry out, or None.

        A hard contact lasts some hundredths of a second: a check at only 10 Hz would miss it.
        """
        now_s = self._clock.now_s()
        driving = self._gate.driver.is_human and self._gate.mode is Mode.RUN
        self._gate = rules.heartbeat(self._gate, now_s, driving=driving)
        self._gate, held = rules.tick(self._limits, self._gate, state, now_s)
        return held

    def verdict(self, sequence: int) -> Verdict | None:
        """The newest verdict, if it answers request `sequence`."""
        return self._last if self._last and self._last.sequence == sequence else None

    def hold(self, reason: str) -> None:
        """Soft stop: nothing moves until `arm`."""
        self._gate, self._wanted_lease = rules.hold(self._gate, reason), ""

    def stop(self, reason: str) -> None:
        """Protective stop: nothing moves until `acknowledge`, then `arm`."""
        self._gate, self._wanted_lease = rules.stop(self._gate, reason), ""

    def acknowledge(self) -> bool:
        """Leave a protective stop for HOLD; False when there is none."""
        gate = rules.heartbeat(self._gate, self._clock.now_s(), driving=False)
        self._gate, refusal = rules.acknowledge(gate)
        return not refusal

    def reset(self) -> None:
        """Start over in HOLD, as a new process would: the simulated world was rebuilt.

        Only a simulator may do this; on a robot a protective stop is left by acknowledging it.
        """
        self._gate, self._wanted_lease, self._last = rules.initial(self._limits), "", None


class WatchedClock:
    """The simulator's clock with the gate's watchdogs running beside it at 100 Hz, as over ROS 2.

    Without it lockstep would train a policy that hits harder than any robot's gate allows.
    """

    def __init__(self, robot: SimulatedRobot, gate: LocalGate) -> None:
        self._robot, self._gate = robot, gate

    def now_s(self) -> float:
        """Seconds on the simulator's clock."""
        return self._robot.now_s()

    def sleep_until_s(self, deadline_s: float) -> None:
        """Step the physics to the deadline; a hold the gate demands on the way is carried out."""
        while (now_s := self._robot.now_s()) < deadline_s - 1e-6:
            self._robot.sleep_until_s(min(now_s + WATCH_S, deadline_s))
            if self._robot.now_s() <= now_s:
                return  # the simulator cannot come nearer: its steps are longer than what is left
            verdict = self._gate.watch(self._robot.read())
            if verdict is not None:
                self._robot.apply(verdict.command)
