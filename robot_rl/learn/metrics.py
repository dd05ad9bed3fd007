"""Where metrics are written: always one JSON line per event; TensorBoard as well, if asked for.

    {"time_s": 1764.2, "env_steps": 3120, "critic/loss": 0.0021, "critic/q_mean": 0.41, ...}

Keys are a stable API: `group/name`, units at the end of the name. The first line of a process has
`began_s`: a run that goes on was stopped until then.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import SetupError

log = logging.getLogger(__name__)


class MetricSink:
    """Appends metric lines to a file; safe to reopen after a kill (a torn last line is closed).

    Args:
        path: JSON lines file; its folder is made.
        tensorboard: folder for TensorBoard event files, None = none.

    Raises:
        SetupError: TensorBoard is asked for and not installed.
    """

    def __init__(self, path: Path, tensorboard: Path | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.exists() and path.stat().st_size > 0 and not _ends_with_newline(path)
        self._file = path.open("a", encoding="utf-8", buffering=1)  # whole lines survive kill -9
        if torn:
            self._file.write("\n")
        self._board: Any = _open_tensorboard(tensorboard) if tensorboard else None
        self._failed = False
        self._first: dict[str, object] = {"began_s": round(time.time(), 3)}

    def write(self, env_steps: int, values: Mapping[str, float], **text: str) -> None:
        """Append one line; NaN and infinity become null. A full disk is logged, never raised."""
        line: dict[str, object] = {"time_s": round(time.time(), 3), "env_steps": int(env_steps)}
        line |= {k: float(v) if math.isfinite(v) else None for k, v in values.items()} | text
        line |= self._first
        try:
            self._file.write(json.dumps(line) + "\n")
            self._failed, self._first = False, {}
        except OSError as error:
            if not self._failed:
                log.error("metrics are not written: %s", error)
            self._failed = True
        if self._board is not None:
            for key, value in values.items():
                self._board.add_scalar(key, value, env_steps)

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _open_tensorboard(folder: Path) -> object:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SetupError(
            "TensorBoard is not installed",
            expected="package tensorboard",
            got=str(error),
            fix="pip install tensorboard, or leave learner.tensorboard off",
        ) from error
    return SummaryWriter(str(folder))
