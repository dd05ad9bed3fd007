"""A process that attacks a page: `python -m tests.support.flood PORT HALF_OPEN BODY_MB SECONDS`.

It opens requests that it never finishes and opens each again that is closed, keeps some answered
connections idle, and uploads large bodies, declared and chunked. It has no session.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from contextlib import suppress

HALF = b"POST /api/label HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Slow: "
WHOLE = b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
LABEL = b"POST /api/label HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://127.0.0.1:%d\r\n"
LABEL += b"Content-Type: application/json\r\n"
IDLE = 260
PART = b"[" * 65536


def opened(port: int, request: bytes) -> socket.socket | None:
    """A connection with this request on its way, or None."""
    line = socket.socket()
    line.settimeout(1.0)
    try:
        line.connect(("127.0.0.1", port))
        line.sendall(request)
    except OSError:
        line.close()
        return None
    line.setblocking(False)
    return line


def hold(port: int, count: int, until_s: float) -> None:
    """Keep `count` requests half open and `IDLE` answered connections open."""
    waiting = selectors.DefaultSelector()
    held = 0
    while time.monotonic() < until_s:
        while held < count + IDLE and time.monotonic() < until_s:
            request = (WHOLE if held % 6 == 0 else HALF) % port
            line = opened(port, request)
            if line is None:
                break
            waiting.register(line, selectors.EVENT_READ)
            held += 1
        for key, _ in waiting.select(0.05):
            data = b""
            with suppress(OSError):
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
            if not data:
                waiting.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                held -= 1


def upload(port: int, megabytes: int, chunked: bool, until_s: float) -> None:
    """Send large bodies, one after the other, whatever is answered."""
    size = megabytes << 20
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
    head = LABEL % (port, port) + length + b"\r\n\r\n"
    part = b"%x\r\n%b\r\n" % (len(PART), PART) if chunked else PART
    while time.monotonic() < until_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as line:
            line.sendall(head)
            for _ in range(size // len(PART)):
                line.sendall(part)
                if time.monotonic() > until_s:
                    break


def main() -> None:
    """Attack until the time is over."""
    port, half_open, megabytes = (int(word) for word in sys.argv[1:4])
    until_s = time.monotonic() + float(sys.argv[4])
    work = [threading.Thread(target=hold, args=(port, half_open, until_s))]
    work += [
        threading.Thread(target=upload, args=(port, megabytes, chunked, until_s))
        for chunked in (False, True)
    ]
    for thread in work:
        thread.start()
    sys.stdout.write("attacks\n")
    sys.stdout.flush()
    for thread in work:
        thread.join()


if __name__ == "__main__":
    main()
