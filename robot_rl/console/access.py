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
import json
import math
import os
import secrets
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from robot_rl.console.remembered import MAX_SESSIONS, PageSession, Remembered, Role, digest
from robot_rl.system import plain_json

LONGEST_NAME = 24  # characters of a person's name
ASKED_S = 10.0  # how long the holder of the seat is told that somebody else would like it
LEASE_SILENCE_S = 30.0  # the holder may be asked a question, or fetch a coffee; not more
PRESENT_S = 2.0  # a page in the seat is heard 50 times a second; longer ago nobody drives with it
NOTE_S = 1.0  # how old the words in the seat's file may be, and what is known of another console
NOTE_BYTES = 512  # always as many: a note is written over the one before, in one piece
ELSEWHERE = "another console of this run"
PEOPLE = "people"  # in the run's folder: as many bytes as people were let in
MOST_DIGITS = 4  # of a number that is believed: the file becomes as long
LOCK = struct.Struct("hhqqi4x")  # struct flock of a 64-bit Linux: type, whence, start, length, pid
WHOLE = (os.SEEK_SET, 0, 0, 0)  # the whole file


@dataclass(frozen=True, slots=True)
class Entry:
    """What a link has opened: the session, and once what its browser keeps (see `PageSession`)."""

    session: PageSession
    cookie: str
    secret: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Who has the seat at another console of the run.

    name: "" where that is not known; heard_s: monotonic seconds at which they were heard last,
    infinity where somebody in the seat is heard all the time (a terminal).
    """

    name: str = ""
    heard_s: float = math.inf

    @property
    def words(self) -> str:
        """Who and where, for a sentence."""
        return f"{self.name or 'somebody'} at {ELSEWHERE}"


class Seat:
    """The one seat of a run among all its consoles: the console that locks the file has the seat.

    The lock ends with the process, however that ends. A second lock on the same file shows that it
    is taken: this kind can be asked about, while whoever tried the first one to find out would keep
    somebody else from taking it meanwhile. The file says who has the seat.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def take(self) -> bool:
        """Take the seat for this console; True when it has it."""
        if self._file is None:
            self._path.touch(0o600)
            file = self._path.open("r+b", buffering=0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                return False
            with suppress(OSError):  # a system that lacks this kind: it is not shown, that is all
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, LOCK.pack(fcntl.F_WRLCK, *WHOLE))
            self._file = file
            self.say(Elsewhere())  # not who had it before
        return True

    def free(self) -> None:
        """Let another console have the seat."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def say(self, who: Elsewhere) -> None:
        """Tell the other consoles who has the seat here; no effect without the seat."""
        if self._file is None:
            return
        heard_s = who.heard_s if math.isfinite(who.heard_s) else None
        note = json.dumps({"name": who.name, "heard_s": heard_s}, ensure_ascii=False).encode()
        with suppress(OSError):  # a full disk: then they do not know who
            os.pwrite(self._file.fileno(), note.ljust(NOTE_BYTES), 0)

    def elsewhere(self) -> Elsewhere | None:
        """Who has the seat at another console; None for nobody. It disturbs no lock."""
        if self._file is not None:
            return None
        try:
            with self._path.open("rb") as file:
                asked = fcntl.fcntl(file, fcntl.F_OFD_GETLK, LOCK.pack(fcntl.F_WRLCK, *WHOLE))
                note = file.read(NOTE_BYTES)
        except OSError:
            return None
        return None if LOCK.unpack(asked)[0] == fcntl.F_UNLCK else _noted(note)


def _noted(note: bytes) -> Elsewhere:
    """What `Seat.say` has written; nothing is known where it cannot be read."""
    try:
        said = plain_json.loads(note)
        heard_s = said["heard_s"]
        return Elsewhere(str(said["name"]), math.inf if heard_s is None else float(heard_s))
    except (ValueError, TypeError, KeyError):
        return Elsewhere()


class Numbers:
    """Numbers for people without a name: each is given once, however many consoles serve a run.

    The number is the length of a file to which every console appends. Without a file, or where it
    cannot be written, they are counted here alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._newest = path, 0

    def next(self, above: int) -> int:
        """A number that was not given before, above `above`."""
        self._newest = self._appended(max(self._newest, above) + 1)
        return self._newest

    def _appended(self, least: int) -> int:
        """How long the file is with what is appended: at least `least`."""
        if self._path is None:
            return least
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, b"." * max(1, least - os.fstat(file).st_size))
                end = os.lseek(file, 0, os.SEEK_CUR)  # behind what this call has appended
                return max(least, end)
            finally:
                os.close(file)
        except OSError:
            return least


@dataclass(slots=True)
class Access:
    """Tokens, sessions and the lease. `clock` is monotonic seconds.

    remembered: where sessions outlive this server; None = they end with it.
    """

    seat: Seat
    remembered: Remembered | None = None
    numbers: Numbers = field(default_factory=Numbers)
    clock: Callable[[], float] = time.monotonic
    holder: PageSession | None = None
    asking: PageSession | None = None
    _asked_s: float = 0.0
    _heard_s: float = 0.0
    _elsewhere: Elsewhere | None = None
    _looked_s: float = -math.inf  # when it was looked who has the seat elsewhere
    _window: object = None  # whose input counts, where the holder has the page open more than once
    _holding: bool = False  # something is held there
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
        known = self._known(token)
        if known is None:
            return None
        role = self._tokens.pop(known)
        if len(self._sessions) >= MAX_SESSIONS:
            self._forget_one()
        known = [_number(s.name) for s in self._sessions.values()]
        name = f"{role.value} {self.numbers.next(max(known, default=0))}"
        cookie, secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        hashes = digest(cookie), digest(secret), digest(browser)
        session = PageSession(*hashes, role, name, until_s=0.0)
        self._sessions[session.cookie] = session
        if self.remembered is not None:
            self.remembered.heard(session, self._sessions.values(), new=True)
        return Entry(session, cookie, secret)

    def reenter(self, token: str, session: PageSession | None) -> str:
        """Use a token up for a browser that has been let in already, with the same rights.

        A second session would leave the pages that it has open with the sockets of the first.

        Returns:
            One more secret for its pages, which may have lost theirs; "" for anybody else.
        """
        known = self._known(token)
        if known is None or session is None or session.role is not self._tokens[known]:
            return ""
        del self._tokens[known]
        secret = secrets.token_urlsafe(32)
        session.add_secret(secret)
        if self.remembered is not None:
            self.remembered.heard(session, self._sessions.values(), new=True)
        return secret

    def _known(self, token: str) -> str | None:
        """The token among those that were not used; None for any other."""
        return next((t for t in self._tokens if hmac.compare_digest(t, token)), None)

    def _forget_one(self) -> None:
        """Forget the session that was silent for longest, but not the one in the seat."""
        idle = [s for s in self._sessions.values() if s is not self.holder]
        del self._sessions[min(idle, key=lambda s: s.until_s).cookie]

    def beside(self, seat: Seat) -> Access:
        """The same links and sessions, and a lease of its own: of another arm of the run."""
        return replace(self, seat=seat, holder=None, asking=None)

    def session(self, cookie: str | None, browser: str = "") -> PageSession | None:
        """The session that a cookie of this browser belongs to, or None."""
        session = self._sessions.get(digest(cookie)) if cookie else None
        if session is None or session.browser != digest(browser):
            return None
        if self.remembered is None:
            return session
        if self.remembered.is_over(session):
            del self._sessions[session.cookie]
            return None
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
            return f"{(self.seat.elsewhere() or Elsewhere()).words} has the seat"
        self.holder, self._heard_s = session, self.clock()
        self.asking, self._window = None, None
        self._tell()
        return ""

    def _tell(self) -> None:
        """Tell the other consoles who has the seat here."""
        if self.holder is not None:
            self.seat.say(Elsewhere(self.holder.name, self._heard_s))

    def elsewhere(self) -> Elsewhere | None:
        """Who has the seat at another console, as of at most `NOTE_S` ago; None for nobody."""
        now_s = self.clock()
        if now_s - self._looked_s >= NOTE_S:
            self._elsewhere, self._looked_s = self.seat.elsewhere(), now_s
        return self._elsewhere

    def other_present(self, session: PageSession) -> str:
        """Who else has the seat, here or elsewhere, and was heard of lately; "" for nobody."""
        holder = self.present(PRESENT_S)
        if holder is not None:
            return "" if holder is session else holder.name
        other = self.seat.elsewhere()
        heard = other is not None and self.clock() - other.heard_s < PRESENT_S + NOTE_S
        return other.words if other is not None and heard else ""

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
        if self.holder is session:
            self._tell()
        if self.remembered is not None:
            self.remembered.heard(session, self._sessions.values(), new=True)
        return ""

    def release(self, session: PageSession) -> None:
        """Give the lease back; no effect for anybody else."""
        if self.holder is session:
            self.holder = None
            self.seat.free()

    def present(self, within_s: float = LEASE_SILENCE_S) -> PageSession | None:
        """Who has the seat and was heard of lately; None for nobody."""
        return self.holder if self.clock() - self._heard_s < within_s else None

    def hears(self, session: PageSession) -> bool:
        """Whether this session's input counts; it renews the lease."""
        if self.holder is not session:
            return False
        if not self.seat.take():  # after a silence: another console has it now
            self.holder = None
            return False
        self._heard_s = self.clock()
        return True

    def hears_window(self, session: PageSession, window: object, holding: bool) -> bool:
        """The same of one of several windows or tabs of a session: only one drives.

        It is the one in which something is held; another takes its place while nothing is held
        there, or when it has fallen silent. An idle one would else let go what a person holds.
        """
        other = self._window not in (None, window) and self.present(PRESENT_S) is session
        if (other and (self._holding or not holding)) or not self.hears(session):
            return False
        self._window, self._holding = window, holding
        return True

    def left(self, window: object) -> None:
        """A window has been closed."""
        if self._window is window:
            self._window = None

    def offer(self) -> None:
        """Let another console have the seat of who is silent; call every `NOTE_S`.

        A page that comes back before anybody took the seat has it still. The others are told who
        has the seat, and when they were heard.
        """
        self._tell()
        if self.holder is not None and self.clock() - self._heard_s >= LEASE_SILENCE_S:
            self.seat.free()


def _number(name: str) -> int:
    """Of a person without a name; 0 for anybody else."""
    role, _, number = name.partition(" ")
    known = role in set(Role) and number.isdecimal() and len(number) <= MOST_DIGITS
    return int(number) if known else 0
