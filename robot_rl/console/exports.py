"""One episode as a file for another viewer, made when somebody asks; the run stays as it is."""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import IO

from robot_rl.data.episodes import Episode, read_whole, spec_of
from robot_rl.errors import SetupError, StoreError, did_you_mean
from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId

CHUNK_BYTES = 1 << 20
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True, slots=True)
class Viewer:
    """A kind of file. module, encode: which exporter makes it; extras: what that needs."""

    module: str
    encode: str
    extras: str


VIEWERS = {
    "rrd": Viewer("robot_rl.data.rerun_write", "rerun_file", "data,rerun"),
    "mcap": Viewer("robot_rl.data.mcap_write", "mcap_file", "data"),
}
"""End of the file's name -> how it is made."""


def file_of(store: Store, id_: EpisodeId, kind: str) -> tuple[str, IO[bytes]]:
    """Make the file of an episode: its name, and itself, open at its beginning, gone when closed.

    Raises:
        StoreError: no such kind; the episode still runs or has no steps; another is being exported.
        SetupError: the extra that makes this kind is not installed.
    """
    encode = _encoder(kind)
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise StoreError(
            "another episode is being exported",
            expected="one export at a time",
            got="a second one",
            fix="wait until the first has been downloaded, then ask again",
        )
    try:
        data = encode(read_whole(store, id_), spec_of(store))
    finally:
        _ONE_AT_A_TIME.release()
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - `chunks` closes it
        file.write(data)
        file.seek(0)
    except OSError as error:
        raise StoreError(
            "there is no room for the exported file",
            expected=f"{len(data) / 1e6:.1f} MB in {tempfile.gettempdir()}",
            got=str(error),
            fix="free some space there, or name another folder in TMPDIR",
        ) from error
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{id_.run}-episode-{id_.episode:06d}")
    return f"{name[-120:].lstrip('.-')}.{kind}", file


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """The bytes of an open file, which is closed after them."""
    with file:
        while data := file.read(CHUNK_BYTES):
            yield data


def _encoder(kind: str) -> Callable[[Episode, Spec], bytes]:
    if kind not in VIEWERS:
        raise StoreError(
            "there is no such kind of file",
            expected=" or ".join(VIEWERS),
            got=kind[:20],
            fix=did_you_mean(kind[:20], VIEWERS),
        )
    viewer = VIEWERS[kind]
    try:
        return getattr(importlib.import_module(viewer.module), viewer.encode)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "robot_rl"):
            raise
        raise SetupError(
            f"a .{kind} file needs the package '{missing}'",
            expected=f"import {missing} works where this page is served",
            got=str(error),
            fix=f"pip install 'robot-rl[{viewer.extras}]' there, then start the page again",
        ) from error
