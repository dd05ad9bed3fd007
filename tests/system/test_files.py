"""Files are whole and on the disk, and those that cannot be written say so."""

from __future__ import annotations

import os
import stat
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


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        did.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    def renamed(self: Path, target: Path) -> Path:
        did.append("name")
        return rename(self, target)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    path = tmp_path / "a.json"
    files.replace_json(path, {"a": 1})
    assert did == ["file", "name", "folder"] and path.read_text() == '{\n "a": 1\n}\n'
    files.replace_file(path, b"\x00")
    assert did == ["file", "name", "folder"] * 2 and path.read_bytes() == b"\x00"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_persons_file_keeps_its_mode_and_what_leads_to_it(tmp_path: Path) -> None:
    path, link = tmp_path / "own.yaml", tmp_path / "link.yaml"
    path.write_text("a: 1\n")
    link.symlink_to(path.name)
    before = os.umask(0o077)
    try:
        for mode in (0o664, 0o600):
            path.chmod(mode)
            files.rewrite_text(link, f"b: {mode}\n")
            assert path.read_text() == f"b: {mode}\n" and link.is_symlink()
            assert stat.S_IMODE(path.stat().st_mode) == mode
        files.replace_file(path, "c\n", 0o644)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        files.replace_file(path, "d\n")  # as the user has it
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_what_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError):
        files.replace_file(path, "text")
    assert list(tmp_path.iterdir()) == [path]
