"""The audit log: one line for each record, whatever somebody else wrote into it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from robot_rl.system.audit import AuditLog


@pytest.mark.parametrize(
    "text",
    [
        "x\n2026-01-01 00:00:00,000 operator 1: acknowledge",
        "x\r\x1b[2K\x1b[1Aoperator 1: acknowledge",
        "x\u2028operator 1\x85y",
        "x\u202eegdelwonkca",
        "x\x00\x07\x9b\ud800",
    ],
)
def test_nobody_writes_a_line_of_their_own(tmp_path: Path, text: str) -> None:
    log = AuditLog(tmp_path / "audit.log")
    logger = logging.Logger("test")
    logger.addHandler(log)
    logger.warning("GET %s refused", text)
    logger.info("operator 1: stop")
    log.close()
    written = (tmp_path / "audit.log").read_text()
    assert len(written.splitlines()) == written.count("\n") == 2
    assert all(c.isprintable() or c == "\n" for c in written)
    assert written.endswith("operator 1: stop\n")


def test_words_of_all_languages_stay_as_they_are(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.handle(logging.makeLogRecord({"msg": "Größe 大, ok"}))
    log.close()
    assert "Größe 大, ok" in (tmp_path / "audit.log").read_text()
