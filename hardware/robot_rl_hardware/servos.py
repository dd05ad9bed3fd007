"""The servos of a leader arm on one serial line, read all at once through their maker's library.

Two families: Dynamixel X (protocol 2.0, as in GELLO) and Feetech STS (as in the SO-101 leader).
Both libraries have the same shape: a port, a packet handler, a group that is read with one request.
No torque is switched on and nothing is written to a servo.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.errors import SetupError
from robot_rl_hardware.reader import FoundDevice, pick

PERIOD_S = 0.012  # between two readings of all servos
TRIES = 6  # before a servo counts as silent
OPEN_S = 1.5  # servos that have just been powered need a moment
WAIT_S = 0.002  # for bytes of an answer, at a time
MISSES = 8  # readings that fail in a row: the line is lost
TICKS = 4096  # of one turn, in both families
PORTS = Path("/dev/serial/by-id")


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the present position of a kind of servo is read.

    protocol: what the library's PacketHandler takes (Feetech: 0 = little endian, STS). address,
    length: of the present position. sign_bit: the number is a magnitude with this bit as its sign;
    None = two's complement.
    """

    title: str
    module: str
    package: str
    protocol: float
    address: int
    length: int
    sign_bit: int | None
    baud: int

    def ticks(self, raw: int) -> int:
        """What the library returns -> signed position."""
        bits = 8 * self.length
        if self.sign_bit is not None:
            size = raw & ((1 << self.sign_bit) - 1)
            return -size if raw >> self.sign_bit & 1 else size
        return raw - (1 << bits) if raw >> (bits - 1) & 1 else raw


DYNAMIXEL = Family(
    title="Dynamixel",
    module="dynamixel_sdk",
    package="dynamixel-sdk",
    protocol=2.0,
    address=132,  # Present Position, XL330 control table (emanual.robotis.com)
    length=4,
    sign_bit=None,
    baud=57600,
)
FEETECH = Family(
    title="Feetech",
    module="scservo_sdk",
    package="feetech-servo-sdk",
    protocol=0,
    address=56,  # Present Position, STS3215 memory table
    length=2,
    sign_bit=15,
    baud=1_000_000,
)


def find_ports(folder: Path = PORTS) -> list[FoundDevice]:
    """Serial lines on USB, by the name that stays the same; readable or not."""
    found = []
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        fine = os.access(path, os.R_OK | os.W_OK)
        found.append(FoundDevice("serial", path.name, str(path), "" if fine else "no permission"))
    return found


class ServoLine:
    """The servos `ids` on a serial line, open.

    Args:
        port: path, part of the name of a USB adapter, or "" for the only one.

    Raises:
        SetupError: no such line, no permission, the library is missing, or servos do not answer.
    """

    def __init__(self, family: Family, port: str, baud: int, ids: Sequence[int]) -> None:
        self.family, self.ids = family, tuple(ids)
        self.path = port if port.startswith("/") else _named(port)
        self.name = f"{family.title} leader on {Path(self.path).name}"
        sdk = _library(family)
        self._port = sdk.PortHandler(self.path)
        try:
            opened = self._port.setBaudRate(baud)
        except (OSError, termios.error) as error:
            raise _no_port(self.path, str(error)) from error
        if not opened:
            raise SetupError(
                f"{family.title}: no baud rate {baud}",
                expected="57600, 115200, 1000000, 2000000 ...",
                got=str(baud),
                fix="set operator.baud to what the servos are set to",
            )
        self._port.ser.timeout = WAIT_S  # else the library spins until a late answer is there
        self._packets = sdk.PacketHandler(family.protocol)
        self._group = sdk.GroupSyncRead(self._port, self._packets, family.address, family.length)
        for number in self.ids:
            self._group.addParam(number)
        self._misses, self._due_s = 0, 0.0
        give_up_s = time.monotonic() + OPEN_S
        while (found := self._asked()) is None and time.monotonic() < give_up_s:
            pass
        if found is None:
            silent = self._silent()
            self.close()
            raise _silence(self, baud, silent)

    def ticks(self) -> Mapping[int, int] | None:
        """Present position of each servo, in 1/4096 turn; None when a packet was lost or damaged.

        Waits so that all are read at most `1 / PERIOD_S` times a second.

        Raises:
            OSError: the line is gone, or servos have been silent for `MISSES` readings.
        """
        time.sleep(max(0.0, self._due_s - time.monotonic()))
        self._due_s = time.monotonic() + PERIOD_S
        found = self._asked()
        self._misses = self._misses + 1 if found is None else 0
        if self._misses >= MISSES:
            raise OSError(f"{self.name}: no proper answer from servo {self._silent()}")
        return found

    def _asked(self) -> Mapping[int, int] | None:
        """One request for all positions; None when an answer was late, damaged or missing."""
        family = self.family
        with _lost(self._port):
            if self._group.txRxPacket() != 0:
                return None
        return {
            number: family.ticks(self._group.getData(number, family.address, family.length))
            for number in self.ids
        }

    def _silent(self) -> str:
        """The servos that do not answer a ping, for people."""
        silent = []
        with _lost(self._port):
            for number in self.ids:
                pings = (self._packets.ping(self._port, number)[1] for _ in range(TRIES))
                silent += [] if any(done == 0 for done in pings) else [str(number)]
        return ", ".join(silent) or "(all answer now)"

    def close(self) -> None:
        """Free the line."""
        self._port.closePort()


@contextmanager
def _lost(port: Any) -> Any:
    """Turn what a line that has been pulled out raises into `OSError`; free the library's lock."""
    try:
        yield
    except (termios.error, TypeError, AttributeError) as error:  # of pyserial, half closed
        raise OSError(f"{port.port_name} is gone: {error}") from error
    finally:
        port.is_using = False


def radians(ticks: float) -> float:
    """1/4096 turns -> radians."""
    return 2.0 * math.pi * ticks / TICKS


def _named(port: str) -> str:
    return pick(
        find_ports(), port, "serial line", _no_port(str(PORTS), "none"), "operator.port"
    ).path


def _no_port(path: str, got: str) -> SetupError:
    return SetupError(
        "the leader's serial line cannot be opened",
        expected=f"to read and write {path}",
        got=got,
        fix="plug the adapter in (ls /dev/serial/by-id); sudo usermod -aG dialout $USER, then log"
        " in again; in a container, pass the device through; operator.port=... names another line"
        " (of robot-rl leader: --port)",
    )


def _silence(line: ServoLine, baud: int, silent: str) -> SetupError:
    everything = silent == ", ".join(map(str, line.ids))
    return SetupError(
        f"{line.name}: no answer from servo {silent}",
        expected=f"servos {', '.join(map(str, line.ids))} at {baud} baud",
        got="silence" if everything else "answers from the others",
        fix="power the arm; another baud rate: operator.baud=1000000; another line: operator.port="
        if everything
        else "look at the cable before that servo; operator.ids names the servos from foot to tool",
    )


def _library(family: Family) -> Any:
    try:
        importlib.import_module(family.module)
    except ModuleNotFoundError as error:
        raise SetupError(
            f"reading {family.title} servos needs the package '{family.package}'",
            expected=f"import {family.module} works",
            got=str(error),
            fix="pip install 'robot-rl[leader]'",
        ) from error
    return sys.modules[family.module]
