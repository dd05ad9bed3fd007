"""`bench arms` and `bench ik` see the failures that they look for, on an arm that a test plays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot_rl.bench import arms, ik
from robot_rl.cli.main import main
from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose
from robot_rl.types import Pose


class Person:
    """At an arm of seven joints. goes: share of what is asked that it does; moves: who moves on."""

    def __init__(self, goes: float = 1.0, moves: int | None = None) -> None:
        self.goes, self.moves, self.armed = goes, moves, 0
        self._place = pose((0.4, 0.0, 0.3))
        self.q = np.zeros(7)

    def arm(self, _lease: str) -> None:
        self.armed += 1

    def ask(self, _lease: str, target: Pose) -> None:
        way_m = target.position_m - self._place.position_m
        self._place = pose(self._place.position_m + self.goes * way_m)

    def newest(self, _topic: Any) -> Any:
        if self.moves is not None:
            self.q[self.moves] += 0.01
        return SimpleNamespace(position=self.q.tolist())

    def joint_speed_rad_s(self, joints: int) -> float:
        return 0.5 * (self.moves is not None and self.moves < joints)

    def tcp(self) -> Pose:
        return self._place

    def turn(self, _wait_s: float = 0.0) -> None: ...
    def wait_until(self, *_: Any) -> None: ...
    def why_not(self) -> str:
        return ""

    def mode(self) -> str:
        return "pause"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ik, "TICK_S", 0.001)
    monkeypatch.setattr(ik, "GIVE_UP_S", 0.5)
    monkeypatch.setattr(os, "kill", lambda *_: None)


SUPERVISOR = SimpleNamespace(pids=lambda: dict.fromkeys(("ik", "gate", "sim"), 0))


def test_an_arm_that_never_moved_is_no_result() -> None:
    person = Person(goes=0.0)
    with pytest.raises(RobotRLError, match="no motion to kill anything in"):
        ik.kill(person, SUPERVISOR, "kill0", 7)
    assert person.armed == 3, "a machine may stall"
    with pytest.raises(RobotRLError, match="no motion to kill anything in"):
        arms._kill(Person(goes=0.0), SUPERVISOR, "gate", 7)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("joint", [0, 6])
def test_an_arm_that_never_stands_is_told(joint: int) -> None:
    with pytest.raises(RobotRLError, match="moves on after kill -9 of ik"):
        ik.kill(Person(moves=joint), SUPERVISOR, "kill0", 7)


def test_an_arm_that_stands_at_once_is_fine() -> None:
    stands_s, way_rad = ik.kill(Person(), SUPERVISOR, "kill0", 7)
    assert stands_s == 0.0 and way_rad == 0.0


def test_whatever_a_cell_raises_the_table_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_arm: arms.Arm, _folder: Path) -> str:
        raise KeyError("actor.sqlite")

    monkeypatch.setitem(arms.COLUMNS, "up", fails)
    cell = arms._cell("up", arms.Arm(("robot=ur5e_forward",)), tmp_path)
    assert cell == "FAILED: KeyError('actor.sqlite')"


def test_a_failed_cell_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"a/up": "ok (3 s)", "b/up": "FAILED: the TCP does not go where it is sent; gate: hold"}
    monkeypatch.setattr("robot_rl.cli.bench.BENCHES", {"arms": lambda _, **options: said})
    assert main(["bench", "arms"]) == 1
    del said["b/up"]
    assert main(["bench", "arms"]) == 0


def test_a_command_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("rclpy", reason="the ros extra is not installed")
    did: list[str] = []

    def wait(timeout_s: float | None = None) -> None:
        if timeout_s is not None:
            raise subprocess.TimeoutExpired("robot-rl", timeout_s)

    def noted(what: str) -> Callable[[], None]:
        return lambda: did.append(what)

    deaf = SimpleNamespace(
        poll=lambda: None, terminate=noted("terminate"), kill=noted("kill"), wait=wait
    )
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: deaf)
    monkeypatch.setattr(arms, "JOIN_S", 0.0)
    monkeypatch.setattr("robot_rl.ros.runtime.visitor", lambda *_, **__: nullcontext())
    monkeypatch.setattr("robot_rl.ros.rehearse.Person", lambda *_: None)
    monkeypatch.setattr("robot_rl.ros.rehearse.target_of", lambda _: None)
    with pytest.raises(RobotRLError, match="did not end"):
        arms._helped(arms.Arm(("robot=ur5e_forward",)), tmp_path, ["record"])
    assert did == ["terminate", "kill"]
