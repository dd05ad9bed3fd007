"""Files that cannot be written say so."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from robot_rl.errors import ConfigError
from robot_rl.system import files

PICTURE = np.zeros((4, 6, 3), np.uint8)


def test_a_picture_is_written_or_the_reason_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    files.write_picture(path, PICTURE[..., ::-1])
    written = cv2.imread(str(path))
    assert written is not None and written.shape == PICTURE.shape
    with pytest.raises(FileNotFoundError):
        files.write_picture(tmp_path / "nowhere" / "a.png", PICTURE)
    for name in ("a", "a.pgn"):
        with pytest.raises(ConfigError, match="ends in"):
            files.write_picture(tmp_path / name, PICTURE)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_a_folder_in_which_nothing_can_be_kept_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.need_writable(tmp_path)
    monkeypatch.setattr(files.os, "access", lambda *_: False)  # as root everything is permitted
    with pytest.raises(ConfigError, match="no permission to write"):
        files.need_writable(tmp_path)
