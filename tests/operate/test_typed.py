"""A terminal's characters as a hand: taps, repeats, what ends a motion; the kernel's own keys."""

from __future__ import annotations

import numpy as np
import pytest

from robot_rl.operate.handset import DeviceReading, Handset, HandsetConfig
from robot_rl.operate.typed import DRIVE_S, MOVE_S, NAMES, TypedKeys

REPEATS_S = [0.0, 0.5, *(0.5 + 0.04 * k for k in range(1, 10))]  # X11: a pause, then 25 Hz


def moves(keys: TypedKeys, at_s: float) -> bool:
    return any(keys.said(at_s)[0])


def test_a_tap_is_a_small_step_and_driving_goes_on_standing_still() -> None:
    keys = TypedKeys()
    keys.type("w", 10.0)
    assert keys.said(10.0) == ([1.0, 0, 0, 0, 0, 0], ["drive"])
    assert keys.said(10.0 + MOVE_S + 0.01) == ([0.0] * 6, ["drive"])
    assert keys.said(10.0 + DRIVE_S + 0.01) == ([0.0] * 6, [])


def test_a_key_that_repeats_is_one_takeover_and_its_motion_ends_with_its_last_character() -> None:
    keys, seen = TypedKeys(), []
    waiting = list(REPEATS_S)
    for k in range(120):
        now_s = k * 0.01
        while waiting and waiting[0] <= now_s:
            keys.type("w", waiting.pop(0))
        seen.append((now_s, moves(keys, now_s), "drive" in keys.said(now_s)[1]))
    last_s = REPEATS_S[-1]
    assert all(drives for t, _, drives in seen if t < last_s + DRIVE_S - 0.01)
    assert all(m for t, m, _ in seen if 0.5 <= t <= last_s)
    assert not any(m for t, m, _ in seen if t > last_s + MOVE_S + 0.01)


def test_of_two_keys_the_newest_moves_and_capitals_are_slow() -> None:
    keys = TypedKeys()
    keys.type("w", 0.0)
    keys.type("A", 0.05)
    assert keys.said(0.06) == ([0, -1.0, 0, 0, 0, 0], ["drive", "slow"])


@pytest.mark.parametrize("stop", ["\x1b", " ", "\x1bw"])
def test_space_stands_still_and_escape_lets_go_and_holds(stop: str) -> None:
    keys = TypedKeys()
    keys.type("w", 0.0)
    keys.type(stop, 0.05)
    axes, held = keys.said(0.06)
    assert not any(axes)
    assert held == (["drive"] if stop == " " else ["hold"])
    assert keys.commands == ([] if stop == " " else ["hold"])


@pytest.mark.parametrize("text", ["\x1b[A", "\x1bOP", "\x1b[1;5C", "0", "\t", "é", "\x00"])
def test_other_keys_mean_nothing(text: str) -> None:
    keys = TypedKeys()
    keys.type(text, 0.0)
    assert keys.said(0.01) == ([0.0] * 6, []) and keys.commands == []


def test_labels_last_long_enough_and_commands_are_told_once() -> None:
    keys = TypedKeys()
    keys.type("\rryf", 0.0)
    assert keys.said(0.15)[1] == ["success"] and keys.said(0.3)[1] == []
    assert keys.commands == ["go", "acknowledge", "ready"]


def test_a_handset_drives_by_typed_keys() -> None:
    keys, hand = TypedKeys(), Handset(HandsetConfig(), 7)

    def feel(seconds: float, text: str = "") -> object:
        nonlocal now_s
        for _ in range(round(seconds / 0.02)):
            now_s += 0.02
            axes, held = keys.said(now_s)
            said = hand.feed(DeviceReading(now_s, axes, frozenset(held)), now_s)
        if text:
            keys.type(text, now_s)
        return said

    now_s = 0.0
    feel(0.3, "w")
    said = feel(0.04)
    assert said.driving and said.action[0] == pytest.approx(1.0)
    said = feel(0.3)
    assert said.driving and not said.action.any()
    assert not feel(1.0).driving


# --- with the kernel's keys ----------------------------------------------------------------------


class Kernel:
    """Which keys are down."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def __call__(self) -> frozenset[str]:
        return frozenset(self.keys)


def test_with_the_kernels_keys_space_drives_and_letting_go_counts_at_once() -> None:
    kernel = Kernel()
    keys = TypedKeys(down=kernel)
    kernel.keys = {"KEY_SPACE"}
    keys.type(" ", 0.01)
    assert keys.by_kernel and keys.said(0.02)[1] == ["drive"]
    kernel.keys = {"KEY_SPACE", "KEY_W", "KEY_LEFTSHIFT"}
    keys.type("W", 0.1)
    assert keys.said(0.12) == ([1.0, 0, 0, 0, 0, 0], ["drive", "slow"])
    assert keys.said(9.0) == ([1.0, 0, 0, 0, 0, 0], ["drive", "slow"])  # held without a character
    kernel.keys = set()
    assert keys.said(9.01) == ([0.0] * 6, [])
    kernel.keys = {"KEY_W"}
    keys.type("w", 9.5)
    assert keys.said(9.51) == ([1.0, 0, 0, 0, 0, 0], [])  # no Space, no driving


def test_keys_that_are_typed_into_another_window_move_nothing() -> None:
    kernel = Kernel()
    keys = TypedKeys(down=kernel)
    kernel.keys = {"KEY_SPACE"}
    keys.type(" ", 0.0)
    assert keys.said(0.01)[1] == ["drive"]
    kernel.keys = set()
    keys.said(0.5)
    kernel.keys = {"KEY_SPACE", "KEY_W"}  # no character arrives here
    assert all(keys.said(1.0 + 0.02 * k) == ([0.0] * 6, []) for k in range(100))


def test_a_remote_keyboard_is_read_by_its_characters_although_evdev_may_be_read() -> None:
    keys = TypedKeys(down=Kernel())
    keys.type("w", 0.0)
    assert not keys.by_kernel and moves(keys, 0.01)


def test_every_key_has_a_name_of_the_kernel() -> None:
    ecodes = pytest.importorskip("evdev").ecodes
    assert all(name in ecodes.ecodes for name in NAMES.values())
    assert np.unique(list(NAMES.values())).size == len(NAMES)
