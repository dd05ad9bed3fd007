"""Servos that are not there: the bus of a leader arm on a pseudo terminal.

Each double speaks its protocol from the maker's manual, so that the real library talks to it:
Dynamixel protocol 2.0 (emanual.robotis.com/docs/en/dxl/protocol2) with its CRC-16, and Feetech's
(as Dynamixel 1.0, inverted sum). Both answer ping, read and sync read.
"""

from __future__ import annotations

import os
import pty
import select
import threading
import tty
from collections.abc import Iterable
from contextlib import suppress

PING, READ, SYNC_READ, STATUS = 0x01, 0x02, 0x82, 0x55
BROADCAST = 0xFE


class Bus:
    """A line with servos. Faults are attributes; change them while it runs.

    Attributes:
        ticks: present position by servo id.
        missing: servos that do not answer; silent: none does (another baud rate); corrupt: so many
            of the next answers have a wrong byte; asked: instructions seen.
    """

    address, length = 0, 0

    def __init__(self, ids: Iterable[int]) -> None:
        self.ticks = dict.fromkeys(ids, 2048)
        self.missing: set[int] = set()
        self.silent, self.corrupt, self.asked = False, 0, list[int]()
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        self.path = os.ttyname(self._slave)
        self._going = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def unplug(self) -> None:
        """The adapter is pulled out; twice does no harm."""
        if self._going:
            self._going = False
            self._thread.join()
            os.close(self._slave)
            os.close(self._master)

    def _serve(self) -> None:
        with suppress(PermissionError):  # servos answer at once, however busy this machine is
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
        waiting = b""
        while self._going:
            if not select.select([self._master], [], [], 0.02)[0]:
                continue
            try:
                waiting += os.read(self._master, 512)
            except OSError:
                continue
            while (taken := self._take(waiting)) is not None:
                waiting, instruction, who, what = taken
                self.asked.append(instruction)
                if not self.silent:
                    os.write(self._master, self._answers(instruction, who, what))

    def _answers(self, instruction: int, who: int, what: bytes) -> bytes:
        if instruction == SYNC_READ:
            numbers, size = self._listed(what)
            data = [(n, self.ticks.get(n, 0)) for n in numbers]
            said = [(n, (v % (1 << 8 * size)).to_bytes(size, "little")) for n, v in data]
        else:
            said = [(who, self._model() if instruction == PING else bytes(what[-1]))]
        out = b""
        for number, body in said:
            if number not in self.ticks or number in self.missing:
                continue
            packet = bytearray(self._status(number, body))
            if self.corrupt > 0:
                self.corrupt -= 1
                packet[-3] ^= 0x10
            out += bytes(packet)
        return out

    def _take(self, data: bytes) -> tuple[bytes, int, int, bytes] | None:
        """(rest, instruction, id, parameters) of the first whole instruction, or None."""
        raise NotImplementedError

    def _listed(self, what: bytes) -> tuple[bytes, int]:
        """(ids, length) of a sync read."""
        raise NotImplementedError

    def _status(self, number: int, body: bytes) -> bytes:
        raise NotImplementedError

    def _model(self) -> bytes:
        """Parameters of the answer to a ping."""
        return b""


def crc16(data: bytes) -> int:
    """CRC-16/BUYPASS: polynomial 0x8005, start 0, not reflected."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x8005 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


class DynamixelBus(Bus):
    """Protocol 2.0: FF FF FD 00 id length(2) instruction parameters crc(2)."""

    head = b"\xff\xff\xfd\x00"

    def _take(self, data: bytes) -> tuple[bytes, int, int, bytes] | None:
        at = data.find(self.head)
        if at < 0 or len(data) < at + 7:
            return None
        end = at + 7 + int.from_bytes(data[at + 5 : at + 7], "little")
        if len(data) < end:
            return None
        packet = data[at:end]
        assert crc16(packet[:-2]) == int.from_bytes(packet[-2:], "little")
        return data[end:], packet[7], packet[4], packet[8:-2]

    def _listed(self, what: bytes) -> tuple[bytes, int]:
        assert int.from_bytes(what[:2], "little") == 132
        return what[4:], int.from_bytes(what[2:4], "little")

    def _status(self, number: int, body: bytes) -> bytes:
        inner = (bytes((STATUS, 0)) + body).replace(b"\xff\xff\xfd", b"\xff\xff\xfd\xfd")
        packet = self.head + bytes((number,)) + (len(inner) + 2).to_bytes(2, "little") + inner
        return packet + crc16(packet).to_bytes(2, "little")

    def _model(self) -> bytes:
        return (1190).to_bytes(2, "little") + b"\x2f"  # XL330-M077


class FeetechBus(Bus):
    """FF FF id length instruction parameters ~sum."""

    def _take(self, data: bytes) -> tuple[bytes, int, int, bytes] | None:
        at = data.find(b"\xff\xff")
        if at < 0 or len(data) < at + 4:
            return None
        end = at + 4 + data[at + 3]
        if len(data) < end:
            return None
        packet = data[at:end]
        assert ~sum(packet[2:-1]) & 0xFF == packet[-1]
        return data[end:], packet[4], packet[2], packet[5:-1]

    def _listed(self, what: bytes) -> tuple[bytes, int]:
        assert what[0] == 56
        return what[2:], what[1]

    def _status(self, number: int, body: bytes) -> bytes:
        packet = bytes((number, len(body) + 2, 0)) + body
        return b"\xff\xff" + packet + bytes((~sum(packet) & 0xFF,))
