"""The audit log of a run: every command of a person is a line, whichever process has taken it."""

from __future__ import annotations

import logging
from pathlib import Path

AUDIT = "audit.log"  # in the run folder
audit = logging.getLogger("robot_rl.audit")


class OneLine(logging.Formatter):
    """One record, one line: what somebody else wrote can neither look like another nor hide one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; control characters, and those that turn text around, are written as escapes."""
        text = super().format(record)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class AuditLog(logging.FileHandler):
    """A file of audit lines. A full disk costs lines, never a command: people stop robots here."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)
        self.setFormatter(OneLine("%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line; an error of the disk goes to the process's own log."""
        try:
            super().emit(record)  # which handles a failed write, but not a failed opening
        except OSError:
            self.handleError(record)


def audit_into(run_dir: Path) -> None:
    """From now on the audit lines of this process are appended to the run's `audit.log`."""
    audit.addHandler(AuditLog(run_dir / AUDIT))
    audit.setLevel(logging.INFO)
