"""What keeps questions from a server.

It is down (`Breaker`), questions cost too much (`Budget`), or the answer is known (`Cache`).
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from robot_rl.errors import ConfigError

log = logging.getLogger(__name__)

HOUR_S = 3600.0
MOST_COST = 1e12  # a kept expense beyond it is none
MAX_LINES = 1_000_000  # of the file of expenses; more than anybody asks in an hour


class Breaker:
    """After `failures` in a row nothing is sent for `pause_s`, then one question tries again."""

    def __init__(self, failures: int, pause_s: float, now_s: Callable[[], float]) -> None:
        self._limit, self._pause_s, self._now_s = failures, pause_s, now_s
        self._count, self._until_s = 0, -float("inf")
        self._since_s: float | None = None

    def worked(self) -> None:
        """Note that the server answered, whatever it said."""
        self._count, self._since_s = 0, None

    def failed(self, not_before_s: float = 0.0) -> None:
        """Note that it did not. not_before_s: seconds for which it asks not to be asked."""
        now_s = self._now_s()
        self._count += 1
        self._since_s = now_s if self._since_s is None else self._since_s
        if self._count >= self._limit:
            self._until_s = now_s + self._pause_s
        if not_before_s:
            self._until_s = max(self._until_s, now_s + not_before_s)

    @property
    def wait_s(self) -> float:
        """Seconds until the next question may be sent; 0 = now."""
        return max(self._until_s - self._now_s(), 0.0)

    @property
    def doubts(self) -> bool:
        """Whether it has paused, and nothing has worked since: then one question goes first."""
        return self._count >= self._limit

    @property
    def silent_s(self) -> float | None:
        """Seconds since the server stopped answering; None = it answers."""
        return None if self._since_s is None else self._now_s() - self._since_s


class Budget:
    """Limits the cost of any hour; 0 = no limit. A cost is a guess until it is settled.

    Its methods may be called from any thread: a deployment asks about two days at once, from one
    budget (`budget_of`).

    Args:
        kept: file in which expenses outlast a restart; None = they are forgotten with the process.
        wall_s: clock of the file's stamps, which no other process's monotonic clock could read.
    """

    def __init__(
        self,
        per_hour: float,
        now_s: Callable[[], float],
        kept: Path | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._limit, self._now_s, self._kept, self._wall_s = per_hour, now_s, kept, wall_s
        self._spent: deque[list[float]] = deque()  # [when, how much], of the last hour
        self._turn = threading.Lock()
        self.used = 0.0
        if kept is not None and self._limit:
            self._recall(kept)

    def _recall(self, kept: Path) -> None:
        """Take in the last hour's expenses; what a clock that was set back calls future is now."""
        wall_s, now_s = self._wall_s(), self._now_s()
        with suppress(OSError):
            for line in kept.read_text(errors="replace").splitlines()[-MAX_LINES:]:
                with suppress(ValueError):  # a torn last line
                    when_s, cost = map(float, line.split())
                    age_s = max(0.0, wall_s - when_s)
                    if age_s < HOUR_S and abs(cost) < MOST_COST:  # below 0: what was paid too much
                        self._spent.append([now_s - age_s, cost])
        self.used = sum(cost for _, cost in self._spent)
        with suppress(OSError):
            lines = (f"{wall_s - (now_s - at_s):.3f} {cost:.6g}\n" for at_s, cost in self._spent)
            kept.write_text("".join(lines))

    def _keep(self, cost: float) -> None:
        if self._kept is not None:
            with suppress(OSError), self._kept.open("a") as file:  # a full disk stops no question
                file.write(f"{self._wall_s():.3f} {cost:.6g}\n")

    def take(self, cost: float) -> list[float] | None:
        """Take a cost from the budget; return an entry to settle, None = not now.

        Raises:
            ConfigError: this cost alone is more than the budget of an hour.
        """
        if self._limit and cost > self._limit:
            raise ConfigError(
                "one question may cost more than the budget of an hour",
                expected=f"reward.server.budget_per_hour of at least {math.ceil(cost)}",
                got=f"{self._limit:g}",
                fix=f"reward.server.budget_per_hour={math.ceil(cost)} or more, 0 = no limit; in "
                "tokens a smaller reward.server.image_px costs less",
            )
        with self._turn:
            now_s = self._now_s()
            while self._spent and self._spent[0][0] <= now_s - HOUR_S:
                self.used -= self._spent.popleft()[1]
            if self._limit and self.used + cost > self._limit:
                return None
            entry = [now_s, cost]
            if self._limit:
                self._spent.append(entry)
                self.used += cost
                self._keep(cost)
            return entry

    def settle(self, entry: list[float], cost: float) -> None:
        """Correct an entry to the real cost."""
        if self._limit:
            with self._turn:
                self.used += cost - entry[1]
                self._keep(cost - entry[1])
                entry[1] = cost

    @property
    def wait_s(self) -> float:
        """Seconds until the oldest expense is an hour old."""
        with self._turn:
            oldest_s = self._spent[0][0] if self._spent else -math.inf
        return max(oldest_s + HOUR_S - self._now_s(), 0.0)


_shared: WeakValueDictionary[tuple[Path, float], Budget] = WeakValueDictionary()


def budget_of(per_hour: float, kept: Path | None, now_s: Callable[[], float]) -> Budget:
    """The budget whose expenses are kept in a file: one for all clients of this process."""
    if kept is None:
        return Budget(per_hour, now_s)
    key = (kept.resolve(), per_hour)
    found = _shared.get(key)
    if found is None:
        found = _shared[key] = Budget(per_hour, now_s, kept)
    return found


class Cache:
    """Earlier answers by what was asked, in a SQLite file ("" = in memory).

    The cache never causes a failure: what cannot be read is asked again, what cannot be written is
    forgotten.

    Raises:
        ConfigError: the file is not such a cache.
    """

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.Lock()
        try:
            if path:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path or ":memory:", isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, value REAL NOT NULL,"
                " sure REAL, text TEXT NOT NULL, stamp_ns INTEGER NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"{path} cannot keep answers",
                expected="a file of an earlier run, or none",
                got=str(error),
                fix="give reward.server.cache another name, or delete the file: it is asked again",
            ) from error

    def get(self, key: bytes) -> tuple[float, float | None, str] | None:
        """(value, sure, text) of an earlier answer."""
        try:
            with (
                self._lock,
                closing(
                    self._db.execute("SELECT value, sure, text FROM answers WHERE key=?", (key,))
                ) as found,
            ):
                return found.fetchone()
        except sqlite3.Error as error:
            log.warning("no earlier answers: %s", error)
            return None

    def put(self, key: bytes, value: float, sure: float | None, text: str) -> None:
        """Keep one answer under its key."""
        row = (key, value, sure, text, time.time_ns())
        try:
            with self._lock:
                self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
        except (sqlite3.Error, UnicodeError) as error:
            log.warning("an answer is not kept: %s", error)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
