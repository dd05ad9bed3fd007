"""The three sockets: control at 50 Hz, newest pictures, telemetry at 10 Hz. None of them queues."""

from __future__ import annotations

import asyncio
import math
import struct
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from robot_rl.console.access import Access
from robot_rl.console.doors import accept, console_of
from robot_rl.console.feed import Picture
from robot_rl.console.remembered import PageSession
from robot_rl.console.telemetry import beside_the_seat
from robot_rl.errors import LinkError
from robot_rl.system import plain_json

PICTURE = struct.Struct("<IfHHB3x")  # number, age ms when sent, width, height, frozen
MAX_CONTROL = 2048  # characters of one control message
SOON_S = 1.0
LONGEST_S = 1e8  # three years: no page is open for so long
DRIFT = 1e-4  # a quartz is better
router = APIRouter()


class PageClock:
    """When a page said something, on this machine's clock.

    A page says by its own clock when (`at`, in ms). The message that was under way for the shortest
    time tells how the two clocks differ; what comes later than that was held up. Without `at`, a
    message counts as said when it came.
    """

    def __init__(self) -> None:
        self._ahead_s, self._since_s = math.inf, 0.0

    def stamp_s(self, said: Mapping[str, Any], now_s: float) -> float:
        """Monotonic seconds, at most `now_s`."""
        try:
            at_s = float(said["at"]) / 1e3
        except (ValueError, TypeError, KeyError, OverflowError):
            return now_s
        if not 0.0 <= at_s < LONGEST_S:
            return now_s
        drift_s = DRIFT * (now_s - self._since_s)  # of two clocks that differ a little in rate
        self._ahead_s, self._since_s = min(self._ahead_s + drift_s, now_s - at_s), now_s
        return min(now_s, max(0.0, at_s + self._ahead_s))


@router.websocket("/ws/control")
async def control(socket: WebSocket) -> None:
    """Pass the driver's keys and sticks on at once; answer whether this page is heard."""
    session = await accept(socket)
    if session is None:
        return
    console, clock = console_of(socket), PageClock()
    try:
        while True:
            text = await socket.receive_text()
            said = said_by(text)
            heard = console.access.hears_window(session, socket, bool(said.get("held")))
            if heard and len(text) <= MAX_CONTROL:
                console.feed.send_control(text, clock.stamp_s(said, time.monotonic()))
            await socket.send_text("1" if heard else "0")
    except WebSocketDisconnect:
        return
    finally:
        console.access.left(socket)


@router.websocket("/ws/video/{camera}")
async def video(socket: WebSocket, camera: str) -> None:
    """One picture per message of the page: a slow page gets fewer, never older ones."""
    if await accept(socket) is None:
        return
    feed, number = console_of(socket).feed, -1
    try:
        while True:
            slow = await socket.receive_text() == "slow"
            while (picture := await _soon(feed.picture(camera, number, slow=slow))) is None:
                await socket.send_bytes(b"")  # nothing new; notices a page that has gone
            number = picture.number
            size = picture.width, picture.height
            head = PICTURE.pack(number, picture.age_ms(), *size, picture.frozen)
            await socket.send_bytes(head + picture.jpeg)
    except LinkError as error:
        await socket.close(1008, error.summary[:100])
    except WebSocketDisconnect:
        return


@router.websocket("/ws/telemetry")
async def telemetry(socket: WebSocket) -> None:
    """Everything on the page that is not a picture; the newest values, each sent once."""
    session = await accept(socket)
    if session is None:
        return
    console, count = console_of(socket), 0  # number 0 is empty
    try:
        while True:
            count, values = await console.feed.newest(count)
            lease = lease_of(console.access, session)
            taken = any(lease[who] for who in ("holder", "elsewhere", "mine"))
            reason = beside_the_seat(values["reason"], taken=taken)
            await socket.send_json(values | {"lease": lease, "reason": reason})
    except (WebSocketDisconnect, RuntimeError):  # RuntimeError: closed while sending
        return


def lease_of(access: Access, session: PageSession) -> dict[str, Any]:
    """What a page says of the seat.

    holder: who has it; None = nobody, or not known. elsewhere: somebody at another console has it.
    """
    here = access.present()
    other = access.elsewhere() if here is None else None
    mine = other is None and access.holder is session
    who = here or other
    return {
        "holder": (who.name or None) if who else None,
        "elsewhere": other is not None,
        "mine": mine,
        "asked_by": access.asked_by() if mine else "",
    }


def said_by(text: str) -> Mapping[str, Any]:
    """A message of a page; empty for what is none, or too long."""
    try:
        said = plain_json.loads(text) if len(text) <= MAX_CONTROL else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


async def _soon(coming: Coroutine[None, None, Picture]) -> Picture | None:
    """A picture that comes within `SOON_S`, or None."""
    try:
        return await asyncio.wait_for(coming, SOON_S)
    except TimeoutError:
        return None
