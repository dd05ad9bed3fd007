"""Log lines are written by a thread of their own.

A write to a file waits whenever the disk does, for seconds on a busy one, and whoever watches an
arm must not wait with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any


@contextmanager
def log_thread() -> Iterator[None]:
    """Hand what is logged in this block to a thread, which writes it with the root's handlers.

    At the end of the block all of it is written. After kill -9 the newest lines may be missing.
    """
    root, lines = logging.getLogger(), SimpleQueue[Any]()
    handlers = root.handlers[:]
    listener = QueueListener(lines, *handlers, respect_handler_level=True)
    listener.start()
    root.handlers[:] = [QueueHandler(lines)]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        listener.stop()
