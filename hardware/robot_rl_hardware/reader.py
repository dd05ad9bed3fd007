"""Reads one device in a thread: the newest reading is always at hand, nobody ever waits.

A device that is pulled out is gone at once (`read` gives None) and looked for again every second.
A radio that is lost is worse: the kernel goes on telling the last deflection as if it were new, and
robots have driven off with it (ros-drivers/joystick_drivers issue 92). So a device that streams
while it is deflected counts as silent when it says nothing for `quiet_s`: its stamp stays behind.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from robot_rl.errors import RobotRLError, SetupError
from robot_rl.operate.calibration import load_rest
from robot_rl.operate.handset import DeviceReading, HandsetConfig
from robot_rl.operate.held import HeldDevice, hand_on
from robot_rl.operate.mapping import InputMap
from robot_rl.ports import Task
from robot_rl.types import RobotState

log = logging.getLogger(__name__)

RETRY_S = 1.0  # between two attempts to find a lost device
OUT = 0.15  # an axis beyond this is held by a hand, not left there by a worn spring


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device of this machine. problem: why it cannot be opened; "" when it can."""

    kind: str  # gamepad | spacemouse | realsense | uvc
    name: str
    path: str
    problem: str = ""

    def __str__(self) -> str:
        """One line for a list."""
        return f"{self.name} ({self.path}{f': {self.problem}' if self.problem else ''})"


class Handle(Protocol):
    """An open device; used by one thread. Everything raises `OSError` once the device is gone."""

    name: str
    inputs: InputMap
    quiet_s: float  # deflected and silent for this long = lost; infinity = silence means nothing

    def read(self) -> tuple[Mapping[str, float], bool]:
        """(value of every axis and button by name, whether the device has said anything new).

        Waits for news, 20 ms at most.
        """
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


class Named(Protocol):
    """An open device of any kind."""

    name: str

    def close(self) -> None:
        """Give the device back."""
        ...


H = TypeVar("H", bound=Named)
R = TypeVar("R")


class Watcher(Generic[H, R]):
    """Opens a device now, reads it in a daemon thread, finds it again when lost.

    Args:
        connect: opens the device; called again after it was lost.

    Attributes:
        lost: why the device is gone, "" while it is not.

    Raises:
        SetupError: it is not there, or may not be read.
    """

    def __init__(self, connect: Callable[[], H]) -> None:
        handle = connect()
        self.name = handle.name
        self.lost = ""
        self._connect = connect
        self._newest: R | None = None
        self._begin(handle)  # its map is known before its first reading
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(handle,), name=f"read {self.name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread and give the device back."""
        self._stop.set()
        self._thread.join(timeout=1.0)

    def _run(self, first: H) -> None:
        handle: H | None = first
        while not self._stop.is_set():
            try:
                handle = handle or self._connect()
                log.info("%s: connected", handle.name)
                self.lost = ""
                self._begin(handle)
                try:
                    while not self._stop.is_set():
                        self._newest = self._look(handle)
                finally:
                    handle.close()
            except (OSError, ValueError, RobotRLError) as error:  # ValueError: hidapi, not open
                if self._newest is not None:
                    log.warning("%s is gone: %s", self.name, str(error).splitlines()[0])
                self._newest, handle, self.lost = None, None, str(error)
                self._stop.wait(RETRY_S)
        self._newest = None

    def _begin(self, handle: H) -> None:
        """A device has been opened, for the first time or again."""

    def _look(self, handle: H) -> R:
        """Wait for the next reading, 20 ms at most, and return it."""
        raise NotImplementedError


class Reader(Watcher[Handle, DeviceReading]):
    """`Source` of a gamepad or a SpaceMouse."""

    def read(self, state: RobotState | None = None) -> DeviceReading | None:
        """The newest reading; None while the device is gone."""
        return self._newest

    def _begin(self, handle: Handle) -> None:
        self.inputs, self._spoke_s = handle.inputs, time.monotonic()

    def _look(self, handle: Handle) -> DeviceReading:
        values, spoke = handle.read()
        now_s = time.monotonic()
        self._spoke_s = now_s if spoke else self._spoke_s
        reading = handle.inputs.reading(values, now_s)
        if now_s - self._spoke_s > handle.quiet_s and np.abs(reading.axes).max() > OUT:
            reading = handle.inputs.reading(values, self._spoke_s)
        return reading


def held_device(connect: Callable[[], Handle], config: HandsetConfig, task: Task) -> HeldDevice:
    """A device that is read in a thread, with the rest position that was measured for it."""
    reader = Reader(connect)
    rest = load_rest(reader.name, reader.inputs.axes)
    return hand_on(task, config, reader, reader.name, rest)


def pick(
    found: Sequence[FoundDevice],
    wanted: str,
    kind: str,
    missing: SetupError,
    key: str = "operator.device",
) -> FoundDevice:
    """The one device of `found` that is meant by `wanted`: its path, part of its name, "" = any.

    Raises:
        SetupError: none (`missing` when there is not a single one), several, or no permission.
    """
    if not found:
        raise missing
    word = wanted.lower()
    fits = [f for f in found if wanted == f.path or word in f.name.lower()]
    exact = [f for f in fits if f.name == wanted]
    fits = exact if len(exact) == 1 else fits
    listed = "; ".join(map(str, found))
    if len(fits) != 1:
        raise SetupError(
            f"which {kind}? {len(fits)} of {len(found)} fit '{wanted}'",
            expected=f"{key}=... that names one {kind}",
            got=listed,
            fix=f"e.g. {key}={(fits or list(found))[0].path}",
        )
    if fits[0].problem:
        raise SetupError(
            f"the {kind} '{fits[0].name}' may not be read",
            expected=f"read access to {fits[0].path}",
            got=fits[0].problem,
            fix="; or: ".join(
                [
                    "install the udev rule of docs/devices.md and plug it in again",
                    *(f"sudo usermod -aG {g} $USER, then log in again" for g in _group(kind)),
                ]
            ),
        )
    return fits[0]


def _group(kind: str) -> list[str]:
    """The group whose members may read such devices, where there is one."""
    return {"gamepad": ["input"], "UVC camera": ["video"]}.get(kind, [])
