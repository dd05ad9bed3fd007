"""The line between the console and the robot side on one machine: questions, answers, pictures.

Unix sockets in a folder that only this user can enter: no port, no key, nothing for the network.
The robot side serves (`PanelServer`, in the view node); the console asks and never waits for long.

    question   msgpack map {"want": word, ...}
    answer     msgpack map, and one raw buffer (a picture as JPEG; may be empty)

Pictures are compressed on the robot side: raw, three cameras of 640x480 at 30 Hz would be 83 MB/s
to copy in and out of the kernel, beside the control messages of whoever drives.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq
import zmq.asyncio
from numpy.typing import NDArray

from robot_rl.errors import LinkError
from robot_rl.system.bounded_msgpack import unpacked

MAX_QUESTION = 4096  # bytes
MAX_ANSWER = 16 << 20  # one 1080p picture, with room
JPEG_QUALITY = 80
ANSWER_S = 1.0  # a question that waits longer is given up
STAMP = struct.Struct("<d")  # before a message of the control line: monotonic seconds
Answer = tuple[Mapping[str, Any], bytes | memoryview]
Handler = Callable[[Mapping[str, Any]], Answer]


def socket_address(run_dir: Path, name: str) -> str:
    """`ipc://` address of a run's socket `name`; its folder is made, for this user alone.

    Raises:
        LinkError: the folder belongs to somebody else, or others may enter it.
    """
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"robot-rl-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    private = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()
    if not private or info.st_mode & 0o077:
        raise LinkError(
            f"{folder} is not private",
            expected="a folder of this user that nobody else may enter (mode 700)",
            got=f"owner {info.st_uid}, mode {stat.S_IMODE(info.st_mode):o}",
            fix=f"remove it, or set XDG_RUNTIME_DIR; then: chmod 700 {folder}",
        )
    run = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:16]
    return f"ipc://{folder}/{run}-{name}"


def seat_file(run_dir: Path) -> Path:
    """The file that a console locks while somebody at it has the seat; a run has one seat."""
    return Path(socket_address(run_dir, "seat.lock").removeprefix("ipc://"))


class ControlSender:
    """Passes on what a person holds; nothing queues, since old input is worth nothing."""

    def __init__(self, run_dir: Path) -> None:
        self._socket = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 4)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.connect(socket_address(run_dir, "control"))

    def send(self, text: str, stamp_s: float | None = None) -> None:
        """Send what is held (`operate.remote.parse`); dropped when the robot side is away.

        stamp_s: monotonic time at which it was so; now, if it is left out. After a stall the oldest
        messages arrive first: by their stamps they are known for what they are.
        """
        said_s = time.monotonic() if stamp_s is None else stamp_s
        with suppress(zmq.Again):
            self._socket.send_multipart([STAMP.pack(said_s), text.encode()], zmq.NOBLOCK)

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()


def picture_answer(rgb: NDArray[np.uint8], number: int, after: object, age_s: float) -> Answer:
    """A picture [H, W, 3] RGB as the console takes it; none when it has the newest, `after`.

    `checksum` is of the raw pixels.
    """
    if number == after:
        return {"number": number}, b""
    import cv2  # the rest of the link does not need it

    bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    assert done
    height, width, _ = rgb.shape
    head = {"number": number, "age_s": age_s, "height": height, "width": width}
    return head | {"checksum": zlib.crc32(bgr.data)}, data.data.cast("B")


def link_file(run_dir: Path) -> Path:
    """Where a supervised console leaves the link that opens it; in the same private folder."""
    return Path(socket_address(run_dir, "link").removeprefix("ipc://")).with_suffix(".txt")


def decode(data: bytes, limit: int) -> dict[str, Any]:
    """A msgpack map with string keys.

    Raises:
        LinkError: the message is too large, or anything else.
    """
    wrong = f"{len(data)} bytes"
    if len(data) <= limit:
        try:
            value = unpacked(data, max_items=4096, strict_map_key=True)
        except ValueError as error:
            wrong = str(error)
        else:
            if isinstance(value, dict) and all(isinstance(k, str) for k in value):
                return value
            wrong = type(value).__name__
    raise LinkError(
        "malformed message on the console's line",
        expected=f"a msgpack map of at most {limit} bytes",
        got=wrong,
        fix="run the same robot-rl version on both sides",
    )


class PanelServer:
    """Answers questions; belongs to one thread, which calls `serve` now and then."""

    def __init__(self, address: str) -> None:
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_QUESTION)
        self._socket.setsockopt(zmq.SNDHWM, 8)
        self._socket.bind(address)
        self.refused = 0

    def serve(self, handler: Handler, timeout_s: float) -> int:
        """Answer what waits, at most `timeout_s` for the first; returns how many there were.

        A `LinkError` of the handler travels back as {"error": text}.
        """
        count, wait_ms = 0, round(timeout_s * 1e3)
        while self._socket.poll(wait_ms):
            who, number, data = self._receive()
            if who is not None:
                self._answer(who, number, data, handler)
            count, wait_ms = count + 1, 0
        return count

    def _receive(self) -> tuple[bytes | None, bytes, bytes]:
        parts = self._socket.recv_multipart()
        if len(parts) != 3:
            self.refused += 1
            return None, b"", b""
        return parts[0], parts[1], parts[2]

    def _answer(self, who: bytes, number: bytes, data: bytes, handler: Handler) -> None:
        try:
            head, picture = handler(decode(data, MAX_QUESTION))
        except LinkError as error:
            self.refused += 1
            head, picture = {"error": str(error)}, b""
        packed = msgpack.packb(dict(head))
        self._socket.send_multipart([who, number, packed, picture], copy=len(picture) < 65536)

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()


class Panel:
    """Asks the robot side; many questions may be under way at once."""

    def __init__(self, address: str) -> None:
        self._socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_ANSWER)
        self._socket.setsockopt(zmq.SNDHWM, 64)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing queues for a robot side that is away
        self._socket.connect(address)
        self._waiting: dict[bytes, asyncio.Future[Answer]] = {}
        self._count = 0
        self._reader: asyncio.Task[None] | None = None

    async def ask(self, want: str, timeout_s: float = ANSWER_S, **details: Any) -> Answer:
        """Ask the robot side; return (answer, picture).

        Raises:
            LinkError: nobody answers in time, or the answer is an error.
        """
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        self._count += 1
        number = self._count.to_bytes(8, "little")
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                question = msgpack.packb({"want": want, **details})
                await self._socket.send_multipart([number, question])
                head, picture = await future
        except TimeoutError as error:
            raise LinkError(
                "the robot side does not answer",
                expected=f"an answer to '{want}' within {timeout_s:g} s",
                got="nothing",
                fix="start the run (robot-rl train ... operator=console), or wait until it is up",
            ) from error
        finally:
            self._waiting.pop(number, None)
        if "error" in head:
            raise LinkError(str(head["error"]).partition("\n")[0], got=str(head["error"]))
        return head, picture

    async def _read(self) -> None:
        while True:
            parts = await self._socket.recv_multipart(copy=False)
            if len(parts) != 3:
                continue
            future = self._waiting.get(parts[0].bytes)
            if future is None or future.done():
                continue
            try:
                future.set_result((decode(parts[1].bytes, MAX_QUESTION * 16), parts[2].buffer))
            except LinkError as error:
                future.set_exception(error)

    async def close(self) -> None:
        """Free the socket."""
        if self._reader is not None:
            self._reader.cancel()
        self._socket.close()
