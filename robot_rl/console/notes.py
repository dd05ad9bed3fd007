"""Notes: what people write about an episode, beside the run, in words."""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Lock
from typing import Any

from robot_rl.errors import StoreError
from robot_rl.system.files import Tail
from robot_rl.types import EpisodeId

NOTES = "notes.jsonl"  # in the folder of the run
LONGEST = 500  # characters of a note


class Notes:
    """The notes of a run: one line each, appended, never changed. Safe to call from any thread."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / NOTES
        self._tail, self._turn = Tail(self._path), Lock()
        self._known: dict[EpisodeId, list[dict[str, Any]]] = {}

    def add(self, id_: EpisodeId, text: str, author: str) -> None:
        """Append a note.

        Raises:
            StoreError: it is empty or too long, or the disk is full.
        """
        words = " ".join(text.split())
        if not 0 < len(words) <= LONGEST:
            raise StoreError(
                "this is no note",
                expected=f"1 to {LONGEST} characters",
                got=f"{len(words)} characters",
                fix="say it in fewer words" if words else "write something",
            )
        row = {
            "run": id_.run,
            "actor": id_.actor,
            "episode": id_.episode,
            "author": author,
            "text": words,
            "stamp_ns": time.time_ns(),
        }
        line = json.dumps(row, ensure_ascii=False) + "\n"
        try:
            with self._turn, self._path.open("ab") as file:
                file.write(line.encode())
        except OSError as error:
            raise StoreError(
                "the note is not stored", expected="a disk that can be written", got=str(error)
            ) from None

    def read(self) -> dict[EpisodeId, list[dict[str, Any]]]:
        """All notes: episode -> {"author", "text", "stamp_ns"}, oldest first."""
        with self._turn:
            for row in self._tail.lines():
                try:
                    id_ = EpisodeId(str(row["run"]), str(row["actor"]), int(row["episode"]))
                    note = {"author": str(row["author"]), "text": str(row["text"])[:LONGEST]}
                    self._known.setdefault(id_, []).append(note | {"stamp_ns": row["stamp_ns"]})
                except (KeyError, TypeError, ValueError):
                    continue  # somebody has edited the file
            return {id_: list(said) for id_, said in self._known.items()}
