"""The page of `robot-rl camera show | roi`: cameras whole, and as the network sees them.

    GET  /enter  /             as in `app.py`, behind the same doors
    GET  /api/cameras          what the page must know once
    WS   /ws/camera/{name}     one answer per question of the page
    POST /api/crop             keep a crop that was drawn

It stands beside no run: it moves nothing and stores nothing but the crop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import uvicorn
from fastapi import APIRouter, Body, Depends, FastAPI, WebSocket, WebSocketDisconnect
from fastapi.requests import HTTPConnection

from robot_rl.console.access import Access, Seat
from robot_rl.console.app import guarded
from robot_rl.console.doors import Doors, Operator, Watcher, accept, cookie_name
from robot_rl.console.remembered import Role
from robot_rl.console.serve import hosts_of, server_for
from robot_rl.errors import RobotRLError
from robot_rl.system import plain_json
from robot_rl.system.audit import audit

log = logging.getLogger(__name__)

HEAD = struct.Struct("<III")  # bytes of what follows: JSON, whole picture, seen picture
SOON_S = 0.25  # an answer comes at least so often, so that the age on the page goes on
POLL_S = 0.01
LEAST_S = 1 / 20  # between two answers: a person looks, and the cores may be few
router = APIRouter()


class Eyes(Protocol):
    """What the page asks; `robot_rl.run.cameras.Eyes`."""

    def about(self) -> list[dict[str, Any]]:
        """What is known of each camera before there is a picture."""
        ...

    def number(self, name: str) -> int:
        """Number of a camera's newest picture. Raises `RobotRLError` for one that is not there."""
        ...

    def look(self, name: str, said: Mapping[str, Any]) -> tuple[dict[str, Any], bytes, bytes]:
        """(what is known, whole picture, seen picture). Raises like `number`."""
        ...


Keep = Callable[[str, Any], dict[str, Any]]
"""Keeps a crop of a camera; returns what to say: said, words, path, warning."""


@dataclass(frozen=True, kw_only=True)
class CameraDoors(Doors):
    """What the routes of this page share. drawn: the camera whose crop is drawn; "" = none."""

    eyes: Eyes
    keep: Keep
    drawn: str
    title: str


def _doors_of(connection: HTTPConnection) -> CameraDoors:
    return connection.app.state.doors


TheCameras = Annotated[CameraDoors, Depends(_doors_of)]


@router.get("/api/cameras")
def cameras(doors: TheCameras, _: Watcher) -> dict[str, Any]:
    """What the page must know once."""
    return {"title": doors.title, "drawn": doors.drawn, "cameras": doors.eyes.about()}


@router.post("/api/crop")
def crop(
    doors: TheCameras, session: Operator, said: Annotated[dict[str, Any], Body()]
) -> dict[str, Any]:
    """Keep {"crop": [left, top, width, height] or null} of the camera that is drawn."""
    answer = doors.keep(doors.drawn, said.get("crop"))
    audit.info("%s: crop of %s: %s", session.name, doors.drawn, answer["words"])
    return answer


@router.websocket("/ws/camera/{name}")
async def camera(socket: WebSocket, name: str) -> None:
    """Answer each question {"after", "crop", "same"} with the newest picture, or soon without."""
    if await accept(socket) is None:
        return
    eyes = _doors_of(socket).eyes
    try:
        while True:
            said = plain_json.loads(await socket.receive_text())
            began_s = time.monotonic()
            give_up_s = began_s + SOON_S
            while (
                said.get("same")
                and eyes.number(name) == said.get("after")
                and time.monotonic() < give_up_s
            ):
                await asyncio.sleep(POLL_S)
            head, whole, seen = await asyncio.to_thread(eyes.look, name, said)
            words = json.dumps(head).encode()
            lengths = HEAD.pack(len(words), len(whole), len(seen))
            await socket.send_bytes(lengths + words + whole + seen)
            await asyncio.sleep(max(0.0, began_s + LEAST_S - time.monotonic()))
    except RobotRLError as error:
        await socket.close(1008, error.summary[:100])
    except (ValueError, AttributeError):  # no JSON, or no map
        await socket.close(1007, "a question is a map in JSON")
    except (WebSocketDisconnect, RuntimeError):  # RuntimeError: closed while sending
        return


def make_camera_app(doors: CameraDoors) -> FastAPI:
    """The application of the page."""
    app = guarded(doors, "robot-rl cameras", "cameras.html")
    app.include_router(router)
    return app


def camera_server(
    eyes: Eyes, keep: Keep, host: str, port: int, *, title: str, drawn: str = ""
) -> tuple[uvicorn.Server, Access]:
    """A server that is not running yet, and its `Access`.

    Args:
        title: what the page is of, e.g. the name of the experiment.
        drawn: the camera whose crop is drawn; "" = the page only shows.
    """
    access = Access(Seat(Path(os.devnull)))  # nobody drives at this page, so nobody takes the seat
    doors = CameraDoors(
        access=access,
        hosts=hosts_of(host, port),
        cookie=cookie_name("cameras", port),
        eyes=eyes,
        keep=keep,
        drawn=drawn,
        title=title,
    )
    return server_for(make_camera_app(doors), host, port), access


def serve_cameras(
    eyes: Eyes,
    keep: Keep,
    host: str,
    port: int,
    *,
    title: str,
    drawn: str,
    started: Callable[[Callable[[str], str]], None],
) -> None:
    """Serve the page until SIGTERM or SIGINT. started: gets a function that makes links (by role).

    Other arguments: see `camera_server`.
    """
    server, access = camera_server(eyes, keep, host, port, title=title, drawn=drawn)
    started(lambda role: access.invite(Role(role)))
    server.run()
