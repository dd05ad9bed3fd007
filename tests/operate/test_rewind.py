"""The way back: along the path, at half speed, never into something; as a key and in RaC."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robot_rl.geometry import pose, quat_from_rotvec, rotation_error
from robot_rl.operate.handset import DeviceReading, Handset, HandsetConfig
from robot_rl.operate.held import HeldDevice
from robot_rl.operate.rewind import CONTACT_N, SPEED, Rewind
from robot_rl.spec import ActionSpec
from robot_rl.types import Driver, Pose, RobotState

SPEC = ActionSpec(translation_m=0.02, rotation_rad=0.1, gripper=True, gripper_open_m=0.08)
AT_REST = RobotState(
    0.0, np.zeros(7), np.zeros(7), pose((0.5, 0, 0.3)), np.zeros(6), np.zeros(6), 0.0
)


def at(tcp: Pose, force_n: float = 0.0, now_s: float = 0.0) -> RobotState:
    wrench = np.array((0.0, 0.0, force_n, 0.0, 0.0, 0.0))
    return replace(AT_REST, stamp_s=now_s, tcp_in_base=tcp, wrench_in_tcp=wrench)


def bent_path(steps: int = 40) -> list[Pose]:
    """Right, then up while turning: the straight line between its ends is not on it."""
    right = [pose((0.4 + 0.005 * i, 0.0, 0.2)) for i in range(steps // 2)]
    corner = right[-1].position_m
    up = [
        pose(corner + np.array((0, 0, 0.005 * i)), quat_from_rotvec((0, 0, 0.02 * i)))
        for i in range(1, steps // 2)
    ]
    return right + up


def test_it_goes_back_along_the_path_at_half_speed_to_where_the_episode_began() -> None:
    rewind, path = Rewind(SPEC), bent_path()
    for tcp in path:
        rewind.follow(at(tcp))
    here, moves = path[-1], 0
    while not rewind.problem and moves < 200:
        action = rewind.back(at(here))
        assert np.abs(action[:6]).max() <= SPEED + 1e-6 and action[6] == 0.0
        here = SPEC.target(action, here)
        off_path_m = min(float(np.linalg.norm(p.position_m - here.position_m)) for p in path)
        assert off_path_m < 0.006
        moves += 1
    assert rewind.problem == "back at the start of the episode"
    assert np.linalg.norm(here.position_m - path[0].position_m) < 0.002
    assert np.linalg.norm(rotation_error(here, path[0])) < 0.02
    assert moves >= 19 * 0.005 / (SPEED * 0.02)  # no short cut


def test_it_stops_for_good_when_it_meets_something_and_goes_on_after_letting_go() -> None:
    rewind, path = Rewind(SPEC), bent_path()
    for tcp in path:
        rewind.follow(at(tcp))
    assert rewind.back(at(path[-1], 20.0)).any()  # leaving a contact is what it is for
    assert rewind.back(at(path[-2], 2.0)).any()
    assert not rewind.back(at(path[-3], 2.5 + CONTACT_N)).any()
    assert "met something" in rewind.problem
    assert not rewind.back(at(path[-3], 0.0)).any()  # pushing again and again is no way out
    rewind.follow(at(path[-3], 0.0))
    assert rewind.back(at(path[-3], 0.0)).any()


def test_without_a_path_nothing_moves() -> None:
    assert not Rewind(SPEC).back(AT_REST).any()


class Held:
    """A device whose keys the test holds, on a clock of its own."""

    def __init__(self, purpose: str = "train") -> None:
        self.now_s, self.keys = 10.0, frozenset[str]()
        handset = Handset(HandsetConfig(neutral_s=0.0), 7)
        self.device = HeldDevice(handset, self, "fake", lambda: self.now_s, Rewind(SPEC))
        self.device.begin_episode(0, purpose)
        for tcp in bent_path():
            self.poll(tcp)

    def read(self, _: RobotState | None) -> DeviceReading:
        return DeviceReading(self.now_s, [0.0] * 6, self.keys)

    def poll(self, tcp: Pose, *keys: str):
        self.now_s, self.keys = self.now_s + 0.02, frozenset(keys)
        return self.device.poll(at(tcp, now_s=self.now_s))


def test_the_key_leads_back_as_recovery_and_with_drive_the_person_does() -> None:
    held, here = Held(), bent_path()[-1]
    value = held.poll(here, "rewind")
    assert value.driving and value.driver is Driver.RECOVERY and value.action[:6].any()
    by_hand = held.poll(here, "rewind", "drive")
    assert by_hand.driving and by_hand.driver is Driver.RECOVERY and not by_hand.action.any()
    assert held.poll(here, "drive").driver is Driver.CORRECTION
    assert not held.poll(here).driving


@pytest.mark.parametrize(
    ("purpose", "keys"),
    [("eval", ("rewind",)), ("demo", ("rewind",)), ("train", ("rewind", "hold"))],
)
def test_nobody_is_led_back_in_an_evaluation_or_while_held(
    purpose: str, keys: tuple[str, ...]
) -> None:
    assert not Held(purpose).poll(bent_path()[-1], *keys).driving


def test_a_key_that_was_held_before_the_episode_leads_nowhere() -> None:
    held, here = Held(), bent_path()[-1]
    held.device.begin_episode(1, "train")
    assert not held.poll(here, "rewind").driving and "'rewind' is held" in held.device.problem
