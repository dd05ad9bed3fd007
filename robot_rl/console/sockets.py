"""The three sockets: control at 50 Hz, newest pictures, telemetry at 10 Hz. None of them queues."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from robot_rl.console.doors import accept, console_of
from robot_rl.console.feed import Picture
from robot_rl.errors import LinkError

PICTURE = struct.Struct("<IfHHB3x")  # number, age ms when sent, width, height, frozen
MAX_CONTROL = 2048  # characters of one control message
SOON_S = 1.0
router = APIRouter()


@router.websocket("/ws/control")
async def control(socket: WebSocket) -> None:
    """Pass the driver's keys and sticks on at once; answer whether this page is heard."""
    session = await accept(socket)
    if session is None:
        return
    console = console_of(socket)
    try:
        while True:
            text = await socket.receive_text()
            heard = console.access.hears(session)
            if heard and len(text) <= MAX_CONTROL:
                console.feed.send_control(text)
            await socket.send_text("1" if heard else "0")
    except WebSocketDisconnect:
        return


@router.websocket("/ws/video/{camera}")
async def video(socket: WebSocket, camera: str) -> None:
    """One picture per message of the page: a slow page gets fewer, never older ones."""
    if await accept(socket) is None:
        return
    feed, number = console_of(socket).feed, -1
    try:
        while True:
            await socket.receive_text()
            while (picture := await _soon(feed.picture(camera, number))) is None:
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
            holder = console.access.holder
            lease = {"holder": holder.name if holder else None, "mine": holder is session}
            await socket.send_json(values | {"lease": lease})
    except (WebSocketDisconnect, RuntimeError):  # RuntimeError: closed while sending
        return


async def _soon(coming: Coroutine[None, None, Picture]) -> Picture | None:
    """A picture that comes within `SOON_S`, or None."""
    try:
        return await asyncio.wait_for(coming, SOON_S)
    except TimeoutError:
        return None
