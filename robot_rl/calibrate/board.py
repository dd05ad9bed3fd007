"""The ChArUco board: a chessboard whose white squares carry markers, so that each corner is known.

Frame of the board, as OpenCV defines it: origin at its upper left corner, x right, y down, z into
the paper (away from whoever looks at it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, RobotRLError

DICTIONARY = "DICT_5X5_250"
MARKERS = 250
MIN_CORNERS = 8  # fewer do not fix a pose well
DOTS_PER_MM = 10  # squares of whole tenths of a millimetre are drawn exactly
PAPERS_MM = {"A4": (210.0, 297.0), "Letter": (215.9, 279.4), "A3": (297.0, 420.0)}
MARGIN_MM = 8.0  # most printers leave 5 mm blank
FOOT_MM = 18.0  # room below the board for the scale bar and the words
BAR_MM = 100.0

F64 = NDArray[np.float64]
Rectangle = tuple[float, float, float, float]
"""x, y, width, height in millimetres, from the upper left corner."""


class UnreadableError(RobotRLError):
    """The board is not in a picture, or too little of it."""


@dataclass(frozen=True, slots=True)
class Corners:
    """Chessboard corners found in one picture.

    ids: int [N], numbered row by row; points_px: float64 [N, 2], pixel centres at whole numbers.
    """

    ids: NDArray[np.int64]
    points_px: F64


@dataclass(frozen=True, kw_only=True)
class Board:
    """What is printed. square_m, marker_m: sides of a chessboard square and of a marker."""

    columns: int = 5
    rows: int = 7
    square_m: float = 0.03
    marker_m: float = 0.022

    def __post_init__(self) -> None:
        """Refuse boards that cannot be read."""
        if not (3 <= self.columns <= 20 and 3 <= self.rows <= 20):
            raise ValueError(f"3 to 20 columns and rows, got {self.columns} x {self.rows}")
        if self.columns * self.rows // 2 > MARKERS:
            raise ValueError(f"there are {MARKERS} markers, too few for so many squares")
        if not 0.005 <= self.square_m <= 0.2:
            raise ValueError(f"squares of 0.005 to 0.2 m, got {self.square_m} (metres, not mm)")
        if not 0.5 * self.square_m <= self.marker_m <= 0.9 * self.square_m:
            raise ValueError(
                f"markers of 0.5 to 0.9 of a square ({self.square_m} m), got {self.marker_m} m"
            )

    @staticmethod
    def from_words(words: str) -> Board:
        """`5x7,0.03,0.022`: columns x rows, square and marker in metres.

        Raises:
            ConfigError: that is no board.
        """
        try:
            shape, square, marker = words.split(",")
            columns, rows = shape.lower().split("x")
            return Board(
                columns=int(columns), rows=int(rows), square_m=float(square), marker_m=float(marker)
            )
        except ValueError as error:
            raise ConfigError(
                "this is no board",
                expected="columns x rows, square, marker in metres: 5x7,0.03,0.022",
                got=f"{words} ({error})",
                fix="read it off the foot of the printed board",
            ) from error

    @property
    def words(self) -> str:
        """Inverse of `from_words`."""
        return f"{self.columns}x{self.rows},{self.square_m:g},{self.marker_m:g}"

    @property
    def size_m(self) -> tuple[float, float]:
        """Width and height."""
        return self.columns * self.square_m, self.rows * self.square_m

    @property
    def corners_m(self) -> F64:
        """Corners [N, 3] in the board's frame, by their number."""
        return np.asarray(self._made().getChessboardCorners(), np.float64)

    def _made(self) -> Any:
        import cv2

        words = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, DICTIONARY))
        size = (self.columns, self.rows)
        return cv2.aruco.CharucoBoard(size, self.square_m, self.marker_m, words)

    def picture(self, dots_per_mm: float = DOTS_PER_MM) -> NDArray[np.uint8]:
        """The board seen straight on, without a border; uint8 [H, W], 0 = black."""
        width, height = (round(1e3 * side * dots_per_mm) for side in self.size_m)
        return np.asarray(self._made().generateImage((width, height)), np.uint8)

    def find(self, rgb: NDArray[np.uint8]) -> Corners:
        """The board's corners in a picture.

        Args:
            rgb: uint8 [H, W, 3].

        Raises:
            UnreadableError: too little of the board is seen, or another one; it says what.
        """
        import cv2

        gray = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), np.uint8)
        detector = cv2.aruco.CharucoDetector(self._made())
        points, ids, _, markers = detector.detectBoard(gray)
        count = 0 if ids is None else len(ids)
        if count < MIN_CORNERS:
            raise self._unreadable(count, 0 if markers is None else len(markers), gray)
        order = np.argsort(ids.ravel())
        found = np.asarray(ids, np.int64).ravel()[order]
        return Corners(found, np.asarray(points, np.float64).reshape(-1, 2)[order])

    def _unreadable(self, corners: int, markers: int, gray: NDArray[np.uint8]) -> UnreadableError:
        if markers > 2 * MIN_CORNERS and corners == 0:
            got = f"{markers} markers in another arrangement: a board of other size"
            fix = "say what is printed on it, e.g. --board 5x7,0.03,0.022 (legacy patterns of "
            fix += "OpenCV before 4.6 are not read: print a new one, robot-rl calibrate board)"
        elif markers or corners:
            got = f"{markers} markers and {corners} corners of it"
            fix = "turn the board to the camera, come closer or further away, end reflections"
        elif float(gray.mean()) < 25.0:
            got, fix = "a picture that is nearly black", "switch the light on, expose for longer"
        else:
            got = f"not one of its markers ({DICTIONARY})"
            fix = "is the board in the picture, sharp, flat and not mirrored? --board must be as "
            fix += "printed: robot-rl calibrate board; robot-rl camera show shows the picture"
        return UnreadableError(
            "the board is not read",
            expected=f"at least {MIN_CORNERS} of {len(self.corners_m)} corners of a {self.words} "
            "ChArUco board",
            got=got,
            fix=fix,
        )


# --- on paper -------------------------------------------------------------------------------------


def draw(board: Board, path: Path, paper: str = "A4") -> None:
    """Write the board at true scale, with a bar of 100 mm to check it with a ruler.

    path: `.pdf` or `.svg`; both are lines and areas, not pixels.

    Raises:
        ConfigError: another kind of file, an unknown paper, or the board does not fit on it.
    """
    writers = {".pdf": _pdf, ".svg": _svg}
    if path.suffix not in writers:
        raise ConfigError(
            "a board is not written into such a file",
            expected="a name that ends in .pdf or .svg, which keep the scale",
            got=path.name,
            fix=f"--out {path.with_suffix('.pdf')}",
        )
    if paper not in PAPERS_MM:
        raise ConfigError(
            "this paper is not known",
            expected=", ".join(PAPERS_MM),
            got=paper,
            fix="--paper A4",
        )
    across, down = PAPERS_MM[paper]
    width, height = (1e3 * side for side in board.size_m)
    if width > across - 2 * MARGIN_MM or height > down - 2 * MARGIN_MM - FOOT_MM:
        raise ConfigError(
            f"the board does not fit on {paper}",
            expected=f"{across - 2 * MARGIN_MM:g} x {down - 2 * MARGIN_MM - FOOT_MM:g} mm at most",
            got=f"{width:g} x {height:g} mm ({board.words})",
            fix="fewer or smaller squares (--board 5x7,0.03,0.022), or --paper A3",
        )
    left, top = (across - width) / 2, (down - FOOT_MM - height) / 2
    shapes = [(left + x, top + y, w, h) for x, y, w, h in _rectangles(board)]
    foot = top + height + 8.0
    bar = min(BAR_MM, across - 2 * MARGIN_MM)
    shapes += [(left, foot, bar, 0.5), (left, foot - 2, 0.3, 4.5), (left + bar - 0.3, foot - 2,
                0.3, 4.5)]  # fmt: skip
    words = [
        (left, foot + 7.0, f"this bar is {bar:g} mm long: measure it; print at 100 %, not 'fit'"),
        (left, foot + 11.5, f"--board {board.words}: squares {1e3 * board.square_m:g} mm, markers "
         f"{1e3 * board.marker_m:g} mm, {DICTIONARY}; glue it onto something flat and stiff"),
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(writers[path.suffix]((across, down), shapes, words))


def _rectangles(board: Board) -> Iterator[Rectangle]:
    """The black parts: runs of black dots in a row, rows that are alike put together."""
    dark = board.picture() < 128
    start = 0
    for row in range(1, len(dark) + 1):
        if row < len(dark) and np.array_equal(dark[row], dark[start]):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([0], dark[start].view(np.int8), [0]))))
        for begin, end in edges.reshape(-1, 2).tolist():
            x, y, width, height = begin, start, end - begin, row - start
            yield x / DOTS_PER_MM, y / DOTS_PER_MM, width / DOTS_PER_MM, height / DOTS_PER_MM
        start = row


Words = list[tuple[float, float, str]]


def _svg(paper: tuple[float, float], shapes: list[Rectangle], words: Words) -> bytes:
    across, down = paper
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}mm" height="{down}mm" '
        f'viewBox="0 0 {across} {down}" shape-rendering="crispEdges">',
        f'<rect width="{across}" height="{down}" fill="white"/>',
    ]
    lines += [f'<rect x="{x:.3f}" y="{y:.3f}" width="{w:.3f}" height="{h:.3f}"/>'
              for x, y, w, h in shapes]  # fmt: skip
    lines += [f'<text x="{x:.2f}" y="{y:.2f}" font-size="3" font-family="sans-serif">{text}</text>'
              for x, y, text in words]  # fmt: skip
    return "\n".join([*lines, "</svg>\n"]).encode()


def _pdf(paper: tuple[float, float], shapes: list[Rectangle], words: Words) -> bytes:
    """One page of PDF 1.4 (ISO 32000): areas, and words in the reader's own Helvetica."""
    across, down = paper
    point = 72.0 / 25.4
    drawn = [f"{x * point:.3f} {(down - y - h) * point:.3f} {w * point:.3f} {h * point:.3f} re"
             for x, y, w, h in shapes]  # fmt: skip
    said = [f"BT /F 8 Tf {x * point:.2f} {(down - y) * point:.2f} Td ({_escaped(text)}) Tj ET"
            for x, y, text in words]  # fmt: skip
    stream = "\n".join([*drawn, "f", *said]).encode("latin-1")
    size = f"{across * point:.3f} {down * point:.3f}"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /ViewerPreferences << /PrintScaling /None >> >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {size}] /Contents 4 0 R /Resources "
        "<< /Font << /F 5 0 R >> >> >>".encode(),
        f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    tail = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
    tail += f"<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + tail.encode()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
