"""Whoever logs does not wait for the disk."""

from __future__ import annotations

import logging
import threading

from robot_rl.system.log_thread import log_thread


class Stalled(logging.Handler):
    """Writes once the disk goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Wait for the disk."""
        assert self.goes_on.wait(60.0)
        self.written.append(record.getMessage())


def test_a_disk_that_stalls_holds_up_nobody_and_every_line_is_written_at_last() -> None:
    root, disk = logging.getLogger(), Stalled()
    root.addHandler(disk)
    before, level = root.handlers[:], root.level
    root.setLevel(logging.INFO)
    try:
        with log_thread():
            for number in range(100):
                logging.getLogger("robot_rl.test").info("line %d", number)
            assert disk.written == []  # all was said, and nothing is on the disk
            disk.goes_on.set()
        assert disk.written == [f"line {number}" for number in range(100)]
        assert root.handlers == before
    finally:
        root.setLevel(level)
        root.removeHandler(disk)
