"""Somebody drives the arm of a run, something breaks, and the arm is told to stand: how soon."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import numpy as np

from robot_rl.bench.faults.waiting import wait_for
from robot_rl.bench.faults.worlds import ArmWorld, RunWorld
from robot_rl.config.run_folder import ACTOR_STORE
from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose
from robot_rl.ros.supervise import HEALTHY_S
from robot_rl.store.store import Store
from robot_rl.types import Command, Driver, EpisodeId

if TYPE_CHECKING:
    from robot_rl.bench.console.drive import ScriptedPage
    from robot_rl.bench.faults.pad import Pad

HOLD_MS = 120.0  # from a person's silence until the arm is told to stand
GIVE_UP_S = 2.0  # wall; what has not stopped by then does not stop
PRESS_S, REST_S = 2.0, 0.4  # a press that is not heard is tried again after a rest
SPEED, LOW_M = 0.6, 0.2  # of the stick's full way, along the tool's z: down, or up from below here
MOVING_S = 0.25  # wall; targets that were new within it: the arm moves
TICK_S, STEP_M = 0.1, 0.008  # between two commands of an actor; of each
HALF_WAY_M, TURN = 0.3, 15  # where it goes down in place of up; ticks in one direction
TRIES, MOVES_S = 5, 4.0  # to get it going; wall seconds of each
SETTLE_S = 0.4  # wall; what was under way has arrived
QUICK = 3  # deaths in a row that are followed by a start within a second


def take_over(world: RunWorld, hand: ScriptedPage) -> None:
    """Rest, press the drive key until the person drives, and move the arm up and down."""
    rest_s = 0.0

    def drives() -> bool:
        nonlocal rest_s
        now_s = time.monotonic()
        if hand.held and world.drives("correction"):
            return True
        if now_s > rest_s + PRESS_S:
            hand.held, hand.axes, rest_s = [], [0.0] * 6, now_s + REST_S
            hand.go_on()
        elif now_s > rest_s:
            hand.held = ["drive"]
        return False

    world.until_policy()
    wait_for(drives, 60.0, "a person drives")
    hand.axes = [0.0, 0.0, -SPEED if world.stopwatch.height_m() < LOW_M else SPEED] + [0.0] * 3
    until_moving(world)


class Actor:
    """Moves the arm of a world without an actor, in a thread: a command every `TICK_S`.

    With `driver` a correction, it needs a device that is held (`pad.Pad`).
    """

    def __init__(self, world: ArmWorld, lease: str, driver: Driver = Driver.POLICY) -> None:
        self._world, self._lease, self._driver = world, lease, driver
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        person, ticks = self._world.person, itertools.count()
        up = 1.0 if person.tcp().position_m[2] < HALF_WAY_M else -1.0
        due_s = time.monotonic()
        while not self._done.is_set():
            here = person.tcp()
            up = -up if next(ticks) % TURN == TURN - 1 else up
            away_m = np.array((0.0, 0.0, up * STEP_M))
            there = pose(here.position_m + away_m, here.quaternion_xyzw)
            person.ask(self._lease, there, self._driver)
            due_s = max(due_s + TICK_S, time.monotonic())
            time.sleep(max(due_s - time.monotonic(), 0.0))

    def until_moving(self, pad: Pad | None = None) -> None:
        """Get the arm going, as often as a busy machine has it stopped.

        pad: the person's device, which is let go of for arming and then held.

        Raises:
            RobotRLError: it does not move.
        """
        for left in reversed(range(TRIES)):
            if pad is not None:
                pad.let_go()
            self._world.ready()
            self._world.person.arm(self._lease)
            if pad is not None:
                pad.held = True
            try:
                return until_moving(self._world, MOVES_S)
            except RobotRLError:
                if not left:
                    raise

    def __enter__(self) -> Self:
        self._world.ready()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._world.stopwatch.forget()


def let_live(deaths: int) -> None:
    """After a kill: let the process live so long that its next start is not put off.

    The supervisor waits longer with each death of a process that has hardly lived, and gives up at
    last. A few in a row it starts at once.
    """
    if deaths >= QUICK:
        time.sleep(HEALTHY_S)


def until_moving(world: RunWorld | ArmWorld, timeout_s: float = 30.0) -> None:
    """Wait until the arm is told to go from place to place, for some ticks."""
    begun_s = time.monotonic()

    def moves() -> bool:
        now_s = time.monotonic()
        return now_s - begun_s > MOVING_S and world.stopwatch.moves(now_s - MOVING_S, now_s) >= 2

    wait_for(moves, timeout_s, "the arm moves")


def held_ms(world: RunWorld | ArmWorld, since_s: float) -> float:
    """Milliseconds from a moment until the arm was told to stand, for good.

    `GIVE_UP_S` = it was not; NaN = it did not move at that moment, so the trial says nothing.
    """
    time.sleep(SETTLE_S)
    if not world.stopwatch.moves(since_s - MOVING_S, since_s):
        return math.nan
    give_up_s = since_s + GIVE_UP_S
    while (held_s := world.stopwatch.held_s(since_s)) is None and time.monotonic() < give_up_s:
        time.sleep(0.01)
    return 1e3 * ((held_s or since_s + GIVE_UP_S) - since_s)


@contextmanager
def alone(world: RunWorld) -> Iterator[None]:
    """Nobody looks after the arm meanwhile: what goes on, goes on by itself."""
    world.carer.cares = False
    try:
        yield
    finally:
        world.carer.cares = True
        world.stopwatch.forget()


def moved_by_itself(world: RunWorld | ArmWorld, since_s: float) -> bool:
    """Whether the gate let anybody drive since a moment."""
    from robot_rl.ros import topics, wire

    said = world.stopwatch.since(topics.GATE_STATE, since_s)
    return any(wire.decode_report(message.data).mode == "run" for _, message in said)


def commands(
    world: RunWorld, since_s: float, until_s: float = np.inf
) -> list[tuple[float, Command]]:
    """The commands of the policy that arrived at the gate in between."""
    from robot_rl.ros import topics, wire

    found = []
    for at_s, message in world.stopwatch.since(topics.GATE_REQUEST, since_s):
        request = wire.decode_request(message.data)
        if isinstance(request, Command) and request.driver == "policy" and at_s < until_s:
            found.append((at_s, request))
    return found


def newest_episode(world: RunWorld) -> EpisodeId:
    """The episode that runs."""
    with Store(world.run_dir / ACTOR_STORE) as store:
        return store.episode_summaries()[-1].id
