"""Sessions that outlive the server: an open page goes on when a run is resumed, without a new link.

One file for each run and port in `~/.config/robot-rl/pages`, which only this user may read: outside
the run's folder, since that is copied and sent around. It holds SHA-256 of what a browser has,
never what would let anybody in, and a day after a page was last heard its session is over.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from robot_rl.system import plain_json
from robot_rl.system.files import replace_json, user_folder

log = logging.getLogger(__name__)

LASTS_S = 24 * 3600.0  # a shift and a night after a page was last heard
KEPT_S = 600.0  # how old the time in the file may be
MAX_SESSIONS = 64
MAX_SECRETS = 8  # of a session
MAX_BYTES = 1 << 16
HEX = 64  # characters of a SHA-256


class Role(StrEnum):
    """What a link lets its owner do."""

    OPERATOR = "operator"  # may take the lease, label, reset
    OBSERVER = "observer"  # looks, and may stop the robot


@dataclass(slots=True, eq=False)
class PageSession:
    """One browser. name: what others see, given or chosen (`Access.rename`).

    Hashes (`digest`) of the cookie; of the secrets, which its pages know besides the cookie that a
    browser sends to every port of a host (one for each link, newest last, between spaces); and of
    the browser's own name (User-Agent). until_s: when
    it is over if nothing more is heard of it, in seconds since 1970.
    """

    cookie: str
    secret: str
    browser: str
    role: Role
    name: str
    until_s: float

    def add_secret(self, secret: str) -> None:
        """Take one more; the oldest is forgotten."""
        known = [*self.secret.split(), digest(secret)]
        self.secret = " ".join(known[-MAX_SECRETS:])

    def knows(self, secret: str) -> bool:
        """Whether a page of this session says this."""
        told = digest(secret)
        return any(hmac.compare_digest(told, known) for known in self.secret.split())

    @property
    def author(self) -> str:
        """As the author of labels: no model and no rule of a task has such a name."""
        role = str(self.role)
        return self.name if self.name.startswith(f"{role} ") else f"{role} {self.name}"


def digest(text: str) -> str:
    """SHA-256 of something that nobody can guess, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def folder() -> Path:
    """Where the files are. Raises `OSError`."""
    found = user_folder() / "pages"
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found


def _run(run_dir: Path) -> str:
    return digest(str(run_dir.resolve()))[:16]


def last_port(run_dir: Path) -> int | None:
    """The port where pages of a run that may still be open were served; of several the lowest."""
    try:
        files = folder().glob(f"{_run(run_dir)}-*.json")
        return min((int(file.stem.rpartition("-")[2]) for file in files), default=None)
    except (OSError, ValueError):
        return None


def forget(run_dir: Path) -> None:
    """Let nobody in whom an earlier server of this run has let in, at whatever port."""
    for file in folder().glob(f"{_run(run_dir)}-*.json"):
        file.unlink(missing_ok=True)


class Remembered:
    """The file of the sessions of a run at a port. `now`: seconds since 1970.

    No error of it ever reaches a page: without the file a new link is needed after a restart.
    """

    def __init__(self, run_dir: Path, port: int, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept_s = 0.0
        self._path: Path | None = None
        try:
            self._path = folder() / f"{_run(run_dir)}-{port}.json"
            self._forget_the_old()
        except OSError as error:
            log.warning("links are needed again after a restart: %s", error)

    def load(self) -> list[PageSession]:
        """The sessions that are not over; none when the file is not there, or is not ours."""
        try:
            if self._path is None or self._path.stat().st_size > MAX_BYTES:
                return []
            told = plain_json.loads(self._path.read_bytes())
            found = [_session(row) for row in told["sessions"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("the sessions of the pages cannot be read: %s", error)
            return []
        now_s = self._now()
        return [s for s in found if now_s < s.until_s <= now_s + LASTS_S][:MAX_SESSIONS]

    def is_over(self, session: PageSession) -> bool:
        """Nothing was heard of it for so long that it needs a new link."""
        return self._now() > session.until_s

    def heard(
        self, session: PageSession, all_: Iterable[PageSession], *, new: bool = False
    ) -> None:
        """A page of this session has spoken; now and then the file learns of it."""
        session.until_s = self._now() + LASTS_S
        if new or self._now() - self._kept_s >= KEPT_S:
            self.keep(all_)

    def keep(self, sessions: Iterable[PageSession]) -> None:
        """Write the file."""
        self._kept_s = self._now()
        if self._path is None:
            return
        rows: Sequence[dict[str, Any]] = [asdict(session) for session in sessions]
        try:
            replace_json(self._path, {"sessions": rows}, mode=0o600)
        except OSError as error:
            log.warning("links are needed again after a restart: %s", error)

    def _forget_the_old(self) -> None:
        assert self._path is not None
        for file in self._path.parent.glob("*.json"):
            if self._now() - file.stat().st_mtime > LASTS_S:
                file.unlink(missing_ok=True)


def _session(row: Any) -> PageSession:
    """Raises `ValueError`, `TypeError` or `KeyError` for what is no session."""
    session = PageSession(
        **{name: str(row[name]) for name in ("cookie", "secret", "browser", "name")},
        role=Role(row["role"]),
        until_s=float(row["until_s"]),
    )
    hashes = (session.cookie, session.browser, *session.secret.split()[:MAX_SECRETS])
    if any(len(h) != HEX or not h.isalnum() for h in hashes) or len(session.name) > HEX:
        raise ValueError("no session")
    return session
