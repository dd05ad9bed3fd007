"""Who may look, and who may drive: one-time links, sessions, and the page's lease.

A link holds a token that works once and becomes a strict cookie. Any number of people watch; one
drives, the holder of the lease. (It is the seat among the pages of one console, not the gate's
lease.) Somebody else gets it when its holder gives it back or has been silent for 30 s, at another
console of the same run, too, and when the holder's console has ended.
The browser is never a safety device: what this file decides is who is heard, not what is safe.
"""

from __future__ import annotations

import fcntl
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from robot_rl.console.remembered import MAX_SESSIONS, PageSession, Remembered, Role, digest

LONGEST_NAME = 24  # characters of a person's name
ASKED_S = 10.0  # how long the holder of the seat is told that somebody else would like it
LEASE_SILENCE_S = 30.0  # the holder may be asked a question, or fetch a coffee; not more


@dataclass(frozen=True, slots=True)
class Entry:
    """What a link has opened: the session, and once what its browser keeps (see `PageSession`)."""

    session: PageSession
    cookie: str
    secret: str


class Seat:
    """The one seat of a run among all its consoles: the console that locks the file has the seat.

    The lock ends with the process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def take(self) -> bool:
        """Take the seat for this console; True when it has it."""
        if self._file is None:
            file = self._path.open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                return False
            self._file = file
        return True

    def free(self) -> None:
        """Let another console have the seat."""
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True)
class Access:
    """Tokens, sessions and the lease. `clock` is monotonic seconds.

    remembered: where sessions outlive this server; None = they end with it.
    """

    seat: Seat
    remembered: Remembered | None = None
    clock: Callable[[], float] = time.monotonic
    holder: PageSession | None = None
    asking: PageSession | None = None
    _asked_s: float = 0.0
    _heard_s: float = 0.0
    _tokens: dict[str, Role] = field(default_factory=dict)
    _sessions: dict[str, PageSession] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.remembered is not None and not self._sessions:
            self._sessions.update({s.cookie: s for s in self.remembered.load()})

    def invite(self, role: Role = Role.OPERATOR) -> str:
        """A new token; it opens one session, once."""
        token = secrets.token_urlsafe(24)
        self._tokens[token] = role
        return token

    def enter(self, token: str, browser: str = "") -> Entry | None:
        """Open a session with a token, for a browser; None for one that is wrong or was used."""
        known = next((t for t in self._tokens if hmac.compare_digest(t, token)), None)
        if known is None or len(self._sessions) >= MAX_SESSIONS:
            return None
        role = self._tokens.pop(known)
        name = f"{role.value} {len(self._sessions) + 1}"
        cookie, secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        hashes = digest(cookie), digest(secret), digest(browser)
        session = PageSession(*hashes, role, name, until_s=0.0)
        self._sessions[session.cookie] = session
        if self.remembered is not None:
            self.remembered.heard(session, self._sessions.values(), new=True)
        return Entry(session, cookie, secret)

    def beside(self, seat: Seat) -> Access:
        """The same links and sessions, and a lease of its own: of another arm of the run."""
        return replace(self, seat=seat, holder=None, asking=None)

    def session(self, cookie: str | None, browser: str = "") -> PageSession | None:
        """The session that a cookie of this browser belongs to, or None."""
        session = self._sessions.get(digest(cookie)) if cookie else None
        if session is None or session.browser != digest(browser):
            return None
        if self.remembered is not None:
            self.remembered.heard(session, self._sessions.values())
        return session

    def claim(self, session: PageSession) -> str:
        """Take the lease; return why it was not granted, or ""."""
        if session.role is not Role.OPERATOR:
            return "this link may only watch"
        holder, silent_s = self.holder, self.clock() - self._heard_s
        if holder is not None and holder is not session and silent_s < LEASE_SILENCE_S:
            self.asking, self._asked_s = session, self.clock()
            return (
                f"{holder.name} has the seat, and is told that you would like it; "
                "once they are silent for 30 s, you can take it"
            )
        if not self.seat.take():
            return "somebody at another console of this run has the seat"
        self.holder, self._heard_s = session, self.clock()
        self.asking = None
        return ""

    def asked_by(self) -> str:
        """Who would like to have the seat, for a while after they asked; "" for nobody."""
        if self.asking is None or self.clock() - self._asked_s > ASKED_S:
            return ""
        return self.asking.name

    def rename(self, session: PageSession, name: str) -> str:
        """Give the person at a page a name; return why it is refused, or ""."""
        words = " ".join(name.split())
        if not 0 < len(words) <= LONGEST_NAME or not all(c.isalnum() or c in " .'-" for c in words):
            return f"a name has 1 to {LONGEST_NAME} letters, digits, spaces, dots or dashes"
        if words.split()[0].lower() in set(Role):
            return "this is how people without a name are called; say who you are"
        session.name = words
        if self.remembered is not None:
            self.remembered.heard(session, self._sessions.values(), new=True)
        return ""

    def release(self, session: PageSession) -> None:
        """Give the lease back; no effect for anybody else."""
        if self.holder is session:
            self.holder = None
            self.seat.free()

    def hears(self, session: PageSession) -> bool:
        """Whether this session's input counts; it renews the lease."""
        if self.holder is not session:
            return False
        if not self.seat.take():  # after a silence: another console has it now
            self.holder = None
            return False
        self._heard_s = self.clock()
        return True

    def offer(self) -> None:
        """Let another console have the seat of who is silent; call now and then.

        A page that comes back before anybody took the seat has it still.
        """
        if self.holder is not None and self.clock() - self._heard_s >= LEASE_SILENCE_S:
            self.seat.free()
