"""Pictures of the films of evaluations, so that several runs can be looked at side by side.

The page's policy lets no video play, and pictures can be kept at the same place of each episode.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from robot_rl.data.video import encode_still, pictures_of

FILM = "eval.mp4"
MOST = 150  # pictures of a film
SIZE = (240, 320)  # height, width
KEPT = 6  # films in memory, about 3 MB each


class Films:
    """The newest films that were asked for, as JPEG pictures."""

    def __init__(self) -> None:
        self._films: OrderedDict[tuple[Path, int], list[bytes]] = OrderedDict()
        self._lock = threading.Lock()  # one film is read at a time

    def pictures(self, run: Path) -> list[bytes]:
        """The pictures of a run's film, in order; none when it has no film.

        Raises:
            StoreError: the file is no video.
        """
        path = run / FILM
        with self._lock:
            if not path.is_file():
                return []
            key = (path, path.stat().st_mtime_ns)
            if key not in self._films:
                pictures = pictures_of(path, MOST, SIZE)
                self._films[key] = [encode_still(picture, "jpeg") for picture in pictures]
                while len(self._films) > KEPT:
                    self._films.popitem(last=False)
            self._films.move_to_end(key)
            return self._films[key]
