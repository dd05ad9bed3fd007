"""A stand-in for the actor, as a process that can be killed: arms, then sways along base x.

Arguments: lease, seconds that each tick thinks, and ROS arguments in place of simulated time.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from robot_rl.geometry import pose
from robot_rl.ros.actor_ports import await_sources
from robot_rl.ros.ports import RosClock, RosGate, RosRobot
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import node_shell
from robot_rl.types import Command, Driver

CENTRE_X_M = 0.5  # middle of the task's workspace: at its edge the gate would rightly clip
STRIDE_M = np.array((0.01, 0.0, 0.0))


def main(lease: str, thinks_s: float, ros: list[str]) -> None:
    """Run until killed. thinks_s: wall time that each tick takes."""
    with node_shell("actor", ["--ros-args", *(ros or ["-p", "use_sim_time:=true"])]) as shell:
        clock, gate = RosClock(shell, "actor"), RosGate(shell)
        robot = RosRobot(StateReader(shell))
        shell.spin_in_background()
        clock.wait_started(20.0)
        await_sources(shell, [robot], 20.0)
        while shell.running and not gate.arm(lease):
            clock.sleep_until_s(clock.now_s() + 0.1)  # from now on the clock waits for us, too
        sequence, sign, tick_s = 0, 1.0, clock.now_s()
        while shell.running:
            time.sleep(thinks_s)
            answer = gate.verdict(sequence)
            if answer is not None and answer.reason.startswith("lease:"):
                gate.arm(lease)  # somebody has acknowledged a stop: as an actor would, ask again
            state = robot.read()
            here = state.tcp_in_base
            if abs(here.position_m[0] - CENTRE_X_M) > 0.03:
                sign = 1.0 if here.position_m[0] < CENTRE_X_M else -1.0
            sequence += 1
            there = pose(here.position_m + sign * STRIDE_M, here.quaternion_xyzw)
            gate.request(Command(sequence, clock.now_s(), Driver.POLICY, lease, there), state)
            tick_s = max(tick_s + 0.1, clock.now_s())
            clock.sleep_until_s(tick_s)


if __name__ == "__main__":
    main(sys.argv[1], float((sys.argv[2:] or ["0"])[0]), sys.argv[3:])
