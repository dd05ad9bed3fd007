"""The board on paper, and pictures in which it is not to be read."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from robot_rl.calibrate.board import DOTS_PER_MM, Board, UnreadableError, draw
from robot_rl.errors import ConfigError
from tests.support.paper import seen


def test_every_corner_is_found_where_it_is() -> None:
    board = Board()
    corners = board.find(seen(board))
    assert corners.ids.tolist() == list(range(24))
    expected = 1e3 * 3.0 * board.corners_m[:, :2] + 60 - 0.5
    assert np.abs(corners.points_px - expected).max() < 0.1


@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_the_board_on_paper_has_its_true_size(tmp_path: Path, suffix: str) -> None:
    """Areas are drawn again from the file, in tenths of a millimetre, and read."""
    board, path = Board(columns=4, rows=5, square_m=0.025, marker_m=0.018), tmp_path / f"b{suffix}"
    draw(board, path)
    text = path.read_bytes().decode("latin-1")
    if suffix == ".pdf":
        assert "/MediaBox [0 0 595.276 841.890]" in text and "--board 4x5,0.025,0.018" in text
        rows = re.findall(r"^([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+) re$", text, re.MULTILINE)
        areas = [[float(v) * 25.4 / 72 for v in row] for row in rows]
        areas = [[x, 297.0 - y - h, w, h] for x, y, w, h in areas]
    else:
        assert 'width="210.0mm"' in text
        number = r'"([\d.]+)"'
        pattern = rf"<rect x={number} y={number} width={number} height={number}/>"
        areas = [[float(v) for v in row] for row in re.findall(pattern, text)]
    paper = np.full((2970, 2100, 3), 255, np.uint8)
    for x, y, w, h in areas:
        left, top = round(x * DOTS_PER_MM), round(y * DOTS_PER_MM)
        paper[top : top + round(h * DOTS_PER_MM), left : left + round(w * DOTS_PER_MM)] = 0
    corners = board.find(paper)
    assert len(corners.ids) == len(board.corners_m) == 12
    pitch = np.diff(corners.points_px[:3, 0])
    assert pitch == pytest.approx(25.0 * DOTS_PER_MM, abs=0.2)
    bar = [w for _, _, w, h in areas if h < 0.6 and w > 90.0]
    assert bar == pytest.approx([100.0], abs=0.01)


@pytest.mark.parametrize(
    "words",
    ["5x7", "5x7,30,22", "5x7,0.03,0.03", "2x7,0.03,0.022", "axb,0.03,0.022", "5x7,0.03,0.005"],
)
def test_a_board_that_is_none_is_refused(words: str) -> None:
    with pytest.raises(ConfigError, match="this is no board") as error:
        Board.from_words(words)
    assert "printed board" in error.value.fix


def test_words_and_board_are_one() -> None:
    assert Board.from_words("6x9,0.02,0.015").words == "6x9,0.02,0.015"


@pytest.mark.parametrize(
    ("name", "paper", "board", "match"),
    [
        ("board.png", "A4", Board(), "not written into such a file"),
        ("board.pdf", "A5", Board(), "this paper is not known"),
        ("board.pdf", "A4", Board(square_m=0.06, marker_m=0.045), "does not fit on A4"),
    ],
)
def test_paper_that_cannot_be_is_refused(
    tmp_path: Path, name: str, paper: str, board: Board, match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        draw(board, tmp_path / name, paper)
    assert not list(tmp_path.iterdir())


def refused(picture: NDArray[np.uint8], board: Board | None = None) -> UnreadableError:
    with pytest.raises(UnreadableError, match="the board is not read") as error:
        (board or Board()).find(picture)
    return error.value


def test_why_a_board_is_not_read() -> None:
    board, picture = Board(), seen(Board())
    assert "nearly black" in refused(np.zeros_like(picture)).got
    nothing = refused(np.full_like(picture, 200))
    assert "not one of its markers" in nothing.got and "mirrored" in nothing.fix
    assert "not one" in refused(np.ascontiguousarray(picture[:, ::-1])).got
    assert "corners of it" in refused(picture[:230]).got
    blurred = np.asarray(cv2.GaussianBlur(picture, (0, 0), 14), np.uint8)
    assert "markers" in refused(blurred).got
    other = refused(seen(Board(columns=9, rows=6, square_m=0.03, marker_m=0.022)), board)
    assert "other size" in other.got or "markers" in other.got
